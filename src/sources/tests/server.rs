//! A small HTTP server that answers as it is told, and remembers what it was asked.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::body::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Path and query; a form is shown as if it were the query.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
}

/// What a path is answered with; `None` is never answered.
pub(super) type Answers = dyn Fn(&str) -> Option<Response<Full<Bytes>>> + Send + Sync;

/// It stops with the runtime of its test.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(super) async fn start(
        tls: Option<ServerConfig>,
        answers: impl Fn(&str) -> Option<Response<Full<Bytes>>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let (asked, answers): (_, Arc<Answers>) = (Arc::clone(&server.asked), Arc::new(answers));
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answers, tls) = (Arc::clone(&asked), Arc::clone(&answers), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, asked, answers).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, asked, answers).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|a| a.path).collect()
    }

    /// The values of a header in the last request.
    pub(super) fn last(&self, name: &str) -> Vec<String> {
        let asked = self.asked();
        let values = asked.last().unwrap().headers.get_all(name);
        values.iter().map(|v| v.to_str().unwrap().to_owned()).collect()
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send, asked: Arc<Mutex<Vec<Asked>>>, answers: Arc<Answers>) {
    let service = service_fn(|request: Request<Incoming>| {
        let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
        async move {
            let (head, body) = request.into_parts();
            let form = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
            let mut path = head.uri.path_and_query().unwrap().to_string();
            if !form.is_empty() {
                path = format!("{path}?{}", std::str::from_utf8(&form).unwrap());
            }
            asked.lock().unwrap().push(Asked { path: path.clone(), headers: head.headers });
            match answers(&path) {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => std::future::pending().await,
            }
        }
    });
    // The client may hang up at any time.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

pub(super) fn answer(code: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

/// An Alertmanager that has run for an hour. `groups` is what it lists.
pub(super) fn alertmanager(path: &str, groups: &'static str) -> Response<Full<Bytes>> {
    let path = path.split('?').next().unwrap();
    let body = match path.strip_prefix("/am").unwrap_or(path) {
        "/api/v2/alerts/groups" => groups,
        "/api/v2/silences" => include_str!("../../../fixtures/alertmanager-api/silences.json"),
        "/api/v2/receivers" => include_str!("../../../fixtures/alertmanager-api/receivers.json"),
        "/api/v2/status" => {
            r#"{"cluster":{"status":"ready"},"uptime":"2026-03-01T12:00:00.5Z","versionInfo":{"version":"0.33.1"}}"#
        }
        _ => return answer(404, ""),
    };
    let mut answer = answer(200, body);
    answer.headers_mut().insert(header::DATE, "Sun, 01 Mar 2026 13:00:00 GMT".parse().unwrap());
    answer
}
