//! What is held, and until when: a request is over when the last byte of its answer has been handed to
//! the kernel, not when the router has sent it, and not when its head has left.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use support::upstream::{OK, STREAM};
use support::wait::within;
use support::{Client, End, Kvgauge, Next, Setup, Upstream, fetch};

const MS: Duration = Duration::from_millis(1);
const BIG: &str = "GET /big HTTP/1.1\r\nHost: k\r\nx-request-id: big\r\n\r\n";
const SMALL: &str = "GET /small HTTP/1.1\r\nHost: k\r\nx-request-id: small\r\n\r\n";
const EVENT: usize = 64 * 1024;

/// Of each connection between `server` and somebody (`client`, where named): bytes that the kernel has
/// to send, and to be read, at the server's end and at the other.
fn queues(server: SocketAddr, client: Option<SocketAddr>) -> Vec<(u64, u64)> {
    let in_hex = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            let ip = u32::from_ne_bytes(v4.ip().octets());
            format!("{ip:08X}:{:04X}", v4.port())
        }
        SocketAddr::V6(_) => panic!("{address}"),
    };
    let (server, client) = (in_hex(server), client.map(in_hex));
    let is_client = |end: &str| client.as_ref().is_none_or(|client| client == end);
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (local, remote) = (fields[1], fields[2]);
        if (local == server && is_client(remote)) || (remote == server && is_client(local)) {
            let (to_send, to_read) = fields[4].split_once(':').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            found.push((number(to_send), number(to_read)));
        }
    }
    found
}

/// An answer that the router has sent whole, and that its client does not take: what is left of it is
/// more than the kernel holds, and so little that kvgauge has read all of it.
struct Untaken {
    kvgauge: Kvgauge,
    upstream: Upstream,
    client: Client,
}

/// The request is sent with `behind` behind it.
fn untaken(settings: &str, behind: &str) -> Untaken {
    untaken_to(true, settings, behind)
}

