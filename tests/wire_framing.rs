//! Where messages begin and end, with raw sockets on both sides: RFC 9112, and what a proxy on
//! hyper gets wrong when nobody looks. Odd heads and bodies are in `wire_table.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::time::Duration;
use support::client::post;
use support::upstream::{OK, STREAM};
use support::{Client, End, Kvgauge, Next, Setup, Upstream, fetch, get};

fn start(upstream: &Upstream) -> Kvgauge {
    Setup::new(upstream.address()).workers(1).start()
}

/// What an upstream that answers with these bytes looks like through kvgauge.
fn through(bytes: impl Into<Vec<u8>>) -> support::Response {
    let upstream = Upstream::answering(bytes);
    let kvgauge = start(&upstream);
    get(kvgauge.listen, "/")
}

// --- Answers -------------------------------------------------------------------------------------

#[test]
fn an_answer_with_length_and_chunks_is_read_by_its_chunks() {
    for length in ["3", "5", "500"] {
        let upstream = Upstream::answering(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n"
        ));
        let kvgauge = start(&upstream);
        let answer = support::get(kvgauge.listen, "/");
        kvgauge.until_metric(
            "kvgauge_upstream_odd_answers_total",
            &[("reason", "length_beside_chunked")],
            Some(1.0),
        );
        assert_eq!(
            (answer.text().as_str(), answer.end),
            ("hello", End::Complete)
        );
        let both = answer.head.has("content-length") && answer.head.has("transfer-encoding");
        assert!(!both, "{}", answer.head.text());
    }
}

#[test]
fn an_answer_whose_length_is_said_twice_is_counted() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
    ] {
        let upstream = Upstream::replying(move |request| match request.head.target() {
            "/odd" => format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello"),
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        });
        let kvgauge = start(&upstream);
        for target in ["/clear", "/odd", "/clear"] {
            let answer = support::get(kvgauge.listen, target);
            assert_eq!(answer.head.get("content-length").as_deref(), Some("5"));
            assert_eq!(answer.text(), "hello");
        }
        for (reason, count) in [("repeated_length", 1.0), ("length_beside_chunked", 0.0)] {
            let labels = [("reason", reason)];
            kvgauge.until_metric("kvgauge_upstream_odd_answers_total", &labels, Some(count));
        }
    }
}

#[test]
fn an_answer_of_known_length_keeps_it() {
    let answer = through("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(answer.head.get("content-length").unwrap(), "5");
    assert!(!answer.head.has("transfer-encoding"));
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("hello", End::Complete)
    );
}

#[test]
fn an_empty_answer_stays_empty() {
    // As the router answers 404, 408 and 431.
    for status in [
        "404 Not Found",
        "408 Request Timeout",
        "431 Request Header Fields Too Large",
    ] {
        let answer = through(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
        assert_eq!(answer.head.start, format!("HTTP/1.1 {status}"));
        assert_eq!(answer.head.get("content-length").unwrap(), "0");
        assert!(answer.body.is_empty() && answer.end == End::Complete);
        assert!(!answer.head.has("content-type"), "{}", answer.head.text());
    }
}

#[test]
fn answers_without_a_body_do_not_wait_for_one() {
    for status in ["204 No Content", "304 Not Modified"] {
        let upstream = Upstream::replying(move |request| match request.head.target() {
            "/none" => format!("HTTP/1.1 {status}\r\nETag: \"1\"\r\n\r\n"),
            _ => OK.to_owned(),
        });
        let kvgauge = start(&upstream);
        let mut client = Client::connect(kvgauge.listen);
        let answer = client
            .send("GET /none HTTP/1.1\r\nHost: k\r\n\r\n")
            .response("GET");
        assert_eq!(answer.head.start, format!("HTTP/1.1 {status}"));
        assert_eq!(answer.head.get("etag").unwrap(), "\"1\"");
        assert!(
            !answer.head.has("transfer-encoding"),
            "{}",
            answer.head.text()
        );
        // The connection stands at the next message.
        let answer = client
            .send("GET /some HTTP/1.1\r\nHost: k\r\n\r\n")
            .response("GET");
        assert_eq!(answer.body, b"{}");
    }
}

#[test]
fn an_answer_shorter_than_its_length_ends_abnormally() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")?;
        connection.pause(Duration::from_millis(50))?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream);
    let answer = get(kvgauge.listen, "/");
    assert_eq!(answer.head.get("content-length").unwrap(), "100");
    assert_eq!(answer.body, b"0123456789");
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    assert_eq!(kvgauge.line(1)["outcome"], "upstream_aborted");
}

