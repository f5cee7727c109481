//! Connections that switch protocols (RFC 9110, 7.8), WebSocket above all: which offers are passed
//! on, what a 101 must say, and the tunnel behind it, byte for byte and end for end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use serde_json::Value;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::upstream::{By, Connection, OK};
use support::{Client, End, Kvgauge, Next, Page, Setup, Signal, Upstream, fetch, get, pause};

/// The example of RFC 6455, 1.2.
const ASK: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: k.test\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nx-request-id: ws\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Protocol: realtime\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                      Sec-WebSocket-Protocol: realtime\r\n\r\n";

/// A close has to reach the other side within this.
const SOON: Duration = Duration::from_secs(1);

/// A router that switches when it is asked to, and then plays the rest.
fn switching<F>(rest: F) -> Upstream
where
    F: Fn(&mut Connection) -> std::io::Result<Next> + Send + Sync + 'static,
{
    Upstream::new(move |connection| {
        if !connection.request()?.head.has("upgrade") {
            connection.send(OK)?;
            return Ok(Next::Again);
        }
        connection.send(SWITCH)?;
        rest(connection)
    })
}

/// A router that sends back what comes, until the client has ended, and then ends.
fn echoing() -> Upstream {
    switching(|connection| {
        loop {
            match connection.some() {
                Ok(bytes) => connection.send(bytes)?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Next::Close),
                Err(error) => return Err(error),
            }
        }
    })
}

fn start(upstream: &Upstream, settings: &str) -> Kvgauge {
    Setup::new(upstream.address()).settings(settings).start()
}

fn open(kvgauge: &Kvgauge) -> Client {
    let mut client = Client::connect(kvgauge.listen);
    assert_eq!(client.send(ASK).head().status(), 101);
    client
}

fn echo(client: &mut Client, text: &str) {
    assert_eq!(client.send(text).exactly(text.len()), text.as_bytes());
}

fn ended(line: &Value, outcome: &str, error: Option<&str>) {
    assert_eq!(line["outcome"], outcome, "{line}");
    assert_eq!(
        line["error.type"],
        error.map_or(Value::Null, Value::from),
        "{line}"
    );
    assert_eq!(line["http.response.status_code"], 101, "{line}");
}

/// Bytes with a period that no buffer size is a multiple of.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    let byte = |n: usize| u8::try_from((n * 7 + n / 251 + seed) % 251).unwrap();
    (0..length).map(byte).collect()
}

// === heads ===

#[test]
fn the_offer_reaches_the_router_and_its_answer_the_client() {
    let upstream = echoing();
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    let mut client = Client::connect(kvgauge.listen);
    let answer = client.send(ASK).head();
    assert_eq!(answer.start, "HTTP/1.1 101 Switching Protocols");
    for (name, value) in [
        ("upgrade", "WebSocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("sec-websocket-protocol", "realtime"),
        ("x-kv-usage", "0.3700"),
        ("x-request-id", "ws"),
    ] {
        assert_eq!(
            answer.get(name).as_deref(),
            Some(value),
            "{}",
            answer.text()
        );
    }
    assert!(
        answer
            .get("x-kv-pools")
            .unwrap()
            .starts_with("decode;usage=0.370")
    );
    for name in ["content-length", "transfer-encoding"] {
        assert!(!answer.has(name), "{}", answer.text());
    }
    let asked = upstream.request(1).head;
    assert_eq!(asked.start, "GET /v1/realtime?model=m HTTP/1.1");
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "realtime"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "k.test"),
    ] {
        assert_eq!(asked.get(name).as_deref(), Some(value), "{}", asked.text());
    }
    echo(&mut client, "hello");
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    let line = kvgauge.line_of("ws");
    ended(&line, "upgraded", None);
    assert_eq!(line["url.path"], "/v1/realtime", "{line}");
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&5.into(), &5.into())
    );
    assert_eq!(line["kv.start.usage"], 0.37, "{line}");
    assert_eq!(line["kv.end.usage"], 0.37, "{line}");
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0, "{line}");
    assert!(
        line["stream"].is_null() && line["ttft_ms"].is_null(),
        "{line}"
    );
}

