//! What goes wrong with a source before anybody looks at its answer.

use std::{io, path::PathBuf, time::Duration};

use http::StatusCode;

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
        "no answer from {url} within {}; check that it runs and can be reached, or raise {section}.timeout",
        humantime::format_duration(*after)
    )]
    Timeout {
        /// What was asked.
        url: String,
        /// How long was waited.
        after: Duration,
        /// Its section of the configuration.
        section: &'static str,
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
    #[error("the answer of {url} is larger than {} MiB; {advice}", limit >> 20)]
    TooLarge {
        /// What was asked.
        url: String,
        /// The largest answer that is read, in bytes.
        limit: usize,
        /// What to do.
        advice: &'static str,
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
    #[error("{url} answered {code}; {advice}")]
    Code {
        /// What was asked.
        url: String,
        /// The code.
        code: StatusCode,
        /// What to do.
        advice: String,
    },
    /// Not what it should answer.
    #[error("{url}: {reason}")]
    Answer {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
}
