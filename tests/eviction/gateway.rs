//! What stands between the service and the API server: it notes what evictions ask for, refuses them as a server does that has too much
//! to do, or loses their answers.

use std::{
    collections::VecDeque,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::web::Web;

/// What becomes of an eviction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// 429 without the cause of a disruption budget, and to come again after so many seconds.
    Throttled(u64),
    /// It is done, and nobody is told.
    Unanswered,
}

struct Inner {
    client: Client,
    evictions: Mutex<Vec<Value>>,
    fates: Mutex<VecDeque<Fate>>,
}

/// The gateway.
pub(crate) struct Gateway {
    web: Web,
    inner: Arc<Inner>,
    dir: TempDir,
}

impl Gateway {
    /// Start one in front of what `client` reaches.
    pub(crate) async fn to(client: Client) -> Self {
        let inner = Arc::new(Inner { client, evictions: Mutex::default(), fates: Mutex::default() });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&inner));
        Self { web: Web::start(router).await, inner, dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A kubeconfig by which it is reached.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let file = self.dir.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: t\nclusters: [{{name: t, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: t, user: {{}}}}]\ncontexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n",
            self.web.address()
        );
        fs::write(&file, text).expect("the directory is writable");
        file
    }

    /// What becomes of the next evictions; those after them pass.
    pub(crate) fn fates(&self, fates: &[Fate]) {
        lock(&self.inner.fates).extend(fates);
    }

    /// The bodies of all evictions that came.
    pub(crate) fn evictions(&self) -> Vec<Value> {
        lock(&self.inner.evictions).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn pass(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let is_eviction = request.method() == "POST" && request.uri().path().ends_with("/eviction");
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let fate = if is_eviction {
        lock(&inner.evictions).push(serde_json::from_slice(&body).expect("JSON"));
        lock(&inner.fates).pop_front()
    } else {
        None
    };
    if let Some(Fate::Throttled(seconds)) = fate {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Too many requests, please try again later.",
        });
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, seconds.into()), (header::CONTENT_TYPE, json_type())]);
        return (StatusCode::TOO_MANY_REQUESTS, headers, status.to_string()).into_response();
    }
    let path = parts.uri.path_and_query().expect("a path").as_str().to_owned();
    parts.uri = path.parse().expect("a path");
    for header in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION] {
        parts.headers.remove(header);
    }
    let answer = inner.client.send(Request::from_parts(parts, kube::client::Body::from(body.to_vec()))).await;
    if let Some(Fate::Unanswered) = fate {
        std::future::pending::<()>().await;
    }
    match answer {
        Ok(answer) => answer.map(Body::new),
        Err(e) => (StatusCode::BAD_GATEWAY, e.to_string()).into_response(),
    }
}

fn json_type() -> axum::http::HeaderValue {
    axum::http::HeaderValue::from_static("application/json")
}
