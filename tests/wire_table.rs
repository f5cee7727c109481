//! How each odd request and answer is read, as tables: what was sent, what the other side sees, what
//! the log and the counters say. A clear request stands behind each odd one, so that whatever hides in
//! the odd one's framing would come to light.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use support::{Client, End, Head, Next, Request, Setup, Upstream};

/// What becomes of a request.
enum Then {
    /// The router sees one request, written as `seen` writes it, and the one behind it is answered.
    Sees(String),
    /// The same, but the connection ends with the answer.
    SeesLast(String),
    /// kvgauge answers with this status and code; the router sees nothing, and the connection ends.
    Refused(u16, &'static str),
    /// The same, but the router may have seen the beginning of a request that never became whole.
    Breaks(u16, &'static str),
    /// Not a request: this status without a body, and this reason. The same.
    Bare(u16, &'static str),
}

use Then::{Bare, Breaks, Refused, Sees, SeesLast};

/// What kvgauge puts on each request.
const ADDED: [&str; 4] = [
    "x-request-id",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
];

const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: behind.test\r\n\r\n";

/// The request line, the fields by name, a blank line, the body, and what trails it.
fn seen(request: &Request) -> String {
    let mut text = shown(&request.head, &ADDED);
    text.push_str(&String::from_utf8_lossy(&request.body));
    for (name, value) in &request.trailers {
        let _ = write!(text, "|{name}: {}", String::from_utf8_lossy(value));
    }
    text
}

fn shown(head: &Head, but: &[&str]) -> String {
    let mut lines: Vec<String> = head
        .fields
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !but.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)))
        .collect();
    lines.sort();
    format!("{}\n{}\n", head.start, lines.concat())
}

/// A POST with `Host: k`, these fields and this body.
fn post(fields: &str, body: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: k\r\n{fields}\r\n{body}")
}

/// The same as the router sees it.
fn posted(fields: &str, body: &str) -> String {
    with("POST /x HTTP/1.1", fields, body)
}

fn with(start: &str, fields: &str, body: &str) -> String {
    let mut lines: Vec<&str> = fields.split_inclusive('\n').collect();
    if !fields.contains("host:") {
        lines.push("host: k\n");
    }
    lines.sort_unstable();
    format!("{start}\n{}\n{body}", lines.concat())
}

const CHUNKED: &str = "transfer-encoding: chunked\n";

