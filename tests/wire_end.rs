//! How `kvgauge serve` begins and ends: readiness, SIGTERM, the drain.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::upstream::STREAM;
use support::{Client, End, Kvgauge, Next, Setup, Signal, Upstream, get};

const ASK: &str = "GET /stream HTTP/1.1\r\nHost: k\r\nx-request-id: stream\r\n\r\n";

/// An upstream whose streams send one event and end when the signal is given.
fn until(signal: &Arc<Signal>) -> Upstream {
    let signal = Arc::clone(signal);
    Upstream::new(move |connection| {
        let request = connection.request()?;
        if request.head.target() != "/stream" {
            connection.send(support::upstream::OK)?;
            return Ok(Next::Again);
        }
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        signal.wait();
        connection.chunk("data: [DONE]\n\n")?;
        connection.send("0\r\n\r\n")?;
        Ok(Next::Again)
    })
}

/// An upstream whose streams never end.
fn endless() -> Upstream {
    Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    })
}

fn streaming(kvgauge: &Kvgauge) -> Client {
    let mut client = Client::connect(kvgauge.listen);
    assert_eq!(client.send(ASK).head().status(), 200);
    assert_eq!(client.chunk().unwrap(), b"data: 1\n\n");
    client
}

#[test]
fn it_is_healthy_and_ready_when_it_listens() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).start();
    assert_eq!(get(kvgauge.admin, "/healthz").status(), 200);
    assert_eq!(get(kvgauge.admin, "/readyz").status(), 200);
    assert_eq!(get(kvgauge.admin, "/nothing").status(), 404);
    // The operators' paths are not the clients'.
    assert_eq!(get(kvgauge.listen, "/readyz").body, b"{}");
    assert_eq!(upstream.request(1).head.target(), "/readyz");
}

#[test]
fn an_idle_one_ends_at_once() {
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut idle = Client::connect(kvgauge.listen);
    idle.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("GET");
    let asked = Instant::now();
    assert_eq!(kvgauge.stop(), 0);
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "took {:?}",
        asked.elapsed()
    );
    assert!(
        idle.is_closed(),
        "a kept-alive connection without a request does not hold it up"
    );
    assert_eq!(kvgauge.log.to_the_end().len(), 1);
}

#[test]
fn a_stream_that_runs_at_sigterm_ends_whole() {
    let finish = Arc::new(Signal::default());
    let upstream = until(&finish);
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut client = streaming(&kvgauge);
    let mut idle = Client::connect(kvgauge.listen);
    idle.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("GET");

    kvgauge.signal(Unix::TERM);
    support::eventually("it is not ready any more", || {
        (get(kvgauge.admin, "/readyz").status() == 503).then_some(())
    });
    assert_eq!(get(kvgauge.admin, "/healthz").status(), 200, "it lives");
    support::eventually("nobody new is let in", || {
        match Client::try_connect(kvgauge.listen) {
            Err(_) => Some(()),
            Ok(mut client) => {
                // Accepted just before, or told to go elsewhere.
                let _ = client.try_send("GET / HTTP/1.1\r\nHost: k\r\n\r\n");
                match client.try_response("GET") {
                    Ok(answer) if answer.status() == 503 => Some(()),
                    Ok(_) => None,
                    Err(_) => Some(()),
                }
            }
        }
    });
    assert!(idle.is_closed());

    finish.set();
    assert_eq!(client.chunk().unwrap(), b"data: [DONE]\n\n");
    assert_eq!(client.chunk(), None);
    let ended = Instant::now();
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
    assert!(
        ended.elapsed() < Duration::from_secs(2),
        "took {:?}",
        ended.elapsed()
    );
    assert_eq!(kvgauge.line_of("stream")["outcome"], "complete");
}

#[test]
fn a_stream_that_outlasts_the_drain_is_cut() {
    let upstream = endless();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("drain.timeout = \"300ms\"\n")
        .start();
    let mut client = streaming(&kvgauge);
    let asked = Instant::now();
    assert_eq!(kvgauge.stop(), 0);
    assert!(
        asked.elapsed() >= Duration::from_millis(300),
        "took {:?}",
        asked.elapsed()
    );
    let (_, end) = client.rest();
    assert!(matches!(end, End::Cut | End::Reset), "{end:?}");
    kvgauge.log.to_the_end();
    assert_eq!(kvgauge.line_of("stream")["outcome"], "drained");
}

