//! Clients that mean harm, or are as slow as if they did, beside one that behaves: its requests go on
//! as if they were not there, and what they hold is bounded and let go of.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::client::post;
use support::upstream::OK;
use support::wait::within;
use support::{Client, Kvgauge, Process, Setup, Upstream, pause};

/// `timeouts.request_head`, 30 s by default.
const HEAD: Duration = Duration::from_secs(4);

/// Who says nothing, who stops in its head, who stops in its body: 2,000 together.
const SILENT: usize = 700;
const IN_THE_HEAD: usize = 700;
const IN_THE_BODY: usize = 600;

/// What a request of the one who behaves may take, where those before the attack were quick: one of
/// two, and 99 of 100. Generous, since the attack plays on the same processors, and what is meant is
/// that nobody waits for a limit to pass.
const MOST: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

fn kvgauge(upstream: &Upstream) -> Kvgauge {
    Setup::new(upstream.address())
        .settings(&format!(
            "timeouts.request_head = \"{}s\"\n",
            HEAD.as_secs()
        ))
        .start()
}

/// One who behaves: a request after the other, each fourth over a connection of its own, until told
/// that it is enough. How long each took, the shortest first.
fn behave(address: SocketAddr, enough: impl Fn(usize) -> bool) -> Vec<Duration> {
    let request = post("/v1/chat/completions", "", r#"{"model":"m","messages":[]}"#);
    let mut took = Vec::new();
    let mut client = None;
    while !enough(took.len()) {
        let start = Instant::now();
        if took.len().is_multiple_of(4) {
            client = None;
        }
        let client = client.get_or_insert_with(|| Client::connect(address));
        let answer = client.send(&request).response("POST");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "{}"));
        took.push(start.elapsed());
        pause(Duration::from_millis(5));
    }
    took.sort();
    took
}

/// The middle one, and the one that only a hundredth takes longer than.
fn told(what: &str, took: &[Duration]) -> (Duration, Duration) {
    let (middle, late) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!(
        "{what}: {} requests, half within {middle:.1?}, 99 % within {late:.1?}, all within {:.1?}",
        took.len(),
        took[took.len() - 1]
    );
    (middle, late)
}

fn unharmed(before: &[Duration], during: &[Duration]) {
    let (usual, _) = told("before", before);
    let (middle, late) = told("meanwhile", during);
    assert!(middle <= MOST.0 + usual * 10, "half of them take longer");
    assert!(late <= MOST.1 + usual * 50, "some take much longer");
}

/// Done when the attack ends, however it does: who waits for that must not wait for ever.
struct AtTheEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtTheEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A connection of the attack.
struct Slow {
    stream: TcpStream,
    /// What it sends, a byte at a time.
    drips: &'static [u8],
    opened: Instant,
    closed: Option<Duration>,
}

impl Slow {
    fn open(address: SocketAddr, first: &str, drips: &'static [u8]) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(first.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            drips,
            opened: Instant::now(),
            closed: None,
        }
    }

    /// Sends one byte more, unless kvgauge has closed the connection.
    fn turn(&mut self, n: usize) {
        if self.closed.is_some() {
            return;
        }
        let ended = match self.stream.read(&mut [0; 256]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let drip = self.drips.get(n % self.drips.len().max(1));
        if ended || drip.is_some_and(|byte| self.stream.write_all(&[*byte]).is_err()) {
            self.closed = Some(self.opened.elapsed());
        }
    }
}

#[test]
fn two_thousand_slow_connections_harm_nobody_and_are_let_go_timed() {
    let upstream = Upstream::ok();
    let mut kvgauge = kvgauge(&upstream);
    let process = Process::new(kvgauge.pid());
    let before = behave(kvgauge.listen, |n| n >= 200);
    let (resident, descriptors) = (process.resident_kib(), process.descriptors());

    let address = kvgauge.listen;
    let over = AtomicBool::new(false);
    let (mut all, during) = std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let _over = AtTheEnd(|| over.store(true, Ordering::Relaxed));
            attack(address)
        });
        let during = behave(address, |_| over.load(Ordering::Relaxed));
        (attack.join().unwrap(), during)
    });
    unharmed(&before, &during);
    assert!(during.len() > 200, "{} requests", during.len());

    // Those without a whole head are let go in time, and not before.
    let bodies = all.split_off(SILENT + IN_THE_HEAD);
    for slow in &all {
        let after = slow.closed.expect("let go of");
        assert!(after >= HEAD && after < HEAD * 3, "let go after {after:?}");
    }
    // Those with a slow body are requests as others are: nothing ends them by default.
    assert!(bodies.iter().all(|slow| slow.closed.is_none()));
    let running = kvgauge.metrics().value("kvgauge_requests_in_flight", &[]);
    assert_eq!(running, Some(IN_THE_BODY as f64));
    drop(bodies);
    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
    within(
        Duration::from_secs(20),
        "descriptors are free again",
        || (process.descriptors() <= descriptors).then_some(()),
    );

    let peak = process.peak_kib() - resident;
    println!("resident memory grew by {peak} KiB at most, from {resident} KiB");
    let most = (SILENT + IN_THE_HEAD + IN_THE_BODY) as u64 * 48;
    assert!(peak < most, "{peak} KiB more");

    let malformed = kvgauge.metrics().sum(
        "kvgauge_malformed_requests_total",
        &[("reason", "request_head_timeout")],
    );
    assert_eq!(malformed, IN_THE_HEAD as f64);
    kvgauge.until_metric(
        "kvgauge_malformed_requests_total",
        &[("reason", "no_request")],
        Some(SILENT as f64),
    );
    let lines = kvgauge.lines_to_the_end();
    let count = |outcome| {
        lines
            .iter()
            .filter(|line| line["outcome"] == outcome)
            .count()
    };
    assert_eq!(count("complete"), before.len() + during.len());
    assert_eq!(count("client_gone"), IN_THE_BODY);
    assert_eq!(count("malformed"), IN_THE_HEAD);
}

