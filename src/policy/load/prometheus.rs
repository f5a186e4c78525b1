//! `sources.prometheus`: where evidence comes from.

use std::{ops::RangeInclusive, time::Duration};

use serde_saphyr::Spanned;

use super::{
    Check, Flaw,
    alertmanagers::{DEFAULT_TIMEOUT, TIMEOUTS, duration},
    report::Place,
};
use crate::{
    alert::Matcher,
    policy::{PeerUrl, Prometheus, raw::RawPrometheus},
};

const DEFAULT_POLL_INTERVAL: &str = "30s";
const POLL_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(10 * 60);

impl Check<'_> {
    pub(super) fn prometheus(&mut self, raw: Spanned<RawPrometheus>) -> Option<Prometheus> {
        let place = Place::of(&raw);
        let raw = raw.value;
        let query_url = match &raw.query_url {
            Some(url) => self.text(url, PeerUrl::parse),
            None => self.refuse(
                place,
                "prometheus says not where it is; add `query_url: ...`, such as http://prometheus.monitoring:9090",
            ),
        };
        let rules_url = match &raw.rules_url {
            Some(url) => self.text(url, PeerUrl::parse),
            None => query_url.clone(),
        };
        let selector = self.texts(&raw.selector.unwrap_or_default(), selector);
        let poll_interval =
            self.text_or(raw.poll_interval, DEFAULT_POLL_INTERVAL, |t| duration("poll_interval", t, &POLL_INTERVALS));
        let timeout = self.text_or(raw.timeout, DEFAULT_TIMEOUT, |t| duration("timeout", t, &TIMEOUTS));
        let http = self.http_options(raw.http.unwrap_or_default());
        Some(Prometheus {
            query_url: query_url?,
            rules_url: rules_url?,
            selector: selector?,
            poll_interval: poll_interval?,
            timeout: timeout?,
            http: http?,
        })
    }
}

fn selector(text: &str) -> Result<Matcher, Flaw> {
    let matcher = Matcher::parse(text)?;
    if matcher.name() == "__name__" {
        let message =
            "a selector cannot name metrics, since it is added to every query; write a label, such as 'cluster=\"prod-a\"'";
        return Err(Flaw::from(message.to_owned()));
    }
    Ok(matcher)
}