#[test]
fn a_second_signal_cuts_at_once() {
    for second in [Unix::TERM, Unix::INT] {
        let upstream = endless();
        let mut kvgauge = Setup::new(upstream.address()).start();
        let _client = streaming(&kvgauge);
        kvgauge.signal(Unix::TERM);
        support::eventually("it drains", || {
            (get(kvgauge.admin, "/readyz").status() == 503).then_some(())
        });
        let asked = Instant::now();
        kvgauge.signal(second);
        assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
        assert!(
            asked.elapsed() < Duration::from_secs(2),
            "took {:?}",
            asked.elapsed()
        );
        kvgauge.log.to_the_end();
        assert_eq!(kvgauge.line_of("stream")["outcome"], "drained");
    }
}

#[test]
fn the_listener_stays_open_for_the_delay() {
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("drain.delay = \"1s\"\n")
        .start();
    let asked = Instant::now();
    kvgauge.signal(Unix::TERM);
    support::eventually("it is not ready any more", || {
        (get(kvgauge.admin, "/readyz").status() == 503).then_some(())
    });
    // A balancer has not yet seen that, and still sends requests.
    assert_eq!(get(kvgauge.listen, "/").status(), 200);
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
    assert!(
        asked.elapsed() >= Duration::from_secs(1),
        "took {:?}",
        asked.elapsed()
    );
}

const PLAIN: &str = "GET / HTTP/1.1\r\nHost: k\r\n\r\n";

#[test]
fn answers_of_a_drain_tell_the_client_to_leave() {
    let (finish, held) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
    let upstream = {
        let (finish, held) = (Arc::clone(&finish), Arc::clone(&held));
        Upstream::new(move |connection| {
            if connection.request()?.head.target() == "/held" {
                held.set();
                finish.wait();
            }
            connection.send(support::upstream::OK)?;
            Ok(Next::Again)
        })
    };
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut silent = Client::connect(kvgauge.listen);
    let mut idle = Client::connect(kvgauge.listen);
    let answer = idle.send(PLAIN).response("GET");
    assert!(!answer.head.has("connection"), "{}", answer.head.text());
    let mut waiting = Client::connect(kvgauge.listen);
    waiting.send("GET /held HTTP/1.1\r\nHost: k\r\n\r\n");
    held.wait();

    kvgauge.signal(Unix::TERM);
    assert!(idle.is_closed(), "idle");
    assert!(silent.is_closed(), "without a request");
    finish.set();
    let answer = waiting.response("GET");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.head.get("connection").as_deref(), Some("close"));
    assert!(waiting.is_closed());
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
}

#[test]
fn answers_in_the_delay_of_a_drain_tell_the_client_to_leave() {
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("drain.delay = \"1h\"\n")
        .workers(1)
        .start();
    let mut kept: Vec<(Client, &str, u16, Option<&str>)> = [
        (PLAIN, 200, Some("close")),
        // An answer of kvgauge's own, which is there at once.
        (
            "CONNECT k:1 HTTP/1.1\r\nHost: k:1\r\n\r\n",
            501,
            Some("close"),
        ),
        (
            "GET / HTTP/1.0\r\nHost: k\r\nConnection: keep-alive\r\n\r\n",
            200,
            None,
        ),
    ]
    .into_iter()
    .map(|(request, status, connection)| {
        let mut client = Client::connect(kvgauge.listen);
        let answer = client.send(PLAIN).response("GET");
        assert!(!answer.head.has("connection"), "{}", answer.head.text());
        (client, request, status, connection)
    })
    .collect();

    kvgauge.signal(Unix::TERM);
    support::eventually("answers on new connections say so", || {
        get(kvgauge.listen, "/")
            .head
            .has("connection")
            .then_some(())
    });
    for (client, request, status, connection) in &mut kept {
        // What was kept alive before is still served, once.
        let answer = client.send(*request).response("GET");
        assert_eq!(answer.status(), *status, "{request}");
        assert_eq!(
            answer.head.get("connection").as_deref(),
            *connection,
            "{request}"
        );
        assert!(client.is_closed(), "{request}");
    }
    kvgauge.signal(Unix::TERM);
    assert_eq!(kvgauge.exit_code(Duration::from_secs(5)), 0);
}

#[test]
fn an_address_that_is_taken_is_told_and_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = support::kvgauge::run(&["serve", "--listen", &address, "--admin", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(&address), "does not say which: {text}");
    assert!(
        output.stdout.is_empty(),
        "standard output is the request log"
    );
}

#[test]
fn wrong_usage_and_wrong_settings_are_told_apart() {
    let output = support::kvgauge::run(&["serve", "--no-such-flag"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let output = support::kvgauge::run(&[
        "serve",
        "--listen",
        "127.0.0.1:30001",
        "--upstream",
        "http://127.0.0.1:30001",
    ]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}
