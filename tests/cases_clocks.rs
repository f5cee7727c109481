//! Problems reported in public about proxies and their clocks (idle connections, long silence, the way
//! out, no descriptors left), each as a test that is named by its id. Inputs are in `tests/data/cases`.
//! Where a case asks for minutes the gate runs it scaled, with its settings scaled too, and `mod full`
//! runs it whole, with the defaults; `tests/config_reference.rs` holds these.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::client::post;
use support::steps::{self, Step};
use support::upstream::{By, OK, STREAM};
use support::{Client, End, Next, Page, Process, Request, Setup, Upstream, get};

const CHAT: &str = "/v1/chat/completions";
const MS: Duration = Duration::from_millis(1);

/// What B30 asks for, or a part of it.
struct Idle {
    /// The server closes a connection so long after its last answer.
    closed_after: Duration,
    /// Between two rounds of requests, one after the other.
    spacings: Vec<Duration>,
    /// How long it goes on.
    runs_for: Duration,
}

/// Single requests and bursts of 20, each through a kvgauge of its own. How many there were.
fn b30(settings: &str, case: &Idle) -> (usize, usize) {
    let lane = |burst: usize| {
        let closed_after = case.closed_after;
        let upstream = Upstream::new(move |connection| {
            connection.request_within(closed_after)?;
            connection.send(OK)?;
            Ok(Next::Again)
        });
        let mut kvgauge = Setup::new(upstream.address()).settings(settings).start();
        let asked = rounds(kvgauge.listen, burst, case);
        let mut seen = BTreeMap::new();
        for request in upstream.requests() {
            *seen
                .entry(request.head.get("x-request-id").unwrap())
                .or_insert(0) += 1;
        }
        assert_eq!(seen.len(), asked, "requests that the router saw");
        assert!(
            seen.values().all(|times| *times == 1),
            "each once: {seen:?}"
        );
        let lines = kvgauge.lines_to_the_end();
        assert_eq!(lines.len(), asked, "log lines");
        for line in &lines {
            assert_eq!(line["outcome"], "complete", "{line}");
        }
        println!(
            "B30, {burst} at a time: {asked} requests, {asked} answers of 200, seen once each, over {} connections",
            upstream.connections()
        );
        asked
    };
    std::thread::scope(|scope| {
        let single = scope.spawn(|| lane(1));
        let bursts = scope.spawn(|| lane(20));
        (single.join().unwrap(), bursts.join().unwrap())
    })
}

fn rounds(listen: SocketAddr, burst: usize, case: &Idle) -> usize {
    let begun = Instant::now();
    let mut asked = 0;
    for (round, spacing) in case.spacings.iter().cycle().enumerate() {
        if begun.elapsed() >= case.runs_for {
            break;
        }
        std::thread::scope(|scope| {
            for n in 0..burst {
                scope.spawn(move || {
                    let id = format!("x-request-id: {round}-{n}\r\n");
                    let answer = support::fetch(listen, post(CHAT, &id, "{}"));
                    assert_eq!(answer.status(), 200, "{round}-{n}: {}", answer.text());
                });
            }
        });
        asked += burst;
        support::pause(*spacing);
    }
    asked
}

#[test]
fn b30_a_server_that_closes_idle_connections_fails_no_request_timed() {
    // A tenth of everything; and around our own limit, where a kept connection is just used again.
    let spacings = [498, 400, 499, 399, 500, 401, 501, 398, 502, 402, 380];
    let case = Idle {
        closed_after: 500 * MS,
        spacings: spacings.map(|ms| ms * MS).to_vec(),
        runs_for: Duration::from_secs(6),
    };
    let (single, bursts) = b30("upstream.idle = \"400ms\"\n", &case);
    assert!(single > 10 && bursts > 200, "{single} {bursts}");
}

/// `b31.steps.json` with another silence.
fn b31_silent_for(silence: Duration) -> Upstream {
    let mut steps = steps::of_case("b31.steps.json");
    let sleeps = steps.iter_mut().filter_map(|step| match step {
        Step::Sleep(time) => Some(time),
        _ => None,
    });
    let mut changed = 0;
    for time in sleeps {
        assert_eq!(*time, Duration::from_secs(720));
        *time = silence;
        changed += 1;
    }
    assert_eq!(changed, 1);
    Upstream::new(move |connection| steps::play(&steps, connection))
}

