//! Serving one client connection, and what is left to do when it has ended.

use super::client::{Asked, Client, Waiting};
use super::error::{BoxError, Outcome};
use super::guard::caught;
use super::io::ClientIo;
use super::own_wakes::OwnWakes;
use super::stack::{Router, StackParts};
use super::tunnel::Handover;
use super::turn::Turns;
use super::worker::{Phase, Worker};
use crate::publish::LoadStamp;
use crate::telemetry::log::{Record, Usage};
use bytes::Bytes;
use http_body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The least that hyper accepts for its buffers, in bytes.
const MIN_BUFFER: usize = 8192;

/// As many header fields hyper takes without being told. Told the same, it fills the room for them
/// first, for each head.
const MAX_FIELDS: usize = 100;

/// Past `timeouts.request` by so much, the request's own clock has not been able to end it.
const OVERDUE: Duration = Duration::from_millis(500);

/// Why a connection ended, as far as it matters here.
enum End {
    /// As it should: with its last answer, of which a 101 may be one.
    Orderly,
    /// By a fault of either peer's that a request's own record tells.
    Plain,
    /// What came was not a request: the reason, and the status that hyper answered with, if any.
    Malformed(&'static str, Option<u16>),
    /// A head did not come whole in time.
    HeadTimeout,
    /// Nothing came in time.
    Silent,
}

/// Serves `stream` until it ends. `register` is given the connection's handle at the start.
pub(super) fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    parts: Rc<StackParts>,
    register: impl FnOnce(&Rc<Client>),
) -> impl Future<Output = ()> {
    let pool = parts.worker().pool.clone();
    serve_to(stream, peer, parts, register, pool)
}

/// The same, where requests go to whoever answers in the router's place.
pub(super) async fn serve_to<P, B>(
    stream: TcpStream,
    peer: SocketAddr,
    parts: Rc<StackParts>,
    register: impl FnOnce(&Rc<Client>),
    router: P,
) where
    P: Router<B>,
    P::Future: 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    let worker = Rc::clone(parts.worker());
    let client = Rc::new(Client::new(peer, &worker.settings));
    register(&client);
    let end = run(stream, &parts, &client, router).await;
    match end {
        End::Orderly | End::Plain => {}
        End::Malformed(reason, status) => malformed(&worker, &client, reason, status),
        End::HeadTimeout => malformed(&worker, &client, "request_head_timeout", None),
        // No line: whoever connects only to see whether it can, or ahead of need, is no one to write
        // of each time.
        End::Silent => worker.meters.malformed("no_request"),
    }
}

async fn run<P, B>(stream: TcpStream, parts: &StackParts, client: &Rc<Client>, router: P) -> End
where
    P: Router<B>,
    P::Future: 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    let settings = &parts.worker().settings;
    let handover = Handover::default();
    // Lent to each request in its turn rather than copied.
    let stack = RefCell::new(parts.stack(client, &handover, router));
    let turns = Rc::new(Turns {
        worker: Rc::clone(parts.worker()),
        client: Rc::clone(client),
        handover: handover.clone(),
    });
    let service = service_fn(move |request| turns.begin(&stack, request));
    let io = TokioIo::new(ClientIo::new(stream, Rc::clone(client)));
    let mut builder = http1::Builder::new();
    if settings.limits.header_fields != MAX_FIELDS {
        builder.max_headers(settings.limits.header_fields);
    }
    let mut connection = builder
        // Answers are the router's, its `date` included.
        .auto_date_header(false)
        .max_header_size(settings.limits.header_bytes)
        .max_buf_size(settings.limits.header_bytes.max(MIN_BUFFER))
        // The worker's sweeper holds heads and idle connections to their limits, without a timer for
        // each.
        .header_read_timeout(None)
        // hyper would look for the end of the client's side of it, and find 8 KiB for what it reads
        // meanwhile; `Client::watch` does so without.
        .half_close(true)
        .serve_connection(io, service);
    let mut finishing = false;
    let mut own_wakes = OwnWakes::default();
    let end = poll_fn(|cx| {
        // hyper would write `close` beside a 101's `upgrade`.
        if client.poll_asked(cx) == Asked::Finish
            && !handover.may_come()
            && !std::mem::replace(&mut finishing, true)
        {
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Some(end) = at_once(client.asked()) {
            return Poll::Ready(end);
        }
        client.polled();
        let polled = own_wakes.poll(
            cx,
            |cx| {
                let polled = caught(|| poll_connection(Pin::new(&mut connection), client, cx));
                client.watch(cx);
                client.poll_ended();
                polled
            },
            |woken| client.woken_for_nothing(woken),
        );
        let Some(polled) = polled else {
            // What runs is recorded as such when it is dropped, and nobody takes it for finished.
            client.ask(Asked::Panicked);
            client.reset_on_close();
            return Poll::Ready(End::Plain);
        };
        // The socket may just have said that the peer is gone.
        match at_once(client.asked()) {
            Some(end) if polled.is_pending() => Poll::Ready(end),
            _ => polled,
        }
    })
    .await;
    // Not before the 101 has left whole, and only then: what comes from here on is no HTTP.
    if matches!(end, End::Orderly)
        && let Some(opening) = handover.take()
    {
        let http1::Parts { io, read_buf, .. } = connection.into_parts();
        if let Some(stream) = io.into_inner().into_stream() {
            // Boxed, so that other connections need not keep its room.
            Box::pin(opening.run(stream, read_buf, client, parts.worker())).await;
        }
    }
    end
}

