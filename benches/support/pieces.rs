//! The pieces of the data path that are measured. Benches take their time, `benches/data_path` counts
//! their instructions.

pub(crate) mod messages;
mod played;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body::{Body, Frame, SizeHint};
use kvgauge::config::{Headline, Settings};
use kvgauge::kv::{Role, RoleState, Unknown};
use kvgauge::net::Outbound;
use kvgauge::proxy::{ProxyError, bench};
use kvgauge::telemetry::log::{Log, Record, Sink, Usage};
use kvgauge::telemetry::{Finished, Meters, Telemetry};
use kvgauge::{LoadStamp, StampLayer, StampNames, Stamps};
use messages::{
    MODEL, REQUEST_ID, answer_body, answer_on_the_wire, chunk, events, fields, of_type, request,
    request_body, stream_head_on_the_wire,
};
use played::{Asking, asking};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tower::{Layer, Service, service_fn};

/// Takes the measure of a piece.
pub(crate) trait Measure {
    /// Whether anything of this group of pieces is to be measured.
    fn wants(&self, group: &str) -> bool;

    /// `work` does the piece so many `times`, on what `prepare` makes anew for each call. Neither that
    /// nor dropping what `work` gives back is part of it.
    fn piece<I, O>(
        &mut self,
        name: &'static str,
        times: usize,
        prepare: impl FnMut() -> I,
        work: impl FnMut(I) -> O,
    );
}

/// How often a short piece is done in one go.
const TIMES: usize = 64;

/// Bytes of a value that are carried over from frame to frame, as set by default.
const CARRY: usize = 64 << 10;

/// Bytes of a body's frames where it is cut. Every event is cut so.
const CUT: usize = 160;

/// Measures the pieces of a group.
type Group<M> = fn(&mut M);

/// Every piece of the groups that are wanted. The name of each begins with that of its group.
pub(crate) fn all<M: Measure>(measure: &mut M) {
    let groups: [(&str, Group<M>); 6] = [
        ("stamp", stamp),
        ("log", log_line),
        ("histogram", histogram),
        ("usage", usage),
        ("hop", hop),
        ("client", client_side),
    ];
    for (name, group) in groups {
        if measure.wants(name) {
            group(measure);
        }
    }
}

// === the pieces ===

/// The KV headers on an answer.
fn stamp(measure: &mut impl Measure) {
    let stamps = stamps().own();
    measure.piece(
        "stamp-load",
        TIMES,
        || Vec::with_capacity(TIMES),
        |mut loaded| {
            let now = Instant::now();
            loaded.extend((0..TIMES).map(|_| stamps.load(black_box(now))));
            loaded
        },
    );
    let name = |name| Some(HeaderName::from_static(name));
    let names = Arc::new(StampNames::new(name("x-kv-usage"), name("x-kv-pools")));
    let layer = StampLayer::new(stamps.clone(), names, true);
    let mut service = layer.layer(service_fn(|request: Request<Carried>| {
        ready(Ok::<_, Infallible>(request.into_body().0))
    }));
    measure.piece(
        "stamp",
        TIMES,
        || (requests(), Vec::with_capacity(TIMES)),
        |(requests, mut answers)| {
            answers.extend(requests.into_iter().map(|r| at_once(service.call(r))));
            answers
        },
    );
}

/// Lines that one block holds: what the writer's thread does with a block is left out, as it frees the
/// block sooner or later, and where the next one then grows differs.
const LINES: usize = 32;

