//! Panics in every place of a request's way, over real sockets. There is no way to make kvgauge itself
//! panic, so something that does stands in the router's place, below the whole stack.

#![allow(clippy::disallowed_methods, reason = "both ends are the test's own")]

use super::super::client::Client;
use super::super::connection;
use super::super::forward::{HeadLimits, explain};
use super::super::stack::{RequestBody, StackParts};
use super::super::ticket::Ticket;
use super::super::worker::{Load, Worker};
use super::*;
use crate::config::Settings;
use crate::engine;
use crate::kv;
use crate::net::{Outbound, Pool, PoolError, PoolLimits};
use crate::publish::Stamps;
use crate::telemetry::log::Log;
use crate::telemetry::{Meters, Telemetry};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Where it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// Called with the request.
    Call,
    /// On the way to the head.
    Head,
    /// In the body, behind its first piece.
    Body,
    /// In the body, where hyper asks for it outside of every layer.
    Size,
}

/// Answers in the router's place.
#[derive(Clone)]
struct Router(Place);

/// Two pieces without a length.
struct TwoPieces {
    place: Place,
    sent: usize,
}

impl Service<Outbound<RequestBody>> for Router {
    type Response = Response<TwoPieces>;
    type Error = PoolError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, PoolError>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PoolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, outbound: Outbound<RequestBody>) -> Self::Future {
        let place = self.0;
        assert!(place != Place::Call, "in the call");
        Box::pin(async move {
            let _ = outbound.request.into_body().collect().await;
            tokio::task::yield_now().await;
            assert!(place != Place::Head, "before the head");
            Ok(Response::new(TwoPieces { place, sent: 0 }))
        })
    }
}

impl Body for TwoPieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.sent += 1;
        match self.sent {
            1 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"first"))))),
            2 => {
                assert!(self.place != Place::Body, "in the body");
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"second")))))
            }
            _ => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        assert!(self.place != Place::Size, "at its size");
        SizeHint::default()
    }
}

/// Standard output.
#[derive(Clone, Default)]
struct Out(Arc<Mutex<Vec<u8>>>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Out {
    fn lines(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let line = |line| serde_json::from_str(line).unwrap();
        text.lines().map(line).collect()
    }
}

/// What a client saw: the bytes, and whether the connection ended by a reset.
#[derive(Debug)]
struct Seen {
    text: String,
    reset: bool,
}

/// Sends a request to a worker whose router panics there, reads to the connection's end, and lets a
/// second connection of the same worker have a whole answer. What the first client saw, and its line
/// of the log.
async fn play(place: Place, request: &str) -> (Seen, Value) {
    let (worker, bench) = bench(Settings::defaults());
    let parts = Rc::new(StackParts::new(worker));

    let first = ask(&parts, place, request).await;
    let second = ask(&parts, Place::Nowhere, "GET / HTTP/1.0\r\n\r\n").await;
    assert!(second.text.ends_with("\r\n\r\nfirstsecond"), "{second:?}");
    assert!(!second.reset);
    drop(parts);
    let lines = bench.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(lines[1]["outcome"], "complete");
    (first, lines[0].clone())
}

/// What a worker leaves behind.
struct Bench {
    out: Out,
    log: Log,
    loads: Arc<[Arc<Load>]>,
}

fn bench(settings: Settings) -> (Rc<Worker>, Bench) {
    let (out, telemetry) = (Out::default(), Telemetry::new());
    let log = Log::start(out.clone(), 1 << 20, telemetry.log_lines_dropped()).unwrap();
    let settings = Arc::new(settings);
    let loads: Arc<[Arc<Load>]> = Arc::new([Arc::default()]);
    let states = engine::observe(
        &kv::Handle::default().load(),
        Instant::now(),
        Duration::from_secs(1),
    );
    let stamps = Stamps::new(&states, settings.headers.headline);
    let meters = Meters::new(&telemetry);
    let sink = log.sink();
    let (in_load, addresses) = (Arc::clone(&loads), Arc::default());
    let worker = Worker::new(settings, &stamps, sink, meters, 0, in_load, addresses);
    (Rc::new(worker), Bench { out, log, loads })
}

impl Bench {
    /// All of the log. Nothing is in flight any more.
    fn lines(self) -> Vec<Value> {
        assert_eq!(self.loads[0].requests(), 0, "in flight");
        self.log.finish();
        self.out.lines()
    }
}

async fn ask(parts: &Rc<StackParts>, place: Place, request: &str) -> Seen {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let serving = {
        let parts = Rc::clone(parts);
        tokio::task::spawn_local(async move {
            connection::serve_to(stream, peer, parts, |_| {}, Router(place)).await;
        })
    };
    client.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let end = timeout(Duration::from_secs(10), client.read_to_end(&mut bytes)).await;
    let end = end.expect("the connection ends");
    drop(client);
    serving.await.expect("the connection's task does not panic");
    Seen {
        text: String::from_utf8(bytes).unwrap(),
        reset: end.is_err(),
    }
}

fn run(place: Place, request: &str) -> (Seen, Value) {
    on_a_worker(play(place, request))
}

fn on_a_worker<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(work)
}

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: k\r\n\r\n";
const POST: &str = "POST /v1/completions HTTP/1.1\r\nHost: k\r\nContent-Length: 2\r\n\r\n{}";

