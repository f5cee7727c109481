//! When a request begins, and whether its connection is good for another one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use std::net::{SocketAddr, TcpListener};
use std::sync::Barrier;
use support::client::post;
use support::{Client, Next, Setup, Upstream};

const CHAT: &str = "/v1/chat/completions";

/// An address at which nobody listens.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn a_client_that_leaves_with_its_last_byte_has_asked() {
    const CLIENTS: usize = 12;
    let all_there = Barrier::new(CLIENTS);
    let upstream = Upstream::new(move |connection| {
        if connection.request_head()?.target() == "/kept" {
            all_there.wait();
            connection.send(support::upstream::OK)?;
            return Ok(Next::Again);
        }
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let mut kvgauge = Setup::new(upstream.address()).workers(1).start();
    // Kept connections, over which requests would be sent at once.
    let mut kept: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(kvgauge.listen);
            client.send("GET /kept HTTP/1.1\r\nHost: k\r\n\r\n");
            client
        })
        .collect();
    for client in &mut kept {
        assert_eq!(client.response("GET").status(), 200);
    }
    // Request and end are both there when kvgauge looks.
    kvgauge.signal(Unix::STOP);
    for n in 0..CLIENTS {
        let mut client = Client::connect(kvgauge.listen);
        let id = format!("x-request-id: gone-{n}\r\n");
        match n % 2 {
            0 => client.send(format!("GET / HTTP/1.1\r\nHost: k\r\n{id}\r\n")),
            _ => client.send(post(CHAT, &id, "{}")),
        };
        match n % 3 {
            0 => client.reset(),
            1 => client.close(),
            _ => client.finish(),
        }
    }
    kvgauge.signal(Unix::CONT);
    for n in 0..CLIENTS {
        // A reset may have taken what was sent before it from the kernel.
        if n % 3 != 0 {
            assert_eq!(
                kvgauge.line_of(&format!("gone-{n}"))["outcome"],
                "client_gone"
            );
        }
    }
    for line in kvgauge.lines_to_the_end() {
        let wanted = if line["url.path"] == "/kept" {
            "complete"
        } else {
            "client_gone"
        };
        assert_eq!(line["outcome"], wanted, "{line}");
    }
    // What nobody waits for any more is no work for the router.
    upstream.none_open(support::wait::PATIENCE);
    let seen = upstream.requests();
    let seen: Vec<_> = seen
        .iter()
        .filter(|request| request.head.target() != "/kept")
        .map(|request| request.head.text())
        .collect();
    assert!(seen.is_empty(), "{seen:#?}");
}

#[test]
fn an_answer_before_a_long_body_says_that_its_connection_ends() {
    let mut kvgauge = Setup::new(nobody()).start();
    for (length, more) in [
        ("Content-Length: 1000000", ""),
        ("Transfer-Encoding: chunked", ""),
        ("Content-Length: 2", "Expect: 100-continue\r\n"),
    ] {
        let mut client = Client::connect(kvgauge.listen);
        client.send(format!(
            "POST {CHAT} HTTP/1.1\r\nHost: k\r\n{more}{length}\r\n\r\n"
        ));
        let answer = client.response("POST");
        assert_eq!(answer.status(), 502, "{length}");
        assert_eq!(answer.head.all("connection"), [b"close"], "{length}");
        // What still comes of it is taken, and is no request.
        let _ = client.try_send("5\r\nGET /\r\n");
        client.reset();
    }
    let lines = kvgauge.lines_to_the_end();
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["upstream_unreachable"; 3]);
}

#[test]
fn an_answer_before_a_short_body_leaves_its_connection_as_it_is() {
    let kvgauge = Setup::new(nobody()).start();
    let mut client = Client::connect(kvgauge.listen);
    for _ in 0..3 {
        let answer = client.send(post(CHAT, "", "{}")).response("POST");
        assert_eq!(answer.status(), 502);
        assert!(!answer.head.has("connection"), "{}", answer.head.text());
    }
}
