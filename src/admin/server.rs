//! The listener's HTTP side. Bounded in connections and in time, and on the metrics plane's thread:
//! whatever happens here, no request of a client's notices.

use super::hosts::Hosts;
use super::places::{Held, Place, Places};
use super::stall::Stalling;
use super::{Answering, Conflicts, Gate, Live, ROUTES, Sharing, at_once, index, page, text, web};
use crate::config::{Current, Settings};
use crate::exposition::takes_gzip;
use crate::proxy::Phase;
use crate::publish::Chronicle;
use crate::scrape::Board;
use crate::telemetry::Telemetry;
use crate::telemetry::log::Recent;
use http::header::{ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;
use tower::{Service, ServiceBuilder, service_fn as tower_service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;

/// Connections at a time. For one more another is [let go](super::places).
const MOST_CONNECTIONS: usize = 256;

/// So many are taken off the listener's queue in a row, then those that are there get on: each of them
/// has had its turn long before enough others have come that it is let go.
const MOST_AT_ONCE: usize = 64;

/// Bytes of a request's head; hyper answers 431 to a longer one. Its own limit is 408 KiB, for each
/// connection.
const MOST_HEAD: usize = 32 * 1024;

/// A peer that takes nothing of its answer for so long is dropped.
const WRITE_STALL: Duration = Duration::from_secs(10);

/// Bytes that the kernel takes of an answer before they can be sent, so that a peer that takes nothing is
/// seen to, and costs no more.
const MOST_UNSENT: u32 = 128 * 1024;

/// For a request's head, and so for a connection without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What the endpoints show.
pub struct Shared {
    /// The settings that are in force.
    pub settings: Current,
    /// The newest readings and pages.
    pub board: Board,
    /// kvgauge's own counts.
    pub telemetry: Arc<Telemetry>,
    /// How far the process is on its way out.
    pub phase: watch::Receiver<Phase>,
    /// What the last merge left out.
    pub conflicts: Conflicts,
    /// Who waits for the page.
    pub sharing: Sharing,
    /// Who is told anything.
    pub gate: Gate,
    /// What is kept of the past.
    pub chronicle: Chronicle,
    /// The last lines of the log.
    pub recent: Recent,
    /// Who listens to the stream.
    pub live: Live,
    /// When the process began.
    pub started: Instant,
}

/// The listener.
pub struct Admin {
    listener: tokio::net::TcpListener,
    shared: Rc<Shared>,
    hosts: Rc<Hosts>,
}

// === impl Shared ===

impl Shared {
    /// The settings that are in force now.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

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
            hosts: Rc::new(Hosts::of(listener.local_addr()?)),
            listener: tokio::net::TcpListener::from_std(listener)?,
            shared: Rc::new(shared),
        })
    }

    /// Serves until it is dropped.
    pub async fn run(self) {
        tokio::task::spawn_local(Live::run(Rc::clone(&self.shared)));
        let places = Places::new(MOST_CONNECTIONS);
        loop {
            for _ in 0..MOST_AT_ONCE {
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let (shared, hosts) = (Rc::clone(&self.shared), Rc::clone(&self.hosts));
                        let held = places.take(Instant::now());
                        tokio::task::spawn_local(serve(stream, shared, hosts, held));
                    }
                    // The peer's doing, and no reason to wait.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
            }
            yield_now().await;
        }
    }
}

async fn serve(stream: TcpStream, shared: Rc<Shared>, hosts: Rc<Hosts>, held: Held) {
    crate::net::prepare_accepted(&stream);
    crate::net::keep_little_unsent(&stream, MOST_UNSENT);
    let stack = ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::overriding(
            X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .layer(SetResponseHeaderLayer::if_not_present(
            CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        // Before the layer that packs, whose reading would be a second opinion.
        .map_request(settle_coding)
        // Leaves `/metrics` alone, which is packed once for all who share it, and event streams.
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::new())
        .service(tower_service_fn({
            let place = held.place();
            move |request: Request<Incoming>| {
                let answer = answer(&request, &shared, &hosts, &place);
                async move { Ok::<_, Infallible>(answer.await) }
            }
        }));
    let place = held.place();
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MOST_HEAD)
        .serve_connection(
            TokioIo::new(Stalling::new(stream, WRITE_STALL, held.place())),
            service_fn(move |request| {
                let answering = place.asked(Instant::now());
                let answer = stack.clone().call(request);
                async move { Ok::<_, Infallible>(answer.await?.map(|body| answering.with(body))) }
            }),
        );
    tokio::select! {
        // A peer that breaks off is its own business.
        _ = connection => {}
        () = held.told_to_leave() => {}
    }
}

/// Leaves of `Accept-Encoding` what it comes to: gzip, or nothing. A client that takes neither gzip
/// nor the plain answer gets the plain one, as one that takes none of the types of `/metrics` gets the
/// classic one, and no 406.
fn settle_coding(mut request: Request<Incoming>) -> Request<Incoming> {
    let headers = request.headers_mut();
    let gzip = takes_gzip(page::values(headers, ACCEPT_ENCODING));
    headers.remove(ACCEPT_ENCODING);
    if gzip {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
    request
}

fn answer(
    request: &Request<Incoming>,
    shared: &Rc<Shared>,
    hosts: &Hosts,
    place: &Place,
) -> Answering {
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // The page's own files say nothing of what is there.
    if reads && let Some(file) = web::find(path, request.headers()) {
        return at_once(file.answer(request.headers()));
    }
    let route = ROUTES.iter().find(|route| route.path == path);
    // First of all, so that who has no token learns nothing of what is there.
    if !route.is_some_and(|route| route.open) {
        let now = Instant::now();
        if let Some(refusal) = shared.gate.refusal(request.headers(), now) {
            return at_once(refusal);
        }
        place.let_in();
    }
    if !reads {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD here\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, allowed);
        return at_once(answer);
    }
    // Who has shown a token is no page that found its way here.
    if !route.is_some_and(|route| route.open)
        && !shared.gate.asks()
        && let Some(refusal) = hosts.refusal(request.uri(), request.headers())
    {
        return at_once(refusal);
    }
    match route {
        Some(route) => (route.answer)(shared, request.headers()),
        None => at_once(text(
            StatusCode::NOT_FOUND,
            &format!("nothing here; there is:\n\n{}", index()),
        )),
    }
}
