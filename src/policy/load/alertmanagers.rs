//! `sources.alertmanagers`: where every peer is, and how often it is asked.

use std::{ops::RangeInclusive, time::Duration};

use http::uri::Scheme;
use serde_saphyr::Spanned;

use super::{Check, report::Place};
use crate::policy::{
    Alertmanagers, DnsPeers, PeerUrl, Peers,
    raw::{RawAlertmanagers, RawDns},
};

const DEFAULT_POLL_INTERVAL: &str = "1m";
pub(super) const DEFAULT_TIMEOUT: &str = "10s";
/// Longer than Prometheus takes to report every alert again to an Alertmanager that started empty (about 75 s).
const DEFAULT_SETTLE: &str = "5m";
const POLL_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
pub(super) const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(5 * 60);
const SETTLES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 60 * 60);

impl Check<'_> {
    pub(super) fn alertmanagers(&mut self, raw: Spanned<RawAlertmanagers>) -> Option<Alertmanagers> {
        let place = Place::of(&raw);
        let raw = raw.value;
        let peers = self.peers(&raw, place);
        let receiver = match &raw.receiver {
            Some(receiver) => self.text(receiver, receiver_name),
            None => self.refuse(
                place,
                "alertmanagers has no receiver; add `receiver: ...` with the name that this service has in Alertmanager's own \
                 configuration",
            ),
        };
        let poll_interval =
            self.text_or(raw.poll_interval, DEFAULT_POLL_INTERVAL, |t| duration("poll_interval", t, &POLL_INTERVALS));
        let timeout = self.text_or(raw.timeout, DEFAULT_TIMEOUT, |t| duration("timeout", t, &TIMEOUTS));
        let settle = self.text_or(raw.settle, DEFAULT_SETTLE, |t| duration("settle", t, &SETTLES));
        let http = self.http_options(raw.http.unwrap_or_default());
        Some(Alertmanagers {
            peers: peers?,
            receiver: receiver?,
            poll_interval: poll_interval?,
            timeout: timeout?,
            settle: settle?,
            http: http?,
        })
    }

    fn peers(&mut self, raw: &RawAlertmanagers, place: Place) -> Option<Peers> {
        match (&raw.urls, &raw.dns) {
            (Some(urls), Some(_)) => {
                self.refuse(Place::of(urls), "urls and dns exclude each other; keep the one that names every peer")
            }
            (Some(urls), None) if urls.value.is_empty() => self.refuse(
                Place::of(urls),
                "urls is empty; list the URL of every peer, or remove `alertmanagers` to run on webhooks alone",
            ),
            (Some(urls), None) => self.urls(&urls.value).map(Peers::Urls),
            (None, Some(dns)) => self.dns(dns).map(Peers::Dns),
            (None, None) => {
                self.refuse(place, "alertmanagers says of no peer where it is; add `urls: [...]` or `dns: {name: ...}`")
            }
        }
    }

    fn urls(&mut self, raw: &[Spanned<String>]) -> Option<Vec<PeerUrl>> {
        let urls: Vec<PeerUrl> = self.texts(raw, PeerUrl::parse)?;
        for (i, url) in urls.iter().enumerate() {
            if urls.iter().take(i).any(|earlier| earlier == url) {
                let place = raw.get(i).map_or(Place::START, Place::of);
                return self.refuse(place, format!("the URL {url} is listed twice; list each peer once"));
            }
        }
        Some(urls)
    }

    fn dns(&mut self, raw: &Spanned<RawDns>) -> Option<DnsPeers> {
        let place = Place::of(raw);
        let raw = &raw.value;
        let address = match &raw.name {
            Some(name) => self.text(name, host_and_port),
            None => self.refuse(place, "dns has no name; add `name: \"host:port\"`, such as \"alertmanager-operated:9093\""),
        };
        let scheme = match &raw.scheme {
            Some(scheme) => self.text(scheme, web_scheme),
            None => Some(Scheme::HTTP),
        };
        let path = match &raw.path {
            Some(path) => self.text(path, path_prefix),
            None => Some(String::new()),
        };
        let (host, port) = address?;
        Some(DnsPeers { host, port, scheme: scheme?, path: path? })
    }
}

fn receiver_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err(format!(
            "receiver {text:?} is not a name; write it as Alertmanager's configuration has it under `receivers`"
        ));
    }
    Ok(text.to_owned())
}

pub(super) fn duration(what: &str, text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let value = humantime::parse_duration(text)
        .map_err(|e| format!("{what} {text:?} is not a duration ({e}); write a number with a unit, such as 30s or 5m"))?;
    if !range.contains(&value) {
        let [least, most] = [range.start(), range.end()].map(|d| humantime::format_duration(*d));
        return Err(format!("{what} {text:?} is out of range; write {least} to {most}"));
    }
    Ok(value)
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|p| *p > 0)?)));
    match parsed {
        Some((host, port)) if !host.is_empty() && !host.contains(['/', ':', '@']) && !host.contains(char::is_whitespace) => {
            Ok((host.to_owned(), port))
        }
        _ => Err(format!("the name {text:?} is not a host name and a port; write it as \"alertmanager-operated:9093\"")),
    }
}

fn web_scheme(text: &str) -> Result<Scheme, String> {
    match text {
        "http" => Ok(Scheme::HTTP),
        "https" => Ok(Scheme::HTTPS),
        _ => Err(format!("the scheme {text:?} is not known; use http or https")),
    }
}

fn path_prefix(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let sound = path.is_empty() || (path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok());
    if !sound || path.contains(['?', '#']) {
        return Err(format!(
            "the path {text:?} is not the beginning of a path; write it as Alertmanager's --web.route-prefix, /am"
        ));
    }
    Ok(path.to_owned())
}
