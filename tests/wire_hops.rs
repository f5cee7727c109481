//! What a hop takes off, puts on and leaves alone: RFC 9110 section 7 and the hop rules of
//! `docs/design.md`, with raw sockets on both sides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use support::upstream::OK;
use support::{Client, Head, Kvgauge, Page, Setup, Upstream, fetch};

fn start(upstream: &Upstream) -> Kvgauge {
    Setup::new(upstream.address()).start()
}

/// The head that reaches the upstream.
fn forwarded(request: &str) -> Head {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let answer = fetch(kvgauge.listen, request);
    assert_eq!(answer.status(), 200, "{request}");
    upstream.request(1).head
}

/// The head that reaches the client.
fn returned(answer: &str) -> Head {
    let upstream = Upstream::answering(answer);
    let kvgauge = start(&upstream);
    fetch(kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n").head
}

const HOP_FIELDS: [&str; 4] = ["keep-alive", "proxy-connection", "upgrade", "x-mine"];

#[test]
fn hop_fields_of_a_request_are_taken_off() {
    let head = forwarded(
        "GET / HTTP/1.1\r\nHost: k\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n\
         Connection: X-Other\r\nx-other: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
         TE: gzip\r\nX-Yours: 3\r\n\r\n",
    );
    for name in HOP_FIELDS.into_iter().chain(["x-other", "te"]) {
        assert!(!head.has(name), "{name}: {}", head.text());
    }
    assert_eq!(head.get("x-yours").unwrap(), "3");
}

#[test]
fn hop_fields_of_an_answer_are_taken_off() {
    let head = returned(
        "HTTP/1.1 200 OK\r\nConnection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: close\r\nX-Yours: 3\r\nContent-Length: 0\r\n\r\n",
    );
    for name in HOP_FIELDS {
        assert!(!head.has(name), "{name}: {}", head.text());
    }
    assert_eq!(head.get("x-yours").unwrap(), "3");
}

#[test]
fn a_client_cannot_nominate_away_what_kvgauge_adds() {
    let head = forwarded(
        "GET / HTTP/1.1\r\nHost: k.test\r\nx-request-id: mine\r\n\
         Connection: x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-request-id, host\r\n\r\n",
    );
    for name in [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-request-id",
    ] {
        assert_eq!(head.all(name).len(), 1, "{name}: {}", head.text());
    }
    assert_eq!(head.get("host").unwrap(), "k.test");
}

#[test]
fn a_connection_that_the_router_closes_is_not_closed_for_the_client() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")?;
        Ok(support::Next::Close)
    });
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    for _ in 0..2 {
        let answer = client
            .send("GET / HTTP/1.1\r\nHost: k\r\n\r\n")
            .response("GET");
        assert_eq!(answer.body, b"{}");
        assert!(!answer.head.has("connection"), "{}", answer.head.text());
    }
}

#[test]
fn a_client_that_wants_the_connection_closed_gets_that() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    client.send("GET / HTTP/1.1\r\nHost: k\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response("GET").status(), 200);
    assert!(client.is_closed());
    let connection = upstream.request(1).head.all("connection").concat();
    assert!(
        !connection.eq_ignore_ascii_case(b"close"),
        "that was for the first hop"
    );
}

#[test]
fn target_and_host_pass_through_as_they_are() {
    for target in [
        "/",
        "/v1/chat/completions?x=1&y=%20z",
        "//two//slashes/",
        "/a/../b/./c",
        "/%2F%41%e4?%",
        "/?",
        "/a;b=c,d@e:f!$'()*+",
    ] {
        let head = forwarded(&format!(
            "GET {target} HTTP/1.1\r\nHost: K.test:8080\r\n\r\n"
        ));
        assert_eq!(head.start, format!("GET {target} HTTP/1.1"));
        assert_eq!(head.get("host").unwrap(), "K.test:8080");
    }
}

#[test]
fn any_method_passes_but_connect() {
    for method in [
        "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PURGE", "M-SEARCH",
    ] {
        let head = forwarded(&format!("{method} /x HTTP/1.1\r\nHost: k\r\n\r\n"));
        assert_eq!(head.start, format!("{method} /x HTTP/1.1"));
    }
}