/// The same, where the router has ended its answer, or has broken it off.
fn untaken_to(ends: bool, settings: &str, behind: &str) -> Untaken {
    let (address, known) = mpsc::sync_channel::<(SocketAddr, SocketAddr)>(1);
    let known = Mutex::new(known);
    let done = Arc::new(AtomicBool::new(false));
    let is_sent = Arc::clone(&done);
    let upstream = Upstream::new(move |connection| {
        if connection.request()?.head.target() != "/big" {
            connection.send(OK)?;
            return Ok(Next::Again);
        }
        let (server, client) = known.lock().unwrap().recv().unwrap();
        connection.send(STREAM)?;
        let (mut last, mut same) = (Vec::new(), 0);
        // Until the kernel takes no more; what comes then stays in kvgauge.
        while same < 3 {
            connection.chunk([b'x'; EVENT])?;
            connection.pause(10 * MS)?;
            let now = queues(server, Some(client));
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        if ends {
            connection.send("0\r\n\r\n")?;
        }
        is_sent.store(true, Relaxed);
        Ok(if ends { Next::Again } else { Next::Close })
    });
    let kvgauge = Setup::new(upstream.address())
        .settings(settings)
        .workers(1)
        .start();
    let mut client = Client::slow(kvgauge.listen);
    address.send((kvgauge.listen, client.address())).unwrap();
    client.send(format!("{BIG}{behind}"));
    // The kernel's table of connections is long, and slow to read, where many tests run.
    let limit = Duration::from_secs(60);
    within(limit, "the router has sent it", || {
        done.load(Relaxed).then_some(())
    });
    within(limit, "kvgauge has read all of it", || {
        let read = |&(to_send, to_read): &(u64, u64)| to_send == 0 && to_read == 0;
        queues(upstream.address(), None)
            .iter()
            .all(read)
            .then_some(())
    });
    Untaken {
        kvgauge,
        upstream,
        client,
    }
}

fn in_flight(kvgauge: &Kvgauge) -> f64 {
    kvgauge.metrics().sum("kvgauge_requests_in_flight", &[])
}

fn lines_of(kvgauge: &Kvgauge, id: &str) -> usize {
    let lines = kvgauge.lines();
    lines.iter().filter(|l| l["request.id"] == id).count()
}

#[test]
fn an_answer_that_is_not_taken_is_not_complete() {
    for reset in [false, true] {
        let case = untaken("", "");
        assert_eq!(in_flight(&case.kvgauge), 1.0);
        assert_eq!(lines_of(&case.kvgauge, "big"), 0);
        if reset {
            case.client.reset();
        } else {
            case.client.close();
        }
        let line = case.kvgauge.line_of("big");
        assert_eq!(line["outcome"], "client_gone", "{line}");
        assert_eq!(line["http.response.status_code"], 200, "{line}");
        assert_eq!(in_flight(&case.kvgauge), 0.0);
    }
}

#[test]
fn an_answer_that_is_taken_late_is_complete() {
    let mut case = untaken("", "");
    assert_eq!(lines_of(&case.kvgauge, "big"), 0);
    let answer = case.client.response("GET");
    assert_eq!(answer.end, End::Complete);
    let line = case.kvgauge.line_of("big");
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(line["bytes_out"], answer.body.len(), "{line}");
    // Its connection serves on.
    assert_eq!(case.client.send(SMALL).response("GET").body, b"{}");
}

#[test]
fn a_request_behind_one_that_is_not_taken_waits_for_it() {
    let mut case = untaken("", SMALL);
    let small = |upstream: &Upstream| {
        let requests = upstream.requests();
        requests.iter().any(|r| r.head.target() == "/small")
    };
    assert!(!small(&case.upstream), "it waits");
    assert_eq!(case.client.response("GET").end, End::Complete);
    assert_eq!(case.client.response("GET").body, b"{}");
    for id in ["big", "small"] {
        let line = case.kvgauge.line_of(id);
        assert_eq!(line["outcome"], "complete", "{line}");
    }
}

#[test]
fn a_client_that_takes_nothing_of_an_answers_end_is_given_up() {
    let case = untaken("timeouts.client_idle = \"1s\"\n", "");
    let line = case.kvgauge.line_of("big");
    assert_eq!(line["outcome"], "client_gone", "{line}");
    assert!(line["duration_ms"].as_f64().unwrap() >= 1000.0, "{line}");
}

#[test]
fn a_client_that_takes_nothing_of_what_came_before_a_break_is_given_up() {
    let mut case = untaken_to(false, "timeouts.client_idle = \"1s\"\n", "");
    let line = case.kvgauge.line_of("big");
    assert_eq!(line["outcome"], "upstream_aborted", "{line}");
    assert_eq!(line["error.type"], "upstream_aborted", "{line}");
    assert!(line["duration_ms"].as_f64().unwrap() >= 1000.0, "{line}");
    assert_eq!(in_flight(&case.kvgauge), 0.0);
    // What the kernel holds can still be read, and does not look whole.
    let answer = case.client.response("GET");
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
}

#[test]
fn the_break_behind_a_burst_is_seen_while_the_client_takes_nothing() {
    let upstream = Upstream::new(|connection| {
        let target = connection.request()?.head.target().to_owned();
        let length: usize = target[1..].parse().unwrap();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")?;
        connection.send(vec![b'x'; length])?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address())
        .settings("timeouts.client_idle = \"1s\"\n")
        .workers(1)
        .start();
    let ask = |length: usize| {
        let mut client = Client::slow(kvgauge.listen);
        client.send(format!(
            "GET /{length} HTTP/1.1\r\nHost: k\r\nx-request-id: {length}\r\n\r\n"
        ));
        client
    };
    // How much the kernel takes for a client that reads nothing.
    let first = ask(64 << 20);
    let (mut kernel, mut same) = (0, 0);
    within(Duration::from_secs(60), "the kernel takes no more", || {
        let ends = queues(kvgauge.listen, Some(first.address()));
        let now: u64 = ends
            .iter()
            .map(|(to_send, to_read)| to_send + to_read)
            .sum();
        same = if now == kernel && now > 0 {
            same + 1
        } else {
            0
        };
        kernel = now;
        (same >= 5).then_some(())
    });
    let kernel = usize::try_from(kernel).unwrap();
    // More by what kvgauge has room for.
    let asked: Vec<_> = [20, 60, 100, 140]
        .map(|more| kernel + more * 1000)
        .map(|length| (length, ask(length)))
        .into_iter()
        .collect();
    for (length, _) in &asked {
        let line = kvgauge.line_of(&length.to_string());
        assert_eq!(line["outcome"], "upstream_aborted", "{line}");
        assert_eq!(line["bytes_out"], *length, "{line}");
    }
}

#[test]
fn a_client_that_takes_late_what_came_before_a_break_gets_all_of_it() {
    let mut case = untaken_to(false, "", "");
    assert_eq!(in_flight(&case.kvgauge), 1.0);
    assert_eq!(lines_of(&case.kvgauge, "big"), 0);
    let answer = case.client.response("GET");
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    let line = case.kvgauge.line_of("big");
    assert_eq!(line["outcome"], "upstream_aborted", "{line}");
    assert_eq!(line["bytes_out"], answer.body.len(), "{line}");
}

#[test]
fn a_place_among_requests_is_held_until_the_last_byte() {
    let mut case = untaken("limits.in_flight = 1\n", "");
    assert_eq!(fetch(case.kvgauge.listen, SMALL).status(), 503);
    assert_eq!(case.client.response("GET").end, End::Complete);
    case.kvgauge.line_of("big");
    assert_eq!(fetch(case.kvgauge.listen, SMALL).status(), 200);
}

#[test]
fn a_place_among_connections_is_held_until_the_last_byte() {
    let upstream = Upstream::new(|connection| {
        if connection.request()?.head.target() != "/big" {
            connection.send(OK)?;
            return Ok(Next::Again);
        }
        connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        for _ in 0..32 {
            connection.send(vec![b'x'; 1 << 20])?;
        }
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address())
        .settings("limits.connections = 1\n")
        .start();
    let mut slow = Client::slow(kvgauge.listen);
    slow.send("GET /big HTTP/1.0\r\nx-request-id: big\r\n\r\n")
        .head();
    let mut waits = Client::connect(kvgauge.listen);
    waits.send(SMALL).patience(500 * MS);
    assert!(waits.try_head().is_err(), "there is no place");
    assert_eq!(upstream.requests().len(), 1);
    let (body, end) = slow.rest();
    assert_eq!((body.len(), end), (32 << 20, End::Cut));
    assert_eq!(kvgauge.line_of("big")["outcome"], "complete");
    waits.patience(10_000 * MS);
    assert_eq!(waits.response("GET").status(), 200);
}

#[test]
fn a_request_that_is_written_a_byte_at_a_time_is_carried() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    let head = "POST / HTTP/1.1\r\nHost: k\r\nx-request-id: slow\r\nContent-Length: 10\r\n\r\n";
    for byte in head.bytes().chain(*b"0123456789") {
        client.send([byte]);
        support::pause(MS);
    }
    assert_eq!(client.response("POST").status(), 200);
    assert_eq!(upstream.request(1).body, b"0123456789");
    assert_eq!(kvgauge.line_of("slow")["outcome"], "complete");
}