/// The stream comes whole, byte for byte.
fn b31_ends_whole(upstream: &Upstream, settings: &str, patience: Duration) {
    let mut kvgauge = Setup::new(upstream.address()).settings(settings).start();
    let mut client = Client::connect(kvgauge.listen);
    client.patience(patience);
    let begun = Instant::now();
    client.send(post(CHAT, "x-request-id: b31\r\n", "{\"stream\":true}"));
    let answer = client.response("POST");
    let body = steps::body(&steps::of_case("b31.steps.json"));
    println!(
        "B31: {} bytes of {} after {:?}, end {:?}",
        answer.body.len(),
        body.len(),
        begun.elapsed(),
        answer.end
    );
    assert_eq!((answer.body, answer.end), (body, End::Complete));
    let lines = kvgauge.lines_to_the_end();
    println!("B31: {}", lines[0]);
    assert_eq!(lines[0]["outcome"], "complete", "{}", lines[0]);
}

#[test]
fn b31_a_silence_longer_than_every_other_limit_ends_no_stream() {
    // The limits that exist by default, all shorter than the silence, as 720 s are longer than they are.
    let settings = "timeouts.connect = \"1s\"\ntimeouts.request_head = \"300ms\"\n\
        timeouts.client_idle = \"300ms\"\nupstream.idle = \"300ms\"\nupstream.max_age = \"400ms\"\n";
    b31_ends_whole(
        &b31_silent_for(Duration::from_secs(3)),
        settings,
        Duration::from_secs(20),
    );
}

#[test]
fn b31_a_limit_on_silence_ends_it_and_frees_the_router_timed() {
    let upstream = b31_silent_for(Duration::from_secs(5));
    let kvgauge = Setup::new(upstream.address())
        .settings("timeouts.stream_silence = \"2s\"\n")
        .start();
    let mut client = Client::connect(kvgauge.listen);
    client.send(post(CHAT, "x-request-id: b31\r\n", "{\"stream\":true}"));
    client.head();
    assert!(client.chunk().is_some());
    let silent = Instant::now();
    let (rest, end) = client.rest();
    let took = silent.elapsed();
    assert!(
        rest.is_empty() && matches!(end, End::Cut | End::Reset),
        "{end:?}"
    );
    let about = Duration::from_millis(1900)..Duration::from_millis(2600);
    assert!(about.contains(&took), "{took:?}");
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
    let line = kvgauge.line_of("b31");
    assert_eq!(line["outcome"], "timeout", "{line}");
    assert_eq!(line["error.type"], "stream_silence", "{line}");
}

/// B43 in units of a second, or of less: a stream of 40 of them, SIGTERM at the 5th, somebody new at the
/// 6th, a further request on a kept connection at the 7th.
fn b43(unit: Duration) {
    let upstream = Upstream::new(move |connection| {
        if connection.request()?.head.target() != CHAT {
            connection.send(OK)?;
            return Ok(Next::Again);
        }
        connection.send(STREAM)?;
        for n in 0..40 {
            connection.chunk(format!("data: {n}\n\n"))?;
            connection.pause(unit)?;
        }
        connection.chunk("data: [DONE]\n\n")?;
        connection.send("0\r\n\r\n")?;
        Ok(Next::Again)
    });
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut kept = Client::connect(kvgauge.listen);
    kept.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("GET");
    let mut client = Client::connect(kvgauge.listen);
    client.send(post(CHAT, "x-request-id: b43\r\n", "{\"stream\":true}"));
    assert_eq!(client.head().status(), 200);
    let mut events = Vec::new();
    while events.len() < 5 {
        events.push(String::from_utf8(client.chunk().unwrap()).unwrap());
    }

    kvgauge.signal(Unix::TERM);
    support::eventually("readiness turns bad", || {
        (get(kvgauge.admin, "/readyz").status() == 503).then_some(())
    });
    events.push(String::from_utf8(client.chunk().unwrap()).unwrap());
    let refused = Client::try_connect(kvgauge.listen).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    events.push(String::from_utf8(client.chunk().unwrap()).unwrap());
    // It has been closed, so a client that sends all the same gets no answer, and knows it may try again.
    let _ = kept.try_send("GET /late HTTP/1.1\r\nHost: k\r\n\r\n");
    assert!(kept.is_closed());

    while let Some(event) = client.chunk() {
        events.push(String::from_utf8(event).unwrap());
    }
    let ended = Instant::now();
    let mut wanted: Vec<_> = (0..40).map(|n| format!("data: {n}\n\n")).collect();
    wanted.push("data: [DONE]\n\n".to_owned());
    assert_eq!(events, wanted);
    assert_eq!(kvgauge.exit_code(Duration::from_secs(10)), 0);
    let took = ended.elapsed();
    assert!(took < Duration::from_secs(2), "ended {took:?} later");
    kvgauge.log.to_the_end();
    assert_eq!(kvgauge.line_of("b43")["outcome"], "complete");
    let late = |request: &Request| request.head.target() == "/late";
    assert!(!upstream.requests().iter().any(late));
}