#[test]
fn connect_is_not_carried() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let request = "CONNECT k.test:443 HTTP/1.1\r\nHost: k.test:443\r\n\r\n";
    let mut client = Client::connect(kvgauge.listen);
    let answer = client.send(request).response("GET");
    assert_eq!(answer.status(), 501);
    assert!(answer.json()["error"]["message"].is_string());
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "rejected", "{line}");
    assert_eq!(line["http.request.method"], "CONNECT", "{line}");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn an_absolute_target_becomes_a_plain_one_and_its_authority_the_host() {
    let head = forwarded(
        "POST http://k.test:8080/v1/chat/completions?x=1 HTTP/1.1\r\nHost: k.test:8080\r\n\
         Content-Length: 0\r\n\r\n",
    );
    assert_eq!(head.start, "POST /v1/chat/completions?x=1 HTTP/1.1");
    assert_eq!(head.get("host").unwrap(), "k.test:8080");
    let head = forwarded("GET http://k.test HTTP/1.1\r\nHost: k.test\r\n\r\n");
    assert_eq!(head.start, "GET / HTTP/1.1");
}

#[test]
fn an_absolute_target_that_contradicts_host_is_never_sent_to_the_host() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let request = "GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n";
    match fetch(kvgauge.listen, request).status() {
        400 => assert_eq!(upstream.requests().len(), 0),
        // RFC 9112 3.2.2: Host is ignored.
        200 => {
            let head = upstream.request(1).head;
            assert_eq!(head.get("host").unwrap(), "a.test");
            assert_eq!(head.get("x-forwarded-host").unwrap(), "a.test");
        }
        other => panic!("status {other}"),
    }
}

#[test]
fn a_question_to_the_server_itself_passes() {
    let head = forwarded("OPTIONS * HTTP/1.1\r\nHost: k.test\r\n\r\n");
    assert_eq!(head.start, "OPTIONS * HTTP/1.1");
    assert_eq!(head.get("host").unwrap(), "k.test");
}

#[test]
fn where_a_request_came_from_is_added_for_trusted_clients() {
    let head = forwarded("GET / HTTP/1.1\r\nHost: k.test\r\n\r\n");
    assert_eq!(head.get("x-forwarded-for").unwrap(), "127.0.0.1");
    assert_eq!(head.get("x-forwarded-proto").unwrap(), "http");
    assert_eq!(head.get("x-forwarded-host").unwrap(), "k.test");
    // Loopback is trusted by default.
    let head = forwarded(
        "GET / HTTP/1.1\r\nHost: k.test\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Host: outer.test\r\n\r\n",
    );
    let all = head.all("x-forwarded-for").join(&b", "[..]);
    assert_eq!(
        String::from_utf8(all).unwrap(),
        "192.0.2.1, 192.0.2.2, 127.0.0.1"
    );
    // Whatever stands first is what the outermost proxy saw.
    let first = |name: &str| String::from_utf8(head.all(name).concat()).unwrap();
    assert!(
        first("x-forwarded-proto").starts_with("https"),
        "{}",
        head.text()
    );
    assert!(
        first("x-forwarded-host").starts_with("outer.test"),
        "{}",
        head.text()
    );
}

#[test]
fn where_a_request_came_from_is_replaced_for_strangers() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("trusted_proxies = [\"192.0.2.0/24\"]\n")
        .start();
    let request = "GET / HTTP/1.1\r\nHost: k.test\r\nX-Forwarded-For: 192.0.2.1\r\n\
                   X-Forwarded-Proto: https\r\nX-Forwarded-Host: outer.test\r\n\r\n";
    assert_eq!(fetch(kvgauge.listen, request).status(), 200);
    let head = upstream.request(1).head;
    assert_eq!(head.get("x-forwarded-for").unwrap(), "127.0.0.1");
    assert_eq!(head.get("x-forwarded-proto").unwrap(), "http");
    assert_eq!(head.get("x-forwarded-host").unwrap(), "k.test");
}