#[test]
fn only_the_offer_is_put_back_of_what_connection_names() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: x-hop, UPGRADE\r\nX-Hop: 1\r\n\
             Keep-Alive: timeout=5\r\nUpgrade: b/2\r\nUpgrade: a\r\nContent-Length: 3\r\n\r\n",
        )?;
        connection.rest();
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    client.send(
        "POST /x HTTP/1.1\r\nHost: k\r\nConnection: upgrade, x-mine\r\nX-Mine: 1\r\nKeep-Alive: 1\r\n\
         Proxy-Connection: upgrade\r\nUpgrade: a, b/2\r\nUpgrade: c\r\nContent-Length: 0\r\n\r\n",
    );
    let answer = client.head();
    assert_eq!(answer.all("connection"), [b"UPGRADE"]);
    assert_eq!(answer.all("upgrade"), [&b"b/2"[..], b"a"]);
    for name in ["x-hop", "keep-alive", "content-length"] {
        assert!(!answer.has(name), "{name}: {}", answer.text());
    }
    let asked = upstream.request(1).head;
    assert_eq!(asked.all("connection"), [b"upgrade"]);
    assert_eq!(asked.all("upgrade"), [&b"a, b/2"[..], b"c"]);
    for name in ["x-mine", "keep-alive", "proxy-connection"] {
        assert!(!asked.has(name), "{name}: {}", asked.text());
    }
}

/// Requests whose offer is not passed on, each with its body.
const LEFT_OUT: [(&str, &str); 8] = [
    // Not named in `Connection`.
    (
        "GET / HTTP/1.1\r\nHost: k\r\nUpgrade: websocket\r\n\r\n",
        "",
    ),
    (
        "GET / HTTP/1.1\r\nHost: k\r\nConnection: keep-alive\r\nUpgrade: websocket\r\n\r\n",
        "",
    ),
    (
        "GET / HTTP/1.0\r\nHost: k\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "",
    ),
    (
        "GET / HTTP/1.1\r\nHost: k\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        "",
    ),
    (
        "GET / HTTP/1.1\r\nHost: k\r\nConnection: upgrade\r\nUpgrade: H2C/1, , h2c\r\n\r\n",
        "",
    ),
    (
        "GET / HTTP/1.1\r\nHost: k\r\nConnection: upgrade\r\n\r\n",
        "",
    ),
    (
        "POST / HTTP/1.1\r\nHost: k\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Content-Length: 4\r\n\r\nbody",
        "body",
    ),
    (
        "POST / HTTP/1.1\r\nHost: k\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        "body",
    ),
];

#[test]
fn an_offer_that_is_not_passed_on_leaves_an_ordinary_request() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream, "");
    for (n, (request, body)) in LEFT_OUT.into_iter().enumerate() {
        let answer = fetch(kvgauge.listen, request);
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (200, "{}"),
            "{request}"
        );
        let came = upstream.request(n + 1);
        for name in ["upgrade", "connection", "http2-settings"] {
            assert!(!came.head.has(name), "{}", came.head.text());
        }
        assert_eq!(came.body, body.as_bytes(), "{request}");
        assert_eq!(kvgauge.line(n + 1)["outcome"], "complete");
    }
}

#[test]
fn h2c_alone_is_left_out_of_a_longer_offer() {
    let upstream = echoing();
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    let request = ASK.replace("Upgrade: websocket", "Upgrade: h2c, websocket");
    assert_eq!(client.send(request).head().status(), 101);
    let asked = upstream.request(1).head;
    assert_eq!(asked.get("upgrade").as_deref(), Some("websocket"));
    echo(&mut client, "through");
}

