//! Problems reported in public about headers, errors and framing in proxies, each as a test that is
//! named by its id. Inputs are in `tests/data/cases`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use support::client::post;
use support::upstream::OK;
use support::{Client, Head, Kvgauge, Page, Setup, Upstream, fetch};

fn start(upstream: &Upstream) -> (Kvgauge, Page) {
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    (kvgauge, decode)
}

#[test]
fn b35_an_answer_keeps_its_bytes_and_loses_its_hop() {
    let upstream = Upstream::case("b35.http");
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(
        kvgauge.listen,
        post("/v1/chat/completions", "x-request-id: b35\r\n", "{}"),
    );
    let head = &answer.head;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.body, b"{}");
    assert_eq!(head.all("x-note"), [b"Dienstag, 31. M\xe4rz"]);
    assert_eq!(head.all("x-utf"), ["你".as_bytes()]);
    assert_eq!(head.all("x-empty"), [b""]);
    assert_eq!(head.all("set-cookie"), [b"a=1; Path=/", b"b=2; Path=/"]);
    assert!(!head.has("x-hop"), "{}", head.text());
    let connection = head.all("connection").concat().to_ascii_lowercase();
    assert!(
        !connection.windows(5).any(|part| part == b"x-hop"),
        "{}",
        head.text()
    );
    assert_eq!(kvgauge.line_of("b35")["outcome"], "complete");
}

#[test]
fn b35_a_request_keeps_its_bytes_and_loses_its_hop() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = start(&upstream);
    let mut request =
        b"GET /a?b=c HTTP/1.1\r\nHost: k.test\r\nx-request-id: b35\r\nX-Note: M\xe4rz\r\n".to_vec();
    request.extend_from_slice("X-Utf: 你\r\nX-Empty:\r\nX-Two: 1\r\nX-Two: 2\r\n".as_bytes());
    request.extend_from_slice(b"User-Agent: a\xe4b\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n");
    assert_eq!(fetch(kvgauge.listen, request).status(), 200);
    let head = upstream.request(1).head;
    assert_eq!(head.all("x-note"), [b"M\xe4rz"]);
    assert_eq!(head.all("x-utf"), ["你".as_bytes()]);
    assert_eq!(head.all("x-empty"), [b""]);
    assert_eq!(head.all("x-two"), [b"1", b"2"]);
    assert_eq!(head.all("user-agent"), [b"a\xe4b"]);
    assert!(!head.has("x-hop"), "{}", head.text());
    assert_eq!(kvgauge.line_of("b35")["outcome"], "complete");
}

/// Sends one POST through kvgauge to an upstream that answers with these bytes. Everything in the
/// answer must reach the client, and the request the upstream once.
fn b37(bytes: &[u8]) -> Head {
    let upstream = Upstream::answering(bytes);
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(kvgauge.listen, post("/v1/chat/completions", "", "{}"));
    let sent = Head::parse(bytes);
    assert_eq!(answer.head.start, sent.start);
    for (name, value) in &sent.fields {
        assert_eq!(answer.head.all(name), std::slice::from_ref(value), "{name}");
    }
    assert_eq!(answer.body, &bytes[bytes.len() - answer.body.len()..]);
    assert_eq!(answer.head.get("x-kv-usage").unwrap(), "0.3700");
    let line = kvgauge.line(1);
    assert_eq!(line["http.response.status_code"], sent.status(), "{line}");
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(upstream.requests().len(), 1, "no second try");
    answer.head
}

#[test]
fn b37_a_429_passes_as_it_is() {
    let head = b37(&support::data::case("b37.http"));
    assert_eq!(head.get("retry-after").unwrap(), "30");
}

#[test]
fn b37_a_503_with_a_date_passes_as_it_is() {
    let head = b37(
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
          Retry-After: Fri, 31 Dec 2027 23:59:59 GMT\r\nContent-Length: 4\r\n\r\nlate",
    );
    assert_eq!(
        head.get("retry-after").unwrap(),
        "Fri, 31 Dec 2027 23:59:59 GMT"
    );
}

#[test]
fn b41_an_answer_to_head_keeps_its_length() {
    let to_head = support::data::case("b41.http");
    let upstream = Upstream::replying(move |request| match request.head.method() {
        "HEAD" => to_head.clone(),
        _ => OK.into(),
    });
    let (kvgauge, _decode) = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    let answer = client
        .send("HEAD /x HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("HEAD");
    assert_eq!(answer.head.get("content-length").unwrap(), "1488");
    assert!(answer.head.has("x-kv-usage"));
    let answer = client
        .send("GET /x HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("GET");
    assert_eq!(
        (answer.status(), answer.body.as_slice()),
        (200, b"{}".as_slice())
    );
    let methods: Vec<_> = upstream
        .requests()
        .iter()
        .map(|r| r.head.method().to_owned())
        .collect();
    assert_eq!(methods, ["HEAD", "GET"]);
    assert_eq!(kvgauge.line(1)["outcome"], "complete");
    assert_eq!(kvgauge.line(2)["outcome"], "complete");
}
