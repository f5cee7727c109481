//! Problems reported in public about request logs, as tests that are named by their id.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;
use support::client::post;
use support::upstream::{OK, STREAM};
use support::{Client, Next, Setup, Upstream};

/// What kinds of requests there are, and the outcomes that their lines may have.
const KINDS: [(&str, &[&str]); 12] = [
    ("plain", &["complete"]),
    ("stream", &["complete"]),
    ("bad", &["complete"]),
    ("failing", &["complete"]),
    ("cut", &["upstream_aborted"]),
    ("cut-reset", &["upstream_aborted"]),
    ("no-head", &["upstream_aborted"]),
    ("leave", &["client_gone"]),
    ("leave-early", &["client_gone"]),
    ("connect", &["rejected"]),
    ("no-host", &["rejected"]),
    ("garbage", &["malformed"]),
];

fn upstream() -> Upstream {
    Upstream::new(|connection| {
        let request = connection.request()?;
        match request
            .head
            .target()
            .trim_start_matches('/')
            .split('?')
            .next()
            .unwrap()
        {
            "stream" => {
                connection.send(STREAM)?;
                connection.chunk(
                    "data: {\"choices\":[{\"delta\":{\"content\":\"secret-answer\"}}]}\n\n",
                )?;
                connection.chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}\n\n")?;
                connection.chunk("data: [DONE]\n\n")?;
                connection.send("0\r\n\r\n")?;
            }
            "bad" => connection.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")?,
            "failing" => connection.send("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")?,
            "cut" | "cut-reset" => {
                connection.send(STREAM)?;
                connection.chunk("data: {}\n\n")?;
                connection.pause(Duration::from_millis(20))?;
                let reset = request.head.target().contains("reset");
                return Ok(if reset { Next::Reset } else { Next::Close });
            }
            "no-head" => return Ok(Next::Close),
            "leave-early" => connection.until_peer_leaves()?,
            "leave" => {
                connection.send(STREAM)?;
                loop {
                    connection.chunk("data: {}\n\n")?;
                    connection.pause(Duration::from_millis(5))?;
                }
            }
            _ => connection.send(OK)?,
        }
        Ok(Next::Again)
    })
}

