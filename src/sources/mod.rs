//! What others know: Alertmanager's own view of what fires, which heals what webhooks lose.

mod alertmanager;
pub mod poll;
mod tls;
mod union;

use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::{net::lookup_host, time::Instant};

pub use alertmanager::{Answer, AskError, Client, SetupError};
pub(crate) use union::PeerStates;
use union::{Asked, unite};

use crate::{
    alert::Pull,
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

#[cfg(test)]
mod tests;
