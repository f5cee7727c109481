//! The tests' own tools, tested against each other: what a test asserts is worth no more than
//! what it asserts with.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::time::Duration;
use support::page::Behaviour;
use support::tap::{Exchange, Tap};
use support::upstream::{By, OK, STREAM};
use support::{Client, End, Next, Page, Samples, Upstream, fetch, get, same, steps};

const GET: &str = "GET / HTTP/1.1\r\nHost: u\r\n\r\n";

#[test]
fn an_answer_comes_as_it_was_scripted() {
    let upstream = Upstream::case("b35.http");
    let answer = fetch(upstream.address(), GET);
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.body, b"{}");
    assert_eq!(answer.head.all("x-note"), [b"Dienstag, 31. M\xe4rz"]);
    assert_eq!(
        answer.head.all("set-cookie"),
        [b"a=1; Path=/", b"b=2; Path=/"]
    );
    assert_eq!(answer.head.get("x-empty").unwrap(), "");
    assert_eq!(upstream.request(1).head.start, "GET / HTTP/1.1");
}

#[test]
fn steps_are_played_in_their_pieces() {
    let steps = steps::of_case("b26.steps.json");
    let upstream = Upstream::case("b26.steps.json");
    let mut client = Client::connect(upstream.address());
    let head = client.send(GET).head();
    assert_eq!(head.get("transfer-encoding").unwrap(), "chunked");
    let mut chunks = Vec::new();
    while let Some(chunk) = client.chunk() {
        chunks.push(chunk);
    }
    assert_eq!(chunks.len(), 6);
    assert_eq!(chunks.concat(), steps::body(&steps));
    // The steps start again on the same connection.
    assert_eq!(client.send(GET).response("GET").body, steps::body(&steps));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_close_and_a_reset_are_told_apart() {
    for (case, end) in [
        ("b28.steps.json", End::Cut),
        ("b28-rst.steps.json", End::Reset),
    ] {
        let upstream = Upstream::case(case);
        let answer = fetch(upstream.address(), GET);
        assert_eq!(answer.end, end, "{case}");
        assert_eq!(answer.text().matches("data:").count(), 3, "{case}");
        assert_eq!(upstream.end_of(0, Duration::from_secs(5)).1, By::Us);
    }
}

#[test]
fn the_upstream_sees_a_client_leave() {
    for reset in [false, true] {
        let upstream = Upstream::new(|connection| {
            connection.request()?;
            connection.send(STREAM)?;
            connection.until_peer_leaves()?;
            Ok(Next::Close)
        });
        let mut client = Client::connect(upstream.address());
        client.send(GET).head();
        assert_eq!(upstream.open(), 1);
        if reset {
            client.reset();
        } else {
            client.close();
        }
        assert_eq!(upstream.end_of(0, Duration::from_secs(5)).1, By::Peer);
        upstream.none_open(Duration::from_secs(5));
    }
}

#[test]
fn request_bodies_are_recorded_with_and_without_framing() {
    let upstream = Upstream::ok();
    let chunked = "POST / HTTP/1.1\r\nHost: u\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n";
    assert_eq!(fetch(upstream.address(), chunked).body, b"{}");
    let request = upstream.request(1);
    assert_eq!(request.body, b"hello");
    assert_eq!(request.raw_body, b"5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n");
    assert_eq!(request.trailers, [("X-T".to_owned(), b"1".to_vec())]);
}

#[test]
fn a_body_without_framing_ends_with_the_connection() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\n\r\nall of it")?;
        Ok(Next::Close)
    });
    let answer = fetch(upstream.address(), GET);
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("all of it", End::Complete)
    );
}

#[test]
fn an_answer_to_head_has_no_body() {
    let upstream = Upstream::replying(|request| match request.head.method() {
        "HEAD" => "HTTP/1.1 200 OK\r\nContent-Length: 1488\r\n\r\n",
        _ => OK,
    });
    let mut client = Client::connect(upstream.address());
    let answer = client
        .send("HEAD / HTTP/1.1\r\nHost: u\r\n\r\n")
        .response("HEAD");
    assert_eq!(answer.head.get("content-length").unwrap(), "1488");
    assert_eq!(client.send(GET).response("GET").body, b"{}");
}

