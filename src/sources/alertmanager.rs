//! One Alertmanager asked over its API: what fires for our receiver, and how far its answer can be trusted.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, DATE, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use rustls::pki_types::ServerName;

use super::tls;
use crate::{
    alert::{AnswerError, Listing, PeerStatus, Silence, parse_groups, parse_receivers, parse_silences, parse_status},
    policy::{Alertmanagers, Authorization, HttpOptions, PeerUrl, Peers, SecretFrom},
};

/// The largest answer that is read: some 90,000 alerts.
const MAX_BODY: usize = 64 << 20;
/// What is shown of the place that a redirect leads to.
const SHOWN: usize = 100;

/// A client that could not be made, so that nobody was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A file that the configuration names.
    #[error("cannot use the {option} {}: {reason}; check that it is mounted and readable", file.display())]
    File {
        /// The name of the option.
        option: &'static str,
        /// The file.
        file: PathBuf,
        /// What is wrong with it, without anything that stands in it.
        reason: String,
    },
    /// No authority is trusted.
    #[error("no certificate authorities are installed here ({0}); name them in tls_config.ca_file")]
    NoAuthorities(io::Error),
    /// Certificates or key are not usable.
    #[error("the certificates of tls_config cannot be used: {0}; check ca_file, and that key_file belongs to cert_file")]
    Tls(rustls::Error),
    /// A value from a file is no value of a header.
    #[error("what {0} holds cannot be sent in a header; it is one line of visible ASCII")]
    Header(String),
    /// The name that TLS is to check.
    #[error("server_name {0:?} is neither a host name nor an address")]
    ServerName(String),
}

/// A question that got no usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The URL cannot be asked at all.
    #[error("cannot ask {url}: {source}")]
    Url {
        /// What was asked.
        url: String,
        /// Why not.
        source: http::Error,
    },
    /// No answer in time.
    #[error(
        "no answer from {url} within {}; check that it runs and can be reached, or raise sources.alertmanagers.timeout",
        humantime::format_duration(*after)
    )]
    Timeout {
        /// What was asked.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// The connection failed.
    #[error("cannot reach {url}: {reason}; check the URL, the network and, for https, tls_config")]
    Unreachable {
        /// What was asked.
        url: String,
        /// The error and its causes.
        reason: String,
    },
    /// The answer is too large.
    #[error("the answer of {url} is larger than {} MiB; give this service a receiver of its own with fewer alerts", MAX_BODY >> 20)]
    TooLarge {
        /// What was asked.
        url: String,
    },
    /// Redirects are not followed: they could lead credentials elsewhere.
    #[error("{url} redirects to {to:?}, which is not followed; write the URL that answers itself")]
    Redirect {
        /// What was asked.
        url: String,
        /// Where it leads, without a query.
        to: String,
    },
    /// Another code than 200.
    #[error("{url} answered {code}; {}", advice(*code))]
    Code {
        /// What was asked.
        url: String,
        /// The code.
        code: StatusCode,
    },
    /// Not what Alertmanager answers.
    #[error("{url}: {source}")]
    Answer {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        source: AnswerError,
    },
}

fn advice(code: StatusCode) -> &'static str {
    match code {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "check basic_auth or authorization below sources.alertmanagers.http",
        StatusCode::NOT_FOUND => "check the URL and its path prefix, which is Alertmanager's --web.route-prefix",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            "it is starting or answers too many at once (--web.get-concurrency); it is asked again at the next pull"
        }
        _ => "its own log says why",
    }
}

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
pub struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Empty<&'static [u8]>>,
    headers: HeaderMap,
    timeout: Duration,
}