#[test]
fn an_answer_that_is_no_101_is_an_ordinary_one() {
    let statuses = [
        "200 OK",
        "401 Unauthorized",
        "403 Forbidden",
        "426 Upgrade Required",
        "503 Service Unavailable",
    ];
    let upstream = Upstream::replying(move |request| {
        let status = statuses[request.head.target()[1..].parse::<usize>().unwrap()];
        format!(
            "HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nno"
        )
    });
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    let mut client = Client::connect(kvgauge.listen);
    for (n, status) in statuses.into_iter().enumerate() {
        let request = ASK.replace("/v1/realtime?model=m", &format!("/{n}"));
        let answer = client.send(request).response("GET");
        assert_eq!(answer.head.start, format!("HTTP/1.1 {status}"));
        assert_eq!((answer.text().as_str(), answer.end), ("no", End::Complete));
        assert!(answer.head.has("x-kv-pools"), "{}", answer.head.text());
        // What a 426 asks for it must say (RFC 9110, 15.5.22).
        let says = (answer.status() == 426).then_some("websocket");
        assert_eq!(answer.head.get("upgrade").as_deref(), says);
        let line = kvgauge.line(n + 1);
        assert_eq!(line["outcome"], "complete", "{line}");
        assert_eq!(line["http.response.status_code"], answer.status(), "{line}");
        assert_eq!(line["bytes_out"], 2, "{line}");
    }
    assert_eq!(upstream.connections(), 1, "it is used again");
    let page = kvgauge.metrics();
    assert_eq!(
        page.value("kvgauge_tunnel_duration_seconds_count", &[]),
        Some(0.0)
    );
}

#[test]
fn what_stands_behind_an_offer_that_is_refused_is_the_next_request() {
    let upstream = Upstream::replying(|request| {
        let status = if request.head.has("upgrade") {
            "401 No"
        } else {
            "200 OK"
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
    });
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    client.send(format!("{ASK}GET /next HTTP/1.1\r\nHost: k\r\n\r\n"));
    assert_eq!(client.response("GET").status(), 401);
    assert_eq!(client.response("GET").status(), 200);
    assert_eq!(upstream.request(2).head.target(), "/next");
    assert_eq!(kvgauge.line(2)["url.path"], "/next");
}

/// A client of a router that switches when it should not gets 502, and no byte passes.
fn refused(request: &str, answer: &str) {
    let upstream = {
        let answer = answer.to_owned();
        Upstream::new(move |connection| {
            connection.request()?;
            connection.send(&answer)?;
            connection.send("secret")?;
            connection.until_peer_leaves()?;
            Ok(Next::Close)
        })
    };
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    let response = client.send(request).response("GET");
    assert_eq!(response.status(), 502, "{request}{answer}");
    let error = response.json();
    assert_eq!(error["error"]["code"], "upstream_aborted", "{error}");
    assert!(!response.text().contains("secret"));
    let (_, by) = upstream.end_of(0, Duration::from_secs(5));
    assert_eq!(by, By::Peer, "the router's connection is not used again");
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "upstream_aborted", "{line}");
    assert_eq!(line["http.response.status_code"], 502, "{line}");
    assert_eq!(
        kvgauge.metrics().value("kvgauge_tunnels_in_flight", &[]),
        Some(0.0)
    );
}

#[test]
fn a_101_that_nobody_asked_for_is_502() {
    refused("GET / HTTP/1.1\r\nHost: k\r\n\r\n", SWITCH);
    for (request, _) in LEFT_OUT {
        refused(request, SWITCH);
    }
}

#[test]
fn a_101_to_what_was_not_asked_for_is_502() {
    for upgrade in [
        "Upgrade: h2c\r\n",
        "Upgrade: websocket, other\r\n",
        "Upgrade:\r\n",
        "",
    ] {
        refused(
            ASK,
            &format!("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n{upgrade}\r\n"),
        );
    }
}

