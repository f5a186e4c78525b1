//! What stands between Alertmanager and the service: it notes what comes and when, and can be late.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    service::{Http, now},
    web::Web,
};

/// A body that came by.
#[derive(Debug, Clone)]
pub(crate) struct Passed {
    pub(crate) at: Timestamp,
    pub(crate) body: Value,
    /// What the service said, and when; not yet, or the service did not answer.
    pub(crate) answered: Option<(u16, Timestamp)>,
}

impl Passed {
    /// It in a line.
    pub(crate) fn brief(&self) -> String {
        let alert = |a: &Value| {
            let labels = &a["labels"];
            format!("{} {} {} {} to {}", labels["alertname"], labels["node"], a["status"], a["startsAt"], a["endsAt"])
        };
        let alerts: Vec<String> = self.body["alerts"].as_array().into_iter().flatten().map(alert).collect();
        format!("{} answered {:?}: {}", self.at, self.answered, alerts.join(", "))
    }

    /// Whether an alert with this name and status about this node is in it.
    pub(crate) fn tells(&self, alert: &str, node: &str, status: &str) -> bool {
        let about = |a: &Value| a["labels"]["alertname"] == alert && a["labels"]["node"] == node && a["status"] == status;
        self.body["alerts"].as_array().is_some_and(|alerts| alerts.iter().any(about))
    }
}

#[derive(Debug)]
struct Inner {
    service: String,
    http: Http,
    late: Mutex<Duration>,
    passed: Mutex<Vec<Passed>>,
}

/// The relay.
#[derive(Debug)]
pub(crate) struct Relay {
    web: Web,
    inner: Arc<Inner>,
}

impl Relay {
    /// Start one in front of the service's webhook.
    pub(crate) async fn to(service: String) -> Self {
        let (late, passed) = (Mutex::new(Duration::ZERO), Mutex::new(Vec::new()));
        let inner = Arc::new(Inner { service, http: Http::new(), late, passed });
        let router = Router::new().route("/api/v1/alerts", post(relay)).route("/", get(|| async { "here" }));
        Self { web: Web::start(router.with_state(Arc::clone(&inner))).await, inner }
    }

    /// The address that Alertmanager posts to.
    pub(crate) fn webhook(&self) -> String {
        format!("http://{}/api/v1/alerts", self.web.address())
    }

    /// Hand on at once, but hand the answer back so much later.
    pub(crate) fn answer_late(&self, by: Duration) {
        *lock(&self.inner.late) = by;
    }

    /// All that came so far.
    pub(crate) fn passed(&self) -> Vec<Passed> {
        lock(&self.inner.passed).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn relay(State(inner): State<Arc<Inner>>, body: String) -> (StatusCode, String) {
    let at = now();
    let Ok(body) = serde_json::from_str::<Value>(&body) else { return (StatusCode::BAD_REQUEST, "no JSON".to_owned()) };
    let number = {
        let mut passed = lock(&inner.passed);
        passed.push(Passed { at, body: body.clone(), answered: None });
        passed.len() - 1
    };
    // If Alertmanager hangs up, this is dropped where it waits: the hand-over must go on all the same.
    let handed = Arc::clone(&inner);
    let handing = tokio::spawn(async move {
        let answer = handed.http.send("POST", &handed.service, Some(&body)).await;
        if let Ok((status, _)) = &answer {
            lock(&handed.passed)[number].answered = Some((*status, now()));
        }
        answer
    });
    let answer = handing.await.expect("handing on does not panic");
    let late = *lock(&inner.late);
    if !late.is_zero() {
        tokio::time::sleep(late).await;
    }
    match answer {
        Ok((status, text)) => (StatusCode::from_u16(status).expect("a status"), text),
        Err(e) => (StatusCode::BAD_GATEWAY, e),
    }
}