impl Client {
    /// Read the files and make a client. It reads files, so it blocks for a moment.
    ///
    /// # Errors
    ///
    /// If a file cannot be used.
    pub fn new(settings: &Alertmanagers) -> Result<Self, SetupError> {
        let tls = tls::client_config(&settings.http.tls, settings.peers.use_tls())?;
        // A certificate names the host, not the addresses behind it.
        let name = match (&settings.http.tls.server_name, &settings.peers) {
            (Some(name), _) => Some(name),
            (None, Peers::Dns(dns)) => Some(&dns.host),
            (None, Peers::Urls(_)) => None,
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match name {
            Some(name) => {
                let name = ServerName::try_from(name.clone()).map_err(|_| SetupError::ServerName(name.clone()))?;
                connector.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
            None => connector,
        };
        Ok(Self {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector.enable_http1().build()),
            headers: headers(&settings.http)?,
            timeout: settings.timeout,
        })
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
        match tokio::time::timeout(self.timeout, self.exchange(&url, parse)).await {
            Ok(done) => done,
            Err(_) => Err(AskError::Timeout { url, after: self.timeout }),
        }
    }

    async fn exchange<T>(
        &self,
        url: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, AnswerError>,
    ) -> Result<(T, Option<Timestamp>), AskError> {
        let mut request = Request::get(url).body(Empty::new()).map_err(|source| AskError::Url { url: url.to_owned(), source })?;
        request.headers_mut().clone_from(&self.headers);
        let unreachable =
            |error: &(dyn Error + 'static)| AskError::Unreachable { url: url.to_owned(), reason: with_causes(error) };
        let answer = self.http.request(request).await.map_err(|e| unreachable(&e))?;
        let (head, body) = answer.into_parts();
        if head.status.is_redirection() {
            let to = head.headers.get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes())).unwrap_or_default();
            let to = to.split(['?', '#']).next().unwrap_or_default().chars().take(SHOWN).collect();
            return Err(AskError::Redirect { url: url.to_owned(), to });
        }
        if head.status != StatusCode::OK {
            return Err(AskError::Code { url: url.to_owned(), code: head.status });
        }
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => return Err(AskError::TooLarge { url: url.to_owned() }),
            Err(e) => return Err(unreachable(&*e)),
        };
        let date = head.headers.get(DATE).and_then(|date| DateTimeParser::new().parse_timestamp(date.as_bytes()).ok());
        let parsed = parse(&body).map_err(|source| AskError::Answer { url: url.to_owned(), source })?;
        Ok((parsed, date))
    }
}

/// An error and its causes. The outer ones say little by themselves.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Escaped as the value of a parameter.
fn query_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn headers(options: &HttpOptions) -> Result<HeaderMap, SetupError> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("gpu-quarantine/", env!("CARGO_PKG_VERSION"))));
    for header in &options.headers {
        for value in &header.values {
            headers.append(&header.name, value.clone());
        }
        for secret in &header.secrets {
            append_secret(&mut headers, &header.name, "http_headers", &reveal("http_headers file", secret)?)?;
        }
    }
    match &options.authorization {
        None => {}
        Some(Authorization::Basic { username, password }) => {
            let password = password.as_ref().map(|p| reveal("password_file", p)).transpose()?.unwrap_or_default();
            let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}")));
            append_secret(&mut headers, &AUTHORIZATION, "basic_auth", &value)?;
        }
        Some(Authorization::Token { kind, credentials }) => {
            let value = format!("{kind} {}", reveal("credentials_file", credentials)?);
            append_secret(&mut headers, &AUTHORIZATION, "authorization", &value)?;
        }
    }
    Ok(headers)
}

fn append_secret(headers: &mut HeaderMap, name: &HeaderName, option: &str, value: &str) -> Result<(), SetupError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| SetupError::Header(option.to_owned()))?;
    // So that no debug output shows it.
    value.set_sensitive(true);
    headers.append(name, value);
    Ok(())
}

fn reveal(option: &'static str, secret: &SecretFrom) -> Result<String, SetupError> {
    match secret {
        SecretFrom::Text(secret) => Ok(secret.reveal().to_owned()),
        SecretFrom::File(file) => read_secret(option, file),
    }
}

fn read_secret(option: &'static str, file: &Path) -> Result<String, SetupError> {
    let failed = |reason: String| SetupError::File { option, file: file.to_owned(), reason };
    let text = fs::read_to_string(file).map_err(|e| failed(e.to_string()))?;
    // Editors and `echo` end files with a line feed; Prometheus cuts it off as well.
    match text.trim() {
        "" => Err(failed("it is empty".to_owned())),
        text => Ok(text.to_owned()),
    }
}
