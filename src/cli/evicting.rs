//! Asks pods to leave isolated nodes as long as the service runs, and what that needs besides the cluster: calls to pods that write
//! their checkpoints, and the last values that Prometheus has.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    http::{Method, Request, header::USER_AGENT},
};
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use super::serve::until;
use crate::{
    engine::{Aids, Engine},
    metrics::Metrics,
    policy::Config,
    quarantine::eviction::Call,
    sources::{Evidence, with_causes},
};

/// Never ends by itself.
pub(super) async fn evict_for_ever(engine: Arc<Engine>) {
    loop {
        tokio::select! {
            () = until(engine.next_eviction()) => {
                for turn in engine.due_evictions() {
                    let engine = Arc::clone(&engine);
                    // A task of its own: whatever becomes of it, the others go on, and it is due again.
                    tokio::spawn(async move { engine.evict_from(turn).await });
                }
            }
            () = engine.eviction_moved() => {}
        }
    }
}

/// Calls and questions over the network.
pub(super) struct LiveAids {
    pub(super) metrics: Arc<Metrics>,
}

impl Aids for LiveAids {
    fn checkpoint(&self, ip: IpAddr, call: Call, within: Duration) -> BoxFuture<'static, String> {
        Box::pin(async move {
            let url = format!("http://{}{}", SocketAddr::new(ip, call.port), call.path);
            let begin = Instant::now();
            let answer = tokio::time::timeout(within, post(&url)).await;
            let took =
                humantime::format_duration(Duration::from_millis(u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX)));
            match answer {
                // The outcome first: the path may be long, and what is too long is cut.
                Ok(Ok(code)) => format!("HTTP {code} after {took} from POST {url}"),
                Ok(Err(why)) => format!("failed after {took}, {why}: POST {url}"),
                Err(_) => format!("no answer within {}: POST {url}", humantime::format_duration(within)),
            }
        })
    }

    fn last_values(&self, config: Arc<Config>, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Value>, String>> {
        Box::pin(async move {
            let Some(settings) = config.prometheus.clone() else {
                return Err("no Prometheus is configured (sources.prometheus)".to_owned());
            };
            let prometheus = Evidence::new(settings, config.locate.clone(), Arc::clone(&self.metrics));
            prometheus.client().await?.last_values(&names).await
        })
    }
}

/// A client of this kind follows no redirects. The status of the answer is all that is looked at.
async fn post(url: &str) -> Result<u16, String> {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(USER_AGENT, concat!("gpu-quarantine/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::new()))
        .map_err(|e| e.to_string())?;
    let answer = client.request(request).await.map_err(|e| with_causes(&e))?;
    Ok(answer.status().as_u16())
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{HeaderMap, StatusCode, header::LOCATION},
        response::IntoResponse,
        routing::post,
    };
    use rstest::rstest;

    use super::*;

    /// A pod: it saves, sends elsewhere, fails, or says nothing.
    fn workload() -> Router {
        let elsewhere = || async { (StatusCode::FOUND, [(LOCATION, "/save")]).into_response() };
        let save = |headers: HeaderMap| async move {
            assert!(headers[USER_AGENT].to_str().unwrap_or_default().starts_with("gpu-quarantine/"));
            "saved"
        };
        Router::new()
            .route("/save", post(save))
            .route("/elsewhere", post(elsewhere))
            .route("/fails", post(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
            .route("/hangs", post(std::future::pending::<()>))
    }

    #[rstest]
    #[case::it_saves("/save?step=now", "HTTP 200 after ")]
    #[case::a_redirect_is_not_followed("/elsewhere", "HTTP 302 after ")]
    #[case::it_fails("/fails", "HTTP 500 after ")]
    #[case::only_post_is_used("/nothing", "HTTP 404 after ")]
    #[case::it_says_nothing("/hangs", "no answer within 300ms: POST http://127.0.0.1:")]
    #[tokio::test]
    async fn a_pod_is_called_once_and_what_it_answers_is_told(#[case] path: &str, #[case] told: &str) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(axum::serve(listener, workload()).into_future());
        let aids = LiveAids { metrics: Arc::new(Metrics::new()) };
        let call = Call { port: address.port(), path: path.to_owned() };
        let came = aids.checkpoint(address.ip(), call, Duration::from_millis(300)).await;
        server.abort();
        assert!(came.starts_with(told) && came.ends_with(path), "{came}");
    }

    #[tokio::test]
    async fn a_pod_that_nobody_answers_for_is_told_of() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let aids = LiveAids { metrics: Arc::new(Metrics::new()) };
        let call = Call { port: address.port(), path: "/save".to_owned() };
        let came = aids.checkpoint(address.ip(), call, Duration::from_secs(5)).await;
        assert!(came.starts_with("failed after ") && came.contains("refused"), "{came}");
    }
}
