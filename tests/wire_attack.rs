//! What a hostile or careless peer must not get away with.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};
use support::client::post;
use support::{Client, End, Next, Setup, Signal, Upstream, fetch};

/// An upstream that takes a request and never answers.
fn silent() -> Upstream {
    Upstream::new(|connection| {
        connection.request()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    })
}

#[test]
fn an_endless_member_name_costs_no_more_than_its_length() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).workers(1).start();
    let name = format!("{{\"{}", "x".repeat(4 * 1024 * 1024));
    let begun = Instant::now();
    let request = post("/", "content-type: application/json\r\n", &name);
    assert_eq!(fetch(kvgauge.listen, request).status(), 200);
    // A scan that begins anew at every byte takes minutes here, an honest one a tenth of a second.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

const GET: &str = "GET / HTTP/1.1\r\nHost: k\r\n\r\n";
const PARTIAL: &str = "GET / HTTP/1.1\r\nHost: ";

#[test]
fn a_head_that_stops_behind_a_request_is_not_taken_for_an_idle_connection() {
    let asked = Arc::new(Signal::default());
    let upstream = {
        let asked = Arc::clone(&asked);
        Upstream::new(move |connection| {
            if connection.request()?.head.target() == "/held" {
                asked.wait();
            }
            connection.send(support::upstream::OK)?;
            Ok(Next::Again)
        })
    };
    let mut kvgauge = Setup::new(upstream.address())
        .settings("timeouts.request_head = \"300ms\"\ntimeouts.client_idle = \"1h\"\n")
        .start();
    // In one piece with the request, with two, and behind a body.
    let held = post("/held", "", "{}");
    for (first, then, answers) in [
        (format!("{GET}{PARTIAL}"), "", 1),
        (format!("{GET}{GET}{PARTIAL}"), "", 2),
        (format!("{GET}GET "), "", 1),
        (held, PARTIAL, 1),
    ] {
        let mut client = Client::connect(kvgauge.listen);
        client.send(&first);
        if !then.is_empty() {
            support::eventually("it is forwarded", || {
                upstream
                    .requests()
                    .iter()
                    .any(|request| request.head.target() == "/held")
                    .then_some(())
            });
            client.send(then);
            asked.set();
        }
        for _ in 0..answers {
            assert_eq!(client.response("GET").status(), 200, "{first:?}");
        }
        assert!(client.is_closed(), "{first:?}");
    }
    let slow = kvgauge
        .lines_to_the_end()
        .iter()
        .filter(|line| line["error.type"] == "request_head_timeout")
        .count();
    assert_eq!(slow, 4);
}

#[test]
fn an_idle_connection_is_not_taken_for_a_head_that_stops_timed() {
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("timeouts.request_head = \"100ms\"\ntimeouts.client_idle = \"2s\"\n")
        .start();
    let chunked = "POST / HTTP/1.1\r\nHost: k\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n";
    let whole = post("/", "", "{}");
    let behind = format!("{whole}\r\n");
    let head = post("/", "Expect: 100-continue\r\n", "{}");
    let head = head.trim_end_matches("{}");
    let mut clients: Vec<(Client, &str, Instant)> = [
        (GET, ""),
        // A stray line end.
        ("GET / HTTP/1.1\r\nHost: k\r\n\r\n\r\n", ""),
        ("GET / HTTP/1.1\nHost: k\n\n", ""),
        (&whole, ""),
        (&behind, ""),
        (head, "{}"),
        (chunked, "0\r\nx-sum: 1\r\n\r\n"),
    ]
    .into_iter()
    .map(|(first, then)| {
        let mut client = Client::connect(kvgauge.listen);
        client.send(first);
        if !then.is_empty() {
            // The head has been read when the body is asked for.
            assert_eq!(client.head().status(), 100, "{first:?}");
            client.send(then);
        }
        assert_eq!(client.response("GET").status(), 200, "{first:?}");
        (client, first, Instant::now())
    })
    .collect();
    for (client, first, since) in &mut clients {
        assert!(client.is_closed(), "{first:?}");
        let open = since.elapsed();
        assert!(open > Duration::from_millis(1500), "{first:?}: {open:?}");
    }
    for line in kvgauge.lines_to_the_end() {
        assert_eq!(line["outcome"], "complete", "{line}");
    }
}