// === bytes ===

#[test]
fn bytes_behind_a_head_wait_for_the_101_and_are_not_lost() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        let socket = connection.socket();
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let early = socket.peek(&mut [0]).unwrap_err();
        assert_eq!(
            early.kind(),
            ErrorKind::WouldBlock,
            "a byte came before the 101"
        );
        socket.set_read_timeout(None)?;
        connection.send(format!("{SWITCH}first of the router"))?;
        assert_eq!(connection.exactly(19)?, b"first of the client");
        connection.send("second of the router")?;
        assert_eq!(connection.rest(), (Vec::new(), End::Cut));
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    client.send(format!("{ASK}first of the client"));
    assert_eq!(client.head().status(), 101);
    assert_eq!(
        client.exactly(39),
        b"first of the routersecond of the router"
    );
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    assert_eq!(upstream.end_of(0, SOON * 5).1, By::Us);
    let line = kvgauge.line_of("ws");
    ended(&line, "upgraded", None);
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&19.into(), &39.into())
    );
}

#[test]
fn a_tunnel_may_follow_other_requests_on_its_connection() {
    let upstream = echoing();
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    let plain = "GET / HTTP/1.1\r\nHost: k\r\n\r\n";
    assert_eq!(client.send(plain).response("GET").status(), 200);
    // One more that is sent together with the offer and the first of the new protocol.
    client.send(format!("{plain}{ASK}ping"));
    assert_eq!(client.response("GET").status(), 200);
    assert_eq!(client.head().status(), 101);
    assert_eq!(client.exactly(4), b"ping");
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    ended(&kvgauge.line(3), "upgraded", None);
    assert_eq!(kvgauge.lines().len(), 3);
}

