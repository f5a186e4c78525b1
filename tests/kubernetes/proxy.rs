//! A TCP proxy that can lose its connections silently, as a load balancer or a firewall does that forgot them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A proxy to a port of this machine.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    generation: Arc<AtomicU64>,
}

impl Proxy {
    /// Start one.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = listener.local_addr().expect("an address").port();
        let generation = Arc::new(AtomicU64::new(0));
        let current = Arc::clone(&generation);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let born = current.load(Ordering::SeqCst);
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(carry(near_in, far_out, Arc::clone(&current), born));
                tokio::spawn(carry(far_in, near_out, Arc::clone(&current), born));
            }
        });
        Self { port: own, generation }
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing passes on the present connections, and none of them is closed. New ones work.
    pub(crate) fn lose_connections(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin + Send,
    mut to: impl AsyncWrite + Unpin + Send,
    current: Arc<AtomicU64>,
    born: u64,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if current.load(Ordering::SeqCst) != born {
            // Lost: held open for longer than any test runs, and never heard of again.
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
    if current.load(Ordering::SeqCst) != born {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
}