/// Makes one request of a kind; `true` where the answer had to carry the request's id and did.
fn make(kind: &str, id: &str, client: &mut Client, upstream: &Upstream) {
    let secrets = format!(
        "Authorization: Bearer secret-tok\r\nCookie: secret-cookie\r\nx-request-id: {id}\r\n"
    );
    let target = format!("/{kind}?key=secret-q");
    match kind {
        "connect" => client.send(format!(
            "CONNECT secret-q:1 HTTP/1.1\r\nHost: secret-q:1\r\n{secrets}\r\n"
        )),
        "no-host" => client.send(format!("GET {target} HTTP/1.1\r\n{secrets}\r\n")),
        "garbage" => client.send(format!("secret-garbage {id}\r\n{secrets}\r\n")),
        _ => client.send(post(&target, &secrets, r#"{"prompt":"secret-prompt"}"#)),
    };
    match kind {
        "leave-early" => {
            support::eventually("the request is there", || {
                upstream
                    .requests()
                    .iter()
                    .any(|r| r.head.all("x-request-id") == [id.as_bytes()])
                    .then_some(())
            });
        }
        "leave" => {
            client.head();
            client.chunk();
        }
        "garbage" => {
            client.rest();
        }
        _ => {
            let answer = client.response("POST");
            assert_eq!(
                answer.head.all("x-request-id"),
                [id.as_bytes()],
                "{kind}: {}",
                answer.head.text()
            );
        }
    }
}

#[test]
fn b47_1000_requests_of_all_kinds_are_1000_lines_without_a_secret() {
    let upstream = upstream();
    let mut kvgauge = Setup::new(upstream.address()).start();
    let next = Mutex::new(0..1000_usize);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let Some(n) = next.lock().unwrap().next() else {
                        break;
                    };
                    let kind = KINDS[n % KINDS.len()].0;
                    let mut client = Client::connect(kvgauge.listen);
                    make(kind, &format!("{kind}-{n}"), &mut client, &upstream);
                }
            });
        }
    });
    // Those that have left are noticed in their own time.
    support::eventually("no request is left", || {
        (kvgauge.metrics().sum("kvgauge_requests_in_flight", &[]) == 0.0).then_some(())
    });
    let metrics = kvgauge.metrics();
    assert_eq!(metrics.sum("kvgauge_log_lines_dropped_total", &[]), 0.0);
    let garbage = metrics.sum("kvgauge_malformed_requests_total", &[]);

    let lines = kvgauge.lines_to_the_end();
    let mut outcomes: HashMap<(String, String), usize> = HashMap::new();
    for line in &lines {
        let kind = line["request.id"]
            .as_str()
            .and_then(|id| id.rsplit_once('-'))
            .map_or("", |id| id.0);
        let kind = if line["outcome"] == "malformed" {
            "garbage"
        } else {
            kind
        };
        let outcome = line["outcome"].as_str().unwrap();
        *outcomes
            .entry((kind.to_owned(), outcome.to_owned()))
            .or_default() += 1;
        well_formed(line);
    }
    assert_eq!(lines.len(), 1000, "{outcomes:#?}");
    for (i, (kind, allowed)) in KINDS.iter().enumerate() {
        let made = (0..1000).filter(|n| n % KINDS.len() == i).count();
        let count = |outcome: &&str| outcomes.get(&((*kind).to_owned(), (*outcome).to_owned()));
        let right: usize = allowed.iter().filter_map(count).sum();
        assert_eq!(right, made, "{kind}: {outcomes:#?}");
        if *kind == "garbage" {
            assert_eq!(garbage, made as f64, "kvgauge_malformed_requests_total");
        }
    }
    let ids: HashSet<_> = lines
        .iter()
        .filter_map(|line| line["request.id"].as_str())
        .collect();
    let expected = (0..1000).filter(|n| KINDS[n % KINDS.len()].0 != "garbage");
    for n in expected {
        let id = format!("{}-{n}", KINDS[n % KINDS.len()].0);
        assert!(ids.contains(id.as_str()), "no line of {id}");
    }
    for output in [kvgauge.log.text(), kvgauge.diagnostics.text()] {
        let secret = output
            .find("secret-")
            .map(|at| &output[at.saturating_sub(200)..at + 20]);
        assert_eq!(secret, None);
    }
    // What has reached the router has come once, with the one id that its client gave.
    let mut reached: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.head.get("x-request-id").unwrap())
        .collect();
    reached.sort();
    let mut sent: Vec<_> = (0..1000)
        .map(|n| (KINDS[n % KINDS.len()].0, n))
        .filter(|(kind, _)| !["connect", "no-host", "garbage"].contains(kind))
        .map(|(kind, n)| format!("{kind}-{n}"))
        .collect();
    sent.sort();
    assert_eq!(reached, sent);
    let stream = lines
        .iter()
        .find(|line| line["url.path"] == "/stream")
        .unwrap();
    assert_eq!(stream["gen_ai.usage.output_tokens"], 34, "{stream}");
}

/// The fields that every line has.
fn well_formed(line: &Value) {
    let time = line["timestamp"].as_str().unwrap();
    let digits = |text: &str| {
        text.chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect::<String>()
    };
    assert_eq!(digits(time), "0000-00-00T00:00:00.000Z", "{line}");
    assert!(
        line["duration_ms"].as_f64().is_some_and(|ms| ms >= 0.0),
        "{line}"
    );
    let status = &line["http.response.status_code"];
    assert!(
        status.is_null() || status.as_u64().is_some_and(|s| (100..600).contains(&s)),
        "{line}"
    );
    for name in [
        "http.request.method",
        "url.path",
        "network.protocol.version",
        "client.address",
        "error.type",
        "request.id",
        "bytes_in",
        "bytes_out",
        "ttft_ms",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "kv.start.usage",
        "kv.start.used",
        "kv.start.capacity",
        "kv.start.running",
        "kv.start.queued",
        "kv.start.age_ms",
        "kv.end.usage",
        "kv.start.pools",
    ] {
        assert!(line.get(name).is_some(), "no {name}: {line}");
    }
    assert!(
        !line["url.path"].as_str().unwrap_or_default().contains('?'),
        "{line}"
    );
}

#[test]
fn b47_a_router_that_is_not_there_is_one_line_each() {
    let nobody = support::Page::refusing();
    let mut kvgauge = Setup::new(nobody.address()).start();
    for n in 0..20 {
        let request = post(
            "/v1/completions?key=secret-q",
            &format!("x-request-id: n-{n}\r\n"),
            "{}",
        );
        let answer = support::fetch(kvgauge.listen, request);
        assert_eq!(answer.status(), 502);
        assert_eq!(
            answer.head.all("x-request-id"),
            [format!("n-{n}").as_bytes()]
        );
    }
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 20);
    for line in &lines {
        assert_eq!(line["outcome"], "upstream_unreachable", "{line}");
        assert_eq!(line["http.response.status_code"], 502, "{line}");
        assert!(line["error.type"].is_string(), "{line}");
        well_formed(line);
    }
}