/// Plays each row on a connection of its own, and looks at everything that can be seen of it.
fn play(rows: &[(String, Then)]) {
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address()).workers(1).start();
    let mut lines = Vec::new();
    let mut seen_before = 0;
    let some_break = rows.iter().any(|(_, then)| matches!(then, Breaks(..)));
    let mut malformed: BTreeMap<&str, f64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (sent, then) in rows {
        let mut client = Client::connect(kvgauge.listen);
        // It may be refused before it is all sent.
        let _ = client.try_send([sent.as_bytes(), BEHIND.as_bytes()].concat());
        let method = Head::parse(sent.trim_start().as_bytes())
            .method()
            .to_owned();
        let (status, code, closes, outcome) = match then {
            Sees(_) => (200, None, false, "complete"),
            SeesLast(_) => (200, None, true, "complete"),
            Refused(status, code) | Breaks(status, code) => {
                (*status, Some(*code), true, "rejected")
            }
            Bare(status, reason) => (*status, Some(*reason), true, "malformed"),
        };
        let answer = match client.try_response(&method) {
            Ok(answer) => answer,
            Err(end) => {
                wrong.push(format!("{sent:?}: no answer but {end:?}"));
                continue;
            }
        };
        let mut found = format!("{}\n", answer.status());
        let mut wanted = format!("{status}\n");
        // Who closes says so (RFC 9112, 9.6).
        let _ = writeln!(found, "says close: {:?}", answer.head.has("connection"));
        // Of HTTP/1.0 it is what happens unless something else is said.
        let says = closes && (status >= 400 || !sent.contains("HTTP/1.0"));
        let _ = writeln!(wanted, "says close: {says:?}");
        if let Refused(_, code) | Breaks(_, code) = then
            && method != "HEAD"
        {
            let _ = writeln!(found, "{}", answer.json()["error"]["code"]);
            let _ = writeln!(wanted, "\"{code}\"");
        }
        if closes {
            let _ = writeln!(found, "closed: {}", client.is_closed());
            wanted.push_str("closed: true\n");
        } else {
            let behind = client.try_response("GET").map(|answer| answer.status());
            let _ = writeln!(found, "behind: {behind:?}");
            wanted.push_str("behind: Ok(200)\n");
        }
        let mut requests = upstream.requests();
        requests.retain(|request| request.end == Some(End::Complete) || !some_break);
        for request in requests.iter().skip(seen_before) {
            let _ = writeln!(found, "seen: {:?}", seen(request));
        }
        seen_before = requests.len();
        if let Sees(request) | SeesLast(request) = then {
            let _ = writeln!(wanted, "seen: {request:?}");
        }
        if !closes {
            let behind = with("GET /behind HTTP/1.1", "host: behind.test\n", "");
            let _ = writeln!(wanted, "seen: {behind:?}");
        }
        let code = serde_json::json!(code);
        lines.push((sent, format!("\"{outcome}\" {code} {status}")));
        if !closes {
            lines.push((sent, "\"complete\" null 200".to_owned()));
        }
        if let Bare(_, reason) = then {
            *malformed.entry(reason).or_default() += 1.0;
        }
        if found != wanted {
            wrong.push(format!("{sent:?}\n--- wanted\n{wanted}--- found\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    for (reason, count) in malformed {
        let labels = [("reason", reason)];
        kvgauge.until_metric("kvgauge_malformed_requests_total", &labels, Some(count));
    }
    let logged = kvgauge.lines_to_the_end();
    assert_eq!(logged.len(), lines.len(), "lines");
    for (line, (sent, wanted)) in logged.iter().zip(lines) {
        let (error, status) = (&line["error.type"], &line["http.response.status_code"]);
        let found = format!("{} {error} {status}", line["outcome"]);
        assert_eq!(found, wanted, "the line of {sent:?}");
    }
}

#[test]
fn a_length_is_digits_and_stands_for_one_number() {
    let refused = |fields: &str| (post(fields, "abcd"), Bare(400, "other"));
    let counted = || posted("content-length: 4\n", "abcd");
    play(&[
        (post("Content-Length: 4\r\n", "abcd"), Sees(counted())),
        (post("Content-Length:4\r\n", "abcd"), Sees(counted())),
        (post("Content-Length: \t 4 \t\r\n", "abcd"), Sees(counted())),
        (
            post("Content-Length: 4\r\ncontent-length: 4\r\n", "abcd"),
            Sees(counted()),
        ),
        (
            post("Content-Length: 004\r\n", "abcd"),
            Sees(posted("content-length: 004\n", "abcd")),
        ),
        (
            post("Content-Length: 0\r\n", ""),
            Sees(posted("content-length: 0\n", "")),
        ),
        (post("", ""), Sees(posted("", ""))),
        // The same number, however it is written: as the first line writes it.
        (
            post("Content-Length: 4\r\nContent-Length: 04\r\n", "abcd"),
            Sees(counted()),
        ),
        (
            post("Content-Length: 04\r\nContent-Length: 4\r\n", "abcd"),
            Sees(posted("content-length: 04\n", "abcd")),
        ),
        refused("Content-Length: 4\r\nContent-Length: 5\r\n"),
        refused("Content-Length: 5\r\nContent-Length: 4\r\n"),
        refused("Content-Length: 4, 4\r\n"),
        refused("Content-Length: 4,5\r\n"),
        refused("Content-Length: 4, 5\r\n"),
        refused("Content-Length: +4\r\n"),
        refused("Content-Length: -1\r\n"),
        refused("Content-Length: -0\r\n"),
        refused("Content-Length:\r\n"),
        refused("Content-Length: 4 4\r\n"),
        refused("Content-Length: 0 4\r\n"),
        refused("Content-Length: 0x4\r\n"),
        refused("Content-Length: 4.0\r\n"),
        refused("Content-Length: 4e0\r\n"),
        refused("Content-Length: \u{664}\r\n"),
        refused("Content-Length: 18446744073709551616\r\n"),
        // More than can be counted, which hyper calls too large.
        (
            post("Content-Length: 18446744073709551615\r\n", "abcd"),
            Bare(431, "head_too_large"),
        ),
        refused("Content-Length: 99999999999999999999999999\r\n"),
    ]);
}

const FOUR: &str = "4\r\nabcd\r\n0\r\n\r\n";

#[test]
fn a_coding_is_chunked_alone_and_once() {
    let refused = |fields: &str| (post(fields, FOUR), Refused(501, "unsupported"));
    let bare = |fields: &str| (post(fields, FOUR), Bare(400, "other"));
    let whole = || posted(CHUNKED, "abcd");
    play(&[
        (post("Transfer-Encoding: chunked\r\n", FOUR), Sees(whole())),
        (post("Transfer-Encoding: Chunked\r\n", FOUR), Sees(whole())),
        (post("transfer-encoding:\tCHUNKED \r\n", FOUR), Sees(whole())),
        (post("Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding\r\n", FOUR), Sees(whole())),
        // RFC 9112, 6.3: the coding counts, and the connection ends.
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", FOUR), SeesLast(whole())),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", FOUR), SeesLast(whole())),
        (post("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", FOUR), SeesLast(whole())),
        (post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n", FOUR), SeesLast(whole())),
        // What hyper takes, and this does not.
        refused("Transfer-Encoding: gzip, chunked\r\n"),
        refused("Transfer-Encoding: chunked, chunked\r\n"),
        refused("Transfer-Encoding: identity, chunked\r\n"),
        refused("Transfer-Encoding: , chunked\r\n"),
        refused("Transfer-Encoding: chunked, gzip, chunked\r\n"),
        refused("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        refused("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
        refused("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"),
        refused("Content-Length: 4\r\nTransfer-Encoding: gzip, chunked\r\n"),
        bare("Transfer-Encoding: gzip\r\n"),
        bare("Transfer-Encoding: identity\r\n"),
        bare("Transfer-Encoding: xchunked\r\n"),
        bare("Transfer-Encoding: chunkedx\r\n"),
        bare("Transfer-Encoding: chunked, gzip\r\n"),
        bare("Transfer-Encoding: chunked,\r\n"),
        bare("Transfer-Encoding: chunked;q=1\r\n"),
        bare("Transfer-Encoding: \"chunked\"\r\n"),
        bare("Transfer-Encoding:\r\n"),
        bare("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        bare("Content-Length: 4\r\nTransfer-Encoding: identity\r\n"),
        (post("Transfer-Encoding : chunked\r\n", FOUR), Bare(400, "header")),
        (post("Transfer-Encoding: \u{b}chunked\r\n", FOUR), Bare(400, "header")),
        (post("Transfer-Encoding:\r\n chunked\r\n", FOUR), Bare(400, "header")),
        (post("Transfer-Encoding: chunked\r\n , gzip\r\n", FOUR), Bare(400, "header")),
        ("POST /x HTTP/1.0\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n".to_owned(), Bare(400, "other")),
    ]);
}

#[test]
fn a_body_belongs_to_any_method_that_frames_one() {
    let mut rows = Vec::new();
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PUT", "get", "QUERY"] {
        let start = format!("{method} /x HTTP/1.1");
        let sent = |fields: &str, body: &str| format!("{start}\r\nHost: k\r\n{fields}\r\n{body}");
        rows.push((
            sent("Transfer-Encoding: chunked\r\n", FOUR),
            Sees(with(&start, CHUNKED, "abcd")),
        ));
        rows.push((
            sent("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            Sees(with(&start, CHUNKED, "")),
        ));
        rows.push((
            sent("Content-Length: 4\r\n", "abcd"),
            Sees(with(&start, "content-length: 4\n", "abcd")),
        ));
        rows.push((
            sent("Content-Length: 0\r\n", ""),
            Sees(with(&start, "content-length: 0\n", "")),
        ));
        rows.push((sent("", ""), Sees(with(&start, "", ""))));
    }
    play(&rows);
}

#[test]
fn a_host_is_one_and_can_be_one() {
    let sent = |fields: &str| format!("GET /x HTTP/1.1\r\n{fields}\r\n");
    let host = |host: &str| {
        (
            sent(&format!("Host: {host}\r\n")),
            Sees(with("GET /x HTTP/1.1", &format!("host: {host}\n"), "")),
        )
    };
    let refused = |fields: &str| (sent(fields), Refused(400, "bad_request"));
    play(&[
        host("k.test"),
        host("K.test:8080"),
        host("[::1]:8080"),
        host("a_b"),
        host("k:65535"),
        (sent("host:k\r\n"), Sees(with("GET /x HTTP/1.1", "", ""))),
        (
            sent("Host: k\r\nConnection: host\r\n"),
            Sees(with("GET /x HTTP/1.1", "", "")),
        ),
        refused(""),
        refused("Host:\r\n"),
        refused("Host: k\r\nHost: k\r\n"),
        refused("Host: k\r\nHost: l\r\n"),
        refused("Host: k, l\r\n"),
        refused("Host: k l\r\n"),
        refused("Host: user@k\r\n"),
        refused("Host: k/path\r\n"),
        refused("Host: http://k\r\n"),
        refused("Host: k:x\r\n"),
        refused("Host: k:65536\r\n"),
        refused("Host: h:99999\r\n"),
        refused("Host: k:80:80\r\n"),
        refused("Host: ::1\r\n"),
        refused("Host: k\u{fc}\r\n"),
        refused("Host: k#f\r\n"),
        (sent("Host : k\r\n"), Bare(400, "header")),
        (sent("Host: k\0\r\n"), Bare(400, "header")),
        (sent("Host: k\r\n .test\r\n"), Bare(400, "header")),
    ]);
}

#[test]
fn a_target_is_a_path_or_names_its_host() {
    let sent = |start: &str, host: &str| format!("{start} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let row = |start: &str, host: &str, seen: &str| {
        let fields = format!("host: {host}\n");
        (
            sent(start, host),
            Sees(with(&format!("{seen} HTTP/1.1"), &fields, "")),
        )
    };
    let refused = |start: &str, host: &str| (sent(start, host), Refused(400, "bad_request"));
    let bare = |start: &str| (sent(start, "k"), Bare(400, "target"));
    play(&[
        row("GET /x?y=%2f&z=\u{fc}", "k", "GET /x?y=%2f&z=\u{fc}"),
        row("GET /?", "k", "GET /?"),
        row("GET //k.test/x", "k", "GET //k.test/x"),
        row("GET /http://k.test/x", "k", "GET /http://k.test/x"),
        row("GET http://k.test/x?y", "k.test", "GET /x?y"),
        row("GET HTTP://K.test:8080/x", "K.test:8080", "GET /x"),
        row("GET http://k.test", "k.test", "GET /"),
        row("GET http://k.test?y", "k.test", "GET /?y"),
        row("GET https://k.test/x", "k.test", "GET /x"),
        // A fragment is no part of a target (RFC 9112, 3.2).
        row("GET /x#y", "k", "GET /x"),
        row("GET http://k.test/x#y", "k.test", "GET /x"),
        row("OPTIONS *", "k", "OPTIONS *"),
        row("OPTIONS /x", "k", "OPTIONS /x"),
        row("OPTIONS http://k.test", "k.test", "OPTIONS /"),
        row("OPTIONS http://k.test/", "k.test", "OPTIONS /"),
        // The target's authority counts where both name the same host.
        (
            sent("GET http://k.test:80/x", "K.TEST"),
            Sees(with("GET /x HTTP/1.1", "host: k.test:80\n", "")),
        ),
        (
            sent("GET https://k.test:443/x", "k.test"),
            Sees(with("GET /x HTTP/1.1", "host: k.test:443\n", "")),
        ),
        (
            sent("GET https://k.test/x", "k.test:443"),
            Sees(with("GET /x HTTP/1.1", "host: k.test\n", "")),
        ),
        refused("GET https://k.test:80/x", "k.test"),
        refused("GET https://k.test/x", "k.test:80"),
        refused("GET http://k.test:443/x", "k.test"),
        refused("GET http://a.test/x", "b.test"),
        refused("GET http://a.test:81/x", "a.test"),
        refused("GET http://k.test:99999/x", "k.test:99999"),
        refused("GET http://user@k.test/x", "k.test"),
        refused("GET http://user:pw@k.test/x", "user:pw@k.test"),
        refused("GET http://a.test,b.test/x", "a.test,b.test"),
        refused("GET ftp://k.test/x", "k.test"),
        refused("GET ws://k.test/x", "k.test"),
        refused("GET k.test:80", "k.test:80"),
        refused("GET k.test", "k.test"),
        refused("GET *", "k"),
        refused("POST *", "k"),
        (
            "GET http://k.test/x HTTP/1.1\r\n\r\n".to_owned(),
            Refused(400, "bad_request"),
        ),
        (
            sent("CONNECT k.test:443", "k.test:443"),
            Refused(501, "unsupported"),
        ),
        (sent("CONNECT /x", "k"), Refused(501, "unsupported")),
        bare("GET x/y"),
        bare("GET http://"),
        bare("GET http:///x"),
        bare("GET ?x"),
        bare("GET */x"),
        bare("GET /\u{1}"),
        bare("GET /\0"),
        bare("GET "),
    ]);
}

#[test]
fn a_head_is_lines_of_names_and_values() {
    let sent = |fields: &str| format!("GET /x HTTP/1.1\r\nHost: k\r\n{fields}\r\n");
    let fields =
        |sent_as: &str, seen: &str| (sent(sent_as), Sees(with("GET /x HTTP/1.1", seen, "")));
    let header = |fields: &str| (sent(fields), Bare(400, "header"));
    let bare = |sent: &str, reason| (sent.to_owned(), Bare(400, reason));
    let plain = || with("GET /x HTTP/1.1", "", "");
    play(&[
        fields("X-A:  \t1 2\t \r\n", "x-a: 1 2\n"),
        fields("X-A:\r\n", "x-a: \n"),
        fields("X-A: 1\r\nx-a: 2\r\n", "x-a: 1\nx-a: 2\n"),
        fields("X_a!#$%&'*+.^`|~: 1\r\n", "x_a!#$%&'*+.^`|~: 1\n"),
        // RFC 9112, 2.2: a lone LF ends a line, and blank lines in front are passed over.
        ("GET /x HTTP/1.1\nHost: k\n\n".to_owned(), Sees(plain())),
        ("GET /x HTTP/1.1\r\nHost: k\n\r\n".to_owned(), Sees(plain())),
        (
            "\r\n\r\nGET /x HTTP/1.1\r\nHost: k\r\n\r\n".to_owned(),
            Sees(plain()),
        ),
        (
            "\nGET /x HTTP/1.1\r\nHost: k\r\n\r\n".to_owned(),
            Sees(plain()),
        ),
        (
            "get /x HTTP/1.1\r\nHost: k\r\n\r\n".to_owned(),
            Sees(with("get /x HTTP/1.1", "", "")),
        ),
        // An old client's connection ends with the answer.
        (
            "GET /x HTTP/1.0\r\nHost: k\r\n\r\n".to_owned(),
            SeesLast(plain()),
        ),
        header("X A: 1\r\n"),
        header(" X-A: 1\r\n"),
        header("X-A : 1\r\n"),
        header("X-A\t: 1\r\n"),
        header(": 1\r\n"),
        header("X-A\r\n"),
        header("X-\0A: 1\r\n"),
        header("X-\u{fc}: 1\r\n"),
        header("X-(A): 1\r\n"),
        header("X-A: 1\0\r\n"),
        header("X-A: \u{1}\r\n"),
        header("X-A: \u{7f}\r\n"),
        header("X-A: 1\rX-B: 2\r\n"),
        header("X-A: 1\r\r\n"),
        header("X-A: 1\r\n 2\r\n"),
        header("X-A: 1\r\n\t2\r\n"),
        bare(" GET /x HTTP/1.1\r\nHost: k\r\n\r\n", "method"),
        bare("G(T /x HTTP/1.1\r\nHost: k\r\n\r\n", "method"),
        bare("GET\t/x HTTP/1.1\r\nHost: k\r\n\r\n", "method"),
        bare("GET  /x HTTP/1.1\r\nHost: k\r\n\r\n", "target"),
        bare("GET /x  HTTP/1.1\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x y HTTP/1.1\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x HTTP/1.1 \r\nHost: k\r\n\r\n", "header"),
        bare("GET /x HTTP/1.2\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x HTTP/2.0\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x HTTP/0.9\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x http/1.1\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x HTTP/11\r\nHost: k\r\n\r\n", "version"),
        bare("GET /x\r\n", "target"),
        (
            format!("GET /{} HTTP/1.1\r\nHost: k\r\n\r\n", "x".repeat(66_000)),
            Bare(414, "head_too_large"),
        ),
        (sent(&"X-A: 1\r\n".repeat(100)), Bare(431, "head_too_large")),
        (
            sent(&format!("X-A: {}\r\n", "x".repeat(300_000))),
            Bare(431, "head_too_large"),
        ),
    ]);
}

#[test]
fn the_preface_of_http2_is_not_answered() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(client.is_closed());
    let line = kvgauge.line(1);
    assert_eq!(
        (&line["outcome"], &line["error.type"]),
        (&"malformed".into(), &"http2".into())
    );
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_chunk_is_hexadecimal_digits_and_exactly_so_many_bytes() {
    let post = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    let good = |body: &str, seen: &str| (post(body), Sees(posted(CHUNKED, seen)));
    let bad = |body: &str| (post(body), Breaks(400, "bad_request_body"));
    play(&[
        good("4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n", "abcdef"),
        good("0004\r\nabcd\r\n000\r\n\r\n", "abcd"),
        good(
            "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
        ),
        // What is behind the size is left out (RFC 9112, 7.1.1), and so are blanks there.
        good("4;a=b;c=\"d;e\"\r\nabcd\r\n0;x\r\n\r\n", "abcd"),
        good("4 ; a\r\nabcd\r\n0\r\n\r\n", "abcd"),
        good("4 \r\nabcd\r\n0\r\n\r\n", "abcd"),
        good("0\r\n\r\n", ""),
        bad("+4\r\nabcd\r\n0\r\n\r\n"),
        bad("-4\r\nabcd\r\n0\r\n\r\n"),
        bad("0x4\r\nabcd\r\n0\r\n\r\n"),
        bad(" 4\r\nabcd\r\n0\r\n\r\n"),
        bad("4 4\r\nabcd\r\n0\r\n\r\n"),
        bad("\r\nabcd\r\n0\r\n\r\n"),
        bad("g\r\nabcd\r\n0\r\n\r\n"),
        bad("4,4\r\nabcd\r\n0\r\n\r\n"),
        bad("10000000000000000\r\nabcd\r\n0\r\n\r\n"),
        bad("ffffffffffffffffffff\r\nabcd\r\n0\r\n\r\n"),
        bad("4\nabcd\r\n0\r\n\r\n"),
        bad("4\r\nabcd\n0\r\n\r\n"),
        bad("4\r\nabcd0\r\n\r\n"),
        bad("4\r\nabcde\r\n0\r\n\r\n"),
        bad("3\r\nabcd\r\n0\r\n\r\n"),
        bad("4\rabcd\r\n0\r\n\r\n"),
        bad("4;a\nb\r\nabcd\r\n0\r\n\r\n"),
        bad("4\r\nabcd\r\n0\n\r\n"),
        bad(&format!("4;{}\r\nabcd\r\n0\r\n\r\n", "x".repeat(17_000))),
    ]);
}

#[test]
fn what_trails_a_body_names_no_field_of_the_head() {
    let post = |fields: &str, trailers: &str| {
        post(
            &format!("Transfer-Encoding: chunked\r\n{fields}"),
            &format!("4\r\nabcd\r\n0\r\n{trailers}\r\n"),
        )
    };
    let row = |fields: &str, trailers: &str, seen: &str, trailing: &str| {
        (
            post(fields, trailers),
            Sees(posted(
                &format!("{CHUNKED}{seen}"),
                &format!("abcd{trailing}"),
            )),
        )
    };
    let bad = |trailers: &str| {
        (
            post("Trailer: x-a\r\n", trailers),
            Breaks(400, "bad_request_body"),
        )
    };
    play(&[
        row(
            "Trailer: X-A\r\n",
            "X-A: 1\r\n",
            "trailer: X-A\n",
            "|x-a: 1",
        ),
        row(
            "Trailer: X-A\r\n",
            "X-A: 1\r\nX-B: 2\r\n",
            "trailer: X-A\n",
            "|x-a: 1",
        ),
        row("", "X-A: 1\r\n", "", ""),
        row(
            "Trailer: Host, Content-Length, Transfer-Encoding, Authorization, X-A\r\n",
            "Host: other\r\nContent-Length: 9\r\nTransfer-Encoding: gzip\r\nAuthorization: no\r\nX-A: 1\r\n",
            "trailer: X-A\n",
            "|x-a: 1",
        ),
        // What is taken off or put on in a head comes round no other way.
        row(
            "Trailer: X-KV-Usage, x-kv-pools,X-A\r\nTrailer: X-Forwarded-For, X-Forwarded-Host, x-request-id\r\n\
             Trailer: Connection, Keep-Alive, Upgrade, TE, Cookie, Forwarded, no name, , X-B\r\n",
            "X-KV-Usage: 0.1\r\nX-KV-Pools: decode\r\nX-A: 1\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: h\r\n\
             X-Request-Id: other\r\nConnection: close\r\nKeep-Alive: 1\r\nUpgrade: x\r\nTE: gzip\r\nCookie: a=b\r\n\
             Forwarded: for=9.9.9.9\r\nX-B: 2\r\n",
            "trailer: X-A, X-B\n",
            "|x-a: 1|x-b: 2",
        ),
        row("Trailer: X-KV-Usage\r\n", "X-KV-Usage: 0.1\r\n", "", ""),
        bad("X A: 1\r\n"),
        bad("X-A : 1\r\n"),
        bad("X-A: 1\0\r\n"),
        bad("X-A: 1\rX-B: 2\r\n"),
        // As many as a head may have, and as long.
        row(
            "Trailer: X-A\r\n",
            &"X-A: 1\r\n".repeat(100),
            "trailer: X-A\n",
            &"|x-a: 1".repeat(100),
        ),
        bad(&"X-A: 1\r\n".repeat(101)),
        bad(&format!("X-A: {}\r\n", "x".repeat(90_000)).repeat(3)),
    ]);
}

#[test]
fn what_connection_names_is_taken_off_but_for_framing_and_routing() {
    let row = |fields: &str, seen: &str| {
        (
            post(&format!("{fields}Content-Length: 4\r\n"), "abcd"),
            Sees(posted(&format!("{seen}content-length: 4\n"), "abcd")),
        )
    };
    play(&[
        row("Connection: x-a\r\nX-A: 1\r\nX-B: 2\r\n", "x-b: 2\n"),
        row(
            "Connection: X-A , ,x-c\r\nConnection: x-d\r\nX-A: 1\r\nX-C: 1\r\nX-D: 1\r\n",
            "",
        ),
        row("Connection: host, content-length\r\n", ""),
        row("Connection: transfer-encoding, x-request-id\r\n", ""),
        row("Connection: x-kv-usage\r\nX-KV-Usage: 1\r\n", ""),
        row("X-KV-Usage: 1\r\nX-KV-Pools: 1\r\n", ""),
        row(
            "Connection: authorization\r\nAuthorization: Bearer a\r\n",
            "",
        ),
        row("Authorization: Bearer a\r\n", "authorization: Bearer a\n"),
        row(
            "Connection: x-forwarded-for, x-forwarded-host\r\nX-Forwarded-For: 9.9.9.9\r\n",
            "",
        ),
        row(
            "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n",
            "",
        ),
        row("TE: gzip\r\n", ""),
        row("TE: gzip, trailers;q=1\r\n", ""),
        row(
            "TE: trailers, deflate\r\nConnection: TE\r\n",
            "connection: te\nte: trailers\n",
        ),
        row("Connection: \"x-a\"\r\nX-A: 1\r\n", "x-a: 1\n"),
        (
            "POST /x HTTP/1.1\r\nHost: k\r\nConnection: close, x-a\r\nX-A: 1\r\n\r\n".to_owned(),
            SeesLast(posted("", "")),
        ),
    ]);
}

#[test]
fn an_expectation_is_met_or_refused() {
    let four = "Content-Length: 4\r\n";
    let met = |fields: &str| {
        (
            post(&format!("{fields}{four}"), "abcd"),
            Sees(posted("content-length: 4\n", "abcd")),
        )
    };
    let refused = |fields: &str| {
        (
            post(&format!("{fields}{four}"), "abcd"),
            Refused(417, "expectation_failed"),
        )
    };
    play(&[
        met("Expect: 100-continue\r\n"),
        met("Expect: 100-Continue\r\n"),
        met("Expect:\r\n"),
        (post("Expect: 100-continue\r\n", ""), Sees(posted("", ""))),
        refused("Expect: other\r\n"),
        refused("Expect: 200-ok\r\n"),
        refused("Expect: 100-continue, other\r\n"),
        refused("Expect: 100-continue\r\nExpect: other\r\n"),
    ]);
}

/// What becomes of an answer.
enum Answer {
    /// The client gets it, written as `shown` does, with the body, and it is complete.
    Gets(String),
    /// The client gets so much of it, and its connection ends abnormally.
    GetsPart(String),
    /// The client gets 502.
    BadGateway,
}

use Answer::{BadGateway, Gets, GetsPart};

/// What kvgauge puts on each answer; nobody is read here, so there is no usage.
const PUT_ON: [&str; 2] = ["x-request-id", "x-kv-pools"];

/// Plays each answer to a request of this method, and a clear one behind it.
fn answer(method: &str, version: &str, rows: &[(String, Answer)]) {
    let mut wrong = Vec::new();
    let count = rows.len();
    // A connection whose answer says where it ends is to be used again.
    let framed = |sent: &str| {
        let says = |part| sent.contains(part);
        method == "HEAD"
            || says("Content-Length: ")
            || says("hunked")
            || says(" 204 ")
            || says(" 304 ")
    };
    let bytes: Vec<(String, bool)> = rows
        .iter()
        .map(|(sent, then)| (sent.clone(), matches!(then, Gets(_)) && framed(sent)))
        .collect();
    let upstream = Upstream::new(move |connection| {
        let request = connection.request()?;
        match request.head.target()[1..].parse::<usize>() {
            Ok(n) => {
                let (bytes, stays) = &bytes[n];
                connection.send(bytes)?;
                Ok(if *stays { Next::Again } else { Next::Close })
            }
            Err(_) => {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbehind")?;
                Ok(Next::Again)
            }
        }
    });
    let mut kvgauge = Setup::new(upstream.address()).workers(1).start();
    for (n, (sent, then)) in rows.iter().enumerate() {
        let mut client = Client::connect(kvgauge.listen);
        client.send(format!("{method} /{n} {version}\r\nHost: k\r\nx-request-id: row-{n}\r\nConnection: keep-alive\r\nTE: trailers\r\n\r\n"));
        let mut found = String::new();
        let mut ended = false;
        match client.try_response(method) {
            Ok(answer) if answer.status() == 502 => {
                let _ = writeln!(found, "502 {}", answer.json()["error"]["code"]);
            }
            Ok(answer) => {
                found = shown(&answer.head, &PUT_ON) + &answer.text();
                for (name, value) in &answer.trailers {
                    let _ = write!(found, "|{name}: {}", String::from_utf8_lossy(value));
                }
                ended = answer.end != End::Complete
                    || !(answer.head.has("content-length")
                        || answer.head.has("transfer-encoding")
                        || method == "HEAD"
                        || matches!(answer.status(), 204 | 304));
                let _ = writeln!(found, "\n{}", answer.end == End::Complete);
            }
            Err(end) => found = format!("no answer but {end:?}\n"),
        }
        if !ended {
            let behind = client
                .send(format!(
                    "GET /behind {version}\r\nHost: k\r\nConnection: keep-alive\r\n\r\n"
                ))
                .try_response("GET");
            let behind = behind.map(|answer| answer.text());
            let _ = writeln!(found, "behind: {behind:?}");
        }
        let wanted = match then {
            Gets(text) if ended => format!("{text}\ntrue\n"),
            Gets(text) => format!("{text}\ntrue\nbehind: Ok(\"behind\")\n"),
            GetsPart(text) => format!("{text}\nfalse\n"),
            BadGateway => "502 \"upstream_aborted\"\nbehind: Ok(\"behind\")\n".to_owned(),
        };
        if found != wanted {
            wrong.push(format!("{sent:?}\n--- wanted\n{wanted}--- found\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let logged = kvgauge.lines_to_the_end();
    for (n, (sent, then)) in rows.iter().enumerate() {
        let id = format!("row-{n}");
        let line = logged.iter().find(|line| line["request.id"] == id.as_str());
        let line = line.unwrap_or_else(|| panic!("no line of {sent:?}"));
        let found = format!("{} {}", line["outcome"], line["error.type"]);
        let wanted = match then {
            Gets(_) => "\"complete\" null",
            GetsPart(_) | BadGateway => "\"upstream_aborted\" \"upstream_aborted\"",
        };
        assert_eq!(found, wanted, "the line of {sent:?}");
    }
}

fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

/// The same as the client sees it.
fn got(fields: &str, body: &str) -> String {
    got_with("HTTP/1.1 200 OK", fields, body)
}

fn got_with(start: &str, fields: &str, body: &str) -> String {
    let mut lines: Vec<&str> = fields.split_inclusive('\n').collect();
    lines.sort_unstable();
    format!("{start}\n{}\n{body}", lines.concat())
}

#[test]
fn an_answer_ends_where_its_framing_says() {
    let counted = || Gets(got("content-length: 4\n", "abcd"));
    let whole = || Gets(got(CHUNKED, "abcd"));
    answer(
        "GET",
        "HTTP/1.1",
        &[
            (ok("Content-Length: 4\r\n", "abcd"), counted()),
            (
                ok("Content-Length: 4\r\nContent-Length: 4\r\n", "abcd"),
                counted(),
            ),
            (ok("Content-Length: 4, 4\r\n", "abcd"), counted()),
            // What is behind its end is nobody's.
            (
                ok(
                    "Content-Length: 4\r\n",
                    "abcdHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhidden",
                ),
                counted(),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\n",
                    "4\r\nabcd\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhidden",
                ),
                whole(),
            ),
            (ok("Transfer-Encoding: chunked\r\n", FOUR), whole()),
            (ok("Transfer-Encoding: Chunked\r\n", FOUR), whole()),
            // RFC 9112, 6.3: the coding counts.
            (
                ok("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", FOUR),
                whole(),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
                    FOUR,
                ),
                BadGateway,
            ),
            (ok("", "abcd"), Gets(got(CHUNKED, "abcd"))),
            (
                ok("Connection: close\r\n", "abcd"),
                Gets(got(CHUNKED, "abcd")),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\n",
                    "4;a=b\r\nabcd\r\n0;c\r\n\r\n",
                ),
                whole(),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\nTrailer: X-A, Content-Length\r\n",
                    "4\r\nabcd\r\n0\r\nX-A: 1\r\nContent-Length: 9\r\n\r\n",
                ),
                Gets(got(
                    "transfer-encoding: chunked\ntrailer: X-A\n",
                    "abcd|x-a: 1",
                )),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\nTrailer: X-KV-Usage, X-KV-Pools, X-A, Set-Cookie, Connection\r\n\
                     Trailer: X-Request-Id, X-B\r\n",
                    "4\r\nabcd\r\n0\r\nX-KV-Usage: 0.1\r\nX-KV-Pools: decode\r\nX-A: 1\r\nSet-Cookie: a=b\r\n\
                     Connection: close\r\nX-Request-Id: other\r\nX-B: 2\r\n\r\n",
                ),
                Gets(got(
                    "transfer-encoding: chunked\ntrailer: X-A, X-B\n",
                    "abcd|x-a: 1|x-b: 2",
                )),
            ),
            (
                ok("Content-Length: 4\r\nContent-Length: 5\r\n", "abcd"),
                BadGateway,
            ),
            (ok("Content-Length: 4, 5\r\n", "abcd"), BadGateway),
            (
                ok("Content-Length: 4\r\nContent-Length: 04\r\n", "abcd"),
                BadGateway,
            ),
            (
                ok("Content-Length: 9223372036854775808\r\n", "abcd"),
                BadGateway,
            ),
            (
                ok("Content-Length: 18446744073709551614\r\n", "abcd"),
                BadGateway,
            ),
            (
                ok("Content-Length: 18446744073709551615\r\n", "abcd"),
                BadGateway,
            ),
            (ok("Content-Length: +4\r\n", "abcd"), BadGateway),
            (ok("Content-Length: -1\r\n", "abcd"), BadGateway),
            (ok("Content-Length:\r\n", "abcd"), BadGateway),
            (
                ok("Content-Length: 99999999999999999999\r\n", "abcd"),
                BadGateway,
            ),
            (ok("Transfer-Encoding: gzip\r\n", "abcd"), BadGateway),
            (
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
                    .to_owned(),
                BadGateway,
            ),
            (ok("Transfer-Encoding: gzip, chunked\r\n", FOUR), BadGateway),
            (
                ok("Transfer-Encoding: chunked, chunked\r\n", FOUR),
                BadGateway,
            ),
            (
                ok(
                    "Transfer-Encoding: identity\r\nContent-Length: 4\r\n",
                    "abcd",
                ),
                BadGateway,
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                    FOUR,
                ),
                BadGateway,
            ),
            (
                ok("Content-Length: 9\r\n", "abcd"),
                GetsPart(got("content-length: 9\n", "abcd")),
            ),
            (
                ok("Transfer-Encoding: chunked\r\n", "4\r\nabcd\r\n"),
                GetsPart(got(CHUNKED, "abcd")),
            ),
            (
                ok("Transfer-Encoding: chunked\r\n", "4\r\nabcd\r\nx\r\n"),
                GetsPart(got(CHUNKED, "abcd")),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\n",
                    "4\r\nabcd\r\n+4\r\nabcd\r\n0\r\n\r\n",
                ),
                GetsPart(got(CHUNKED, "abcd")),
            ),
            (
                ok(
                    "Transfer-Encoding: chunked\r\n",
                    "4\r\nabcd\r\n0\r\nX A: 1\r\n\r\n",
                ),
                GetsPart(got(CHUNKED, "abcd")),
            ),
        ],
    );
}

