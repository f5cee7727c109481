//! `curl` and `wrk` through kvgauge, as people try a server by hand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use support::lines::Lines;
use support::program::to_the_end;
use support::upstream::STREAM;
use support::wait::PATIENCE;
use support::{Kvgauge, Next, Setup, Signal, Upstream};

/// `curl` with these arguments and the URL of this path.
fn curl(kvgauge: &Kvgauge, arguments: &[&str], path: &str) -> Command {
    let mut command = Command::new("curl");
    command
        // What the person who runs the tests has set is not ours to use.
        .args([
            "-q",
            "--http1.1",
            "--noproxy",
            "*",
            "--silent",
            "--show-error",
        ])
        .args(["--max-time", "30"])
        .args(arguments)
        .arg(format!("http://{}{path}", kvgauge.listen));
    command
}

/// A file with some bytes of any value, and those.
fn file(length: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
    let bytes: Vec<u8> = (0..length).map(|n| (n * 31 % 256) as u8).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    (file, bytes)
}

#[test]
#[ignore = "needs curl: tests/run"]
fn curl_shows_each_event_when_it_is_sent() {
    let seen = Arc::new(Signal::default());
    let wait = Arc::clone(&seen);
    let upstream = Upstream::new(move |connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: one\n\n")?;
        wait.wait();
        connection.chunk("data: two\n\n")?;
        connection.send("0\r\n\r\n")?;
        Ok(Next::Again)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut child = curl(&kvgauge, &["--no-buffer"], "/v1/chat/completions")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = Lines::of(child.stdout.take().unwrap());
    let first = output.wait(PATIENCE, |lines, _| lines.first().cloned());
    assert_eq!(first.as_deref(), Some(&b"data: one"[..]));
    // Only now is the second one sent.
    seen.set();
    assert_eq!(
        output.to_the_end().join(&b'\n'),
        b"data: one\n\ndata: two\n"
    );
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "needs curl: tests/run"]
fn curl_says_that_a_broken_stream_is_partial() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: one\n\n")?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let output = curl(&kvgauge, &[], "/v1/chat/completions")
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"data: one\n\n");
    // CURLE_PARTIAL_FILE.
    assert_eq!(output.status.code(), Some(18), "{output:?}");
    assert_eq!(kvgauge.line(1)["outcome"], "upstream_aborted");
}

#[test]
#[ignore = "needs curl: tests/run"]
fn curl_is_told_to_go_on_and_uploads() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).start();
    let (file, bytes) = file(3_000_000);
    let data = format!("@{}", file.path().display());
    for framing in [
        "Content-Type: application/octet-stream",
        "Transfer-Encoding: chunked",
    ] {
        let before = upstream.requests().len();
        let output = curl(
            &kvgauge,
            &["--verbose", "--header", "Expect: 100-continue"],
            "/v1/files",
        )
        .args(["--header", framing, "--data-binary", &data])
        .output()
        .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        assert!(told.contains("< HTTP/1.1 100 Continue"), "{told}");
        assert_eq!(output.stdout, b"{}");
        let request = upstream.request(before + 1);
        assert!(request.body == bytes, "{framing}: another body");
        assert!(!request.head.has("expect"), "{}", request.head.text());
    }
}

#[test]
#[ignore = "needs curl: tests/run"]
fn curl_uploads_a_form() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).start();
    let (file, bytes) = file(1_000_000);
    let part = format!("file=@{};filename=speech.wav", file.path().display());
    let path = "/v1/audio/transcriptions";
    let form = ["--form", "model=whisper", "--form", &part];
    let text = to_the_end("curl", &mut curl(&kvgauge, &form, path));
    assert_eq!(text, "{}");
    let request = upstream.request(1);
    let kind = request.head.get("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let end = format!("\r\n--{boundary}--\r\n");
    // The last part is the file, byte for byte.
    assert!(request.body.ends_with(end.as_bytes()));
    let part = &request.body[..request.body.len() - end.len()];
    assert!(part.ends_with(&bytes), "another file");
    assert_eq!(kvgauge.line(1)["bytes_in"], request.body.len());
}

#[test]
#[ignore = "needs curl: tests/run"]
fn curl_gets_a_head_and_a_packed_body() {
    let text = "hello ".repeat(10_000);
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let upstream = Upstream::replying(move |request| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\
             Content-Length: {}\r\n\r\n",
            packed.len()
        )
        .into_bytes();
        if request.head.method() != "HEAD" {
            answer.extend_from_slice(&packed);
        }
        answer
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let head = to_the_end("curl", &mut curl(&kvgauge, &["--head"], "/v1/models"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
    assert!(head.contains("content-length: "), "{head}");
    assert_eq!(upstream.request(1).head.method(), "HEAD");
    let body = to_the_end("curl", &mut curl(&kvgauge, &["--compressed"], "/v1/models"));
    assert_eq!(body, text);
    let accepted = upstream.request(2).head.get("accept-encoding");
    assert!(accepted.unwrap().contains("gzip"));
    // HTTP/1.0: the connection's end is the body's.
    let old = ["--http1.0", "--compressed"];
    let body = to_the_end("curl", &mut curl(&kvgauge, &old, "/v1/models"));
    assert_eq!(body, text);
    assert_eq!(kvgauge.line(3)["network.protocol.version"], "1.0");
}

#[test]
#[ignore = "needs wrk: tests/run"]
fn wrk_sees_no_error_and_each_of_its_requests_is_counted_and_logged() {
    const CONNECTIONS: usize = 16;
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let url = format!("http://{}/v1/models", kvgauge.listen);
    let connections = CONNECTIONS.to_string();
    let arguments = [
        "-t",
        "1",
        "-c",
        &connections,
        "-d",
        "2s",
        "--timeout",
        "10s",
        &url,
    ];
    let text = to_the_end("wrk", Command::new("wrk").args(arguments));
    assert!(
        !text.contains("Non-2xx") && !text.contains("Socket errors"),
        "{text}"
    );
    let line = text.lines().find(|line| line.contains(" requests in "));
    let seen = line.unwrap().split_whitespace().next().unwrap();
    let seen: usize = seen.parse().unwrap();
    assert!(seen > 100, "{text}");

    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
    let metrics = kvgauge.metrics();
    let counted = |outcome| metrics.sum("kvgauge_requests_total", &[("outcome", outcome)]) as usize;
    let (complete, gone) = (counted("complete"), counted("client_gone"));
    let all = metrics.sum("kvgauge_requests_total", &[]) as usize;
    assert_eq!(complete + gone, all, "nothing else happened");
    // It leaves what runs when its time is over.
    assert!(
        (seen..=seen + CONNECTIONS).contains(&all),
        "{seen} of {all}"
    );
    assert!(complete >= seen, "{seen} of {complete}");
    assert_eq!(
        metrics.value("kvgauge_log_lines_dropped_total", &[]),
        Some(0.0)
    );
    let arrived = upstream.requests().len();
    assert!((complete..=all).contains(&arrived), "{arrived} of {all}");
    let lines = kvgauge.lines_to_the_end();
    let logged = |outcome| {
        lines
            .iter()
            .filter(|line| line["outcome"] == outcome)
            .count()
    };
    assert_eq!(
        (logged("complete"), logged("client_gone")),
        (complete, gone)
    );
    assert_eq!(lines.len(), all, "one line a request");
}
