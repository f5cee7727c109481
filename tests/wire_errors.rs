//! Answers of kvgauge's own: their status, their shape, their log line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use std::time::Duration;
use support::client::post;
use support::{Client, Kvgauge, Next, Page, Response, Setup, Upstream, fetch};

const ASK: &str = "GET /v1/models HTTP/1.1\r\nHost: k\r\nx-request-id: asked\r\n\r\n";

/// An error in OpenAI's shape, with what every answer of kvgauge has.
fn own(answer: &Response, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{}", answer.text());
    assert_eq!(answer.head.get("content-type").unwrap(), "application/json");
    let length = answer.body.len().to_string();
    assert_eq!(answer.head.get("content-length").unwrap(), length);
    assert!(answer.head.has("x-request-id"), "{}", answer.head.text());
    assert!(answer.head.has("x-kv-pools"), "{}", answer.head.text());
    let body = answer.json();
    let members: Vec<_> = body["error"].as_object().unwrap().keys().collect();
    assert_eq!(members.len(), 4, "{body}");
    assert_eq!(body["error"]["code"], code, "{body}");
    assert_eq!(body["error"]["param"], Value::Null, "{body}");
    assert!(body["error"]["type"].is_string(), "{body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.len() > 20, "says too little: {message}");
}

fn logged(kvgauge: &Kvgauge, outcome: &str, status: u16) {
    let line = kvgauge.line_of("asked");
    assert_eq!(line["outcome"], outcome, "{line}");
    assert_eq!(line["http.response.status_code"], status, "{line}");
    assert!(line["error.type"].is_string(), "{line}");
}

fn with_decode(upstream: std::net::SocketAddr, settings: &str) -> (Kvgauge, Page) {
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream)
        .settings(&format!("scrape.interval = \"100ms\"\n{settings}"))
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    (kvgauge, decode)
}

#[test]
fn a_router_that_refuses_is_502() {
    let nobody = Page::refusing();
    let (kvgauge, _decode) = with_decode(nobody.address(), "");
    let answer = fetch(kvgauge.listen, ASK);
    own(&answer, 502, "upstream_unreachable");
    assert_eq!(answer.json()["error"]["type"], "upstream_error");
    let message = answer.json()["error"]["message"].to_string();
    let address = nobody.address().to_string();
    assert!(message.contains(&address), "does not say where: {message}");
    logged(&kvgauge, "upstream_unreachable", 502);
    assert!(kvgauge.says("can't reach the router").contains(&address));
    // The usage is known all the same.
    let usage = support::eventually("the stamp", || {
        fetch(kvgauge.listen, ASK).head.get("x-kv-usage")
    });
    assert_eq!(usage, "0.3700");
}

/// What an error's message has to say.
struct Tells<'a> {
    /// Whom it names at its beginning.
    who: &'a str,
    /// What was seen, with the limit in force where one was passed.
    seen: &'a str,
    /// What to do, behind a colon.
    advice: &'a str,
}

impl Tells<'_> {
    #[track_caller]
    fn by(&self, answer: &Response, code: &str) {
        let error = &answer.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["code"], code, "{message}");
        assert!(message.starts_with(self.who), "who failed: {message}");
        let (seen, advice) = message.rsplit_once(": ").unwrap();
        assert!(seen.contains(self.seen), "what was seen: {message}");
        assert!(advice.contains(self.advice), "what to do: {message}");
    }
}

#[test]
fn an_answer_that_is_none_is_told_with_what_was_seen_and_what_to_do() {
    let no_http = "see that `upstream` is the router's API in plain HTTP/1.1, and not another port, TLS or HTTP/2, and who stands before it";
    let not = "sent what is no HTTP/1.1 answer (";
    let off = "broke off before it had answered (";
    let rows = [
        ("220 mail.test ESMTP\r\n\r\n", not, no_http),
        ("\0\0\u{12}\u{4}\0\0\0\0\0\0\u{3}\0\0\0", not, no_http),
        ("\u{15}\u{3}\u{1}\0\u{2}\u{2}P", not, no_http),
        ("HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n", not, no_http),
        ("HTTP/1.1 99999 x\r\n\r\n", not, no_http),
        (
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
            not,
            no_http,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            not,
            no_http,
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            not,
            no_http,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "does not say clearly where it ends",
            "who stands before the router",
        ),
        (
            "HTTP/1.1 200 OK\r\nA: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\nE: 1\r\nF: 1\r\nG: 1\r\nH: 1\r\nI: 1\r\nJ: 1\r\nK: 1\r\n\r\n",
            "limits.header_fields (10) or limits.header_bytes (8KiB)",
            "raise them if it is right",
        ),
        ("", off, "see the router's own log"),
        ("HTTP/1.1 20", off, "see the router's own log"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "switched protocols (101) without having been asked",
            "see that `upstream` is the router's API",
        ),
    ];
    let upstream = Upstream::new(move |connection| {
        let request = connection.request()?;
        let n: usize = request.head.target()[1..].parse().unwrap();
        connection.send(rows[n].0)?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address())
        .settings("limits.header_fields = 10\nlimits.header_bytes = \"8KiB\"\n")
        .start();
    for (n, (sent, seen, advice)) in rows.iter().enumerate() {
        let answer = support::get(kvgauge.listen, &format!("/{n}"));
        assert_eq!(answer.status(), 502, "{sent:?}");
        let who = "the router";
        Tells { who, seen, advice }.by(&answer, "upstream_aborted");
    }
}

#[test]
fn a_switch_to_another_protocol_is_told_with_what_to_do() {
    let upstream = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n",
    );
    let kvgauge = Setup::new(upstream.address()).start();
    let asks = "GET / HTTP/1.1\r\nHost: k\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    Tells {
        who: "the router",
        seen: "switched (101) to another protocol than it was asked for",
        advice: "see its own log",
    }
    .by(&fetch(kvgauge.listen, asks), "upstream_aborted");
}