#[test]
fn b43_a_stream_outlives_sigterm() {
    b43(25 * MS);
}

/// What the 200 clients of B44 do.
#[derive(Clone, Copy, PartialEq)]
enum Held {
    /// Connect.
    Open,
    /// Ask for a stream, so that the router's connections use up descriptors too.
    Streams,
}

/// 64 open files, 200 clients that stay so long, then leave.
fn b44(settings: &str, held: Held, stay: Duration) {
    let upstream = Upstream::new(|connection| {
        let request = connection.request()?;
        if request.head.target() == "/held" {
            connection.send(STREAM)?;
            connection.until_peer_leaves()?;
            return Ok(Next::Close);
        }
        connection.send(OK)?;
        Ok(Next::Again)
    });
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .settings(&format!("scrape.interval = \"100ms\"\n{settings}"))
        .open_files(64)
        .start();
    kvgauge.until_up("decode");
    let told = || kvgauge.diagnostics.all().len();
    let (begun, spent, lines) = (
        Instant::now(),
        Process::new(kvgauge.pid()).processor_time(),
        told(),
    );
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = Client::connect(kvgauge.listen);
            if held == Held::Streams {
                client.send("GET /held HTTP/1.1\r\nHost: k\r\n\r\n");
            }
            client
        })
        .collect();
    support::pause(stay);
    let took = begun.elapsed();
    let spent = Process::new(kvgauge.pid()).processor_time() - spent;
    let lines = told() - lines;
    println!("B44: {spent:?} of processor time and {lines} diagnostics in {took:?}");
    assert!(spent * 5 < took, "{spent:?} of processor time in {took:?}");
    assert!(
        lines as u64 <= took.as_secs() + 3,
        "{}",
        kvgauge.diagnostics.text()
    );

    drop(clients);
    let left = Instant::now();
    let answer = support::fetch(kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    support::eventually("the scrapes are fresh", || {
        let age = kvgauge
            .metrics()
            .value("kvgauge_source_age_seconds", &[("source", "decode")]);
        age.is_some_and(|age| age < 1.0).then_some(())
    });
    let took = left.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?} after they left");
}

const MORE_THAN_THERE_IS_ROOM_FOR: &str = "limits.connections = 1000\n";

#[test]
fn b44_clients_that_hold_every_connection_timed() {
    b44("", Held::Open, Duration::from_secs(2));
}

#[test]
fn b44_clients_that_use_up_the_descriptors_timed() {
    b44(
        MORE_THAN_THERE_IS_ROOM_FOR,
        Held::Open,
        Duration::from_secs(3),
    );
}

#[test]
fn b44_a_router_whose_connections_use_up_the_descriptors_timed() {
    let settings = MORE_THAN_THERE_IS_ROOM_FOR;
    b44(settings, Held::Streams, Duration::from_secs(3));
}

#[test]
fn b44_a_request_that_finds_no_descriptor_is_told_so() {
    let held = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(held.address())
        .settings(MORE_THAN_THERE_IS_ROOM_FOR)
        .open_files(64)
        .start();
    // More at a time than there is room for, none of which leaves.
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(kvgauge.listen)).collect();
    support::eventually("no more is accepted", || {
        let lines = kvgauge.diagnostics.text();
        lines.contains("can't be accepted").then_some(())
    });
    let told = kvgauge.says("can't be accepted");
    assert!(told.contains("open files (ulimit -n)"), "{told}");
    let answer = clients[0]
        .send("GET /held HTTP/1.1\r\nHost: k\r\nx-request-id: b44\r\n\r\n")
        .response("GET");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.head.get("retry-after").as_deref(), Some("1"));
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "out_of_descriptors", "{error}");
    assert_eq!(error["type"], "server_error", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("file descriptor"), "{message}");
    let line = kvgauge.line_of("b44");
    assert_eq!(line["outcome"], "overloaded", "{line}");
    assert_eq!(line["error.type"], "out_of_descriptors", "{line}");
    kvgauge.says("no file descriptor left for a connection to the router");
    drop(clients);
    support::eventually("failed accepts are counted", || {
        let page = support::get(kvgauge.admin, "/metrics");
        let count = support::Samples::parse(&page.text()).sum("kvgauge_accept_failures_total", &[]);
        (count > 0.0).then_some(())
    });
}

