//! Problems reported in public about proxies for streamed answers, each as a test that is named by
//! its id. Inputs are in `tests/data/cases`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::client::post;
use support::steps::{self, Step};
use support::upstream::{By, STREAM};
use support::{Client, End, Kvgauge, Next, Page, Setup, Signal, Upstream};

const CHAT: &str = "/v1/chat/completions";

fn start(upstream: &Upstream) -> Kvgauge {
    Setup::new(upstream.address()).start()
}

fn ask(client: &mut Client, id: &str, body: &str) {
    client.send(post(CHAT, &format!("x-request-id: {id}\r\n"), body));
}

/// When each event was sent, and when each read at the client brought how much.
type Times = (Vec<Instant>, Vec<(Instant, String)>);

/// Plays `b25.steps.json` once through kvgauge.
fn b25_times(kvgauge: &Kvgauge, sent: &Mutex<Vec<Instant>>) -> Times {
    sent.lock().unwrap().clear();
    let mut client = Client::connect(kvgauge.listen);
    ask(&mut client, "b25", "{\"stream\":true}");
    let head = client.head();
    assert_eq!(head.status(), 200);
    assert!(!head.has("content-length"));
    let mut reads = Vec::new();
    loop {
        let piece = String::from_utf8(client.some().unwrap()).unwrap();
        let ends = piece.ends_with("\r\n0\r\n\r\n") || piece == "0\r\n\r\n";
        reads.push((Instant::now(), piece));
        if ends {
            return (sent.lock().unwrap().clone(), reads);
        }
    }
}

/// What is wrong with these times, if anything.
fn b25_fault((sent, reads): &Times) -> Option<String> {
    let events: Vec<_> = reads
        .iter()
        .filter(|(_, piece)| piece.contains("tok "))
        .collect();
    if events.len() != sent.len() || sent.len() != 60 {
        return Some(format!(
            "{} events came in {} reads",
            sent.len(),
            events.len()
        ));
    }
    let mut delays: Vec<_> = events
        .iter()
        .zip(sent)
        .map(|((got, _), sent)| got.saturating_duration_since(*sent))
        .collect();
    delays.sort();
    let (median, most) = (delays[30], delays[59]);
    let fine = median < Duration::from_millis(5) && most < Duration::from_millis(20);
    (!fine).then(|| format!("median delay {median:?}, longest {most:?}"))
}

#[test]
fn b25_each_event_comes_when_it_was_sent_timed() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (steps, at) = (steps::of_case("b25.steps.json"), Arc::clone(&sent));
    let upstream = Upstream::new(move |connection| {
        for step in &steps {
            let Step::Repeat(60, event) = step else {
                steps::play(std::slice::from_ref(step), connection)?;
                continue;
            };
            for _ in 0..60 {
                at.lock().unwrap().push(Instant::now());
                steps::play(event, connection)?;
            }
        }
        Ok(Next::Again)
    });
    let kvgauge = start(&upstream);
    // A busy machine can delay one run, not three; a buffer delays all.
    let faults: Vec<_> = (0..3)
        .map_while(|_| b25_fault(&b25_times(&kvgauge, &sent)))
        .collect();
    assert!(faults.len() < 3, "{faults:#?}");
}

#[test]
fn b25_the_head_comes_before_the_first_event() {
    let (got_head, got_event) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
    let (after_head, after_event) = (Arc::clone(&got_head), Arc::clone(&got_event));
    let upstream = Upstream::new(move |connection| {
        connection.request()?;
        connection.send(STREAM)?;
        after_head.wait();
        connection.chunk("data: 1\n\n")?;
        after_event.wait();
        connection.send("0\r\n\r\n")?;
        Ok(Next::Again)
    });
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    let mut client = Client::connect(kvgauge.listen);
    ask(&mut client, "b25", "{\"stream\":true}");
    let head = client.head();
    assert!(head.has("x-kv-pools"), "{}", head.text());
    got_head.set();
    assert_eq!(client.chunk().unwrap(), b"data: 1\n\n");
    got_event.set();
    assert_eq!(client.chunk(), None);
}

#[test]
fn b26_events_cut_anywhere() {
    let body = steps::body(&steps::of_case("b26.steps.json"));
    let upstream = Upstream::case("b26.steps.json");
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    ask(&mut client, "b26", "{\"stream\":true}");
    let answer = client.response("POST");
    assert_eq!((answer.body, answer.end), (body, End::Complete));
    let line = kvgauge.line_of("b26");
    assert_eq!(line["gen_ai.usage.input_tokens"], 12, "{line}");
    assert_eq!(line["gen_ai.usage.output_tokens"], 34, "{line}");
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(line["stream"], true, "{line}");
}