#[test]
fn a_side_that_takes_nothing_holds_the_other_back() {
    let (sent, written) = (pattern(32 << 20, 3), Arc::new(Signal::default()));
    let whole = sent.clone();
    let done = Arc::clone(&written);
    let upstream = switching(move |connection| {
        let mut socket = connection.socket();
        socket.set_write_timeout(Some(Duration::from_millis(500)))?;
        let mut at = 0;
        let blocked = loop {
            match socket.write(&sent[at..]) {
                Ok(n) => at += n,
                Err(error) => break error.kind(),
            }
            assert!(at < sent.len(), "everything was taken at once");
        };
        assert_eq!(blocked, ErrorKind::WouldBlock);
        done.set();
        socket.set_write_timeout(None)?;
        connection.send(&sent[at..])?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    written.wait();
    let (came, end) = client.rest();
    assert!(came == whole, "{} bytes came, or other ones", came.len());
    assert_eq!(end, End::Cut);
    client.close();
    let line = kvgauge.line_of("ws");
    ended(&line, "upgraded", None);
    assert_eq!(line["bytes_out"], whole.len(), "{line}");
}

// === ends ===

#[test]
fn the_end_of_one_side_is_passed_on_and_the_other_goes_on() {
    // The client first.
    let upstream = switching(|connection| {
        assert_eq!(connection.rest(), (b"question".to_vec(), End::Cut));
        for _ in 0..3 {
            connection.send("answer")?;
        }
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    client.send("question").finish();
    assert_eq!(client.rest(), (b"answeransweranswer".to_vec(), End::Cut));
    ended(&kvgauge.line(1), "upgraded", None);

    // The router first.
    let upstream = switching(|connection| {
        connection.send("question")?;
        connection.finish()?;
        assert_eq!(connection.rest(), (b"answeranswer".to_vec(), End::Cut));
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    assert_eq!(client.rest(), (b"question".to_vec(), End::Cut));
    client.send("answer").send("answer").finish();
    assert_eq!(upstream.end_of(0, SOON * 5).1, By::Us);
    let line = kvgauge.line(1);
    ended(&line, "upgraded", None);
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&12.into(), &8.into())
    );
}

#[test]
fn a_client_that_resets_takes_the_routers_side_with_it_timed() {
    let seen = Arc::new(std::sync::Mutex::new(None));
    let upstream = {
        let seen = Arc::clone(&seen);
        switching(move |connection| {
            connection.send("hello")?;
            *seen.lock().unwrap() = Some((connection.rest(), Instant::now()));
            Ok(Next::Close)
        })
    };
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    assert_eq!(client.send("bye").exactly(5), b"hello");
    support::eventually("bye has been carried", || {
        (kvgauge
            .metrics()
            .value("kvgauge_tunnel_bytes_total", &[("direction", "in")])
            == Some(3.0))
        .then_some(())
    });
    let left = Instant::now();
    client.reset();
    upstream.end_of(0, SOON * 5);
    let ((came, end), at) = seen.lock().unwrap().take().unwrap();
    assert_eq!(
        (came.as_slice(), end),
        (&b"bye"[..], End::Reset),
        "no orderly end"
    );
    assert!(at - left < SOON, "after {:?}", at - left);
    let line = kvgauge.line_of("ws");
    ended(&line, "client_gone", Some("client_gone"));
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&3.into(), &5.into())
    );
}

#[test]
fn a_router_that_resets_takes_the_clients_side_with_it_timed() {
    let go = Arc::new(Signal::default());
    let upstream = {
        let go = Arc::clone(&go);
        switching(move |connection| {
            connection.send("last words")?;
            go.wait();
            Ok(Next::Reset)
        })
    };
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    assert_eq!(client.exactly(10), b"last words");
    let asked = Instant::now();
    go.set();
    assert_eq!(client.rest(), (Vec::new(), End::Reset), "no orderly end");
    assert!(asked.elapsed() < SOON, "after {:?}", asked.elapsed());
    ended(
        &kvgauge.line(1),
        "upstream_aborted",
        Some("upstream_aborted"),
    );
}

#[test]
fn a_reset_is_seen_also_on_a_side_that_has_ended_or_waits() {
    // The client has ended its side, and then resets.
    let (half, over) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
    let upstream = {
        let (half, over) = (Arc::clone(&half), Arc::clone(&over));
        switching(move |connection| {
            connection.rest();
            half.set();
            over.wait();
            Ok(Next::Close)
        })
    };
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    client.finish();
    half.wait();
    client.reset();
    ended(&kvgauge.line(1), "client_gone", Some("client_gone"));
    over.set();

    // The router resets while the client takes nothing of what it has sent.
    let upstream = switching(|connection| {
        let mut socket = connection.socket();
        socket.set_write_timeout(Some(Duration::from_millis(300)))?;
        while socket.write(&[0; 65536]).is_ok() {}
        Ok(Next::Reset)
    });
    let kvgauge = start(&upstream, "");
    let client = open(&kvgauge);
    ended(
        &kvgauge.line(1),
        "upstream_aborted",
        Some("upstream_aborted"),
    );
    drop(client);
}

#[test]
fn a_client_that_leaves_before_the_101_is_gone() {
    let (asked, left) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
    let upstream = {
        let (asked, left) = (Arc::clone(&asked), Arc::clone(&left));
        Upstream::new(move |connection| {
            connection.request()?;
            asked.set();
            connection.until_peer_leaves().unwrap_err();
            left.set();
            Ok(Next::Close)
        })
    };
    let kvgauge = start(&upstream, "");
    let mut client = Client::connect(kvgauge.listen);
    client.send(ASK);
    asked.wait();
    client.close();
    left.wait();
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "client_gone", "{line}");
    assert!(line["http.response.status_code"].is_null(), "{line}");
}

// === limits ===

#[test]
fn a_tunnel_is_in_flight_until_its_end() {
    let upstream = echoing();
    let kvgauge = start(&upstream, "limits.in_flight = 1\n");
    let mut client = open(&kvgauge);
    let refused = get(kvgauge.listen, "/");
    assert_eq!(refused.status(), 503, "{}", refused.text());
    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(1.0));
    kvgauge.until_metric("kvgauge_tunnels_in_flight", &[], Some(1.0));
    echo(&mut client, "still here");
    client.close();
    let line = kvgauge.line_of("ws");
    ended(&line, "upgraded", None);
    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
    assert_eq!(get(kvgauge.listen, "/").status(), 200);
}