#[test]
fn a_client_that_leaves_behind_a_stray_byte_is_noticed() {
    for stray in ["\r\n", "GET / HTTP/1.1\r\nHost: k\r\n\r\n"] {
        for reset in [false, true] {
            let upstream = silent();
            let kvgauge = Setup::new(upstream.address()).start();
            let mut client = Client::connect(kvgauge.listen);
            client.send(post("/", "x-request-id: asked\r\n", "{}"));
            upstream.request(1);
            client.send(stray);
            if reset {
                client.reset();
            } else {
                client.close();
            }
            upstream.end_of(0, Duration::from_secs(1));
            let line = kvgauge.line_of("asked");
            assert_eq!(line["outcome"], "client_gone", "{stray:?} {reset}: {line}");
        }
    }
}

#[test]
fn a_client_that_resets_an_upload_nobody_takes_is_noticed() {
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    client.send(
        "POST / HTTP/1.1\r\nHost: k\r\nx-request-id: asked\r\nContent-Length: 9000000000\r\n\r\n",
    );
    client.patience(Duration::from_millis(300));
    // Until every buffer between is full.
    while client.try_send(vec![b'x'; 1 << 20]).is_ok() {}
    client.reset();
    assert_eq!(kvgauge.line_of("asked")["outcome"], "client_gone");
}

#[test]
fn a_router_of_http_10_that_breaks_off_does_not_look_finished() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.0 200 OK\r\n\r\nhello")?;
        connection.pause(Duration::from_millis(100))?;
        Ok(Next::Reset)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    let head = client
        .send("GET / HTTP/1.1\r\nHost: k\r\nx-request-id: asked\r\n\r\n")
        .head();
    assert_eq!(head.start, "HTTP/1.1 200 OK");
    let (rest, end) = client.rest();
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(rest.contains("hello"), "{rest}");
    // Either is abnormal: no last chunk, or a reset.
    assert!(
        !rest.contains("\r\n0\r\n") || matches!(end, End::Reset),
        "{rest}"
    );
    assert_eq!(kvgauge.line_of("asked")["outcome"], "upstream_aborted");
}

#[test]
fn an_answer_with_trailers_is_complete_and_keeps_its_connection() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
             2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n",
        )?;
        Ok(Next::Again)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    for n in 0..5 {
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: k\r\nTE: trailers\r\nx-request-id: t{n}\r\n\r\n"
        ));
        assert_eq!(client.response("GET").body, b"hi");
        assert_eq!(kvgauge.line_of(&format!("t{n}"))["outcome"], "complete");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_pool_of_none_keeps_no_connection() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .environment("KVGAUGE_UPSTREAM_MAX_IDLE", "0")
        .start();
    for _ in 0..3 {
        let answer = fetch(kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n");
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(upstream.connections(), 3);
}

#[test]
fn a_client_that_takes_nothing_is_held_to_the_limit_on_the_whole() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 900000000\r\n\r\n")?;
        while connection.send(vec![b'x'; 1 << 20]).is_ok() {}
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address())
        .settings("timeouts.request = \"500ms\"\n")
        .start();
    let mut client = Client::connect(kvgauge.listen);
    client
        .send("GET / HTTP/1.1\r\nHost: k\r\nx-request-id: asked\r\n\r\n")
        .head();
    let line = kvgauge.line_of("asked");
    assert_eq!(line["outcome"], "timeout", "{line}");
    assert_eq!(line["error.type"], "request_timeout", "{line}");
}

#[test]
fn where_a_page_is_redirected_to_is_told_without_credentials() {
    let elsewhere = Upstream::answering(
        "HTTP/1.1 302 Found\r\nLocation: http://me:secret-pw@there.test/login?token=secret-t\r\nContent-Length: 0\r\n\r\n",
    );
    let upstream = Upstream::ok();
    let url = format!("http://{}/metrics", elsewhere.address());
    let kvgauge = Setup::new(upstream.address())
        .source_at("decode", "decode", &url)
        .start();
    let told = kvgauge.says("redirect");
    assert!(told.contains("http://there.test/login"), "{told}");
    let sources = support::get(kvgauge.admin, "/sources").text();
    assert!(
        !told.contains("secret") && !sources.contains("secret"),
        "{sources}"
    );
}
