//! The limits in time, one after the other: what holds whom, what is answered, logged and counted, and
//! that what has no limit by default is not cut. Their defaults: `tests/config_reference.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::client::post;
use support::upstream::{By, OK, STREAM};
use support::{Client, End, Kvgauge, Next, Response, Setup, Signal, Upstream, fetch};

const GET: &str = "GET / HTTP/1.1\r\nHost: k\r\nx-request-id: asked\r\n\r\n";
const MS: Duration = Duration::from_millis(1);

fn start(upstream: &Upstream, settings: &str) -> Kvgauge {
    Setup::new(upstream.address()).settings(settings).start()
}

/// An upstream that takes a request and never answers.
fn silent() -> Upstream {
    Upstream::new(|connection| {
        connection.request()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    })
}

/// The head of an upload whose body is to come in chunks.
fn upload(id: &str) -> String {
    format!(
        "POST /upload HTTP/1.1\r\nHost: k\r\nx-request-id: {id}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
}

fn is_own(answer: &Response, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["code"], code, "{error}");
    assert!(
        error["type"].is_string() && error["param"].is_null(),
        "{error}"
    );
}

#[track_caller]
fn is_logged(kvgauge: &Kvgauge, outcome: &str, error: &str, status: Option<u16>) {
    let line = kvgauge.line_of("asked");
    assert_eq!(line["outcome"], outcome, "{line}");
    assert_eq!(line["error.type"], error, "{line}");
    assert_eq!(
        line["http.response.status_code"].as_u64(),
        status.map(Into::into),
        "{line}"
    );
    let count = kvgauge
        .metrics()
        .sum("kvgauge_requests_total", &[("outcome", outcome)]);
    assert_eq!(count, 1.0, "{outcome}");
}

fn is_broken_off(end: &End) -> bool {
    matches!(end, End::Cut | End::Reset)
}

// === timeouts.connect ===

#[test]
fn connecting_is_held_to_its_limit() {
    // A queue that is full: the kernel lets whoever comes next wait.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let full = TcpListener::from(socket);
    let address = full.local_addr().unwrap();
    let _first = std::net::TcpStream::connect(address).unwrap();

    let kvgauge = Setup::new(address)
        .settings("timeouts.connect = \"300ms\"\n")
        .start();
    let asked = Instant::now();
    is_own(&fetch(kvgauge.listen, GET), 504, "upstream_connect_timeout");
    assert!(asked.elapsed() >= 300 * MS, "{:?}", asked.elapsed());
    is_logged(
        &kvgauge,
        "upstream_unreachable",
        "upstream_connect_timeout",
        Some(504),
    );
}

// === timeouts.request_head ===

/// A connection that is held to the limit on heads, whatever it does: `say` is called until it is closed.
fn held_to_the_limit_on_heads(mut say: impl FnMut(&mut Client) -> bool) -> Kvgauge {
    let upstream = Upstream::ok();
    let kvgauge = start(
        &upstream,
        "timeouts.request_head = \"300ms\"\ntimeouts.client_idle = \"1h\"\n",
    );
    let mut client = Client::connect(kvgauge.listen);
    let begun = Instant::now();
    while say(&mut client) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it is not closed"
        );
    }
    assert!(client.is_closed(), "without an answer");
    assert!(begun.elapsed() >= 300 * MS, "{:?}", begun.elapsed());
    assert_eq!(upstream.requests().len(), 0);
    kvgauge
}

/// So many are counted and logged, and nothing else.
fn tells_of(mut kvgauge: Kvgauge, head_timeouts: u32) {
    let reason = [("reason", "request_head_timeout")];
    support::eventually("it is counted", || {
        let count = kvgauge
            .metrics()
            .sum("kvgauge_malformed_requests_total", &reason);
        (count == f64::from(head_timeouts)).then_some(())
    });
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), head_timeouts as usize, "{lines:#?}");
    for line in &lines {
        assert_eq!(line["outcome"], "malformed", "{line}");
        assert_eq!(line["error.type"], "request_head_timeout", "{line}");
    }
}