#[test]
fn b45_an_event_without_an_end_costs_no_memory() {
    let mut steps = steps::of_case("b45.steps.json");
    let Step::Send(piece, times) = &mut steps[3] else {
        panic!("{steps:?}");
    };
    // In larger pieces, so that the test's own end is not what takes longest.
    let length = piece.len() as u64 * *times;
    assert_eq!(length, 256 * 1024 * 1024);
    (*piece, *times) = (vec![b'a'; 65536], length / 65536);
    // Behind the long line: its end, the usage, `[DONE]`.
    let mut last = vec![Step::Send(b"\r\n\r\n".to_vec(), 1)];
    last.extend_from_slice(&steps[5..]);
    let last = steps::body(&last);
    let upstream = Upstream::new(move |connection| steps::play(&steps, connection));
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    client.patience(Duration::from_secs(60));
    let before = Process::new(kvgauge.pid()).resident_kib();
    client.send(post(CHAT, "x-request-id: b45\r\n", "{\"stream\":true}"));
    assert_eq!(client.head().status(), 200);
    let (mut came, mut most) = (0, before);
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    while let Some(data) = client.chunk() {
        let (begin, data) = data.split_at(data.len().min(6 - first.len()));
        first.extend_from_slice(begin);
        let (long, behind) = data.split_at(data.len().min((length - came) as usize));
        for piece in long.chunks(65536) {
            assert!(
                piece == &[b'a'; 65536][..piece.len()],
                "the line, from byte {came} on"
            );
            came += piece.len() as u64;
        }
        rest.extend_from_slice(behind);
        most = most.max(Process::new(kvgauge.pid()).resident_kib());
    }
    assert_eq!((&first[..], came, &rest), (&b"data: "[..], length, &last));
    let grown = most - before;
    println!("B45: {length} bytes without a line end, memory grew by {grown} KiB");
    assert!(grown < 16 * 1024, "memory grew by {grown} KiB");
    let lines = kvgauge.lines_to_the_end();
    let line = &lines[0];
    assert_eq!(line["outcome"], "complete", "{line}");
    let tokens = (
        line["gen_ai.usage.input_tokens"].as_u64(),
        line["gen_ai.usage.output_tokens"].as_u64(),
    );
    assert!(
        matches!(tokens, (Some(12), Some(34)) | (None, None)),
        "{line}"
    );
}

/// What takes minutes: `tests/run --full`.
mod full {
    use super::*;

    #[test]
    #[ignore = "takes 10 minutes: tests/run --full"]
    fn b30_a_server_that_closes_idle_connections_fails_no_request() {
        let spacings = [4980, 4990, 5000, 5010, 5020];
        let case = Idle {
            closed_after: Duration::from_secs(5),
            spacings: spacings.map(|ms| ms * MS).to_vec(),
            runs_for: Duration::from_secs(600),
        };
        let (single, bursts) = b30("", &case);
        assert!(single >= 115 && bursts >= 2300, "{single} {bursts}");
    }

    #[test]
    #[ignore = "takes 12 minutes: tests/run --full"]
    fn b31_twelve_minutes_of_silence_end_no_stream() {
        b31_ends_whole(
            &Upstream::case("b31.steps.json"),
            "",
            Duration::from_secs(780),
        );
    }

    #[test]
    #[ignore = "takes 40 seconds: tests/run --full"]
    fn b43_a_stream_of_40_seconds_outlives_sigterm() {
        b43(Duration::from_secs(1));
    }

    #[test]
    #[ignore = "takes half a minute: tests/run --full"]
    fn b44_clients_and_streams_that_hold_for_10_seconds() {
        let stay = Duration::from_secs(10);
        b44("", Held::Open, stay);
        b44(MORE_THAN_THERE_IS_ROOM_FOR, Held::Open, stay);
        b44(MORE_THAN_THERE_IS_ROOM_FOR, Held::Streams, stay);
    }
}
