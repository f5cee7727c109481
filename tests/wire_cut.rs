//! An answer that kvgauge ends before its end, whatever the reason: no client takes it for whole. One
//! that ends with its connection (RFC 9112, 6.3) is reset, any other is short of its framing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use std::time::Duration;
use support::upstream::STREAM;
use support::{Client, End, Kvgauge, Next, Setup, Upstream, get};

const SOON: Duration = Duration::from_secs(5);

/// How an answer's end is told, by version of the client and path.
const FRAMINGS: [(&str, &str, End); 4] = [
    ("1.0", "/chunked", End::Reset),
    ("1.0", "/close", End::Reset),
    ("1.0", "/length", End::Cut),
    ("1.1", "/chunked", End::Cut),
];

/// Answers begin with `data`, and never end.
fn endless() -> Upstream {
    Upstream::new(|connection| {
        let request = connection.request()?;
        match request.head.target() {
            "/length" => connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata")?,
            "/close" => connection.send("HTTP/1.1 200 OK\r\n\r\ndata")?,
            _ => {
                connection.send(STREAM)?;
                connection.chunk("data")?;
            }
        }
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    })
}

/// One that has its head and `data`.
fn begun(kvgauge: &Kvgauge, version: &str, path: &str) -> Client {
    let mut client = Client::connect(kvgauge.listen);
    client.send(format!(
        "GET {path} HTTP/{version}\r\nHost: k\r\nx-request-id: {version}{path}\r\n\r\n"
    ));
    assert_eq!(client.head().status(), 200);
    let chunked = (version, path) == ("1.1", "/chunked");
    client.exactly(if chunked { "4\r\ndata\r\n".len() } else { 4 });
    client
}

/// Begins an answer of each framing, lets something end them, and holds their ends.
fn cut_by(settings: &str, outcome: &str, end: impl Fn(&mut Kvgauge, &mut [Client])) {
    let upstream = endless();
    let mut kvgauge = Setup::new(upstream.address()).settings(settings).start();
    let mut clients = FRAMINGS.map(|(version, path, _)| begun(&kvgauge, version, path));
    end(&mut kvgauge, &mut clients);
    for (client, (version, path, wanted)) in clients.iter_mut().zip(FRAMINGS) {
        assert_eq!(
            client.rest(),
            (Vec::new(), wanted),
            "{outcome}: HTTP/{version} {path}"
        );
        let line = kvgauge.line_of(&format!("{version}{path}"));
        assert_eq!(line["outcome"], outcome, "{line}");
        assert_eq!(line["bytes_out"], 4, "{line}");
    }
}

#[test]
fn at_the_end_of_the_drain() {
    cut_by("drain.timeout = \"200ms\"\n", "drained", |kvgauge, _| {
        assert_eq!(kvgauge.stop(), 0);
    });
}

#[test]
fn by_a_second_signal() {
    cut_by("drain.timeout = \"1h\"\n", "drained", |kvgauge, _| {
        kvgauge.signal(Unix::TERM);
        support::eventually("it drains", || {
            (get(kvgauge.admin, "/readyz").status() == 503).then_some(())
        });
        kvgauge.signal(Unix::TERM);
        assert_eq!(kvgauge.exit_code(SOON), 0);
    });
}

#[test]
fn by_silence() {
    cut_by(
        "timeouts.stream_silence = \"300ms\"\n",
        "timeout",
        |_, _| {},
    );
}

#[test]
fn by_the_limit_of_the_whole_request() {
    cut_by("timeouts.request = \"1s\"\n", "timeout", |_, _| {});
}

/// It has ended its own direction alone, and so may still read.
#[test]
fn since_its_client_has_half_closed() {
    cut_by("", "client_gone", |_, clients| {
        for client in clients {
            client.finish();
        }
    });
}

/// The clock in the answer's body is not looked at while the client takes nothing.
#[test]
fn by_the_limit_of_the_whole_request_where_the_client_takes_nothing() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            connection.send(vec![b'x'; 1 << 20])?;
        }
    });
    let kvgauge = Setup::new(upstream.address())
        .settings("timeouts.request = \"500ms\"\n")
        .start();
    let mut client = Client::slow(kvgauge.listen);
    client.send("GET / HTTP/1.0\r\nx-request-id: slow\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    let line = kvgauge.line_of("slow");
    assert_eq!(line["error.type"], "request_timeout", "{line}");
    assert_eq!(client.rest().1, End::Reset);
}

/// An answer that is whole ends cleanly, of whatever framing.
#[test]
fn not_where_it_is_whole() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send("HTTP/1.1 200 OK\r\n\r\ndata")?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    for method in ["GET", "HEAD"] {
        let mut client = Client::connect(kvgauge.listen);
        client.send(format!("{method} / HTTP/1.0\r\n\r\n"));
        assert_eq!(client.head().status(), 200);
        let body: &[u8] = if method == "GET" { b"data" } else { b"" };
        assert_eq!(client.rest(), (body.to_vec(), End::Cut), "{method}");
    }
}