#[test]
fn a_connection_that_never_says_anything_is_closed() {
    let kvgauge = held_to_the_limit_on_heads(|_| false);
    kvgauge.until_metric(
        "kvgauge_malformed_requests_total",
        &[("reason", "no_request")],
        Some(1.0),
    );
    // No request has begun, so no line tells of it.
    tells_of(kvgauge, 0);
}

#[test]
fn a_connection_that_its_client_closes_unused_is_not_counted() {
    let upstream = Upstream::ok();
    let mut kvgauge = start(&upstream, "timeouts.request_head = \"1h\"\n");
    Client::connect(kvgauge.listen).close();
    let mut finished = Client::connect(kvgauge.listen);
    finished.finish();
    assert!(finished.is_closed(), "its end is answered");
    let silent = Client::connect(kvgauge.listen);
    assert_eq!(fetch(kvgauge.listen, GET).status(), 200);
    let count = kvgauge
        .metrics()
        .sum("kvgauge_malformed_requests_total", &[]);
    assert_eq!(count, 0.0);
    drop(silent);
    assert_eq!(kvgauge.lines_to_the_end().len(), 1);
}

#[test]
fn a_head_that_comes_a_byte_at_a_time_is_closed() {
    let mut bytes = b"GET / HTTP/1.1\r\nx-long: "
        .iter()
        .chain(std::iter::repeat(&b'x'));
    let kvgauge = held_to_the_limit_on_heads(|client| {
        support::pause(10 * MS);
        client.try_send([*bytes.next().unwrap()]).is_ok()
    });
    tells_of(kvgauge, 1);
}

#[test]
fn a_head_that_stops_in_the_middle_is_closed() {
    let kvgauge = held_to_the_limit_on_heads(|client| {
        client.send("GET / HTTP/1.1\r\nHost: k\r\nx-a: ");
        false
    });
    tells_of(kvgauge, 1);
}

#[test]
fn a_head_that_stops_in_one_read_with_the_end_of_a_body_is_closed() {
    const PARTIAL: &str = "GET / HTTP/1.1\r\nHost: ";
    let upstream = Upstream::ok();
    let kvgauge = start(
        &upstream,
        "timeouts.request_head = \"300ms\"\ntimeouts.client_idle = \"1h\"\n",
    );
    let chunked = |end: &str| format!("{}2\r\n{{}}\r\n0\r\n{end}\r\n{PARTIAL}", upload("c"));
    let bodies = [
        format!("{}{PARTIAL}", post("/", "", "{}")),
        // A body of one byte, and one that ends like a line.
        format!("{}\r\n{PARTIAL}", post("/", "", "1")),
        format!("{}{PARTIAL}", post("/", "", "{}\r\n")),
        chunked(""),
        chunked("x-sum: 1\r\n"),
    ];
    for bytes in &bodies {
        let mut client = Client::connect(kvgauge.listen);
        assert_eq!(
            client.send(bytes).response("POST").status(),
            200,
            "{bytes:?}"
        );
        assert!(client.is_closed(), "{bytes:?}");
    }
    let mut kvgauge = kvgauge;
    let lines = kvgauge.lines_to_the_end();
    let slow = lines
        .iter()
        .filter(|line| line["error.type"] == "request_head_timeout");
    assert_eq!(slow.count(), bodies.len(), "{lines:#?}");
}

// === timeouts.response_head ===

#[test]
fn the_routers_head_is_held_to_its_limit() {
    let upstream = silent();
    let kvgauge = start(&upstream, "timeouts.response_head = \"300ms\"\n");
    let asked = Instant::now();
    is_own(&fetch(kvgauge.listen, GET), 504, "upstream_timeout");
    assert!(asked.elapsed() >= 300 * MS, "{:?}", asked.elapsed());
    is_logged(&kvgauge, "timeout", "upstream_timeout", Some(504));
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
}

