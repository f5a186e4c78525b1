//! What others know: Alertmanager's own view of what fires, which heals what webhooks lose, and what Prometheus shows of a fault's
//! end.

mod alertmanager;
mod http_client;
pub mod poll;
mod prometheus;
mod tls;
mod union;

use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::{net::lookup_host, time::Instant};

pub use alertmanager::{Answer, Client};
pub(crate) use http_client::with_causes;
pub use http_client::{AskError, SetupError};
pub use prometheus::{ActiveAlert, Evidence, EvidenceClient, FailingRule, Rules};
pub(crate) use union::PeerStates;
use union::{Asked, merge_listings, unite};

use crate::{
    alert::{AnswerError, Pull, parse_groups, receivers_of},
    metrics::{Metrics, PullResult},
    policy::{Alertmanagers, PeerUrl, Peers},
};

/// All Alertmanagers of a configuration.
#[derive(Debug)]
pub struct Sources {
    settings: Arc<Alertmanagers>,
    metrics: Arc<Metrics>,
}

impl Sources {
    /// Those of the configuration. Nothing is asked yet.
    #[must_use]
    pub fn new(settings: Alertmanagers, metrics: Arc<Metrics>) -> Self {
        Self { settings: Arc::new(settings), metrics }
    }

    /// How they are asked.
    #[must_use]
    pub fn settings(&self) -> &Alertmanagers {
        &self.settings
    }

    /// Ask every peer at once. Whatever fails makes the pull incomplete, and is said there.
    pub async fn pull(&self, now: Timestamp) -> Pull {
        let begun = Instant::now();
        let (pull, states) = match self.ask_all().await {
            Ok(asked) => unite(now, self.settings.settle, &self.settings.receiver, &asked),
            Err(why) => {
                let pull = Pull { begun: now, alerts: Vec::new(), incomplete: Some(why), changes_at: None };
                (pull, PeerStates::default())
            }
        };
        let result = match pull.incomplete {
            None => PullResult::Complete,
            Some(_) if states.answered + states.settling > 0 => PullResult::Incomplete,
            Some(_) => PullResult::Failed,
        };
        self.metrics.pulled(result, now, begun.elapsed(), states);
        if let Some(reason) = &pull.incomplete {
            tracing::warn!(%reason, "A pull proves nothing about alerts that it does not list.");
        }
        pull
    }

    async fn ask_all(&self) -> Result<Vec<Asked>, String> {
        let peers = self.peers().await?;
        let settings = Arc::clone(&self.settings);
        let client = tokio::task::spawn_blocking(move || Client::new(&settings))
            .await
            .map_err(|e| format!("the files of sources.alertmanagers.http were not read: {e}"))?
            .map_err(|e| format!("no Alertmanager was asked: {e}"))?;
        Ok(join_all(peers.into_iter().map(|peer| self.ask(&client, peer))).await)
    }

    async fn ask(&self, client: &Client, peer: PeerUrl) -> Asked {
        let answer = client.ask(&peer, &self.settings.receiver).await.map_err(|e| e.to_string());
        Asked { peer: peer.to_string(), answer }
    }

    async fn peers(&self) -> Result<Vec<PeerUrl>, String> {
        let dns = match &self.settings.peers {
            Peers::Urls(urls) => return Ok(urls.clone()),
            Peers::Dns(dns) => dns,
        };
        let name = format!("{}:{}", dns.host, dns.port);
        let found = tokio::time::timeout(self.settings.timeout, lookup_host((dns.host.as_str(), dns.port))).await;
        let why = match found {
            Ok(Ok(addresses)) => {
                let mut addresses: Vec<_> = addresses.collect();
                addresses.sort();
                addresses.dedup();
                if !addresses.is_empty() {
                    return Ok(addresses.into_iter().map(|address| PeerUrl::of(dns, address)).collect());
                }
                "it has none".to_owned()
            }
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer within {}", humantime::format_duration(self.settings.timeout)),
        };
        Err(format!("no address of Alertmanager was found behind {name}: {why}; check sources.alertmanagers.dns.name"))
    }
}

/// What a complete pull would have found from a saved answer of `GET /api/v2/alerts/groups`; of every receiver, if none is named.
/// Who silenced an alert does not stand in it.
///
/// # Errors
///
/// If it is not such an answer, or lists an alert that cannot be read.
pub fn pull_of(body: &[u8], receiver: Option<&str>) -> Result<Pull, AnswerError> {
    let listings = match receiver {
        Some(receiver) => vec![parse_groups(body, receiver)?],
        None => receivers_of(body)?.iter().map(|name| parse_groups(body, name)).collect::<Result<_, _>>()?,
    };
    let (alerts, changes_at) = merge_listings(&listings);
    let invalid = listings.iter().flat_map(|l| &l.invalid).next();
    let incomplete = invalid.map(|i| format!("an alert cannot be read: {}", i.reason));
    Ok(Pull { begun: Timestamp::UNIX_EPOCH, alerts, incomplete, changes_at })
}

#[cfg(test)]
mod tests;