#[test]
fn a_limit_in_time_that_is_passed_is_told_with_its_value() {
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let half = "POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 9\r\n\r\nhalf";
    for (limit, request, who, code) in [
        (
            "timeouts.response_head",
            ASK,
            "the router has not begun to answer",
            "upstream_timeout",
        ),
        (
            "timeouts.request",
            ASK,
            "the router had not begun to answer",
            "request_timeout",
        ),
        (
            "timeouts.stream_silence",
            half,
            "nothing of the request's body came",
            "request_body_timeout",
        ),
    ] {
        let kvgauge = Setup::new(upstream.address())
            .settings(&format!("{limit} = \"120ms\"\n"))
            .start();
        let seen = format!("{limit} (120ms)");
        let advice = match code {
            "request_body_timeout" => "send it without such pauses",
            _ => "see its load and its own log, or raise the limit",
        };
        Tells {
            who,
            seen: &seen,
            advice,
        }
        .by(&fetch(kvgauge.listen, request), code);
    }
}

#[test]
fn a_request_that_is_refused_is_told_why_and_what_to_send() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("limits.request_body = \"2KiB\"\n")
        .start();
    let get = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
    let chunks = format!(
        "POST / HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\n801\r\n{}\r\n0\r\n\r\n",
        "x".repeat(0x801)
    );
    let name = "send the name or address that kvgauge is reached by";
    let path = "send a path, which begins with /";
    let no_host = "is not a host with an optional port";
    for (request, seen, advice, code) in [
        (get("/", ""), "has no Host header", name, "bad_request"),
        (
            get("/", "Host: a\r\nHost: b\r\n"),
            "more than one Host header",
            "send one",
            "bad_request",
        ),
        (get("/", "Host: a/b\r\n"), no_host, name, "bad_request"),
        (get("/", "Host: h:99999\r\n"), no_host, name, "bad_request"),
        (
            get("http://u@k/", "Host: k\r\n"),
            no_host,
            name,
            "bad_request",
        ),
        (
            get("http://a/", "Host: b\r\n"),
            "different hosts",
            "send one of them",
            "bad_request",
        ),
        (
            get("k:80", "Host: k\r\n"),
            "a host alone",
            path,
            "bad_request",
        ),
        (get("*", "Host: k\r\n"), "target is *", path, "bad_request"),
        (
            get("ftp://k/", "Host: k\r\n"),
            "neither http nor https",
            path,
            "bad_request",
        ),
        (
            "CONNECT k:1 HTTP/1.1\r\nHost: k:1\r\n\r\n".to_owned(),
            "CONNECT",
            "send requests to it directly",
            "unsupported",
        ),
        (
            get("/", "Host: k\r\nTransfer-Encoding: gzip, chunked\r\n"),
            "Transfer-Encoding other than chunked",
            "send the body chunked",
            "unsupported",
        ),
        (
            get("/", "Host: k\r\nExpect: tea\r\n"),
            "expects something other than 100-continue",
            "leave the Expect header out",
            "expectation_failed",
        ),
        (
            post("/", "", &"x".repeat(2049)),
            "body, 2049 bytes, is longer than limits.request_body (2KiB)",
            "send less, or raise the limit",
            "request_too_large",
        ),
        (
            chunks,
            "body is longer than limits.request_body (2KiB)",
            "send less, or raise the limit",
            "request_too_large",
        ),
        (
            "POST / HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n"
                .to_owned(),
            "malformed or broke off (",
            "see how the client frames it",
            "bad_request_body",
        ),
    ] {
        // A client takes any answer but 2xx to CONNECT as one with a body.
        let answer = Client::connect(kvgauge.listen)
            .send(&request)
            .response("GET");
        let who = "the request";
        Tells { who, seen, advice }.by(&answer, code);
    }
}