#[test]
fn a_slow_upload_is_not_the_routers_slowness_timed() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream, "timeouts.response_head = \"500ms\"\n");
    let mut client = Client::connect(kvgauge.listen);
    client.send(upload("asked"));
    for _ in 0..8 {
        client.send("2\r\n{}\r\n");
        support::pause(150 * MS);
    }
    assert_eq!(client.send("0\r\n\r\n").response("POST").status(), 200);
    assert_eq!(kvgauge.line_of("asked")["outcome"], "complete");
}

#[test]
fn the_routers_head_is_awaited_from_the_end_of_a_body() {
    let upstream = silent();
    let settings = "timeouts.response_head = \"300ms\"\ntimeouts.stream_silence = \"1h\"\n";
    let kvgauge = start(&upstream, settings);
    let mut client = Client::connect(kvgauge.listen);
    client.send(upload("asked"));
    support::pause(400 * MS);
    let whole = Instant::now();
    client.send("2\r\n{}\r\n0\r\n\r\n");
    is_own(&client.response("POST"), 504, "upstream_timeout");
    assert!(whole.elapsed() >= 300 * MS, "{:?}", whole.elapsed());
}

#[test]
fn a_router_that_takes_no_more_of_a_body_is_held_to_the_limit_on_its_head() {
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let settings = "timeouts.response_head = \"500ms\"\ntimeouts.stream_silence = \"1h\"\n";
    let kvgauge = start(&upstream, settings);
    let body = "x".repeat(32 << 20);
    let request = post("/", "x-request-id: asked\r\n", &body);
    let mut client = Client::connect(kvgauge.listen);
    // It may be told before it has sent all.
    let _ = client.patience(3000 * MS).try_send(request);
    is_logged(&kvgauge, "timeout", "upstream_timeout", Some(504));
}

// === timeouts.stream_silence ===

#[test]
fn an_upload_that_stops_is_408() {
    let whole = post("/", "x-request-id: asked\r\n", "{}");
    for begin in [
        upload("asked") + "2\r\n{}\r\n",
        // Nothing of the body at all.
        whole.trim_end_matches("{}").to_owned(),
    ] {
        let upstream = Upstream::ok();
        let kvgauge = start(&upstream, "timeouts.stream_silence = \"300ms\"\n");
        let mut client = Client::connect(kvgauge.listen);
        let asked = Instant::now();
        let answer = client.send(begin).response("POST");
        assert!(asked.elapsed() >= 300 * MS, "{:?}", asked.elapsed());
        is_own(&answer, 408, "request_body_timeout");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        assert_eq!(answer.head.get("connection").as_deref(), Some("close"));
        assert!(client.is_closed());
        is_logged(&kvgauge, "timeout", "request_body_timeout", Some(408));
        // The router is not left with half a request.
        assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
    }
}

#[test]
fn pauses_in_an_upload_are_counted_each_for_itself_timed() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream, "timeouts.stream_silence = \"500ms\"\n");
    let mut client = Client::connect(kvgauge.listen);
    client.send(upload("asked"));
    for _ in 0..5 {
        support::pause(250 * MS);
        client.send("2\r\n{}\r\n");
    }
    assert_eq!(client.send("0\r\n\r\n").response("POST").status(), 200);
    assert_eq!(upstream.request(1).body, b"{}{}{}{}{}");
}

#[test]
fn a_router_that_does_not_take_an_upload_is_not_its_clients_silence() {
    let upstream = Upstream::new(|connection| {
        let head = connection.request_head()?;
        connection.pause(1200 * MS)?;
        let mut left: usize = head.get("content-length").unwrap().parse().unwrap();
        while left > 0 {
            left -= connection.some()?.len();
        }
        connection.send(OK)?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "timeouts.stream_silence = \"300ms\"\n");
    let body = "x".repeat(32 << 20);
    let request = post("/", "x-request-id: asked\r\n", &body);
    assert_eq!(fetch(kvgauge.listen, request).status(), 200);
    assert_eq!(kvgauge.line_of("asked")["outcome"], "complete");
}

#[test]
fn a_silent_stream_is_broken_off() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "timeouts.stream_silence = \"300ms\"\n");
    let answer = fetch(kvgauge.listen, GET);
    assert_eq!(answer.text(), "data: 1\n\n");
    assert!(is_broken_off(&answer.end), "{:?}", answer.end);
    is_logged(&kvgauge, "timeout", "stream_silence", Some(200));
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
}