/// A request's line in the log.
fn log_line(measure: &mut impl Measure) {
    let (log, stamp) = (log(&Telemetry::new()), stamps().own().load(Instant::now()));
    let usage = usage_reported();
    let record = Record {
        method: Some("POST"),
        path: Some("/v1/chat/completions"),
        status: Some(200),
        version: Some("1.1"),
        client: "127.0.0.1",
        error_type: None,
        request_model: Some(MODEL),
        response_model: Some(MODEL),
        usage,
        trace_id: Some("0af7651916cd43dd8448eb211c80319c"),
        request_id: Some(REQUEST_ID),
        upstream_request_id: None,
        outcome: "complete",
        duration: Duration::from_micros(1_234_567),
        ttft: Some(Duration::from_micros(45_678)),
        tpot: Some(Duration::from_micros(9_876)),
        stream: Some(true),
        bytes_in: 700,
        bytes_out: 25_600,
        kv_start: &stamp.log_start,
        kv_end: &stamp.log_end,
    };
    measure.piece(
        "log-line",
        LINES,
        || log.sink(),
        |sink: Sink| {
            for _ in 0..LINES {
                sink.write(black_box(&record));
            }
            sink
        },
    );
}

/// The counts of a request that has ended.
fn histogram(measure: &mut impl Measure) {
    let telemetry = Telemetry::new();
    let meters = Meters::new(&telemetry);
    let finished = Finished {
        method: "POST",
        route: "/v1/chat/completions",
        status: Some(200),
        outcome: "complete",
        duration: Duration::from_micros(1_234_567),
        is_tunnel: false,
        ttft: Some(Duration::from_micros(45_678)),
        tpot: Some(Duration::from_micros(9_876)),
        overhead: Some(Duration::from_micros(87)),
        usage: usage_reported(),
    };
    measure.piece(
        "histogram",
        TIMES,
        || telemetry.upkeep(),
        |()| {
            for _ in 0..TIMES {
                meters.finished(black_box(&finished));
            }
        },
    );
}

/// The model of a request, and model and tokens of an answer, read from bodies in passing.
fn usage(measure: &mut impl Measure) {
    let (json, stream) = (of_type("application/json"), of_type("text/event-stream"));
    let (request, answer, events) = (request_body(), answer_body(), events(TIMES));
    let stream_body = events.concat();
    assert_eq!(
        bench::asked_model(&json, &[&request], CARRY).as_deref(),
        Some(MODEL)
    );
    let expected = (usage_reported(), Some(MODEL.into()));
    assert_eq!(bench::reported(&json, &[&answer], CARRY), expected);
    assert_eq!(bench::reported(&stream, &[&stream_body], CARRY), expected);

    let whole = |body: &'static [u8]| vec![body];
    let cut = |body: &'static [u8]| body.chunks(CUT).collect::<Vec<_>>();
    let (request, answer) = (&*request.leak(), &*answer.leak());
    for (name, frames) in [
        ("usage-request-whole", whole(request)),
        ("usage-request-cut", cut(request)),
    ] {
        let work = |()| bench::asked_model(black_box(&json), black_box(&frames), CARRY);
        measure.piece(name, 1, || (), work);
    }
    for (name, frames) in [
        ("usage-answer-whole", whole(answer)),
        ("usage-answer-cut", cut(answer)),
    ] {
        let work = |()| bench::reported(black_box(&json), black_box(&frames), CARRY);
        measure.piece(name, 1, || (), work);
    }
    let one_each: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let cut: Vec<&[u8]> = stream_body.chunks(CUT).collect();
    for (name, frames) in [("usage-event-whole", one_each), ("usage-event-cut", cut)] {
        let work = |()| bench::reported(black_box(&stream), black_box(&frames), CARRY);
        measure.piece(name, TIMES, || (), work);
    }
}

/// What belongs to one hop, taken off and put on.
fn hop(measure: &mut impl Measure) {
    let telemetry = Telemetry::new();
    let log = log(&telemetry);
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
    let settings = Arc::new(Settings::defaults());
    let inner = service_fn(answer_of);
    let mut service = bench::hop(settings, &stamps(), &log, &telemetry, peer, inner);
    let mut other = bench::hop(
        Arc::new(Settings::defaults()),
        &stamps(),
        &log,
        &telemetry,
        peer,
        inner,
    );
    measure.piece(
        "hop-request",
        TIMES,
        || (requests(), Vec::with_capacity(TIMES)),
        |(requests, mut answering)| {
            answering.extend(requests.into_iter().map(|r| service.call(r)));
            answering
        },
    );
    measure.piece(
        "hop-answer",
        TIMES,
        || {
            let answering: Vec<_> = requests().into_iter().map(|r| other.call(r)).collect();
            (answering, Vec::with_capacity(TIMES))
        },
        |(answering, mut answers)| {
            answers.extend(answering.into_iter().map(at_once));
            answers
        },
    );
}