#[test]
fn a_malformed_request_body_is_the_clients_fault() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = with_decode(upstream.address(), "");
    let answer = fetch(
        kvgauge.listen,
        "POST / HTTP/1.1\r\nHost: k\r\nx-request-id: asked\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\nno number\r\n",
    );
    own(&answer, 400, "bad_request_body");
    logged(&kvgauge, "rejected", 400);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_body_is_gone() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = with_decode(upstream.address(), "");
    let ask = |id: &str| {
        let mut client = Client::connect(kvgauge.listen);
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: k\r\nx-request-id: {id}\r\nExpect: 100-continue\r\n\
             Content-Length: 9\r\n\r\n"
        ));
        assert_eq!(client.head().status(), 100, "its body is read");
        client.send("half");
        client
    };
    let is_logged = |id: &str, status: Option<u16>, bytes: usize| {
        let line = kvgauge.line_of(id);
        assert_eq!(line["outcome"], "client_gone", "{line}");
        assert_eq!(line["error.type"], "client_gone", "{line}");
        let status = status.map_or(Value::Null, Value::from);
        assert_eq!(line["http.response.status_code"], status, "{line}");
        assert_eq!(line["bytes_out"], bytes, "{line}");
    };
    // It may still read, and is told what was wrong.
    let mut half = ask("half-closed");
    half.finish();
    let answer = half.response("POST");
    own(&answer, 400, "bad_request_body");
    let length = answer.body.len();
    is_logged("half-closed", Some(400), length);
    // Nobody can see that this one does not: the answer is handed to the kernel.
    ask("closed").close();
    is_logged("closed", Some(400), length);
    // This one is known to be gone, so nothing leaves.
    ask("reset").reset();
    is_logged("reset", None, 0);
    let count = |code| {
        let labels = [("outcome", "client_gone"), ("code", code)];
        kvgauge.metrics().sum("kvgauge_requests_total", &labels)
    };
    assert_eq!((count("400"), count("none")), (2.0, 1.0));
}

#[test]
fn a_router_that_comes_back_serves_again() {
    let router = Page::refusing();
    let (kvgauge, _decode) = with_decode(router.address(), "");
    assert_eq!(fetch(kvgauge.listen, ASK).status(), 502);
    router.set(support::page::Behaviour::Text("here".into()));
    assert_eq!(fetch(kvgauge.listen, ASK).text(), "here");
}

#[test]
fn a_router_that_breaks_off_before_its_head_is_502_and_is_not_asked_again() {
    for (sent, reset) in [("", false), ("", true), ("HTTP/1.1 20", false)] {
        let upstream = Upstream::new(move |connection| {
            connection.request()?;
            connection.send(sent)?;
            Ok(if reset { Next::Reset } else { Next::Close })
        });
        let (kvgauge, _decode) = with_decode(upstream.address(), "");
        let request = post("/v1/chat/completions", "x-request-id: asked\r\n", "{}");
        own(&fetch(kvgauge.listen, request), 502, "upstream_aborted");
        logged(&kvgauge, "upstream_aborted", 502);
        assert_eq!(upstream.requests().len(), 1, "no second try");
    }
}

#[test]
fn a_router_that_does_not_speak_http_is_502() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("220 mail.test ESMTP\r\n\r\n")?;
        Ok(Next::Close)
    });
    let (kvgauge, _decode) = with_decode(upstream.address(), "");
    let answer = fetch(kvgauge.listen, ASK);
    assert_eq!(answer.status(), 502);
    logged(&kvgauge, "upstream_aborted", 502);
}

#[test]
fn a_router_that_is_silent_is_504() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let (kvgauge, _decode) =
        with_decode(upstream.address(), "timeouts.response_head = \"300ms\"\n");
    let answer = fetch(kvgauge.listen, ASK);
    assert_eq!(answer.status(), 504);
    assert!(answer.json()["error"]["message"].is_string());
    logged(&kvgauge, "timeout", 504);
    // The request does not go on without the client.
    upstream.end_of(0, Duration::from_secs(1));
}

#[test]
fn a_stream_that_is_silent_too_long_ends_abnormally() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(support::upstream::STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let (kvgauge, _decode) =
        with_decode(upstream.address(), "timeouts.stream_silence = \"300ms\"\n");
    let answer = fetch(kvgauge.listen, ASK);
    assert_eq!(answer.text(), "data: 1\n\n");
    assert!(
        matches!(answer.end, support::End::Cut | support::End::Reset),
        "{:?}",
        answer.end
    );
    assert_eq!(kvgauge.line_of("asked")["outcome"], "timeout");
    upstream.end_of(0, Duration::from_secs(1));
}

