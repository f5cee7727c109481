//! A worker's metric handles: held, so that recording is an atomic add and no look-up.

use super::{Telemetry, names};
use crate::telemetry::log::Usage;
use hashbrown::HashMap;
use metrics::{Counter, Gauge, Histogram};
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Label sets of `kvgauge_requests_total` that a worker keeps; the ones after that are counted
/// under `other`. The labels are bounded anyway: this holds when a router invents status codes.
const MOST_REQUEST_SERIES: usize = 2048;

/// What is counted when a request has ended.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// The method's label.
    pub method: &'static str,
    /// The route's label.
    pub route: &'static str,
    /// The status sent, if one was.
    pub status: Option<u16>,
    /// The outcome's name.
    pub outcome: &'static str,
    /// From the head read to the last byte.
    pub duration: Duration,
    /// It was a tunnel, whose duration says nothing of answers.
    pub is_tunnel: bool,
    /// To the first content event, of streams answered with 200.
    pub ttft: Option<Duration>,
    /// For each further token, of streams that report usage.
    pub tpot: Option<Duration>,
    /// What kvgauge added.
    pub overhead: Option<Duration>,
    /// Tokens reported.
    pub usage: Usage,
}

/// See the [module](self) description. One for each worker.
pub struct Meters {
    telemetry: Arc<Telemetry>,
    requests: RefCell<HashMap<RequestKey, Counter, foldhash::fast::RandomState>>,
    in_flight: Gauge,
    tunnels: Gauge,
    duration: Histogram,
    tunnel_duration: Histogram,
    ttft: Histogram,
    tpot: Histogram,
    overhead: Histogram,
    tokens: [Counter; 3],
    tunnel_bytes: [Counter; 2],
}

/// Which way a tunnel's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client, to the router.
    In,
    /// From the router, to the client.
    Out,
}

type RequestKey = (Word, Word, u16, Word);

/// A word of the program's own, known by where it stands rather than by its letters: that is quicker to
/// look up. Should one stand in two places, it is kept twice, and both count the same series.
#[derive(Clone, Copy)]
struct Word(&'static str);

impl Word {
    fn place(self) -> (usize, usize) {
        (self.0.as_ptr().addr(), self.0.len())
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Word {}

impl Hash for Word {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.as_ptr().addr().hash(hasher);
    }
}

impl Meters {
    /// Handles on the shared recorder.
    #[must_use]
    pub fn new(telemetry: &Arc<Telemetry>) -> Meters {
        let meters = Meters {
            telemetry: Arc::clone(telemetry),
            requests: RefCell::default(),
            in_flight: telemetry.gauge(names::IN_FLIGHT),
            tunnels: telemetry.gauge(names::TUNNELS),
            duration: telemetry.histogram(names::REQUEST_DURATION),
            tunnel_duration: telemetry.histogram(names::TUNNEL_DURATION),
            ttft: telemetry.histogram(names::TIME_TO_FIRST_TOKEN),
            tpot: telemetry.histogram(names::TIME_PER_OUTPUT_TOKEN),
            overhead: telemetry.histogram(names::OVERHEAD),
            tokens: ["input", "output", "cached"]
                .map(|kind| telemetry.counter(names::TOKENS, &[("type", kind)])),
            tunnel_bytes: ["in", "out"]
                .map(|way| telemetry.counter(names::TUNNEL_BYTES, &[("direction", way)])),
        };
        // There from the start, so that a rate has a zero to begin from.
        let _ = telemetry.drained();
        for reason in [
            "head_too_large",
            "header",
            "no_request",
            "request_head_timeout",
        ] {
            let _ = telemetry.counter(names::MALFORMED, &[("reason", reason)]);
        }
        for reason in ["length_beside_chunked", "repeated_length"] {
            let _ = telemetry.counter(names::ODD_ANSWERS, &[("reason", reason)]);
        }
        let _ = meters.request_counter("POST", "/v1/chat/completions", "200", "complete");
        meters
    }

    /// A request has begun.
    pub fn started(&self) {
        self.in_flight.increment(1.0);
    }

    /// A request has ended.
    pub fn finished(&self, f: &Finished) {
        self.in_flight.decrement(1.0);
        let status = f.status.unwrap_or(NO_STATUS);
        self.count_request((Word(f.method), Word(f.route), status, Word(f.outcome)));
        if f.is_tunnel {
            self.tunnels.decrement(1.0);
            self.tunnel_duration.record(f.duration);
        } else {
            self.duration.record(f.duration);
        }
        if let Some(t) = f.ttft {
            self.ttft.record(t);
        }
        if let Some(t) = f.tpot {
            self.tpot.record(t);
        }
        if let Some(t) = f.overhead {
            self.overhead.record(t);
        }
        let tokens = [f.usage.input, f.usage.output, f.usage.cached];
        for (counter, tokens) in self.tokens.iter().zip(tokens) {
            if let Some(n) = tokens {
                counter.increment(n);
            }
        }
    }

    /// A request has become a tunnel.
    pub fn tunnel_began(&self) {
        self.tunnels.increment(1.0);
    }

    /// Bytes that a tunnel has carried.
    pub fn tunnelled(&self, direction: Direction, bytes: u64) {
        let [inward, outward] = &self.tunnel_bytes;
        match direction {
            Direction::In => inward.increment(bytes),
            Direction::Out => outward.increment(bytes),
        }
    }

    /// Something came that is not a request.
    pub fn malformed(&self, reason: &'static str) {
        // Rare, so looked up each time.
        self.telemetry
            .counter(names::MALFORMED, &[("reason", reason)])
            .increment(1);
    }

    /// The framing of an answer of the router's had to be cleared before it was passed on.
    pub fn odd_answer(&self, reason: &'static str) {
        // As rare.
        self.telemetry
            .counter(names::ODD_ANSWERS, &[("reason", reason)])
            .increment(1);
    }

    fn count_request(&self, key: RequestKey) {
        let mut requests = self.requests.borrow_mut();
        if let Some(counter) = requests.get(&key) {
            return counter.increment(1);
        }
        let (Word(method), Word(route), code, Word(outcome)) = key;
        if requests.len() >= MOST_REQUEST_SERIES {
            return self
                .request_counter(method, route, "other", outcome)
                .increment(1);
        }
        let counter = self.request_counter(method, route, code_label(code), outcome);
        counter.increment(1);
        requests.insert(key, counter);
    }

    fn request_counter(
        &self,
        method: &'static str,
        route: &'static str,
        code: &'static str,
        outcome: &'static str,
    ) -> Counter {
        let labels = [
            ("method", method),
            ("route", route),
            ("code", code),
            ("outcome", outcome),
        ];
        self.telemetry.counter(names::REQUESTS, &labels)
    }
}

/// Stands for "no status was sent".
const NO_STATUS: u16 = 0;

/// Status codes a label of their own; the rest of each class shares one, so that the label is
/// bounded whatever a router sends.
fn code_label(code: u16) -> &'static str {
    macro_rules! codes {
        ($($code:literal)*) => {
            match code {
                $($code => stringify!($code),)*
                NO_STATUS => "none",
                100..=199 => "1xx",
                200..=299 => "2xx",
                300..=399 => "3xx",
                400..=499 => "4xx",
                500..=599 => "5xx",
                _ => "other",
            }
        };
    }
    codes!(101 200 201 202 204 206 301 302 303 304 307 308 400 401 402 403 404 405 406 408 409 410
           411 412 413 414 415 416 417 421 422 423 424 425 426 428 429 431 451 499
           500 501 502 503 504 505 507 508 511 529)
}
