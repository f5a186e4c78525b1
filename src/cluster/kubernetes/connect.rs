//! How the API server is reached: kubeconfig or in-cluster.

use std::{path::Path, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A connection that could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("cannot use the kubeconfig {file}: {source}")]
    Kubeconfig {
        /// The file, or `(default)`.
        file: String,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// Neither a kubeconfig nor a service account is there.
    #[error("no kubeconfig and no service account was found: {0}; give --kubeconfig, or --cluster for the embedded cluster")]
    Nothing(#[source] Box<kube::config::InferConfigError>),
    /// TLS or the address.
    #[error("cannot make a client: {0}")]
    Client(#[source] kube::Error),
}

/// The configuration from a kubeconfig file (and a context of it), else from the environment as kubectl and pods do it.
///
/// # Errors
///
/// If there is none, or it cannot be read.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match kubeconfig {
        Some(path) => {
            let failed = |source| ConnectError::Kubeconfig { file: path.display().to_string(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(failed)
        }
        None if context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|source| ConnectError::Kubeconfig { file: "(default)".to_owned(), source }),
        None => Config::infer().await.map_err(|e| ConnectError::Nothing(Box::new(e))),
    }
}

/// The client for calls and the one for watches.
pub(super) fn clients(mut config: Config) -> Result<(Client, Client), ConnectError> {
    // kube-rs names no agent by default, and audit logs should.
    let agent = concat!("gpu-quarantine/", env!("CARGO_PKG_VERSION"));
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    // By default 429, 503 and 504 are retried 15 times: minutes in which a deadline passes. We retry ourselves.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(3));
    // Never on the watch client: a quiet watch would err each time.
    config.read_timeout = None;
    let watching = Client::try_from(config.clone()).map_err(ConnectError::Client)?;
    config.read_timeout = Some(Duration::from_secs(30));
    config.reset_reader_on_write = true;
    Ok((Client::try_from(config).map_err(ConnectError::Client)?, watching))
}
