//! `http`: what Prometheus calls the options of its HTTP client. Values that may be secrets are never quoted.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr as _};

use http::{HeaderName, HeaderValue};
use serde_saphyr::Spanned;

use super::{Check, report::Place};
use crate::policy::{
    Authorization, Header, HttpOptions, Identity, Secret, SecretFrom, TlsOptions,
    raw::{Opt, RawAuthorization, RawBasicAuth, RawHeader, RawHttp, RawTls},
};

/// Headers that are set elsewhere, or that would change how a message is framed.
const RESERVED: [&str; 10] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

impl Check<'_> {
    pub(super) fn http_options(&mut self, raw: RawHttp) -> Option<HttpOptions> {
        let authorization = match (raw.basic_auth, raw.authorization) {
            (Some(_), Some(other)) => self.refuse(
                Place::of(&other),
                "basic_auth and authorization exclude each other, since both set the header Authorization; remove one",
            ),
            (Some(basic), None) => self.basic_auth(basic).map(Some),
            (None, Some(token)) => self.authorization(token).map(Some),
            (None, None) => Some(None),
        };
        let tls = raw.tls_config.map_or_else(|| Some(TlsOptions::default()), |raw| self.tls(raw));
        let headers = self.headers(raw.http_headers.unwrap_or_default());
        Some(HttpOptions { authorization: authorization?, tls: tls?, headers: headers? })
    }

    fn basic_auth(&mut self, raw: Spanned<RawBasicAuth>) -> Option<Authorization> {
        let place = Place::of(&raw);
        let raw = raw.value;
        let username = match &raw.username {
            Some(username) => self.text(username, |text| match text {
                "" => Err("username is empty; write the name of the user".to_owned()),
                _ if text.contains(':') => Err("username holds a colon, which basic authentication cannot send".to_owned()),
                _ => Ok(text.to_owned()),
            }),
            None => self.refuse(place, "basic_auth has no username; add `username: ...`"),
        };
        let password = match (&raw.password, &raw.password_file) {
            (None, None) => None,
            _ => Some(self.secret(raw.password, raw.password_file, "password and password_file")),
        };
        let password = match password {
            Some(password) => Some(password?),
            None => None,
        };
        Some(Authorization::Basic { username: username?, password })
    }

    fn authorization(&mut self, raw: Spanned<RawAuthorization>) -> Option<Authorization> {
        let place = Place::of(&raw);
        let raw = raw.value;
        let kind = self.text_or(raw.kind, "Bearer", authorization_type);
        let credentials = match (&raw.credentials, &raw.credentials_file) {
            (None, None) => self.refuse(place, "authorization has no credentials; add `credentials_file: ...`"),
            (Some(inline), None) if HeaderValue::from_str(inline.value.reveal()).is_err() => {
                self.refuse(Place::of(inline), "credentials hold characters that no header can; use credentials_file")
            }
            _ => self.secret(raw.credentials, raw.credentials_file, "credentials and credentials_file"),
        };
        Some(Authorization::Token { kind: kind?, credentials: credentials? })
    }

    /// One of the two must be given.
    fn secret(&mut self, inline: Opt<Secret>, file: Opt<String>, names: &str) -> Option<SecretFrom> {
        match (inline, file) {
            (Some(_), Some(file)) => self.refuse(Place::of(&file), format!("{names} exclude each other; remove one")),
            (_, Some(file)) => self.text(&file, path).map(SecretFrom::File),
            (inline, None) => inline.map(|inline| SecretFrom::Text(inline.value)),
        }
    }

    fn tls(&mut self, raw: Spanned<RawTls>) -> Option<TlsOptions> {
        let raw = raw.value;
        let mut file = |raw: Option<&Spanned<String>>| match raw {
            Some(raw) => self.text(raw, path).map(Some),
            None => Some(None),
        };
        let (ca_file, cert_file, key_file) =
            (file(raw.ca_file.as_ref()), file(raw.cert_file.as_ref()), file(raw.key_file.as_ref()));
        let identity = match (&raw.cert_file, &raw.key_file) {
            (Some(alone), None) => self.refuse(Place::of(alone), "cert_file needs key_file; give both, or neither"),
            (None, Some(alone)) => self.refuse(Place::of(alone), "key_file needs cert_file; give both, or neither"),
            _ => Some(cert_file?.zip(key_file?).map(|(cert_file, key_file)| Identity { cert_file, key_file })),
        };
        let server_name = match &raw.server_name {
            Some(name) => self.text(name, server_name).map(Some),
            None => Some(None),
        };
        Some(TlsOptions {
            ca_file: ca_file?,
            identity: identity?,
            server_name: server_name?,
            insecure_skip_verify: raw.insecure_skip_verify.unwrap_or(false),
        })
    }

    fn headers(&mut self, raw: BTreeMap<String, Spanned<RawHeader>>) -> Option<Vec<Header>> {
        let headers: Vec<Option<Header>> = raw.into_iter().map(|(name, header)| self.header(&name, header)).collect();
        headers.into_iter().collect()
    }

    fn header(&mut self, name: &str, raw: Spanned<RawHeader>) -> Option<Header> {
        let place = Place::of(&raw);
        let raw = raw.value;
        let name = match header_name(name) {
            Ok(name) => Some(name),
            Err(message) => self.refuse(place, message),
        };
        let values = self.texts(&raw.values.unwrap_or_default(), header_value);
        let mut secrets = Vec::new();
        for secret in raw.secrets.unwrap_or_default() {
            let sound = HeaderValue::from_str(secret.value.reveal()).is_ok();
            secrets.push(if sound {
                Some(SecretFrom::Text(secret.value))
            } else {
                self.refuse(Place::of(&secret), "this secret holds characters that no header can; use `files`")
            });
        }
        let files: Option<Vec<PathBuf>> = self.texts(&raw.files.unwrap_or_default(), path);
        let secrets: Option<Vec<SecretFrom>> = secrets.into_iter().collect();
        let (name, values, mut secrets) = (name?, values?, secrets?);
        secrets.extend(files?.into_iter().map(SecretFrom::File));
        let header = Header { name, values, secrets };
        if header.values.is_empty() && header.secrets.is_empty() {
            return self.refuse(place, format!("the header {} has no value; add `values: [...]` or `files: [...]`", header.name));
        }
        Some(header)
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("the name of the file is empty; write its path".to_owned()) } else { Ok(PathBuf::from(text)) }
}

fn authorization_type(text: &str) -> Result<String, String> {
    if text.eq_ignore_ascii_case("basic") {
        return Err("the type Basic is refused here; use basic_auth".to_owned());
    }
    // The name of a header is a token by the same rule (RFC 9110, 11.1).
    HeaderName::from_str(text)
        .map(|_| text.to_owned())
        .map_err(|_| format!("the type {text:?} is not one word; write Bearer, or leave it out"))
}

fn server_name(text: &str) -> Result<String, String> {
    rustls::pki_types::ServerName::try_from(text)
        .map(|_| text.to_owned())
        .map_err(|_| format!("server_name {text:?} is neither a host name nor an address"))
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    let name =
        HeaderName::from_str(text).map_err(|_| format!("{text:?} is not the name of a header; write it as X-Scope-OrgID"))?;
    if RESERVED.contains(&name.as_str()) {
        return Err(format!(
            "the header {text} cannot be set here; use basic_auth or authorization to authenticate, and leave the others to the \
             client"
        ));
    }
    Ok(name)
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "this value holds characters that no header can; write visible ASCII".to_owned())
}