#[test]
fn an_answers_head_is_one_or_it_is_502() {
    let start = |start: &str| format!("{start}\r\nContent-Length: 4\r\n\r\nabcd");
    let gets = |sent: &str, seen: &str| {
        (
            start(sent),
            Gets(got_with(seen, "content-length: 4\n", "abcd")),
        )
    };
    let counted = |fields: &str, seen: &str| {
        (
            ok(&format!("{fields}Content-Length: 4\r\n"), "abcd"),
            Gets(got(&format!("{seen}content-length: 4\n"), "abcd")),
        )
    };
    let bad = |fields: &str| {
        (
            ok(&format!("{fields}Content-Length: 4\r\n"), "abcd"),
            BadGateway,
        )
    };
    answer(
        "GET",
        "HTTP/1.1",
        &[
            gets("HTTP/1.1 200", "HTTP/1.1 200 "),
            gets("HTTP/1.1 200 ", "HTTP/1.1 200 "),
            gets("HTTP/1.1 200 All is well", "HTTP/1.1 200 All is well"),
            gets("HTTP/1.1 299 Odd", "HTTP/1.1 299 Odd"),
            gets("HTTP/1.1 600 Odder", "HTTP/1.1 600 Odder"),
            gets("HTTP/1.1 999 Oddest", "HTTP/1.1 999 Oddest"),
            gets("HTTP/1.0 200 OK", "HTTP/1.1 200 OK"),
            gets(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
                "HTTP/1.1 200 OK",
            ),
            gets(
                "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK",
                "HTTP/1.1 200 OK",
            ),
            (start("HTTP/1.1 99 Low"), BadGateway),
            (start("HTTP/1.1 099 Low"), BadGateway),
            (start("HTTP/1.1 1000 High"), BadGateway),
            (start("HTTP/1.1 2x0 OK"), BadGateway),
            (start("HTTP/1.1  200 OK"), BadGateway),
            (start("HTTP/2 200 OK"), BadGateway),
            (start("HTTP/1.1 101 Switching Protocols"), BadGateway),
            (start("ICY 200 OK"), BadGateway),
            ("\0\0\0".to_owned(), BadGateway),
            (String::new(), BadGateway),
            ("HTTP/1.1 200 OK\r\nContent-Le".to_owned(), BadGateway),
            counted("X-A:\r\n", "x-a: \n"),
            counted("X-A: \u{fc}\r\n", "x-a: \u{fc}\n"),
            (
                "HTTP/1.1 200 OK\nContent-Length: 4\n\nabcd".to_owned(),
                Gets(got("content-length: 4\n", "abcd")),
            ),
            bad("X A: 1\r\n"),
            bad("X-A : 1\r\n"),
            bad("X-A: \u{1}\r\n"),
            bad("X-A: 1\0\r\n"),
            bad("X-A: 1\rX-B: 2\r\n"),
            bad("X-A: 1\r\n 2\r\n"),
            bad("X-A\r\n"),
        ],
    );
}