#[test]
fn an_answer_with_broken_chunks_ends_abnormally() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.pause(Duration::from_millis(50))?;
        connection.send("zz\r\nnot a chunk\r\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream);
    let answer = get(kvgauge.listen, "/");
    assert_eq!(answer.text(), "data: 1\n\n");
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    assert_eq!(kvgauge.line(1)["outcome"], "upstream_aborted");
}

/// An answer whose end is that of the connection; how kvgauge's client sees it end.
fn close_delimited(version: &str, next: fn() -> Next) -> (support::Response, Kvgauge) {
    let upstream = Upstream::new(move |connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\npart")?;
        connection.pause(Duration::from_millis(50))?;
        Ok(next())
    });
    let kvgauge = start(&upstream);
    let answer = fetch(
        kvgauge.listen,
        format!("GET / {version}\r\nHost: k\r\n\r\n"),
    );
    (answer, kvgauge)
}

#[test]
fn a_close_delimited_answer_arrives_whole() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let (answer, kvgauge) = close_delimited(version, || Next::Close);
        assert_eq!(
            (answer.text().as_str(), answer.end),
            ("part", End::Complete),
            "{version}"
        );
        assert_eq!(kvgauge.line(1)["outcome"], "complete", "{version}");
    }
}

#[test]
fn a_broken_close_delimited_answer_is_never_taken_for_a_whole_one() {
    // To a client of HTTP/1.0 only a reset says so.
    for (version, ends) in [
        ("HTTP/1.1", &[End::Cut, End::Reset][..]),
        ("HTTP/1.0", &[End::Reset][..]),
    ] {
        let (answer, kvgauge) = close_delimited(version, || Next::Reset);
        assert!(ends.contains(&answer.end), "{version}: {:?}", answer.end);
        assert_eq!(kvgauge.line(1)["outcome"], "upstream_aborted", "{version}");
    }
}

#[test]
fn a_broken_chunked_answer_is_reset_towards_an_old_client() {
    let upstream = Upstream::case("b28.steps.json");
    let kvgauge = start(&upstream);
    let answer = fetch(kvgauge.listen, "GET / HTTP/1.0\r\nHost: k\r\n\r\n");
    assert!(
        !answer.head.has("transfer-encoding"),
        "{}",
        answer.head.text()
    );
    assert_eq!(
        answer.text().matches("data:").count(),
        3,
        "what came is delivered first"
    );
    assert_eq!(answer.end, End::Reset);
}

#[test]
fn an_old_client_gets_a_stream_that_ends_with_the_connection() {
    let upstream = Upstream::case("b27.steps.json");
    let kvgauge = start(&upstream);
    let answer = fetch(kvgauge.listen, "GET / HTTP/1.0\r\n\r\n");
    assert!(
        !answer.head.has("transfer-encoding"),
        "{}",
        answer.head.text()
    );
    assert_eq!(answer.end, End::Complete);
    assert_eq!(
        answer.body,
        support::steps::body(&support::steps::of_case("b27.steps.json"))
    );
    let line = kvgauge.line(1);
    assert_eq!(line["network.protocol.version"], "1.0", "{line}");
    assert_eq!(line["gen_ai.usage.output_tokens"], 34, "{line}");
    // Towards the upstream kvgauge speaks 1.1, with the Host it must have.
    let head = upstream.request(1).head;
    assert_eq!(head.start, "GET / HTTP/1.1");
    assert_eq!(head.all("host").len(), 1);
}

#[test]
fn trailers_of_an_answer_reach_a_client_that_takes_them() {
    let bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                 5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
    let upstream = Upstream::answering(bytes);
    let kvgauge = start(&upstream);
    let takes = "GET / HTTP/1.1\r\nHost: k\r\nTE: trailers\r\nConnection: TE\r\n\r\n";
    let answer = fetch(kvgauge.listen, takes);
    assert_eq!(answer.text(), "hello");
    assert_eq!(answer.head.get("trailer").unwrap(), "X-Sum");
    assert_eq!(answer.trailers.len(), 1, "{:?}", answer.trailers);
    assert!(answer.trailers[0].0.eq_ignore_ascii_case("x-sum"));
    assert_eq!(answer.trailers[0].1, b"7");
    let answer = get(kvgauge.listen, "/");
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("hello", End::Complete)
    );
}

#[test]
fn interim_answers_do_not_stand_for_the_final_one() {
    let upstream = Upstream::answering(format!(
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{OK}"
    ));
    let kvgauge = start(&upstream);
    let answer = get(kvgauge.listen, "/");
    assert_eq!(
        (answer.status(), answer.body.as_slice()),
        (200, b"{}".as_slice())
    );
}

