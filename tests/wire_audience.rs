//! `headers.audience`: who is shown the KV headers, on every kind of answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use std::net::SocketAddr;
use support::{Head, Kvgauge, Next, Page, Setup, Upstream, fetch};

/// A router's answer that claims to know better, and lets pages of browsers read it.
const CLAIMS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-KV-Usage: 0.9999\r\nx-kv-pools: decode\r\n\
                      Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: x-other\r\n\r\n{}";

fn upstream() -> Upstream {
    Upstream::new(|connection| {
        let target = connection.request()?.head.target().to_owned();
        match target.as_str() {
            "/error" => connection.send("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")?,
            "/stream" => connection.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            )?,
            "/trailers" => connection.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-KV-Usage, x-sum, x-kv-pools\r\n\r\n\
                 2\r\nhi\r\n0\r\nX-KV-Usage: 0.9999\r\nX-Sum: 7\r\nX-KV-Pools: decode\r\n\r\n",
            )?,
            "/break" => return Ok(Next::Close),
            "/silent" => connection.until_peer_leaves()?,
            _ => connection.send(CLAIMS)?,
        }
        Ok(Next::Again)
    })
}

/// Shows the KV headers to these.
fn shown_to(ranges: &str, router: SocketAddr) -> (Kvgauge, Page) {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let settings = format!(
        "scrape.interval = \"100ms\"\nheaders.audience = [{ranges}]\n\
         timeouts.response_head = \"200ms\"\nlimits.request_body = \"1KiB\"\n"
    );
    let kvgauge = Setup::new(router)
        .settings(&settings)
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    // The stamp follows the reading within a moment.
    support::eventually("the stamp, in the log", || {
        fetch(kvgauge.listen, "GET / HTTP/1.0\r\nHost: k\r\n\r\n");
        let mut lines = kvgauge.lines().into_iter();
        lines
            .any(|line| !line["kv.start.usage"].is_null())
            .then_some(())
    });
    (kvgauge, decode)
}

/// Every kind of answer: its status and the request that it is to.
const ANSWERS: [(u16, &str); 9] = [
    (200, "GET / HTTP/1.1\r\nHost: k\r\nOrigin: http://a\r\n\r\n"),
    (200, "HEAD / HTTP/1.1\r\nHost: k\r\n\r\n"),
    (200, "GET /stream HTTP/1.1\r\nHost: k\r\n\r\n"),
    (500, "GET /error HTTP/1.1\r\nHost: k\r\n\r\n"),
    (502, "GET /break HTTP/1.1\r\nHost: k\r\n\r\n"),
    (504, "GET /silent HTTP/1.1\r\nHost: k\r\n\r\n"),
    (400, "GET / HTTP/1.1\r\nHost: k\r\nHost: l\r\n\r\n"),
    (
        413,
        "POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 2000\r\n\r\n",
    ),
    (501, "CONNECT k:1 HTTP/1.1\r\nHost: k:1\r\n\r\n"),
];

fn answer(kvgauge: &Kvgauge, status: u16, request: &str) -> Head {
    let head = fetch(kvgauge.listen, request).head;
    assert_eq!(head.status(), status, "{request}: {}", head.text());
    head
}

fn exposed(head: &Head) -> String {
    let lines = head.all("access-control-expose-headers");
    String::from_utf8(lines.join(&b", "[..])).unwrap()
}

#[test]
fn a_stranger_is_shown_them_on_no_answer() {
    let upstream = upstream();
    let (kvgauge, _decode) = shown_to("\"192.0.2.0/24\", \"2001:db8::/32\"", upstream.address());
    for (status, request) in ANSWERS {
        let head = answer(&kvgauge, status, request);
        assert!(
            !head.text().to_ascii_lowercase().contains("x-kv-"),
            "{}",
            head.text()
        );
        assert!(head.has("x-request-id"), "{}", head.text());
    }
    // Nor are they announced to pages of browsers; the router's own names stay.
    let head = answer(&kvgauge, 200, ANSWERS[0].1);
    assert_eq!(exposed(&head), "x-other");
    // Whoever forwards does not lend its audience: the connection's address counts, though this client's
    // X-Forwarded-For is believed (trusted_proxies) and passed on.
    let forwarded = "GET / HTTP/1.1\r\nHost: k\r\nX-Forwarded-For: 192.0.2.1\r\n\
                     Forwarded: for=192.0.2.1\r\nX-Real-Ip: 192.0.2.1\r\n\r\n";
    let head = answer(&kvgauge, 200, forwarded);
    assert!(
        !head.has("x-kv-usage") && !head.has("x-kv-pools"),
        "{}",
        head.text()
    );
    let seen = upstream.requests().pop().unwrap();
    let hops = seen.head.get("x-forwarded-for").unwrap();
    assert!(hops.starts_with("192.0.2.1, 127.0.0.1"), "{hops}");
}

#[test]
fn the_routers_own_do_not_come_behind_a_body() {
    for ranges in ["\"192.0.2.0/24\"", "\"127.0.0.0/8\""] {
        let upstream = upstream();
        let (kvgauge, _decode) = shown_to(ranges, upstream.address());
        let request = "GET /trailers HTTP/1.1\r\nHost: k\r\nTE: trailers\r\nConnection: te\r\n\r\n";
        let answer = fetch(kvgauge.listen, request);
        assert_eq!(answer.text(), "hi");
        assert_eq!(answer.head.get("trailer").as_deref(), Some("x-sum"));
        let names: Vec<&str> = answer.trailers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["x-sum"], "{ranges}");
    }
}

#[test]
fn a_stranger_is_shown_nothing_where_the_router_is_not_there() {
    let nobody = Page::refusing();
    let (kvgauge, _decode) = shown_to("\"192.0.2.0/24\"", nobody.address());
    let head = answer(&kvgauge, 502, ANSWERS[0].1);
    assert!(
        !head.text().to_ascii_lowercase().contains("x-kv-"),
        "{}",
        head.text()
    );
}

#[test]
fn the_audience_is_shown_them_on_every_answer() {
    let upstream = upstream();
    let (kvgauge, _decode) = shown_to("\"192.0.2.0/24\", \"127.0.0.1\"", upstream.address());
    for (status, request) in ANSWERS {
        let head = answer(&kvgauge, status, request);
        assert_eq!(
            head.get("x-kv-usage").as_deref(),
            Some("0.0047"),
            "{}",
            head.text()
        );
        assert_eq!(head.all("x-kv-pools").len(), 1, "{}", head.text());
    }
    let head = answer(&kvgauge, 200, ANSWERS[0].1);
    assert_eq!(exposed(&head), "x-other, x-kv-usage, x-kv-pools");
    // It is the one that is connected, whomever it speaks for.
    let forwarded = "GET / HTTP/1.1\r\nHost: k\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
    assert!(answer(&kvgauge, 200, forwarded).has("x-kv-usage"));
}
