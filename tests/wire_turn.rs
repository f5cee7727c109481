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
use std::time::Duration;
use support::client::post;
use support::{Client, Next, Process, Setup, Upstream};

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
fn an_answer_before_the_body_says_that_its_connection_ends() {
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
fn an_old_client_is_not_promised_a_connection_that_ends() {
    let kvgauge = Setup::new(nobody()).start();
    let mut client = Client::connect(kvgauge.listen);
    client.send(format!(
        "POST {CHAT} HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 9\r\n\r\n"
    ));
    let answer = client.response("POST");
    assert_eq!(answer.status(), 502);
    assert!(!answer.head.has("connection"), "{}", answer.head.text());
    assert!(client.is_closed());
}

#[test]
fn a_client_that_sends_all_before_it_reads_gets_an_early_answer() {
    // The first answers and reads no more, the second leaves without a word.
    for (says, status) in [
        (&b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno"[..], 401),
        (b"", 502),
    ] {
        let upstream = Upstream::new(move |connection| {
            connection.request_head()?;
            connection.send(says)?;
            if says.is_empty() {
                return Ok(Next::Close);
            }
            // It reads no more.
            connection.pause(Duration::from_millis(500))?;
            Ok(Next::Close)
        });
        let mut kvgauge = Setup::new(upstream.address()).start();
        let process = Process::new(kvgauge.pid());
        let body = vec![b'x'; 12 << 20];
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nHost: k\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let call = || {
            let mut client = Client::connect(kvgauge.listen);
            client.patience(Duration::from_secs(10));
            client.send(&head).send(&body);
            assert_eq!(client.response("POST").status(), status);
        };
        call();
        let descriptors = process.descriptors();
        for _ in 0..8 {
            call();
        }
        // Nothing of it is kept: no connection to the router, nor the client's.
        support::eventually("all descriptors are back", || {
            (process.descriptors() <= descriptors).then_some(())
        });
        assert_eq!(kvgauge.lines_to_the_end().len(), 9);
    }
}

#[test]
fn an_answer_may_begin_before_its_request_is_over() {
    const HALF: usize = 6 << 20;
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        connection.send(support::upstream::STREAM)?;
        connection.chunk("begun")?;
        let body = connection.exactly(2 * HALF)?;
        let good = body.iter().all(|byte| *byte == b'x');
        connection.chunk(if good { "whole" } else { "mixed up" })?;
        connection.send("0\r\n\r\n")?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    let half = vec![b'x'; HALF];
    client.send(format!(
        "POST {CHAT} HTTP/1.1\r\nHost: k\r\nContent-Length: {}\r\n\r\n",
        2 * HALF
    ));
    client.send(&half);
    assert_eq!(client.head().status(), 200);
    assert_eq!(client.chunk().unwrap(), b"begun");
    client.send(&half);
    assert_eq!(client.chunk().unwrap(), b"whole");
    assert_eq!(client.chunk(), None);
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(line["bytes_in"], 2 * HALF, "{line}");
}

#[test]
fn a_client_that_leaves_is_seen_behind_whatever_came_with_its_request() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    for (n, behind) in [
        "",
        "\r\n",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: k\r\n\r\n",
    ]
    .iter()
    .enumerate()
    {
        for (m, request) in [
            "GET / HTTP/1.1\r\nHost: k\r\n".to_owned() + "x-request-id: ID\r\n\r\n",
            post(CHAT, "x-request-id: ID\r\n", "{}"),
        ]
        .iter()
        .enumerate()
        {
            let id = format!("gone-{n}-{m}");
            let mut client = Client::connect(kvgauge.listen);
            client.send(request.replace("ID", &id) + behind);
            upstream.request(2 * n + m + 1);
            client.close();
            assert_eq!(kvgauge.line_of(&id)["outcome"], "client_gone");
        }
    }
    upstream.none_open(Duration::from_secs(5));
}