#[test]
fn nobody_is_told_of_kvgauge_by_via() {
    let head = forwarded("GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    assert!(
        !head.has("via") && !head.has("forwarded"),
        "{}",
        head.text()
    );
    let head = returned(OK);
    assert!(!head.has("via") && !head.has("server"), "{}", head.text());
    // What others have put there stays.
    let head = forwarded("GET / HTTP/1.1\r\nHost: k\r\nVia: 1.1 outer\r\n\r\n");
    assert_eq!(head.get("via").unwrap(), "1.1 outer");
}

#[test]
fn a_good_request_id_is_kept_everywhere() {
    let longest = "x".repeat(128);
    for id in ["abc-123", "!~", &longest] {
        let upstream = Upstream::ok();
        let kvgauge = start(&upstream);
        let request = format!(
            "GET / HTTP/1.1\r\nHost: k\r\nX-Request-Id: {id}\r\nx-request-id: other\r\n\r\n"
        );
        let answer = fetch(kvgauge.listen, request);
        assert_eq!(answer.head.get("x-request-id").unwrap(), id);
        assert_eq!(upstream.request(1).head.get("x-request-id").unwrap(), id);
        assert_eq!(kvgauge.line(1)["request.id"], id);
    }
}

#[test]
fn a_bad_request_id_is_replaced_by_one_that_sorts_by_time() {
    let mut made = Vec::new();
    let too_long = format!("x-request-id: {}\r\n", "x".repeat(129));
    for field in [
        "",
        "x-request-id:\r\n",
        "x-request-id: a b\r\n",
        "x-request-id: ä\r\n",
        &too_long,
    ] {
        let upstream = Upstream::ok();
        let kvgauge = start(&upstream);
        let answer = fetch(
            kvgauge.listen,
            format!("GET / HTTP/1.1\r\nHost: k\r\n{field}\r\n"),
        );
        let id = answer.head.get("x-request-id").unwrap();
        // A UUID of version 7.
        assert_eq!((id.len(), &id[14..15]), (36, "7"), "{field}: {id}");
        assert_eq!(upstream.request(1).head.get("x-request-id").unwrap(), id);
        assert_eq!(kvgauge.line(1)["request.id"], id.as_str());
        made.push(id);
    }
    assert!(made.is_sorted(), "{made:?}");
}

#[test]
fn a_router_that_answers_with_its_own_id_is_logged_with_both() {
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nx-request-id: theirs\r\nContent-Length: 0\r\n\r\n");
    let kvgauge = start(&upstream);
    let answer = fetch(
        kvgauge.listen,
        "GET / HTTP/1.1\r\nHost: k\r\nx-request-id: ours\r\n\r\n",
    );
    assert_eq!(answer.head.get("x-request-id").unwrap(), "theirs");
    let line = kvgauge.line(1);
    assert_eq!(
        (&line["request.id"], &line["upstream.request_id"]),
        (&"ours".into(), &"theirs".into())
    );
}

/// kvgauge that knows the decode server at 0.37.
fn stamped(upstream: &Upstream, settings: &str) -> (Kvgauge, Page) {
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .settings(&format!("scrape.interval = \"100ms\"\n{settings}"))
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    // The stamp follows at the next tick.
    support::eventually("the stamp", || {
        fetch(kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n")
            .head
            .has("x-kv-usage")
            .then_some(())
    });
    (kvgauge, decode)
}

#[test]
fn kv_headers_of_others_are_replaced_and_dropped() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nX-KV-Usage: 0.9\r\nx-kv-usage: 0.8\r\nX-KV-Pools: fake;usage=0.9\r\nContent-Length: 0\r\n\r\n",
    );
    let (kvgauge, _decode) = stamped(&upstream, "");
    let request = "GET / HTTP/1.1\r\nHost: k\r\nX-KV-Usage: 0.7\r\nX-KV-Pools: x\r\n\r\n";
    let head = fetch(kvgauge.listen, request).head;
    assert_eq!(head.get("x-kv-usage").unwrap(), "0.3700");
    assert!(
        head.get("x-kv-pools").unwrap().starts_with("decode;"),
        "{}",
        head.text()
    );
    let seen = upstream.requests().pop().unwrap().head;
    assert!(
        !seen.has("x-kv-usage") && !seen.has("x-kv-pools"),
        "{}",
        seen.text()
    );
}