#[test]
fn a_page_changes_while_it_is_read() {
    let page = Page::text("a 1\n");
    let ask = || get(page.address(), "/metrics");
    assert_eq!(ask().text(), "a 1\n");
    page.set(Behaviour::Status(503));
    assert_eq!(ask().status(), 503);
    page.set(Behaviour::Refuse);
    assert!(Client::try_connect(page.address()).is_err());
    page.set(Behaviour::Html);
    assert!(ask().text().contains("<title>"));
    page.set(Behaviour::Hang);
    let mut client = Client::connect(page.address());
    client.patience(Duration::from_millis(50)).send(GET);
    assert_eq!(client.some(), Err(End::Silent));
    page.set(Behaviour::Reset);
    let mut client = Client::connect(page.address());
    assert_eq!(client.send(GET).some(), Err(End::Reset));
    assert_eq!(page.asked(), 5);
}

#[test]
fn a_tap_records_what_passes_and_changes_nothing() {
    let upstream = Upstream::new(|connection| {
        let request = connection.request()?;
        match request.head.target() {
            "/cut" => steps::play(&steps::of_case("b28.steps.json")[1..], connection),
            _ => connection.send(OK).map(|()| Next::Again),
        }
    });
    let tap = Tap::new(upstream.address());
    let mut client = Client::connect(tap.address());
    let ask =
        |target| format!("GET {target} HTTP/1.1\r\nHost: u\r\nx-request-id: {target}\r\n\r\n");
    assert_eq!(client.send(ask("/plain")).response("GET").body, b"{}");
    let cut = fetch(tap.address(), ask("/cut"));
    assert_eq!(cut.end, End::Cut);
    let recorded = tap.of_id("/cut");
    assert_eq!((recorded.end, &recorded.body), (End::Cut, &cut.body));
    let recorded = tap.of_id("/plain");
    assert_eq!(
        (recorded.end, recorded.body.as_slice()),
        (End::Complete, b"{}".as_slice())
    );
    same::check("with itself", &tap_with_pools(&recorded), &recorded);
}

/// As if kvgauge had been there.
fn tap_with_pools(recorded: &Exchange) -> Exchange {
    let with = |head: &support::Head, field: &str| {
        let text = head
            .text()
            .replacen("\r\n\r\n", &format!("\r\n{field}\r\n\r\n"), 1);
        support::Head::parse(text.as_bytes())
    };
    Exchange {
        request: recorded.request.clone(),
        request_body: recorded.request_body.clone(),
        answer: with(&with(&recorded.answer, "x-kv-pools: a"), "x-request-id: 1"),
        body: recorded.body.clone(),
        end: recorded.end,
    }
}

#[test]
#[should_panic(expected = "answer fields")]
fn a_field_that_is_not_documented_is_found() {
    let upstream = Upstream::ok();
    let tap = Tap::new(upstream.address());
    fetch(tap.address(), GET);
    let recorded = tap.exchange("it", |_| true);
    let mut changed = tap_with_pools(&recorded);
    changed
        .answer
        .fields
        .push(("via".to_owned(), b"kvgauge".to_vec()));
    same::check("changed", &changed, &recorded);
}

#[test]
fn samples_are_read_with_their_labels_unescaped() {
    let page = "# TYPE a gauge\na{x=\"1\",y=\"q\\\"},{\\\\\"} 2.5\na{x=\"2\"} +Inf\nb 3\n";
    let samples = Samples::parse(page);
    assert_eq!(samples.value("a", &[("x", "1")]), Some(2.5));
    assert_eq!(
        samples.all("a", &[("x", "1")])[0].label("y"),
        Some("q\"},{\\")
    );
    assert_eq!(samples.value("a", &[("x", "2")]), Some(f64::INFINITY));
    assert_eq!(samples.value("b", &[]), Some(3.0));
    assert_eq!(samples.value("c", &[]), None);
    assert_eq!(
        Samples::parse(&support::data::page("sglang-0.5.23-decode-tp4-busy"))
            .0
            .len(),
        824
    );
}