fn at_once(asked: Asked) -> Option<End> {
    match asked {
        Asked::Nothing | Asked::Finish => None,
        Asked::SlowHead => Some(End::HeadTimeout),
        Asked::Silent => Some(End::Silent),
        Asked::Gone | Asked::Overdue | Asked::Cut | Asked::Panicked => Some(End::Plain),
    }
}

fn poll_connection<F>(connection: Pin<&mut F>, client: &Client, cx: &mut Context<'_>) -> Poll<End>
where
    F: Future<Output = hyper::Result<()>>,
{
    connection.poll(cx).map(|result| match result {
        Ok(()) => End::Orderly,
        // Whatever broke while a request ran, its own record tells of it.
        Err(_) if client.waiting() == Waiting::Nothing => End::Plain,
        Err(error) if error.is_parse_too_large() => {
            let long_target = error.to_string().contains("URI");
            let status = if long_target { 414 } else { 431 };
            End::Malformed("head_too_large", Some(status))
        }
        Err(error) if error.is_parse() => {
            let reason = parse_reason(&error.to_string());
            End::Malformed(reason, (reason != "http2").then_some(400))
        }
        // A client that left in the middle of a head.
        Err(_) if client.waiting() == Waiting::Head => End::Malformed("incomplete_head", None),
        Err(_) => End::Plain,
    })
}

/// A bounded reason from what hyper says.
fn parse_reason(message: &str) -> &'static str {
    const REASONS: [(&str, &str); 6] = [
        ("method", "method"),
        ("version h2", "http2"),
        ("HTTP2", "http2"),
        ("version", "version"),
        ("URI", "target"),
        ("header", "header"),
    ];
    REASONS
        .iter()
        .find(|(part, _)| message.contains(part))
        .map_or("other", |(_, reason)| reason)
}

fn malformed(worker: &Worker, client: &Client, reason: &'static str, status: Option<u16>) {
    worker.meters.malformed(reason);
    let stamp = worker.stamps.load(Instant::now());
    worker.sink.write(&Record {
        method: None,
        path: None,
        status,
        version: None,
        client: &client.addr,
        error_type: Some(reason),
        request_model: None,
        response_model: None,
        usage: Usage::default(),
        trace_id: None,
        request_id: None,
        upstream_request_id: None,
        outcome: Outcome::Malformed.as_str(),
        duration: client.waited(Instant::now()),
        ttft: None,
        tpot: None,
        stream: None,
        bytes_in: 0,
        bytes_out: 0,
        kv_start: &stamp.log_start,
        kv_end: &stamp.log_end,
    });
}

/// Holds one connection to the limits on waiting. Called for each now and then.
pub(super) fn sweep(client: &Client, worker: &Worker, now: Instant) {
    let timeouts = &worker.settings.timeouts;
    let waited = client.waited(now);
    if client
        .takes_nothing(now)
        .is_some_and(|stuck| stuck > timeouts.client_idle)
    {
        client.give_up();
    }
    match client.waiting() {
        Waiting::FirstByte if waited > timeouts.request_head => client.ask(Asked::Silent),
        Waiting::Head if waited > timeouts.request_head => client.ask(Asked::SlowHead),
        Waiting::NextRequest if waited > timeouts.client_idle => client.ask(Asked::Gone),
        // A client that takes nothing keeps the body's own clock from being looked at.
        Waiting::Nothing
            if timeouts
                .request
                .is_some_and(|limit| waited > limit + OVERDUE) =>
        {
            client.ask(Asked::Overdue);
        }
        _ => client.look_for_peer(),
    }
    match worker.phase() {
        Phase::Serving | Phase::Leaving => {}
        Phase::Draining => client.ask(Asked::Finish),
        Phase::Cutting => client.ask(Asked::Cut),
    }
}
