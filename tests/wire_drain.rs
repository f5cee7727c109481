//! What runs when kvgauge is told to end: each thing that a client may be in the middle of, finished or
//! cut, and told. How it begins and ends as a whole: `tests/wire_end.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use std::time::Duration;
use support::client::post;
use support::upstream::STREAM;
use support::{Client, End, Kvgauge, Next, Setup, Upstream, get};

const SOON: Duration = Duration::from_secs(5);

/// `/stream` is one event and then silence, `/silent` has no answer, all else is answered.
fn upstream() -> Upstream {
    Upstream::new(|connection| {
        let request = connection.request()?;
        match request.head.target() {
            "/stream" => {
                connection.send(STREAM)?;
                connection.chunk("data: 1\n\n")?;
                connection.until_peer_leaves()?;
            }
            "/silent" => connection.until_peer_leaves()?,
            "/big" => {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")?;
                for _ in 0..64 {
                    connection.send(vec![b'x'; 1 << 20])?;
                }
            }
            _ => connection.send(support::upstream::OK)?,
        }
        Ok(Next::Again)
    })
}

fn ask(kvgauge: &Kvgauge, path: &str, id: &str) -> Client {
    let mut client = Client::connect(kvgauge.listen);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: k\r\nx-request-id: {id}\r\n\r\n"
    ));
    client
}

fn until_it_drains(kvgauge: &Kvgauge) {
    support::eventually("it drains", || {
        (get(kvgauge.admin, "/readyz").status() == 503
            && Client::try_connect(kvgauge.listen).is_err())
        .then_some(())
    });
}

#[test]
fn each_signal_drains() {
    for (signal, name) in [(Unix::TERM, "SIGTERM"), (Unix::INT, "SIGINT")] {
        let upstream = upstream();
        let mut kvgauge = Setup::new(upstream.address()).start();
        assert_eq!(ask(&kvgauge, "/", "asked").response("GET").status(), 200);
        kvgauge.signal(signal);
        assert_eq!(kvgauge.exit_code(SOON), 0, "{name}");
        kvgauge.says(&format!("{name}: draining"));
        kvgauge.says("drained: every request has finished");
        assert_eq!(kvgauge.log.to_the_end().len(), 1);
    }
}

#[test]
fn a_terminal_that_closes_does_not_end_it_under_nohup() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address()).deaf_to_hang_up().start();
    kvgauge.signal(Unix::HUP);
    // It was told to be deaf to that, and hears it as a wish for its settings.
    kvgauge.says("SIGHUP: the settings are reloaded");
    kvgauge.signal(Unix::TERM);
    assert_eq!(kvgauge.exit_code(SOON), 0);
    let said = kvgauge.says("draining");
    assert!(said.contains("SIGTERM: draining"), "{said}");
}

#[test]
fn an_upload_that_runs_is_finished() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    let request = post("/", "x-request-id: asked\r\n", "0123456789");
    let (begin, end) = request.split_at(request.len() - 5);
    client.send(begin);
    // It has reached the router's side when there is a connection.
    support::eventually("it is forwarded", || (upstream.open() > 0).then_some(()));
    kvgauge.signal(Unix::TERM);
    until_it_drains(&kvgauge);
    let answer = client.send(end).response("POST");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.head.get("connection").as_deref(), Some("close"));
    assert_eq!(upstream.request(1).body, b"0123456789");
    assert_eq!(kvgauge.exit_code(SOON), 0);
    assert_eq!(kvgauge.line_of("asked")["outcome"], "complete");
}

#[test]
fn half_a_head_does_not_hold_it_up_for_longer_than_its_limit() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("timeouts.request_head = \"1s\"\n")
        .start();
    let mut client = Client::connect(kvgauge.listen);
    client.send("GET / HTTP/1.1\r\nHost: ");
    assert_eq!(kvgauge.stop(), 0);
    assert!(client.is_closed());
}

#[test]
fn what_is_cut_is_told_one_by_one() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("drain.timeout = \"200ms\"\n")
        .start();
    let mut streams: Vec<_> = (0..40)
        .map(|n| ask(&kvgauge, "/stream", &format!("stream-{n}")))
        .collect();
    for stream in &mut streams {
        assert_eq!(stream.head().status(), 200);
        assert!(stream.chunk().is_some());
    }
    let mut silent = ask(&kvgauge, "/silent", "silent");
    let mut untaken = ask(&kvgauge, "/big", "untaken");
    assert_eq!(untaken.head().status(), 200);
    support::eventually("all are in flight", || {
        let count = kvgauge.metrics().sum("kvgauge_requests_in_flight", &[]);
        (count == 42.0).then_some(())
    });

    kvgauge.signal(Unix::TERM);
    assert_eq!(kvgauge.exit_code(SOON), 0);
    kvgauge.says("cutting what still runs requests=42");
    // Each breaks off, and none looks finished: no last chunk, no head, short of its length.
    for stream in &mut streams {
        assert_eq!(stream.rest(), (Vec::new(), End::Cut));
    }
    assert_eq!(silent.rest(), (Vec::new(), End::Cut));
    let (body, end) = untaken.rest();
    assert!(body.len() < 67_108_864, "{}", body.len());
    assert_eq!(end, End::Cut);
    assert_eq!(kvgauge.log.to_the_end().len(), 42);
    for n in 0..40 {
        let line = kvgauge.line_of(&format!("stream-{n}"));
        assert_eq!(line["outcome"], "drained", "{line}");
        assert_eq!(line["error.type"], "drained", "{line}");
        assert_eq!(line["http.response.status_code"], 200, "{line}");
        assert_eq!(line["bytes_out"], 9, "{line}");
    }
    let line = kvgauge.line_of("silent");
    assert_eq!(line["outcome"], "drained", "{line}");
    assert!(line["http.response.status_code"].is_null(), "{line}");
    assert_eq!(kvgauge.line_of("untaken")["outcome"], "drained");
}

#[test]
fn what_is_cut_is_counted_from_the_start() {
    let upstream = upstream();
    let kvgauge = Setup::new(upstream.address()).start();
    let count = kvgauge
        .metrics()
        .value("kvgauge_drained_requests_total", &[]);
    assert_eq!(count, Some(0.0));
}