// === timeouts.request ===

#[test]
fn the_whole_of_a_request_is_held_to_its_limit_before_the_head() {
    let upstream = silent();
    let kvgauge = start(&upstream, "timeouts.request = \"300ms\"\n");
    is_own(&fetch(kvgauge.listen, GET), 504, "request_timeout");
    is_logged(&kvgauge, "timeout", "request_timeout", Some(504));
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
}

#[test]
fn the_whole_of_a_request_is_held_to_its_limit_in_a_stream_that_goes_on() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        loop {
            connection.chunk("data: 1\n\n")?;
            connection.pause(10 * MS)?;
        }
    });
    let kvgauge = start(&upstream, "timeouts.request = \"500ms\"\n");
    let asked = Instant::now();
    let answer = fetch(kvgauge.listen, GET);
    assert!(asked.elapsed() >= 500 * MS, "{:?}", asked.elapsed());
    assert!(is_broken_off(&answer.end), "{:?}", answer.end);
    is_logged(&kvgauge, "timeout", "request_timeout", Some(200));
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
}

// === timeouts.client_idle ===

#[test]
fn an_idle_connection_is_closed() {
    let upstream = Upstream::ok();
    let settings = "timeouts.client_idle = \"300ms\"\ntimeouts.request_head = \"1h\"\n";
    let mut kvgauge = start(&upstream, settings);
    let mut client = Client::connect(kvgauge.listen);
    for _ in 0..2 {
        assert_eq!(client.send(GET).response("GET").status(), 200);
    }
    let idle = Instant::now();
    assert!(client.is_closed());
    assert!(idle.elapsed() >= 250 * MS, "{:?}", idle.elapsed());
    for line in kvgauge.lines_to_the_end() {
        assert_eq!(line["outcome"], "complete", "{line}");
    }
}

// === what has no limit ===

#[test]
fn what_has_no_limit_by_default_is_not_cut() {
    let (taken, go_on) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
    let upstream = {
        let (taken, go_on) = (Arc::clone(&taken), Arc::clone(&go_on));
        Upstream::new(move |connection| {
            let request = connection.request()?;
            if request.head.target() == "/upload" {
                // Silent before its head, then within its body.
                connection.pause(1500 * MS)?;
                connection.send(STREAM)?;
                connection.chunk("data: 1\n\n")?;
                connection.pause(1500 * MS)?;
                connection.send("0\r\n\r\n")?;
                return Ok(Next::Again);
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 33554432\r\n\r\n")?;
            for _ in 0..31 {
                connection.send(vec![b'x'; 1 << 20])?;
            }
            taken.set();
            go_on.wait();
            connection.send(vec![b'x'; 1 << 20])?;
            Ok(Next::Again)
        })
    };
    // Every limit that there is by default, a hundredth of it.
    let settings = "timeouts.connect = \"200ms\"\ntimeouts.request_head = \"300ms\"\n\
        timeouts.client_idle = \"750ms\"\nupstream.idle = \"40ms\"\nupstream.max_age = \"500ms\"\n";
    let kvgauge = start(&upstream, settings);
    let mut client = Client::connect(kvgauge.listen);
    client.send(upload("slow")).send("2\r\n{}\r\n");
    let mut reader = Client::connect(kvgauge.listen);
    reader.send(GET).head();
    // Longer than any of them: a body that stops, and a client that takes nothing.
    support::pause(1500 * MS);
    client.send("0\r\n\r\n");
    let answer = client.response("POST");
    assert_eq!(
        (answer.text().as_str(), &answer.end),
        ("data: 1\n\n", &End::Complete)
    );
    let mut left = 32 << 20;
    go_on.set();
    while left > 0 {
        left -= reader.some().unwrap().len();
    }
    taken.wait();
    for id in ["slow", "asked"] {
        let line = kvgauge.line_of(id);
        assert_eq!(line["outcome"], "complete", "{line}");
    }
}
