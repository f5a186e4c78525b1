//! HTTP: the webhook, the wish for a pull, health, the list of nodes, the guard, metrics, reload and pause.

mod pause;
mod webhook;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    alert::Delivery,
    engine::{Answer, Engine},
    metrics::Metrics,
    quarantine::NodeView,
};

/// The largest body taken unless told otherwise. Alertmanager sends about 700 bytes an alert, so this is some 45,000 of them.
pub const DEFAULT_MAX_BODY: usize = 32 * 1024 * 1024;
/// When a delivery is answered though its work goes on. Alertmanager cuts a request off after 10 s at the earliest.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(8);
/// Deliveries worked on at once; one more is told to come again.
const MAX_DELIVERIES: u32 = 256;

/// Loads the configuration again. The error says why the old one stays.
pub type Reload = Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Somebody who is told of each body before it is worked on, and of its answer afterwards.
pub trait Observer: Send + Sync {
    /// A body came; what is returned is given back with its answer.
    fn body<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, u64>;
    /// The answer to it.
    fn answer(&self, number: u64, answer: &Answer);
}

/// What the handlers share.
pub struct App {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// What `POST /-/reload` does.
    pub reload: Reload,
    /// Told of each body and of its answer.
    pub observer: Option<Box<dyn Observer>>,
    /// When a delivery is answered at the latest.
    pub deadline: Duration,
    /// The largest body taken, in bytes.
    pub max_body: usize,
    deliveries: Arc<Semaphore>,
}

impl App {
    /// With the default limits.
    #[must_use]
    pub fn new(engine: Arc<Engine>, metrics: Arc<Metrics>, reload: Reload) -> Self {
        Self {
            engine,
            metrics,
            reload,
            observer: None,
            deadline: DEFAULT_DEADLINE,
            max_body: DEFAULT_MAX_BODY,
            deliveries: Arc::new(Semaphore::new(MAX_DELIVERIES as usize)),
        }
    }

    /// Wait until no delivery is being worked on, also of clients that hung up.
    pub async fn drained(&self) {
        // The semaphore is never closed.
        drop(self.deliveries.acquire_many(MAX_DELIVERIES).await);
    }

    /// All routes. Those with a trailing slash are routes of their own: a redirect would lose the body.
    pub fn router(self: Arc<Self>) -> Router {
        let max_body = self.max_body;
        Router::new()
            .route("/api/v1/alerts", post(webhook::alerts))
            .route("/api/v1/alerts/", post(webhook::alerts))
            .route("/api/v1/nodes", get(nodes))
            .route("/api/v1/nodes/", get(nodes))
            .route("/api/v1/guard", get(guard))
            .route("/api/v1/guard/", get(guard))
            .route("/api/v1/pull", post(pull))
            .route("/api/v1/pull/", post(pull))
            .route("/-/healthy", get(healthy))
            .route("/-/ready", get(ready))
            .route("/-/reload", post(reload))
            .route("/-/pause", post(pause::pause))
            .route("/-/resume", post(pause::resume))
            .route("/metrics", get(metrics))
            .layer(DefaultBodyLimit::max(max_body))
            .layer(CatchPanicLayer::new())
            .with_state(self)
    }
}

/// Whether an address is reachable from this machine only.
#[must_use]
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn json_response(status: StatusCode, body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, format!("the answer could not be written: {e}\n")).into_response(),
    }
}

/// One shape for every error.
fn error_response(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "error": message }))
}

const NOT_READ: &str = "the first list of nodes has not been read yet";

#[derive(serde::Serialize)]
struct Nodes {
    nodes: Vec<NodeView>,
}

async fn nodes(State(app): State<Arc<App>>) -> Response {
    if !app.engine.ready() {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, NOT_READ);
    }
    json_response(StatusCode::OK, &Nodes { nodes: app.engine.views() })
}

async fn guard(State(app): State<Arc<App>>) -> Response {
    if !app.engine.ready() {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, NOT_READ);
    }
    json_response(StatusCode::OK, &app.engine.guard())
}

async fn pull(State(app): State<Arc<App>>) -> Response {
    let Some(settings) = app.engine.config().alertmanagers.clone() else {
        return error_response(StatusCode::CONFLICT, "there is nobody to ask: configure sources.alertmanagers");
    };
    // One may be on its way, and each asks several questions.
    let patience = settings.timeout * 8 + Duration::from_secs(5);
    match tokio::time::timeout(patience, app.engine.pull_now()).await {
        Ok(Some(last)) => json_response(StatusCode::OK, &last),
        _ => error_response(StatusCode::GATEWAY_TIMEOUT, "no pull was done in time; the log says why"),
    }
}

async fn healthy() -> &'static str {
    "gpu-quarantine is healthy.\n"
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.engine.ready() {
        (StatusCode::OK, "gpu-quarantine is ready.\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "gpu-quarantine is not ready: the first list of nodes has not been read yet.\n")
    }
}

async fn reload(State(app): State<Arc<App>>) -> (StatusCode, String) {
    // A task of its own: axum drops the handler when the client hangs up, and nodes are decided again here.
    let reload = tokio::spawn((app.reload)());
    match reload.await.unwrap_or_else(|error| Err(format!("the reload ended abnormally: {error}"))) {
        Ok(()) => (StatusCode::OK, "the configuration was loaded\n".to_owned()),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("the old configuration stays in force:\n{why}\n")),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.render(&app.engine);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
