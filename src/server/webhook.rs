//! `POST /api/v1/alerts`: the body of an Alertmanager webhook.
//!
//! Alertmanager retries only 5xx and transport errors; a 4xx is dropped and poisons its group. So: 200 when every alert has an
//! outcome, 503 when a retry can cure what failed, 400 only for what is no webhook body at all.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
    response::Response,
};

use super::{App, error_response, json_response};
use crate::alert::parse_body;

/// Set when nobody hears any more how the work on a delivery ends: the answer was given before, or the client hung up.
#[derive(Default)]
struct Unanswered(Arc<AtomicBool>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub(super) async fn alerts(State(app): State<Arc<App>>, body: Result<Bytes, BytesRejection>) -> Response {
    let response = answer(&app, body).await;
    app.metrics.answered(response.status().as_u16());
    response
}

async fn answer(app: &Arc<App>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            let text = format!("{}; the limit is {} bytes (--web.max-body-size)", rejection.body_text(), app.max_body);
            tracing::error!(status = rejection.status().as_u16(), "A webhook body was refused: {text}.");
            return error_response(rejection.status(), &text);
        }
    };
    if !app.engine.ready() {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, "the first list of nodes has not been read yet");
    }
    let delivery = match parse_body(&body) {
        Ok(delivery) => delivery,
        Err(error) => {
            tracing::error!(%error, "A webhook body was refused.");
            return error_response(StatusCode::BAD_REQUEST, &error.to_string());
        }
    };
    let Ok(permit) = Arc::clone(&app.deliveries).try_acquire_owned() else {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, "too many deliveries are being worked on");
    };
    // A task of its own: axum drops the handler when the client hangs up, and a taint half decided helps nobody.
    let working = Arc::clone(app);
    let unanswered = Unanswered::default();
    let late = Arc::clone(&unanswered.0);
    let work = tokio::spawn(async move {
        let number = match &working.observer {
            Some(observer) => observer.body(&delivery).await,
            None => 0,
        };
        let answer = working.engine.deliver_unless_late(delivery, &late).await;
        if let Some(observer) = &working.observer {
            observer.answer(number, &answer);
        }
        drop(permit);
        answer
    });
    match tokio::time::timeout(app.deadline, work).await {
        Ok(Ok(answer)) => {
            let status = if answer.retry { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            json_response(status, &answer)
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "The work on a delivery ended abnormally.");
            error_response(StatusCode::SERVICE_UNAVAILABLE, "the work on this delivery ended abnormally")
        }
        Err(_) => error_response(StatusCode::SERVICE_UNAVAILABLE, "the work on this delivery goes on: send it again"),
    }
}
