//! How Alertmanager is asked: `sources.alertmanagers`. The names below `http` are those of Prometheus' HTTP client.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri, uri::Scheme};
use serde::Deserialize;

/// The Alertmanagers that are asked what fires, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alertmanagers {
    /// Where they are.
    pub peers: Peers,
    /// The name of our receiver in their configuration, as it is written there.
    pub receiver: String,
    /// How often they are asked.
    pub poll_interval: Duration,
    /// How long one request may take.
    pub timeout: Duration,
    /// How long a peer must have run before what it does not list counts as absent.
    pub settle: Duration,
    /// Authentication, TLS and headers.
    pub http: HttpOptions,
}

/// Where every peer of a cluster of Alertmanagers is. Alerts are not replicated between them, so each must be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// One URL for each.
    Urls(Vec<PeerUrl>),
    /// Each address behind a name, looked up at each pull.
    Dns(DnsPeers),
}

impl Peers {
    /// Whether TLS is spoken with any of them.
    #[must_use]
    pub fn use_tls(&self) -> bool {
        match self {
            Self::Urls(urls) => urls.iter().any(PeerUrl::is_https),
            Self::Dns(dns) => dns.scheme == Scheme::HTTPS,
        }
    }
}

/// A name whose every address is a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsPeers {
    /// The host name; TLS checks it unless `tls_config.server_name` names another.
    pub host: String,
    /// The port of each peer.
    pub port: u16,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// The path prefix, empty or beginning with `/`, without a `/` at its end.
    pub path: String,
}

/// `scheme://host:port/prefix`, without user info, query and `/` at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl(String);

impl PeerUrl {
    /// Parse a URL.
    ///
    /// # Errors
    ///
    /// If it is not an http or https URL, or has a part that is not ours to send. User info is not quoted back.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write it as http://host:port or https://host/prefix";
        if text.split(['/', '?', '#']).nth(2).is_some_and(|authority| authority.contains('@')) {
            return Err("the URL holds user info; remove it and use http.basic_auth, which can read a file".to_owned());
        }
        if text.contains(['?', '#']) {
            return Err(format!("the URL {text:?} has a query or a fragment; {EXAMPLE}"));
        }
        let uri: Uri = text.parse().map_err(|e| format!("{text:?} is not a URL ({e}); {EXAMPLE}"))?;
        match (uri.scheme(), uri.authority()) {
            (Some(scheme), Some(authority))
                if (*scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) && !authority.host().is_empty() =>
            {
                Ok(Self(format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'))))
            }
            _ => Err(format!("{text:?} is not an http or https URL; {EXAMPLE}")),
        }
    }

    /// Of one of the addresses behind a name.
    #[must_use]
    pub fn of(peers: &DnsPeers, address: SocketAddr) -> Self {
        Self(format!("{}://{address}{}", peers.scheme, peers.path))
    }

    /// Whether TLS is spoken with it.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prometheus' HTTP client options, as far as they are needed here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// What the header Authorization says, if anything.
    pub authorization: Option<Authorization>,
    /// How TLS is spoken with https URLs.
    pub tls: TlsOptions,
    /// Further headers.
    pub headers: Vec<Header>,
}

impl HttpOptions {
    /// Whether a secret stands in the configuration itself, and not in a file that it names.
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        let authorization = match &self.authorization {
            Some(Authorization::Basic { password, .. }) => password.as_ref(),
            Some(Authorization::Token { credentials, .. }) => Some(credentials),
            None => None,
        };
        let headers = self.headers.iter().flat_map(|header| &header.secrets);
        authorization.into_iter().chain(headers).any(|secret| matches!(secret, SecretFrom::Text(_)))
    }
}

/// What the header Authorization says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// `basic_auth`.
    Basic {
        /// The user, without a colon.
        username: String,
        /// The password, which may be absent.
        password: Option<SecretFrom>,
    },
    /// `authorization`.
    Token {
        /// `Bearer`, or another scheme.
        kind: String,
        /// What follows it.
        credentials: SecretFrom,
    },
}

/// Where a secret is. A file is read again for each pull, so that it can be rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretFrom {
    /// In the configuration itself.
    Text(Secret),
    /// In a file; white space around it does not count.
    File(PathBuf),
}

/// A secret text, which no debug output shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text. Whoever calls this sends it and shows it nowhere.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// `tls_config`. The files are read again for each pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The authorities that are trusted; without it those of the machine.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub identity: Option<Identity>,
    /// The name that the server's certificate must have, if not that of the URL.
    pub server_name: Option<String>,
    /// Whether the server's certificate is not checked at all.
    pub insecure_skip_verify: bool,
}

/// A client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, followed by those between it and its authority.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
}

/// A header that is sent along, once for each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: HeaderName,
    /// Its values that may be shown.
    pub values: Vec<HeaderValue>,
    /// Those that may not.
    pub secrets: Vec<SecretFrom>,
}
