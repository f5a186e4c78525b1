//! One Alertmanager asked over its API: what fires for our receiver, and how far its answer can be trusted.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::http_client::{About, AskError, HttpClient, SetupError, query_value};
use crate::{
    alert::{AnswerError, Listing, PeerStatus, Silence, parse_groups, parse_receivers, parse_silences, parse_status},
    policy::{Alertmanagers, PeerUrl, Peers},
};

static ABOUT: About = About {
    section: "sources.alertmanagers",
    // Some 90,000 alerts.
    max_body: 64 << 20,
    too_large: "give this service a receiver of its own with fewer alerts",
    busy: "it is starting or answers too many at once (--web.get-concurrency); it is asked again at the next pull",
    explains_errors: false,
};

/// What one peer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The alerts.
    pub listing: Listing,
    /// The silences, if any alert is silenced and they could be had; else empty.
    pub silences: Vec<Silence>,
    /// How it is. Asked for last, so that a restart between the two questions is seen.
    pub status: PeerStatus,
    /// How long it has run by its own clock; `None` if it does not say.
    pub age: Option<SignedDuration>,
    /// Whether its configuration has our receiver at all.
    pub has_receiver: bool,
}

/// A client for one pull: what its files held when it was made.
#[derive(Debug)]
pub struct Client(HttpClient);

impl Client {
    /// Read the files and make a client. It reads files, so it blocks for a moment.
    ///
    /// # Errors
    ///
    /// If a file cannot be used.
    pub fn new(settings: &Alertmanagers) -> Result<Self, SetupError> {
        // A certificate names the host, not the addresses behind it.
        let host = match &settings.peers {
            Peers::Dns(dns) => Some(dns.host.as_str()),
            Peers::Urls(_) => None,
        };
        HttpClient::new(&settings.http, settings.peers.use_tls(), host, settings.timeout, &ABOUT).map(Self)
    }

    /// Ask one peer what fires for a receiver.
    ///
    /// # Errors
    ///
    /// If it does not answer each question as Alertmanager does.
    pub async fn ask(&self, peer: &PeerUrl, receiver: &str) -> Result<Answer, AskError> {
        // Without further parameters: silenced, inhibited and muted alerts are listed as well.
        let path = format!("/api/v2/alerts/groups?receiver={}", query_value(&format!("^{}$", regex::escape(receiver))));
        let (listing, _) = self.get(peer, &path, |body| parse_groups(body, receiver)).await?;
        // A receiver that is misspelt has no alerts either, and would prove every fault gone.
        let has_receiver = listing.has_group
            || self.get(peer, "/api/v2/receivers", parse_receivers).await?.0.iter().any(|name| name == receiver);
        let any_silenced = listing.alerts.iter().any(|a| a.suppression.as_ref().is_some_and(|s| !s.silenced_by.is_empty()));
        let silences = if any_silenced { self.silences(peer).await } else { Vec::new() };
        let (status, date) = self.get(peer, "/api/v2/status", parse_status).await?;
        let age = date.zip(status.started).map(|(now, started)| now.duration_since(started));
        Ok(Answer { listing, silences, status, age, has_receiver })
    }

    /// They only say who silenced and why; that an alert is silenced is known without them.
    async fn silences(&self, peer: &PeerUrl) -> Vec<Silence> {
        match self.get(peer, "/api/v2/silences", parse_silences).await {
            Ok((silences, _)) => silences,
            Err(error) => {
                tracing::warn!(%error, "Who silenced an alert is not known.");
                Vec::new()
            }
        }
    }

    /// The parsed body, and when it was sent by the clock of the peer.
    async fn get<T>(
        &self,
        peer: &PeerUrl,
        path: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, AnswerError>,
    ) -> Result<(T, Option<Timestamp>), AskError> {
        let url = format!("{peer}{path}");
        let reply = self.0.get(&url).await?;
        if reply.status != StatusCode::OK {
            return Err(self.0.refused(&url, reply.status));
        }
        let parsed = parse(&reply.body).map_err(|e| AskError::Answer { url, reason: e.to_string() })?;
        Ok((parsed, reply.date))
    }
}
