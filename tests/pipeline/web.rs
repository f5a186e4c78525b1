//! A small HTTP server in the test process that can go down and come up again on its port.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

/// The server. Dropped, it goes down.
#[derive(Debug)]
pub(crate) struct Web {
    port: u16,
    router: Router,
    serving: Option<JoinHandle<()>>,
    /// What has served until it went down, and perhaps still holds the port.
    ending: Option<JoinHandle<()>>,
}

impl Web {
    /// Start it on a free port.
    pub(crate) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let serving = Some(tokio::spawn(serve(listener, router.clone())));
        Self { port, router, serving, ending: None }
    }

    /// Refuse connections from now on, and break those that are.
    pub(crate) fn down(&mut self) {
        // The open connections belong to that task.
        if let Some(serving) = self.serving.take() {
            serving.abort();
            self.ending = Some(serving);
        }
    }

    /// Serve again.
    pub(crate) async fn up(&mut self) {
        if self.serving.is_none() {
            if let Some(ending) = self.ending.take() {
                // That it was aborted is no news.
                drop(ending.await);
            }
            let listener = TcpListener::bind(("127.0.0.1", self.port)).await.expect("the port is still free");
            self.serving = Some(tokio::spawn(serve(listener, self.router.clone())));
        }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.down();
    }
}

async fn serve(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            // A client that hangs up is its own affair.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}
