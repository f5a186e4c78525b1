//! HTTP towards a source: authentication, TLS, time and size limits, and errors that say what to do.

mod error;

use std::{error::Error, fs, path::Path, time::Duration};

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, DATE, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use rustls::pki_types::ServerName;

pub use self::error::{AskError, SetupError};
use super::tls;
use crate::policy::{Authorization, HttpOptions, SecretFrom};

/// What is shown of the place that a redirect leads to.
const SHOWN: usize = 100;

/// What differs between the sources.
#[derive(Debug)]
pub(super) struct About {
    /// Its section of the configuration.
    pub(super) section: &'static str,
    /// The largest answer that is read, in bytes.
    pub(super) max_body: usize,
    /// What to do about a larger one.
    pub(super) too_large: &'static str,
    /// What it may be that answers 429 or 503.
    pub(super) busy: &'static str,
    /// Whether the body of an error says what is wrong, so that it is read.
    pub(super) explains_errors: bool,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// When it was sent, by the clock of the source.
    pub(super) date: Option<Timestamp>,
    pub(super) body: Bytes,
}

/// A client for one round: what its files held when it was made.
#[derive(Debug)]
pub(super) struct HttpClient {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    timeout: Duration,
    about: &'static About,
}

impl HttpClient {
    /// Read the files and make a client. It reads files, so it blocks for a moment. `host` is whom TLS expects, if not the host of
    /// the URL.
    pub(super) fn new(
        options: &HttpOptions,
        use_tls: bool,
        host: Option<&str>,
        timeout: Duration,
        about: &'static About,
    ) -> Result<Self, SetupError> {
        let tls = tls::client_config(&options.tls, use_tls)?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match options.tls.server_name.as_deref().or(host) {
            Some(name) => {
                let server = ServerName::try_from(name.to_owned()).map_err(|_| SetupError::ServerName(name.to_owned()))?;
                connector.with_server_name_resolver(FixedServerNameResolver::new(server))
            }
            None => connector,
        };
        Ok(Self {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector.enable_http1().build()),
            headers: headers(options)?,
            timeout,
            about,
        })
    }

    /// GET a URL.
    pub(super) async fn get(&self, url: &str) -> Result<Reply, AskError> {
        self.send(Method::GET, url, None).await
    }

    /// POST a form, already encoded.
    pub(super) async fn post_form(&self, url: &str, form: String) -> Result<Reply, AskError> {
        self.send(Method::POST, url, Some(form)).await
    }

    async fn send(&self, method: Method, url: &str, form: Option<String>) -> Result<Reply, AskError> {
        match tokio::time::timeout(self.timeout, self.exchange(method, url, form)).await {
            Ok(done) => done,
            Err(_) => Err(AskError::Timeout { url: url.to_owned(), after: self.timeout, section: self.about.section }),
        }
    }

    async fn exchange(&self, method: Method, url: &str, form: Option<String>) -> Result<Reply, AskError> {
        let request = Request::builder().method(method).uri(url);
        let mut request = request
            .body(Full::new(Bytes::from(form.unwrap_or_default())))
            .map_err(|source| AskError::Url { url: url.to_owned(), source })?;
        request.headers_mut().clone_from(&self.headers);
        if request.method() == Method::POST {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        }
        let unreachable =
            |error: &(dyn Error + 'static)| AskError::Unreachable { url: url.to_owned(), reason: with_causes(error) };
        let answer = self.http.request(request).await.map_err(|e| unreachable(&e))?;
        let (head, body) = answer.into_parts();
        if head.status.is_redirection() {
            let to = head.headers.get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes())).unwrap_or_default();
            let to = to.split(['?', '#']).next().unwrap_or_default().chars().take(SHOWN).collect();
            return Err(AskError::Redirect { url: url.to_owned(), to });
        }
        if head.status != StatusCode::OK && !self.about.explains_errors {
            return Err(self.refused(url, head.status));
        }
        let body = match Limited::new(body, self.about.max_body).collect().await {
            Ok(body) => body.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => {
                let About { max_body: limit, too_large: advice, .. } = *self.about;
                return Err(AskError::TooLarge { url: url.to_owned(), limit, advice });
            }
            Err(e) => return Err(unreachable(&*e)),
        };
        let date = head.headers.get(DATE).and_then(|date| DateTimeParser::new().parse_timestamp(date.as_bytes()).ok());
        Ok(Reply { status: head.status, date, body })
    }

    /// The error for a code other than 200.
    pub(super) fn refused(&self, url: &str, code: StatusCode) -> AskError {
        let About { section, busy, .. } = self.about;
        let advice = match code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                format!("check basic_auth or authorization below {section}.http")
            }
            StatusCode::NOT_FOUND => "check the URL and its path prefix, which is its --web.route-prefix".to_owned(),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => (*busy).to_owned(),
            _ => "its own log says why".to_owned(),
        };
        AskError::Code { url: url.to_owned(), code, advice }
    }
}

/// An error and its causes. The outer ones say little by themselves.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
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

/// Escaped as the value of a parameter, of a URL or of a form.
pub(super) fn query_value(text: &str) -> String {
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