/// The client's side, to the router: over a kept connection that is played.
fn client_side(measure: &mut impl Measure) {
    measure.piece("client-request", TIMES, asking, |mut askings| {
        for asking in &mut askings {
            asking.begin();
        }
        askings
    });
    let answer = answer_on_the_wire();
    measure.piece(
        "client-answer",
        TIMES,
        || {
            let mut askings = asking();
            for asking in &mut askings {
                asking.begin();
                asking.played.say(&answer);
            }
            askings
        },
        |mut askings| {
            for asking in &mut askings {
                asking.answered();
            }
            askings
        },
    );
    // Each event a chunk, and so many of them in what one read of the socket brings.
    for (name, at_once) in [("client-chunk", 1), ("client-chunk-of-8", 8)] {
        let mut chunks: Vec<Vec<u8>> = events(TIMES).iter().map(|event| chunk(event)).collect();
        chunks.push(chunk(b""));
        let reads: Vec<Bytes> = chunks.chunks(at_once).map(|c| c.concat().into()).collect();
        measure.piece(
            name,
            TIMES,
            || {
                let mut asking = Asking::new();
                asking.begin();
                asking.played.say(&stream_head_on_the_wire());
                asking.answered();
                for read in &reads {
                    asking.played.say(read);
                }
                (asking, Vec::with_capacity(TIMES))
            },
            |(mut asking, mut frames)| {
                while let Some(frame) = asking.frame() {
                    frames.push(frame);
                }
                (asking, frames)
            },
        );
    }
}

// === what they work with ===

fn usage_reported() -> Usage {
    Usage {
        input: Some(1234),
        output: Some(128),
        cached: Some(1024),
    }
}

/// Prefill and decode known.
fn stamps() -> Stamps {
    let role = |role, usage| RoleState {
        usage: Ok(usage),
        max: Some(usage),
        used: Some(123_456),
        capacity: Some(456_789),
        running: Some(17),
        queued: Some(3),
        age: Some(Duration::from_millis(420)),
        pools: 4,
        ..RoleState::unknown(role, None, Unknown::Stalled)
    };
    let states = [role(Role::Prefill, 0.1234), role(Role::Decode, 0.5678)];
    let stamps = Stamps::new(&states, Headline::Role(Role::Decode));
    let for_long = Instant::now() + Duration::from_secs(3600);
    stamps.publish(&states, Headline::Role(Role::Decode), for_long);
    stamps
}

fn log(telemetry: &Telemetry) -> Log {
    Log::start(std::io::sink(), 64 << 20, telemetry.log_lines_dropped()).unwrap()
}

// === layers without what is below them ===

/// A request's body, and the answer to it.
struct Carried(Response<()>);

impl Body for Carried {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(700)
    }
}

fn answer_of(outbound: Outbound<Carried>) -> Ready<Result<Response<()>, ProxyError>> {
    ready(Ok(outbound.request.into_body().0))
}

fn requests() -> Vec<Request<Carried>> {
    let one = || {
        let mut answer = Response::new(());
        *answer.headers_mut() = fields(&[
            ("date", "Sun, 30 Nov 2025 14:12:40 GMT"),
            ("server", "uvicorn"),
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("x-request-id", REQUEST_ID),
            ("transfer-encoding", "chunked"),
        ]);
        request(Carried(answer))
    };
    (0..TIMES).map(|_| one()).collect()
}

/// What a future that has all it needs gives.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for something"),
    }
}