/// Opens 2,000 connections, and drips into them until those without a whole head are let go.
fn attack(address: SocketAddr) -> Vec<Slow> {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: k.test\r\nContent-Length: 100000\r\n";
    let mut all: Vec<Slow> = Vec::new();
    all.extend((0..SILENT).map(|_| Slow::open(address, "", b"")));
    all.extend((0..IN_THE_HEAD).map(|_| Slow::open(address, head, b"x-a: b\r\n")));
    let whole = format!("{head}\r\n");
    all.extend((0..IN_THE_BODY).map(|_| Slow::open(address, &whole, b"{}")));
    let start = Instant::now();
    for n in 0.. {
        pause(Duration::from_secs(1));
        all.iter_mut().for_each(|slow| slow.turn(n));
        let heads = &all[..SILENT + IN_THE_HEAD];
        if heads.iter().all(|slow| slow.closed.is_some()) || start.elapsed() > HEAD * 5 {
            break;
        }
    }
    all
}

#[test]
fn a_flood_of_large_heads_harms_nobody_timed() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 25;
    let upstream = Upstream::answering(OK);
    let mut kvgauge = kvgauge(&upstream);
    let process = Process::new(kvgauge.pid());
    let before = behave(kvgauge.listen, |n| n >= 200);
    let (resident, descriptors) = (process.resident_kib(), process.descriptors());

    // As many fields as there may be, with `Host`; one more; and more bytes than there may be.
    let fields = |count: usize, length: usize| -> String {
        let value = "v".repeat(length);
        let fields: String = (1..count).map(|n| format!("x-{n}: {value}\r\n")).collect();
        format!("GET /v1/models HTTP/1.1\r\nHost: k.test\r\n{fields}\r\n")
    };
    let heads = [
        (fields(100, 2000), true),
        (fields(101, 10), false),
        (fields(90, 3500), false),
    ];
    let ended = AtomicUsize::new(0);
    let during = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _ended = AtTheEnd(|| {
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                for _ in 0..ROUNDS {
                    for (head, is_right) in &heads {
                        flood(kvgauge.listen, head, *is_right);
                    }
                    // It is kvgauge that is to be flooded, not the machine.
                    pause(Duration::from_millis(20));
                }
            });
        }
        behave(kvgauge.listen, |_| ended.load(Ordering::Relaxed) == THREADS)
    });
    unharmed(&before, &during);

    within(
        Duration::from_secs(20),
        "descriptors are free again",
        || (process.descriptors() <= descriptors).then_some(()),
    );
    let peak = process.peak_kib() - resident;
    println!("resident memory grew by {peak} KiB at most, from {resident} KiB");
    assert!(peak < 32 * 1024, "{peak} KiB more");

    let right = THREADS * ROUNDS;
    let metrics = kvgauge.metrics();
    let reason = [("reason", "head_too_large")];
    let refused = metrics.sum("kvgauge_malformed_requests_total", &reason);
    assert_eq!(refused, 2.0 * right as f64);
    let lines = kvgauge.lines_to_the_end();
    let count = |outcome| {
        lines
            .iter()
            .filter(|line| line["outcome"] == outcome)
            .count()
    };
    assert_eq!(count("complete"), before.len() + during.len() + right);
    assert_eq!(count("malformed"), 2 * right);
}

/// Sends a head over a connection of its own; one that is over a limit is refused.
fn flood(address: SocketAddr, head: &str, is_right: bool) {
    let mut client = Client::connect(address);
    // Where it is refused, the rest of it may meet a closed connection.
    let sent = client.try_send(head);
    match client.try_response("GET") {
        Ok(answer) => assert_eq!(answer.status(), if is_right { 200 } else { 431 }),
        Err(end) => assert!(!is_right, "{sent:?} {end:?}"),
    }
}