#[test]
fn a_request_in_doubt_is_400() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = with_decode(upstream.address(), "");
    let answer = fetch(kvgauge.listen, ASK.replace("Host: k\r\n", ""));
    own(&answer, 400, "bad_request");
    assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    assert_eq!(answer.head.get("x-request-id").unwrap(), "asked");
    logged(&kvgauge, "rejected", 400);
}

#[test]
fn connect_is_501() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = with_decode(upstream.address(), "");
    let request = "CONNECT k:1 HTTP/1.1\r\nHost: k:1\r\nx-request-id: asked\r\n\r\n";
    // A client takes any answer but 2xx to CONNECT as one with a body.
    own(
        &Client::connect(kvgauge.listen)
            .send(request)
            .response("GET"),
        501,
        "unsupported",
    );
    logged(&kvgauge, "rejected", 501);
}

#[test]
fn a_body_over_its_limit_is_413() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = with_decode(upstream.address(), "limits.request_body = 1000\n");
    let long = "x".repeat(1001);
    let answer = fetch(kvgauge.listen, post("/", "x-request-id: asked\r\n", &long));
    own(&answer, 413, "request_too_large");
    logged(&kvgauge, "rejected", 413);
    assert_eq!(
        upstream.requests().len(),
        0,
        "the length said so beforehand"
    );
    assert_eq!(
        fetch(kvgauge.listen, post("/", "", &long[..1000])).status(),
        200
    );
}

/// One request is allowed at a time, and runs.
struct Full {
    kvgauge: Kvgauge,
    first: Client,
    _behind: (Upstream, Page),
}

fn full() -> Full {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(support::upstream::STREAM)?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let (kvgauge, decode) = with_decode(upstream.address(), "limits.in_flight = 1\n");
    let mut first = Client::connect(kvgauge.listen);
    first.send("GET /first HTTP/1.1\r\nHost: k\r\n\r\n").head();
    Full {
        kvgauge,
        first,
        _behind: (upstream, decode),
    }
}

#[test]
fn more_requests_than_allowed_is_503_with_a_time() {
    let full = full();
    let kvgauge = &full.kvgauge;
    // The place is held until the last byte, not until the head.
    let answer = fetch(kvgauge.listen, ASK);
    own(&answer, 503, "overloaded");
    Tells {
        who: "kvgauge",
        seen: "1 requests in flight already (limits.in_flight)",
        advice: "try again later",
    }
    .by(&answer, "overloaded");
    assert!(
        answer
            .head
            .get("retry-after")
            .unwrap()
            .parse::<u32>()
            .is_ok()
    );
    logged(kvgauge, "overloaded", 503);
    full.first.close();
    support::eventually("the place is free again", || {
        let mut next = Client::connect(kvgauge.listen);
        let head = next.send("GET /next HTTP/1.1\r\nHost: k\r\n\r\n").head();
        (head.status() == 200).then_some(())
    });
}

/// kvgauge answers these without waiting for anybody, so that all that came is one poll's work for hyper,
/// which goes round sixteen times in one and then has to be polled again.
#[test]
fn pipelined_requests_that_are_refused_are_all_answered() {
    let full = full();
    let kvgauge = &full.kvgauge;
    for count in [15, 16, 17, 18, 32, 33, 100] {
        let mut client = Client::connect(kvgauge.listen);
        client.send("GET /more HTTP/1.1\r\nHost: k\r\n\r\n".repeat(count));
        for _ in 0..count {
            assert_eq!(client.response("GET").status(), 503, "of {count}");
        }
    }
}

#[test]
fn the_operators_see_what_was_refused() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = with_decode(upstream.address(), "");
    fetch(kvgauge.listen, post("/v1/chat/completions", "", "{}"));
    fetch(kvgauge.listen, ASK.replace("Host: k\r\n", ""));
    Client::connect(kvgauge.listen)
        .send("no http\r\n\r\n")
        .rest();
    let requests =
        |labels: &[(&str, &str)]| kvgauge.metrics().sum("kvgauge_requests_total", labels);
    support::eventually("the counters", || {
        let complete = [
            ("method", "POST"),
            ("route", "/v1/chat/completions"),
            ("code", "200"),
            ("outcome", "complete"),
        ];
        let rejected = [("method", "GET"), ("code", "400"), ("outcome", "rejected")];
        let malformed = kvgauge
            .metrics()
            .sum("kvgauge_malformed_requests_total", &[]);
        (requests(&complete) == 1.0 && requests(&rejected) == 1.0 && malformed == 1.0).then_some(())
    });
}
