//! How Prometheus is asked for evidence: `sources.prometheus`.

use std::time::Duration;

use super::{HttpOptions, PeerUrl};
use crate::alert::Matcher;

/// Where evidence comes from, and how it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Prometheus {
    /// The base URL of the query API (`<url>/api/v1/query_range`).
    pub query_url: PeerUrl,
    /// The base URL of the rules API (`<url>/api/v1/rules`), which Thanos, Mimir and vmalert have elsewhere; usually that of queries.
    pub rules_url: PeerUrl,
    /// Label matchers added to every query that we build, such as `cluster="prod-a"`.
    pub selector: Vec<Matcher>,
    /// How often it is asked.
    pub poll_interval: Duration,
    /// How long one request may take.
    pub timeout: Duration,
    /// Authentication, TLS and headers.
    pub http: HttpOptions,
}

impl Prometheus {
    /// For how long an answer counts after it was given: one that fails to come may be the accident of a moment.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.poll_interval * 2
    }
}
