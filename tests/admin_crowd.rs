//! Many at the operators' listener, who bring no token: probes get through, and who listens goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::{Client, End, Kvgauge, Setup, Upstream, fetch, get};

/// Connections that kvgauge keeps here.
const PLACES: usize = 256;

/// After 10 s kvgauge lets go of who is idle by itself; what comes through later says nothing.
const SOON: Duration = Duration::from_secs(8);

const FILE: &str = "GET /assets/uplot.js HTTP/1.1\r\nHost: k\r\n\r\n";

fn guarded() -> (Kvgauge, Upstream, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret").unwrap();
    let upstream = Upstream::ok();
    let settings = format!("admin.bearer_file = \"{}\"\n", token.display());
    let kvgauge = Setup::new(upstream.address()).settings(&settings).start();
    (kvgauge, upstream, folder)
}

/// A connection of who was answered, and comes again.
fn kept(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    again(&mut client);
    client
}

fn again(client: &mut Client) {
    client.send("GET /kv HTTP/1.1\r\nHost: k\r\n\r\n");
    assert_eq!(client.response("GET").status(), 401);
}

fn probe(kvgauge: &Kvgauge) {
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(kvgauge.admin, path).status(), 200, "{path}");
    }
}

/// Done within the time in which what it shows can be seen.
fn soon(test: impl FnOnce()) {
    let start = Instant::now();
    test();
    let took = start.elapsed();
    assert!(took < SOON, "it took {took:?}");
}

#[test]
fn probes_come_through_where_every_place_is_taken_by_who_idles() {
    let (kvgauge, _upstream, _folder) = guarded();
    soon(|| {
        let mut crowd: Vec<Client> = (0..PLACES).map(|_| kept(kvgauge.admin)).collect();
        // Used since, so that others are idle for longer.
        again(&mut crowd[0]);
        probe(&kvgauge);
        let said = kvgauge.says("admin.listen: all 256 connections are taken");
        assert!(said.contains("WARN"), "{said}");
        again(&mut crowd[0]);
        assert!(crowd[1].is_closed());
        again(&mut crowd[PLACES - 1]);
        // Who comes is let go of at last, too: nobody is kept out.
        let mut late: Vec<Client> = (0..PLACES).map(|_| kept(kvgauge.admin)).collect();
        assert!(crowd[0].is_closed());
        probe(&kvgauge);
        again(&mut late[PLACES - 1]);
    });
}

#[test]
fn probes_come_through_where_every_place_is_taken_by_who_says_nothing() {
    let (kvgauge, _upstream, _folder) = guarded();
    soon(|| {
        let mut crowd = Vec::new();
        for n in 0..4 * PLACES {
            let mut client = Client::connect(kvgauge.admin);
            if n % 2 == 0 {
                // Half a head.
                client.send("GET /healthz HTTP/1.1\r\nHo");
            }
            crowd.push(client);
            if n % 100 == 0 {
                probe(&kvgauge);
            }
        }
        probe(&kvgauge);
    });
}

#[test]
fn probes_and_listeners_get_on_where_every_place_is_taken_by_who_takes_nothing() {
    let (kvgauge, _upstream, _folder) = guarded();
    soon(|| {
        let mut listener = Client::connect(kvgauge.admin);
        listener.send("GET /kv/stream HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer s3cret\r\n\r\n");
        assert_eq!(listener.head().status(), 200);
        assert!(listener.chunk().is_some());
        let crowd: Vec<Client> = (0..PLACES + 20)
            .map(|_| {
                let mut client = Client::slow(kvgauge.admin);
                // More than is sent before somebody takes something of it.
                client.send(FILE.repeat(40));
                client
            })
            .collect();
        for _ in 0..10 {
            probe(&kvgauge);
        }
        kvgauge.says("admin.listen: all 256 connections are taken");
        for _ in 0..2 {
            assert!(listener.chunk().is_some(), "the stream goes on");
        }
        drop(crowd);
    });
}

#[test]
fn the_connection_of_a_probe_is_not_kept() {
    let (kvgauge, _upstream, _folder) = guarded();
    for path in ["/healthz", "/readyz"] {
        let mut client = Client::connect(kvgauge.admin);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: k\r\n\r\n"));
        let answer = client.response("GET");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.head.get("connection").as_deref(), Some("close"));
        assert!(client.is_closed(), "{path}");
    }
}

#[test]
fn a_head_that_is_longer_than_any_is_refused() {
    let (kvgauge, _upstream, _folder) = guarded();
    let with = |bytes: usize| {
        let padding = "x".repeat(bytes);
        format!("GET /healthz HTTP/1.1\r\nHost: k\r\nX-Padding: {padding}\r\n\r\n")
    };
    assert_eq!(fetch(kvgauge.admin, with(16_000)).status(), 200);
    let mut client = Client::connect(kvgauge.admin);
    // It is not read to its end.
    let _ = client.try_send(with(100_000));
    match client.try_response("GET") {
        Ok(answer) => assert_eq!(answer.status(), 431),
        Err(end) => assert!(matches!(end, End::Reset), "{end:?}"),
    }
}
