//! The listener's HTTP side. Bounded in connections and in time, and on the metrics plane's thread:
//! whatever happens here, no request of a client's notices.

use super::stall::Stalling;
use super::{Answer, Conflicts, ROUTES};
use crate::config::Settings;
use crate::kv::Handle;
use crate::proxy::Phase;
use crate::scrape::Pages;
use crate::telemetry::Telemetry;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tower::{Service, ServiceBuilder, service_fn as tower_service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;

/// Connections at a time; more wait in the listener's queue.
const MOST_CONNECTIONS: usize = 32;

/// A peer that takes nothing of its answer for so long is dropped.
const WRITE_STALL: Duration = Duration::from_secs(10);

/// For a request's head, and so for a connection without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What the endpoints show.
pub struct Shared {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The newest readings.
    pub snapshot: Handle,
    /// The newest pages.
    pub pages: Pages,
    /// kvgauge's own counts.
    pub telemetry: Arc<Telemetry>,
    /// How far the process is on its way out.
    pub phase: watch::Receiver<Phase>,
    /// What the last merge left out.
    pub conflicts: Conflicts,
}

/// The listener.
pub struct Admin {
    listener: tokio::net::TcpListener,
    shared: Rc<Shared>,
}

// === impl Shared ===

impl Shared {
    /// Whether traffic is welcome.
    #[must_use]
    pub fn ready(&self) -> bool {
        *self.phase.borrow() == Phase::Serving
    }
}

// === impl Admin ===

impl Admin {
    /// Takes over a bound listener; call it on the runtime that will run it.
    ///
    /// # Errors
    /// When the runtime refuses the socket.
    pub fn new(listener: TcpListener, shared: Shared) -> io::Result<Admin> {
        Ok(Admin {
            listener: tokio::net::TcpListener::from_std(listener)?,
            shared: Rc::new(shared),
        })
    }

    /// Serves until it is dropped.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let shared = Rc::clone(&self.shared);
                    tokio::task::spawn_local(async move {
                        serve(stream, shared).await;
                        drop(place);
                    });
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

async fn serve(stream: TcpStream, shared: Rc<Shared>) {
    crate::net::prepare(&stream);
    let stack = ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::overriding(
            X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .layer(SetResponseHeaderLayer::if_not_present(
            CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::new())
        .service(tower_service_fn(move |request: Request<Incoming>| {
            ready(Ok::<_, Infallible>(answer(&request, &shared)))
        }));
    // A peer that breaks off is its own business.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(
            TokioIo::new(Stalling::new(stream, WRITE_STALL)),
            service_fn(move |request| stack.clone().call(request)),
        )
        .await;
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = respond(Answer::text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD here\n",
        ));
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let path = request.uri().path();
    respond(match ROUTES.iter().find(|route| route.path == path) {
        Some(route) => (route.answer)(shared),
        None => Answer::text(
            StatusCode::NOT_FOUND,
            &format!("nothing here; there is:\n\n{}", super::index()),
        ),
    })
}

fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, answer.content_type);
    response
}