#[test]
fn a_panic_before_the_head_is_answered_with_500() {
    for (place, request) in [
        (Place::Call, GET),
        (Place::Call, POST),
        (Place::Head, GET),
        (Place::Head, POST),
    ] {
        let (seen, line) = run(place, request);
        let (head, body) = seen.text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 500 Internal Server Error\r\n"),
            "{head}"
        );
        for field in [
            "connection: close",
            "content-type: application/json",
            "x-request-id: ",
        ] {
            assert!(head.contains(field), "{field}: {head}");
        }
        let error: Value = serde_json::from_str(body).unwrap();
        let error = &error["error"];
        assert_eq!(
            (&error["code"], &error["type"]),
            (&"internal".into(), &"server_error".into())
        );
        assert!(
            error["param"].is_null() && error["message"].is_string(),
            "{error}"
        );
        assert!(!body.contains("before the head"), "{body}");
        assert_eq!(line["outcome"], "internal", "{line}");
        assert_eq!(line["error.type"], "internal");
        assert_eq!(line["http.response.status_code"], 500);
    }
}

#[test]
fn a_panic_in_the_body_breaks_the_answer_off() {
    let (seen, line) = run(Place::Body, GET);
    // What came before has left, and there is no last chunk.
    assert!(seen.text.ends_with("5\r\nfirst\r\n"), "{seen:?}");
    assert_eq!(
        (&line["outcome"], &line["error.type"]),
        (&"internal".into(), &"internal".into())
    );
    assert_eq!(line["http.response.status_code"], 200);
    assert_eq!(line["bytes_out"], 5);
    // An answer that ends with its connection must not look finished.
    let (seen, line) = run(Place::Body, "GET / HTTP/1.0\r\n\r\n");
    assert!(
        seen.reset && seen.text.ends_with("\r\n\r\nfirst"),
        "{seen:?}"
    );
    assert_eq!(line["outcome"], "internal", "{line}");
}

#[test]
fn a_panic_outside_of_every_layer_ends_its_connection_alone() {
    let (seen, line) = run(Place::Size, GET);
    assert!(seen.reset && seen.text.is_empty(), "{seen:?}");
    assert_eq!(
        (&line["outcome"], &line["error.type"]),
        (&"internal".into(), &"internal".into())
    );
}