// --- Requests ------------------------------------------------------------------------------------

#[test]
fn trailers_of_a_request_are_passed_on_or_dropped_but_end_the_body() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    client.send(
        "POST /a HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    assert_eq!(client.response("POST").status(), 200);
    assert_eq!(
        client
            .send("GET /b HTTP/1.1\r\nHost: k\r\n\r\n")
            .response("GET")
            .status(),
        200
    );
    assert_eq!(upstream.request(1).body, b"hello");
    assert_eq!(upstream.request(2).head.target(), "/b");
}

#[test]
fn a_body_flows_before_it_is_complete() {
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        let mut got = Vec::new();
        while !got.ends_with(b"one") {
            got.extend(connection.some()?);
        }
        // Answers while the rest of the body is still to come.
        connection.send(STREAM)?;
        connection.chunk("first")?;
        while !got.ends_with(b"two") {
            got.extend(connection.some()?);
        }
        connection.chunk("second")?;
        connection.send("0\r\n\r\n")?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    client.send("POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 6\r\n\r\none");
    client.head();
    assert_eq!(client.chunk().unwrap(), b"first");
    client.send("two");
    assert_eq!(client.chunk().unwrap(), b"second");
    assert_eq!(client.chunk(), None);
}

#[test]
fn an_early_answer_to_a_long_upload_arrives() {
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        connection.send(
            "HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo long",
        )?;
        // Reads on a while, as servers do, so that the answer is not lost in a reset.
        connection.pause(Duration::from_millis(200))?;
        Ok(Next::Close)
    });
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    client.send("POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 100000000\r\n\r\n0123456789");
    let answer = client.response("POST");
    assert_eq!((answer.status(), answer.text().as_str()), (413, "too long"));
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let upstream = Upstream::replying(|request| {
        let target = request.head.target().to_owned();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}",
            target.len()
        )
    });
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    // All three before the first answer.
    client.send(
        "GET /1 HTTP/1.1\r\nHost: k\r\n\r\nPOST /2 HTTP/1.1\r\nHost: k\r\nContent-Length: 3\r\n\r\nabc\
         GET /3 HTTP/1.1\r\nHost: k\r\n\r\n",
    );
    for target in ["/1", "/2", "/3"] {
        assert_eq!(client.response("GET").text(), target);
    }
    assert_eq!(
        upstream.connections(),
        1,
        "one after the other, so one connection does"
    );
}

#[test]
fn large_bodies_pass_both_ways_as_they_are() {
    let upstream = Upstream::replying(|request| {
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            request.body.len()
        );
        bytes.push_str(std::str::from_utf8(&request.body).unwrap());
        bytes
    });
    let kvgauge = start(&upstream);
    let body: String = (0..2_100_000_u32)
        .map(|n| char::from(b'a' + (n % 23) as u8))
        .collect();
    let answer = fetch(kvgauge.listen, post("/v1/chat/completions", "", &body));
    assert_eq!(answer.end, End::Complete);
    assert!(answer.body == body.as_bytes(), "the echoed body differs");
    let line = kvgauge.line(1);
    assert_eq!(line["bytes_in"], 2_100_000, "{line}");
    assert_eq!(line["bytes_out"], 2_100_000, "{line}");
}

/// Sends one head; the status of the answer.
fn status_of(kvgauge: &Kvgauge, fields: &str) -> u16 {
    let mut client = Client::connect(kvgauge.listen);
    // It may be refused before it is all sent.
    let _ = client.try_send(format!("GET / HTTP/1.1\r\nHost: k\r\n{fields}\r\n"));
    client.response("GET").status()
}

#[test]
fn more_fields_than_allowed_are_refused_with_431() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let fields = |n: usize| (0..n).map(|n| format!("X-{n}: 1\r\n")).collect::<String>();
    assert_eq!(status_of(&kvgauge, &fields(90)), 200);
    assert_eq!(status_of(&kvgauge, &fields(101)), 431);
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(kvgauge.line(2)["http.response.status_code"], 431);
}

#[test]
fn a_longer_head_than_allowed_is_refused_with_431() {
    let upstream = Upstream::ok();
    let kvgauge = start(&upstream);
    let field = |length: usize| format!("X-Long: {}\r\n", "x".repeat(length));
    assert_eq!(status_of(&kvgauge, &field(200 * 1024)), 200);
    assert_eq!(status_of(&kvgauge, &field(300 * 1024)), 431);
    assert_eq!(upstream.requests().len(), 1);
}
