//! A real WebSocket client, and the realtime client of `openai`, through kvgauge to a real WebSocket
//! server: Python's `websockets` on both sides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::program::{Program, free_port, python, script};
use support::{Client, End, Page, Setup};

fn server() -> (Program, SocketAddr) {
    let port = free_port();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/py/websocket_server.py");
    let mut command = Command::new(python());
    let mut program = Program::start(
        "websocket_server.py",
        command.arg(path).arg(port.to_string()),
    );
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    program.until_ready(address, "/health");
    (program, address)
}

fn client(address: SocketAddr, way: &str) -> String {
    script("websocket_client.py", [&address.to_string(), way])
}

#[test]
#[ignore = "needs websockets and openai: tests/run"]
fn a_real_websocket_client_sees_what_it_sees_without_kvgauge() {
    let (_server, address) = server();
    let direct = client(address, "direct");
    let decode = Page::case("b13-d.prom");
    let mut kvgauge = Setup::new(address)
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    let through = client(kvgauge.listen, "kvgauge");
    assert_eq!(through, direct);

    let page = kvgauge.metrics();
    let carried = |direction| page.value("kvgauge_tunnel_bytes_total", &[("direction", direction)]);
    assert!(carried("in").unwrap() > 4e6, "{:?}", carried("in"));
    assert!(carried("out").unwrap() > 4e6, "{:?}", carried("out"));
    assert_eq!(page.value("kvgauge_tunnels_in_flight", &[]), Some(0.0));
    let realtime = [
        ("method", "GET"),
        ("route", "/v1/realtime"),
        ("code", "101"),
        ("outcome", "upgraded"),
    ];
    assert_eq!(page.value("kvgauge_requests_total", &realtime), Some(1.0));

    let lines = kvgauge.lines_to_the_end();
    let tunnels = lines
        .iter()
        .filter(|line| line["http.response.status_code"] == 101);
    let mut count = 0;
    for line in tunnels {
        assert_eq!(line["outcome"], "upgraded", "{line}");
        assert!(line["error.type"].is_null(), "{line}");
        assert_eq!(line["kv.end.usage"], 0.37, "{line}");
        count += 1;
    }
    assert_eq!(count, 8, "a line for each tunnel");
    let denied = lines
        .iter()
        .find(|line| line["url.path"] == "/denied")
        .unwrap();
    assert_eq!(denied["outcome"], "complete", "{denied}");
    assert_eq!(denied["http.response.status_code"], 401, "{denied}");
    assert_eq!(lines.len(), 9);
}

#[test]
#[ignore = "needs websockets and openai: tests/run"]
fn a_server_that_is_killed_ends_its_tunnels() {
    let (mut server, address) = server();
    let kvgauge = Setup::new(address).start();
    let mut client = Client::connect(kvgauge.listen);
    client.send(
        "GET /echo HTTP/1.1\r\nHost: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let head = client.head();
    assert_eq!(head.status(), 101, "{}", head.text());
    let killed = Instant::now();
    server.kill();
    let (bytes, end) = client.rest();
    assert!(killed.elapsed() < Duration::from_secs(1));
    assert!(
        bytes.is_empty() && matches!(end, End::Cut | End::Reset),
        "{end:?}"
    );
    // Its kernel has ended the connection in order; what comes now finds nobody.
    let line = support::eventually("the tunnel ends", || {
        let _ = client.try_send([0x8a, 0x80, 0, 0, 0, 0]);
        kvgauge.lines().pop()
    });
    assert_eq!(line["outcome"], "upstream_aborted", "{line}");
    assert_eq!(line["error.type"], "upstream_aborted", "{line}");
}