#[test]
fn b26_every_byte_a_chunk() {
    let body = steps::body(&steps::of_case("b26.steps.json"));
    let bytes = body.clone();
    let upstream = Upstream::new(move |connection| {
        let request = connection.request()?;
        connection.send(STREAM)?;
        // Once as fast as it goes (many chunks in a packet), once a packet each.
        if request.head.get("x-slow").is_some() {
            for byte in &bytes {
                connection.chunk([*byte])?;
            }
            connection.send("0\r\n\r\n")?;
        } else {
            let mut all = Vec::new();
            for byte in &bytes {
                all.extend_from_slice(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
            }
            all.extend_from_slice(b"0\r\n\r\n");
            connection.send(all)?;
        }
        Ok(Next::Again)
    });
    let kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    for (id, field) in [("fast", ""), ("slow", "x-slow: 1\r\n")] {
        client.send(post(
            CHAT,
            &format!("x-request-id: {id}\r\n{field}"),
            "{\"stream\":true}",
        ));
        let answer = client.response("POST");
        assert_eq!((&answer.body, answer.end), (&body, End::Complete), "{id}");
        let line = kvgauge.line_of(id);
        assert_eq!(line["gen_ai.usage.input_tokens"], 12, "{line}");
        assert_eq!(line["gen_ai.usage.output_tokens"], 34, "{line}");
    }
}

#[test]
fn b27_the_usage_event_is_read_and_nothing_is_asked_for() {
    let steps = steps::of_case("b27.steps.json");
    let without: Vec<_> = steps
        .iter()
        .filter(|step| !matches!(step, Step::Send(bytes, _) if bytes.windows(7).any(|w| w == b"\"usage\"")))
        .cloned()
        .collect();
    assert_eq!(without.len(), steps.len() - 1);
    for (id, steps, tokens, body) in [
        (
            "with",
            steps,
            Some((12, 34)),
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            "without",
            without,
            None,
            r#"{"stream":true ,  "odd" : [ ] }"#,
        ),
    ] {
        let sent = steps::body(&steps);
        let upstream = Upstream::new(move |connection| steps::play(&steps, connection));
        let kvgauge = start(&upstream);
        let mut client = Client::connect(kvgauge.listen);
        ask(&mut client, id, body);
        let answer = client.response("POST");
        assert_eq!((answer.body, answer.end), (sent, End::Complete), "{id}");
        assert_eq!(upstream.request(1).body, body.as_bytes(), "{id}");
        let line = kvgauge.line_of(id);
        let (input, output) = (
            &line["gen_ai.usage.input_tokens"],
            &line["gen_ai.usage.output_tokens"],
        );
        match tokens {
            Some((i, o)) => assert!(*input == i && *output == o, "{line}"),
            None => assert!(input.is_null() && output.is_null(), "{line}"),
        }
    }
}

fn b28(case: &str) {
    let upstream = Upstream::case(case);
    let mut kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    ask(&mut client, "b28", "{\"stream\":true}");
    let answer = client.response("POST");
    assert_eq!(answer.status(), 200);
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    assert_eq!(answer.body, steps::body(&steps::of_case(case)));
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["outcome"], "upstream_aborted", "{}", lines[0]);
    assert_eq!(lines[0]["http.response.status_code"], 200, "{}", lines[0]);
    assert!(
        lines[0]["gen_ai.usage.output_tokens"].is_null(),
        "{}",
        lines[0]
    );
    assert_eq!(upstream.requests().len(), 1, "no second try");
}

#[test]
fn b28_a_stream_that_the_engine_closes_ends_abnormally() {
    b28("b28.steps.json");
}

#[test]
fn b28_a_stream_that_the_engine_resets_ends_abnormally() {
    b28("b28-rst.steps.json");
}

/// Events without end.
fn endless(gap: Duration) -> Upstream {
    Upstream::new(move |connection| {
        connection.request()?;
        connection.send(STREAM)?;
        loop {
            connection.chunk("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")?;
            connection.pause(gap)?;
        }
    })
}

fn b29(leave: fn(Client)) {
    let upstream = endless(Duration::from_millis(100));
    let mut kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    ask(&mut client, "b29", "{\"stream\":true}");
    assert_eq!(client.head().status(), 200);
    for _ in 0..3 {
        assert!(client.chunk().is_some());
    }
    leave(client);
    let left = Instant::now();
    let (seen, by) = upstream.end_of(0, Duration::from_secs(5));
    assert_eq!(by, By::Peer);
    let took = seen.saturating_duration_since(left);
    assert!(
        took < Duration::from_secs(1),
        "the upstream was freed after {took:?}"
    );
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["outcome"], "client_gone", "{}", lines[0]);
    assert_eq!(lines[0]["request.id"], "b29");
    assert!(lines[0]["bytes_out"].as_u64().unwrap() > 0, "{}", lines[0]);
    assert!(lines[0]["ttft_ms"].is_number(), "{}", lines[0]);
}

#[test]
fn b29_a_client_that_closes_frees_the_upstream() {
    b29(Client::close);
}

#[test]
fn b29_a_client_that_resets_frees_the_upstream() {
    b29(Client::reset);
}

#[test]
fn b29_a_client_that_leaves_before_the_head_frees_the_upstream() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let mut kvgauge = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    ask(&mut client, "early", "{}");
    upstream.request(1);
    client.close();
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["outcome"], "client_gone", "{}", lines[0]);
    assert!(
        lines[0]["http.response.status_code"].is_null(),
        "{}",
        lines[0]
    );
}

#[test]
fn b29_500_clients_that_leave_keep_no_connection_open() {
    let upstream = endless(Duration::from_millis(5));
    let mut kvgauge = start(&upstream);
    let next = Mutex::new(0..500);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let Some(n) = next.lock().unwrap().next() else {
                        break;
                    };
                    let mut client = Client::connect(kvgauge.listen);
                    ask(&mut client, &format!("b29-{n}"), "{\"stream\":true}");
                    client.head();
                    for _ in 0..3 {
                        client.chunk();
                    }
                    if n % 2 == 0 {
                        client.close();
                    } else {
                        client.reset();
                    }
                }
            });
        }
    });
    upstream.none_open(Duration::from_secs(2));
    // The router's connection is closed a moment before the request is recorded.
    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 500);
    let gone = lines
        .iter()
        .filter(|line| line["outcome"] == "client_gone")
        .count();
    assert_eq!(gone, 500);
}
