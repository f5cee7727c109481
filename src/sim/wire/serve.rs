//! A small HTTP/1.1 listener.

use super::Body;
use crate::sim::runner::AbortOnDrop;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A simulated server. Dropping it closes its listener and its connections at once.
#[derive(Debug)]
pub struct Handle {
    /// Where it listens.
    pub addr: SocketAddr,
    _task: AbortOnDrop,
}

/// Listens on `listen` (port 0: any free one) and answers with `handler`.
///
/// # Errors
/// When the address can't be bound.
pub(crate) async fn serve<H, F>(listen: SocketAddr, handler: H) -> io::Result<Handle>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        io::Error::new(error.kind(), format!("can't listen on {listen}: {error}"))
    })?;
    let addr = listener.local_addr()?;
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        let handler = handler.clone();
                        connections.spawn(async move {
                            let service = service_fn(move |request| {
                                let answer = handler(request);
                                async move { Ok::<_, Infallible>(answer.await) }
                            });
                            // A client that leaves is everyday life here.
                            let _ = hyper::server::conn::http1::Builder::new()
                                .timer(TokioTimer::new())
                                .serve_connection(TokioIo::new(stream), service)
                                .await;
                        });
                    }
                    // Out of descriptors, most likely: let some connections end.
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    });
    Ok(Handle {
        addr,
        _task: AbortOnDrop(task),
    })
}
