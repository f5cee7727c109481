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
use support::kvgauge::run;
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

/// A request whose body has half come, at the router's side too; and the rest of it.
fn begin_upload(kvgauge: &Kvgauge, upstream: &Upstream) -> (Client, String) {
    let mut client = Client::connect(kvgauge.listen);
    let mut request = post("/", "x-request-id: asked\r\n", "0123456789");
    let end = request.split_off(request.len() - 5);
    client.send(request);
    // It has reached the router's side when there is a connection.
    support::eventually("it is forwarded", || (upstream.open() > 0).then_some(()));
    (client, end)
}

#[test]
fn an_upload_that_runs_is_finished() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let (mut client, end) = begin_upload(&kvgauge, &upstream);
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

/// What `kvgauge drain` says to a process, with its exit code.
fn told_to_drain(pid: u32) -> (i32, String) {
    let output = run(&["drain", "--pid", &pid.to_string()]);
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    (output.status.code().unwrap(), text)
}

/// A container's hook, and the SIGTERM that follows it: what runs is not cut by either.
#[test]
fn the_command_drains_and_the_signal_behind_it_goes_on_with_that() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let (mut client, end) = begin_upload(&kvgauge, &upstream);
    let pid = kvgauge.pid();
    let told = format!("kvgauge (process {pid}) has been told to drain.");
    assert_eq!(told_to_drain(pid), (0, told.clone()));
    kvgauge.says("SIGUSR1 (kvgauge drain): draining.");
    until_it_drains(&kvgauge);
    // Told again, as a hook may be that is tried again.
    assert_eq!(told_to_drain(pid), (0, told));
    kvgauge.says("SIGUSR1 (kvgauge drain): draining already");
    kvgauge.signal(Unix::TERM);
    kvgauge.says("SIGTERM: draining already. Another signal cuts what still runs.");
    assert_eq!(client.send(end).response("POST").status(), 200);
    assert_eq!(kvgauge.exit_code(SOON), 0);
    kvgauge.says("drained: every request has finished");
    assert_eq!(kvgauge.line_of("asked")["outcome"], "complete");
}

#[test]
fn after_the_command_the_second_signal_cuts() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let mut stream = ask(&kvgauge, "/stream", "stream");
    assert_eq!(stream.head().status(), 200);
    assert!(stream.chunk().is_some());
    assert_eq!(told_to_drain(kvgauge.pid()).0, 0);
    kvgauge.says("draining");
    kvgauge.signal(Unix::TERM);
    kvgauge.says("draining already");
    kvgauge.signal(Unix::TERM);
    assert_eq!(kvgauge.exit_code(SOON), 0);
    assert_eq!(stream.rest(), (Vec::new(), End::Cut));
    assert_eq!(kvgauge.line_of("stream")["outcome"], "drained");
}

/// The signal would end whoever does not wait for it.
#[test]
fn the_command_tells_nobody_but_a_kvgauge_that_serves() {
    let mut sleep = std::process::Command::new("sleep");
    let mut other = sleep.arg("60").spawn().unwrap();
    support::eventually("it is sleep", || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", other.id())).unwrap();
        (name == "sleep\n").then_some(())
    });
    let (code, said) = told_to_drain(other.id());
    assert_eq!(code, 1, "{said}");
    let wanted = format!("Process {} is 'sleep' and not kvgauge", other.id());
    assert!(
        said.starts_with(&wanted) && said.contains("--pid"),
        "{said}"
    );
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();

    let (code, said) = told_to_drain(i32::MAX.unsigned_abs());
    assert_eq!(code, 1, "{said}");
    assert!(said.starts_with("There is no process 2147483647"), "{said}");

    // Its own commands but serve do not wait for the signal.
    let mut watch = std::process::Command::new(support::kvgauge::program());
    let watch = watch.args(["status", "--watch", "http://127.0.0.1:9"]);
    let mut watch = watch.stdout(std::process::Stdio::null()).spawn().unwrap();
    let (code, said) = support::eventually("it is kvgauge", || {
        let told = told_to_drain(watch.id());
        told.1.contains("is kvgauge").then_some(told)
    });
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("does not serve"), "{said}");
    assert!(watch.try_wait().unwrap().is_none());
    watch.kill().unwrap();
    watch.wait().unwrap();
}