#[test]
fn kv_headers_can_be_renamed_and_switched_off() {
    let upstream = Upstream::ok();
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .settings("headers.usage = \"X-Cache-Fill\"\nheaders.pools = \"\"\n")
        .source("decode", "decode", &decode)
        .start();
    let head = support::eventually("the renamed header", || {
        let head = fetch(kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n").head;
        head.has("x-cache-fill").then_some(head)
    });
    assert_eq!(head.get("x-cache-fill").unwrap(), "0.3700");
    assert!(
        !head.has("x-kv-usage") && !head.has("x-kv-pools"),
        "{}",
        head.text()
    );
}

#[test]
fn kv_headers_are_kept_from_clients_outside_the_audience() {
    let upstream = Upstream::ok();
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"100ms\"\nheaders.audience = [\"192.0.2.0/24\"]\n")
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    support::eventually("the stamp, in the log", || {
        let head = fetch(kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n").head;
        assert!(
            !head.has("x-kv-usage") && !head.has("x-kv-pools"),
            "{}",
            head.text()
        );
        kvgauge
            .lines()
            .iter()
            .any(|line| line["kv.start.usage"] == 0.37)
            .then_some(())
    });
}

#[test]
fn a_page_in_a_browser_may_read_the_kv_headers() {
    let exposed = |answer: &str| {
        let upstream = Upstream::answering(answer);
        let (kvgauge, _decode) = stamped(&upstream, "");
        let request = "GET / HTTP/1.1\r\nHost: k\r\nOrigin: http://app.test\r\n\r\n";
        fetch(kvgauge.listen, request).head
    };
    let names = |head: &Head| {
        let all = head.all("access-control-expose-headers").join(&b","[..]);
        let all = String::from_utf8(all).unwrap().to_ascii_lowercase();
        all.split(',')
            .map(|name| name.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let head = exposed(std::str::from_utf8(&support::data::case("b46.http")).unwrap());
    assert_eq!(head.get("access-control-allow-origin").unwrap(), "*");
    for name in ["x-request-id", "x-kv-usage", "x-kv-pools"] {
        assert!(
            names(&head).contains(&name.to_owned()),
            "{name}: {}",
            head.text()
        );
    }
    // `*` says all, but with credentials it is a name like any other.
    let plain = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: *\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(names(&exposed(plain)), ["*"]);
    let with = plain.replace(
        "Access-Control-Allow-Origin: *",
        "Access-Control-Allow-Origin: http://app.test\r\nAccess-Control-Allow-Credentials: true",
    );
    assert!(names(&exposed(&with)).contains(&"x-kv-usage".to_owned()));
    // Where the router says nothing of CORS, kvgauge says nothing.
    assert_eq!(names(&exposed(OK)), [""]);
}

#[test]
fn vary_and_other_fields_keep_their_lines_and_order() {
    // As the router sends them when the worker has a vary of its own.
    let head = returned(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nvary: origin, access-control-request-method\r\n\
         vary: accept-encoding\r\nserver: uvicorn\r\ndate: Mon, 01 Jan 2029 00:00:00 GMT\r\n\
         x-a: 1\r\nx-b: 2\r\nx-a: 3\r\ncontent-length: 0\r\n\r\n",
    );
    assert_eq!(
        head.all("vary"),
        [
            &b"origin, access-control-request-method"[..],
            b"accept-encoding"
        ]
    );
    assert_eq!(head.get("content-type").unwrap(), "text/plain");
    assert_eq!(head.get("server").unwrap(), "uvicorn");
    assert_eq!(head.get("date").unwrap(), "Mon, 01 Jan 2029 00:00:00 GMT");
    assert_eq!(head.all("x-a"), [b"1", b"3"]);
    assert_eq!(head.get("x-b").unwrap(), "2");
}
