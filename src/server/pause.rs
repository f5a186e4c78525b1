//! `POST /-/pause` and `POST /-/resume`.

use std::sync::Arc;

use axum::{body::Bytes, extract::State, http::StatusCode};
use serde::Deserialize;

use super::App;
use crate::quarantine::{Pause, PauseWord, Unknown};

/// The body of a pause; it may be empty.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// Who says so.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
    /// Whether nothing is released either.
    #[serde(default)]
    releases: bool,
}

pub(super) async fn pause(State(app): State<Arc<App>>, body: Bytes) -> (StatusCode, String) {
    let said = if body.trim_ascii().is_empty() { Ok(Said::default()) } else { serde_json::from_slice(&body) };
    let said: Said = match said {
        Ok(said) => said,
        Err(e) => {
            let why = format!(
                "nothing was paused, the body cannot be read: {e}; send {{\"by\": NAME, \"reason\": TEXT}}, or nothing\n"
            );
            return (StatusCode::BAD_REQUEST, why);
        }
    };
    let word = Pause {
        by: said.by.unwrap_or_else(|| "somebody over HTTP".to_owned()),
        at: app.engine.now(),
        reason: said.reason.unwrap_or_else(|| "no reason is given".to_owned()),
        releases: said.releases,
        other: Unknown::new(),
    };
    let told = word.to_string();
    say(app, PauseWord::Pause(word), &told).await
}

pub(super) async fn resume(State(app): State<Arc<App>>) -> (StatusCode, String) {
    say(app, PauseWord::Resume, "the pause is over").await
}

async fn say(app: Arc<App>, word: PauseWord, told: &str) -> (StatusCode, String) {
    // A task of its own: axum drops the handler when the client hangs up, and a word that was heard is to be stored.
    let saying = tokio::spawn(async move { app.engine.say_pause(word).await });
    match saying.await {
        Ok(Ok(())) => (StatusCode::OK, format!("{told}\n")),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{told}; {error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{told}; storing it ended abnormally: {error}\n")),
    }
}