/// A panic in a `Drop` while the thread unwinds would end the process.
#[test]
fn what_is_recorded_while_a_panic_unwinds_is_recorded_once_and_panics_no_more() {
    let (worker, bench) = bench(Settings::defaults());
    let peer = "127.0.0.1:1".parse().unwrap();
    let client = Rc::new(Client::new(peer, &worker.settings));
    let request = Request::get("/v1/models")
        .body(String::from("body"))
        .unwrap();
    let unwound = caught(|| {
        let _ticket = Ticket::new(Rc::clone(&worker), Rc::clone(&client), &request);
        panic!("with a request in hand");
    });
    assert!(unwound.is_none());
    // And one that the connection holds, whose answer is whole.
    let unwound = caught(|| {
        let ticket = Ticket::new(Rc::clone(&worker), Rc::clone(&client), &request);
        ticket.completed();
        let _connection = ConnectionEnds(&client);
        panic!("with an answer in hand");
    });
    assert!(unwound.is_none());
    drop((worker, client));
    let lines = bench.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for line in lines {
        assert_eq!(line["outcome"], "internal", "{line}");
        assert_eq!(line["url.path"], "/v1/models", "{line}");
    }
}

/// Ends a connection when it is dropped, as its socket does.
struct ConnectionEnds<'a>(&'a Client);

impl Drop for ConnectionEnds<'_> {
    fn drop(&mut self) {
        self.0.connection_ended();
    }
}

/// With `panic = "abort"` nothing could be caught.
#[test]
fn no_profile_turns_a_panic_into_the_end() {
    let manifest = include_str!("../../../Cargo.toml").replace(' ', "");
    assert!(manifest.contains("[profile.release]") && !manifest.contains("panic=\"abort\""));
}

/// Panics when it is read.
struct Bad;

impl Body for Bad {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        panic!("in the request's body")
    }
}

/// A panic of the request's body is nobody's fault but ours.
#[tokio::test]
async fn a_panic_in_the_requests_body_is_no_fault_of_the_clients_or_the_routers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let router = listener.local_addr().unwrap();
    let target = crate::config::Target::page(&format!("http://{router}/")).unwrap();
    let limits = PoolLimits {
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(1),
        max_age: Duration::from_secs(1),
        max_idle: 1,
        header_fields: 100,
        header_bytes: 1 << 16,
    };
    let mut pool = Pool::new(target, limits);
    let request = Request::post("/").body(Guarded::new(Bad)).unwrap();
    let error = pool.call(request).await.err().unwrap();
    let error = explain(
        error,
        HeadLimits {
            fields: 100,
            bytes: 1 << 16,
        },
    );
    assert_eq!((error.code(), error.status().as_u16()), ("internal", 500));
    // The router sees a request that ends short.
    let (mut far, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    let _ = far.read_to_end(&mut seen).await;
    assert!(!seen.ends_with(b"0\r\n\r\n"));
}

const OFFER: &str = "GET / HTTP/1.1\r\nHost: k\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// Reads until all of `mark` has come.
async fn read_until(socket: &mut TcpStream, mark: &str) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(mark.as_bytes()) {
        let byte = timeout(Duration::from_secs(10), socket.read_u8()).await;
        bytes.push(byte.expect("in time").unwrap());
    }
}

/// A tunnel that comes to its end unforeseen, as a panic on its way makes it, looks finished to neither
/// side. Nothing in it can be made to panic, so its task is dropped.
#[test]
fn a_tunnel_that_is_dropped_is_reset_on_both_sides() {
    on_a_worker(async {
        let router = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = Settings::defaults();
        settings.upstream.port = router.local_addr().unwrap().port();
        let (worker, bench) = bench(settings);
        let parts = Rc::new(StackParts::new(worker));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = TcpStream::connect(address).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let in_task = Rc::clone(&parts);
        let serving = tokio::task::spawn_local(async move {
            connection::serve(stream, peer, in_task, |_| {}).await;
        });
        near.write_all(OFFER.as_bytes()).await.unwrap();
        let (mut far, _) = router.accept().await.unwrap();
        read_until(&mut far, "\r\n\r\n").await;
        far.write_all(SWITCH.as_bytes()).await.unwrap();
        read_until(&mut near, "\r\n\r\n").await;
        near.write_all(b"over").await.unwrap();
        read_until(&mut far, "over").await;

        serving.abort();
        for (side, socket) in [("client", &mut near), ("router", &mut far)] {
            let end = timeout(Duration::from_secs(10), socket.read(&mut [0])).await;
            let end = end.expect("it ends").map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "{side}");
        }
        drop(parts);
        assert_eq!(bench.lines().len(), 1);
    });
}