#[test]
fn a_tunnel_holds_its_connections_place() {
    let upstream = echoing();
    let kvgauge = start(&upstream, "limits.connections = 1\n");
    let mut client = open(&kvgauge);
    let mut next = Client::connect(kvgauge.listen);
    next.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    next.patience(Duration::from_millis(300));
    assert_eq!(
        next.try_head().unwrap_err(),
        End::Silent,
        "it waits for a place"
    );
    echo(&mut client, "still here");
    client.close();
    next.patience(Duration::from_secs(10));
    assert_eq!(next.response("GET").status(), 200);
}

#[test]
fn a_tunnel_is_no_idle_connection() {
    let upstream = echoing();
    let settings = "timeouts.client_idle = \"100ms\"\ntimeouts.request_head = \"100ms\"\n\
                    timeouts.response_head = \"100ms\"\nupstream.idle = \"100ms\"\n\
                    upstream.max_age = \"100ms\"\n";
    let kvgauge = start(&upstream, settings);
    let mut client = Client::connect(kvgauge.listen);
    // A byte behind the head makes the connection one whose peer is looked for.
    client.send(format!("{ASK}\n"));
    assert_eq!(client.head().status(), 101);
    assert_eq!(client.exactly(1), b"\n");
    // Two sweeps, which come every half second.
    pause(Duration::from_millis(1200));
    echo(&mut client, "still here");
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    ended(&kvgauge.line(1), "upgraded", None);
}