#[test]
fn an_answer_without_a_body_has_none_whatever_it_says() {
    let status =
        |start: &str, fields: &str, body: &str| format!("HTTP/1.1 {start}\r\n{fields}\r\n{body}");
    let row = |start: &str, fields: &str, body: &str, seen: &str, got_body: &str| {
        (
            status(start, fields, body),
            Gets(got_with(&format!("HTTP/1.1 {start}"), seen, got_body)),
        )
    };
    answer(
        "GET",
        "HTTP/1.1",
        &[
            row("204 No Content", "", "", "", ""),
            row("204 No Content", "Content-Length: 0\r\n", "", "", ""),
            row("204 No Content", "Content-Length: 4\r\n", "abcd", "", ""),
            row(
                "204 No Content",
                "Transfer-Encoding: chunked\r\n",
                FOUR,
                "",
                "",
            ),
            row(
                "304 Not Modified",
                "ETag: \"1\"\r\n",
                "",
                "etag: \"1\"\n",
                "",
            ),
            row("304 Not Modified", "Content-Length: 4\r\n", "", "", ""),
            row("304 Not Modified", "Content-Length: 4\r\n", "abcd", "", ""),
            row(
                "304 Not Modified",
                "Transfer-Encoding: chunked\r\n",
                FOUR,
                "",
                "",
            ),
            // Framed like any other.
            row(
                "205 Reset Content",
                "Content-Length: 0\r\n",
                "",
                "content-length: 0\n",
                "",
            ),
            row(
                "205 Reset Content",
                "Transfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
                CHUNKED,
                "",
            ),
        ],
    );
    answer(
        "HEAD",
        "HTTP/1.1",
        &[
            (
                ok("Content-Length: 4\r\n", ""),
                Gets(got("content-length: 4\n", "")),
            ),
            (
                ok("Content-Length: 4\r\n", "abcd"),
                Gets(got("content-length: 4\n", "")),
            ),
            (ok("Transfer-Encoding: chunked\r\n", ""), Gets(got("", ""))),
            (
                ok("Transfer-Encoding: chunked\r\n", FOUR),
                Gets(got("", "")),
            ),
            (ok("X-A: 1\r\n", ""), Gets(got("x-a: 1\n", ""))),
        ],
    );
}

#[test]
fn an_old_client_gets_the_length_or_the_end_of_the_connection() {
    answer(
        "GET",
        "HTTP/1.0",
        &[
            (
                ok("Content-Length: 4\r\n", "abcd"),
                Gets(got_with(
                    "HTTP/1.0 200 OK",
                    "connection: keep-alive\ncontent-length: 4\n",
                    "abcd",
                )),
            ),
            (
                ok("Transfer-Encoding: chunked\r\n", FOUR),
                Gets(got_with("HTTP/1.0 200 OK", "", "abcd")),
            ),
            (
                ok("", "abcd"),
                Gets(got_with("HTTP/1.0 200 OK", "", "abcd")),
            ),
            (
                "HTTP/1.0 200 OK\r\n\r\nabcd".to_owned(),
                Gets(got_with("HTTP/1.0 200 OK", "", "abcd")),
            ),
            (
                ok("Transfer-Encoding: chunked\r\n", "4\r\nabcd\r\n"),
                GetsPart(got_with("HTTP/1.0 200 OK", "", "abcd")),
            ),
        ],
    );
}