#[test]
fn a_tunnel_silent_in_both_directions_is_ended_where_that_is_set_timed() {
    let upstream = switching(|connection| {
        // One direction alone keeps it open.
        for _ in 0..6 {
            connection.pause(Duration::from_millis(200))?;
            connection.send("x")?;
        }
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "timeouts.stream_silence = \"800ms\"\n");
    let mut client = open(&kvgauge);
    assert_eq!(client.exactly(6), b"xxxxxx");
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    let line = kvgauge.line(1);
    ended(&line, "timeout", Some("stream_silence"));
    assert!(line["duration_ms"].as_f64().unwrap() >= 2000.0, "{line}");
    assert_eq!(upstream.end_of(0, SOON * 5).1, By::Peer);
}

#[test]
fn a_tunnel_that_one_side_has_ended_is_not_held_open_in_silence_timed() {
    let upstream = switching(|connection| {
        connection.pause(Duration::from_millis(300))?;
        connection.send("x")?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream, "timeouts.client_idle = \"800ms\"\n");
    // Before that it may be silent for as long as it likes, and the client does not end its own.
    let mut client = open(&kvgauge);
    assert_eq!(client.exactly(1), b"x");
    assert_eq!(client.rest(), (Vec::new(), End::Cut), "the router's end");
    let line = kvgauge.line(1);
    ended(&line, "timeout", Some("stream_silence"));
    let duration = line["duration_ms"].as_f64().unwrap();
    assert!((1000.0..5000.0).contains(&duration), "{line}");
}

#[test]
fn the_time_of_a_whole_request_is_a_tunnels_too() {
    let upstream = echoing();
    let kvgauge = start(&upstream, "timeouts.request = \"600ms\"\n");
    let mut client = open(&kvgauge);
    echo(&mut client, "busy");
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    let line = kvgauge.line(1);
    ended(&line, "timeout", Some("request_timeout"));
    assert!(line["duration_ms"].as_f64().unwrap() >= 600.0, "{line}");
    upstream.none_open(SOON * 5);
}

// === counts ===

#[test]
fn a_tunnel_is_counted_as_one() {
    let upstream = echoing();
    let kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    echo(&mut client, "0123456789");
    for direction in ["in", "out"] {
        let labels = [("direction", direction)];
        kvgauge.until_metric("kvgauge_tunnel_bytes_total", &labels, Some(10.0));
    }
    assert_eq!(kvgauge.lines().len(), 0, "a line before the end");
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    let labels = [
        ("method", "GET"),
        ("route", "/v1/realtime"),
        ("code", "101"),
        ("outcome", "upgraded"),
    ];
    kvgauge.until_metric("kvgauge_requests_total", &labels, Some(1.0));
    let page = kvgauge.metrics();
    for (name, value) in [
        ("kvgauge_tunnel_duration_seconds_count", 1.0),
        ("kvgauge_request_duration_seconds_count", 0.0),
        ("kvgauge_overhead_seconds_count", 1.0),
        ("kvgauge_tunnels_in_flight", 0.0),
        ("kvgauge_requests_in_flight", 0.0),
    ] {
        assert_eq!(page.value(name, &[]), Some(value), "{name}");
    }
    ended(&kvgauge.line(1), "upgraded", None);
    assert_eq!(kvgauge.lines().len(), 1);
}

// === the end of kvgauge ===

#[test]
fn a_tunnel_goes_on_while_kvgauge_drains() {
    let upstream = echoing();
    let mut kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    kvgauge.signal(Unix::TERM);
    support::eventually("it drains", || {
        Client::try_connect(kvgauge.listen).is_err().then_some(())
    });
    echo(&mut client, "still here");
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
    kvgauge.log.to_the_end();
    ended(&kvgauge.line(1), "upgraded", None);
}

#[test]
fn a_tunnel_may_begin_in_the_delay_of_a_drain() {
    let upstream = echoing();
    let mut kvgauge = start(&upstream, "drain.delay = \"1h\"\n");
    let mut kept = Client::connect(kvgauge.listen);
    let plain = "GET / HTTP/1.1\r\nHost: k\r\n\r\n";
    assert_eq!(kept.send(plain).response("GET").status(), 200);
    kvgauge.signal(Unix::TERM);
    support::eventually("answers say so", || {
        get(kvgauge.listen, "/")
            .head
            .has("connection")
            .then_some(())
    });
    let answer = kept.send(ASK).head();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.get("connection").as_deref(), Some("Upgrade"));
    echo(&mut kept, "through");
    kept.close();
    ended(&kvgauge.line_of("ws"), "upgraded", None);
    kvgauge.signal(Unix::TERM);
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
}

#[test]
fn a_tunnel_that_outlasts_the_drain_is_cut() {
    let upstream = echoing();
    let mut kvgauge = start(&upstream, "drain.timeout = \"300ms\"\n");
    let mut client = open(&kvgauge);
    echo(&mut client, "busy");
    assert_eq!(kvgauge.stop(), 0);
    kvgauge.says("cutting what still runs requests=1");
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    kvgauge.log.to_the_end();
    let line = kvgauge.line(1);
    ended(&line, "drained", Some("drained"));
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&4.into(), &4.into())
    );
    upstream.none_open(SOON * 5);
}

#[test]
fn a_second_signal_cuts_a_tunnel_at_once_timed() {
    let upstream = echoing();
    let mut kvgauge = start(&upstream, "");
    let mut client = open(&kvgauge);
    kvgauge.signal(Unix::TERM);
    support::eventually("it drains", || {
        Client::try_connect(kvgauge.listen).is_err().then_some(())
    });
    let asked = Instant::now();
    kvgauge.signal(Unix::INT);
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
    assert!(asked.elapsed() < SOON * 2, "took {:?}", asked.elapsed());
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    kvgauge.log.to_the_end();
    ended(&kvgauge.line(1), "drained", Some("drained"));
}
