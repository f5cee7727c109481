//! Problems reported in public about proxies and their clocks (idle connections, long silence, the way
//! out, no descriptors left), each as a test that is named by its id. Inputs are in `tests/data/cases`.
//! Where a case asks for minutes the gate runs it scaled, with its settings scaled too, and `mod full`
//! runs it whole, with the defaults; `tests/config_reference.rs` holds these.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::client::post;
use support::steps::{self, Step};
use support::upstream::{By, OK};
use support::{Client, End, Next, Setup, Upstream};

const CHAT: &str = "/v1/chat/completions";
const MS: Duration = Duration::from_millis(1);

/// What B30 asks for, or a part of it.
struct Idle {
    /// The server closes a connection so long after its last answer.
    closed_after: Duration,
    /// Between two rounds of requests, one after the other.
    spacings: Vec<Duration>,
    /// How long it goes on.
    runs_for: Duration,
}

/// Single requests and bursts of 20, each through a kvgauge of its own. How many there were.
fn b30(settings: &str, case: &Idle) -> (usize, usize) {
    let lane = |burst: usize| {
        let closed_after = case.closed_after;
        let upstream = Upstream::new(move |connection| {
            connection.request_within(closed_after)?;
            connection.send(OK)?;
            Ok(Next::Again)
        });
        let mut kvgauge = Setup::new(upstream.address()).settings(settings).start();
        let asked = rounds(kvgauge.listen, burst, case);
        let mut seen = BTreeMap::new();
        for request in upstream.requests() {
            *seen
                .entry(request.head.get("x-request-id").unwrap())
                .or_insert(0) += 1;
        }
        assert_eq!(seen.len(), asked, "requests that the router saw");
        assert!(
            seen.values().all(|times| *times == 1),
            "each once: {seen:?}"
        );
        let lines = kvgauge.lines_to_the_end();
        assert_eq!(lines.len(), asked, "log lines");
        for line in &lines {
            assert_eq!(line["outcome"], "complete", "{line}");
        }
        println!(
            "B30, {burst} at a time: {asked} requests, {asked} answers of 200, seen once each, over {} connections",
            upstream.connections()
        );
        asked
    };
    std::thread::scope(|scope| {
        let single = scope.spawn(|| lane(1));
        let bursts = scope.spawn(|| lane(20));
        (single.join().unwrap(), bursts.join().unwrap())
    })
}

fn rounds(listen: SocketAddr, burst: usize, case: &Idle) -> usize {
    let begun = Instant::now();
    let mut asked = 0;
    for (round, spacing) in case.spacings.iter().cycle().enumerate() {
        if begun.elapsed() >= case.runs_for {
            break;
        }
        std::thread::scope(|scope| {
            for n in 0..burst {
                scope.spawn(move || {
                    let id = format!("x-request-id: {round}-{n}\r\n");
                    let answer = support::fetch(listen, post(CHAT, &id, "{}"));
                    assert_eq!(answer.status(), 200, "{round}-{n}: {}", answer.text());
                });
            }
        });
        asked += burst;
        support::pause(*spacing);
    }
    asked
}

#[test]
fn b30_a_server_that_closes_idle_connections_fails_no_request_timed() {
    // A tenth of everything; and around our own limit, where a kept connection is just used again.
    let spacings = [498, 400, 499, 399, 500, 401, 501, 398, 502, 402, 380];
    let case = Idle {
        closed_after: 500 * MS,
        spacings: spacings.map(|ms| ms * MS).to_vec(),
        runs_for: Duration::from_secs(6),
    };
    let (single, bursts) = b30("upstream.idle = \"400ms\"\n", &case);
    assert!(single > 10 && bursts > 200, "{single} {bursts}");
}

/// `b31.steps.json` with another silence.
fn b31_silent_for(silence: Duration) -> Upstream {
    let mut steps = steps::of_case("b31.steps.json");
    let sleeps = steps.iter_mut().filter_map(|step| match step {
        Step::Sleep(time) => Some(time),
        _ => None,
    });
    let mut changed = 0;
    for time in sleeps {
        assert_eq!(*time, Duration::from_secs(720));
        *time = silence;
        changed += 1;
    }
    assert_eq!(changed, 1);
    Upstream::new(move |connection| steps::play(&steps, connection))
}

/// The stream comes whole, byte for byte.
fn b31_ends_whole(upstream: &Upstream, settings: &str, patience: Duration) {
    let mut kvgauge = Setup::new(upstream.address()).settings(settings).start();
    let mut client = Client::connect(kvgauge.listen);
    client.patience(patience);
    let begun = Instant::now();
    client.send(post(CHAT, "x-request-id: b31\r\n", "{\"stream\":true}"));
    let answer = client.response("POST");
    let body = steps::body(&steps::of_case("b31.steps.json"));
    println!(
        "B31: {} bytes of {} after {:?}, end {:?}",
        answer.body.len(),
        body.len(),
        begun.elapsed(),
        answer.end
    );
    assert_eq!((answer.body, answer.end), (body, End::Complete));
    let lines = kvgauge.lines_to_the_end();
    println!("B31: {}", lines[0]);
    assert_eq!(lines[0]["outcome"], "complete", "{}", lines[0]);
}

#[test]
fn b31_a_silence_longer_than_every_other_limit_ends_no_stream() {
    // The limits that exist by default, all shorter than the silence, as 720 s are longer than they are.
    let settings = "timeouts.connect = \"1s\"\ntimeouts.request_head = \"300ms\"\n\
        timeouts.client_idle = \"300ms\"\nupstream.idle = \"300ms\"\nupstream.max_age = \"400ms\"\n";
    b31_ends_whole(
        &b31_silent_for(Duration::from_secs(3)),
        settings,
        Duration::from_secs(20),
    );
}

#[test]
fn b31_a_limit_on_silence_ends_it_and_frees_the_router_timed() {
    let upstream = b31_silent_for(Duration::from_secs(5));
    let kvgauge = Setup::new(upstream.address())
        .settings("timeouts.stream_silence = \"2s\"\n")
        .start();
    let mut client = Client::connect(kvgauge.listen);
    client.send(post(CHAT, "x-request-id: b31\r\n", "{\"stream\":true}"));
    client.head();
    assert!(client.chunk().is_some());
    let silent = Instant::now();
    let (rest, end) = client.rest();
    let took = silent.elapsed();
    assert!(
        rest.is_empty() && matches!(end, End::Cut | End::Reset),
        "{end:?}"
    );
    let about = Duration::from_millis(1900)..Duration::from_millis(2600);
    assert!(about.contains(&took), "{took:?}");
    assert_eq!(upstream.end_of(0, Duration::from_secs(1)).1, By::Peer);
    let line = kvgauge.line_of("b31");
    assert_eq!(line["outcome"], "timeout", "{line}");
    assert_eq!(line["error.type"], "stream_silence", "{line}");
}

/// What takes minutes: `tests/run --full`.
mod full {
    use super::*;

    #[test]
    #[ignore = "takes 10 minutes: tests/run --full"]
    fn b30_a_server_that_closes_idle_connections_fails_no_request() {
        let spacings = [4980, 4990, 5000, 5010, 5020];
        let case = Idle {
            closed_after: Duration::from_secs(5),
            spacings: spacings.map(|ms| ms * MS).to_vec(),
            runs_for: Duration::from_secs(600),
        };
        let (single, bursts) = b30("", &case);
        assert!(single >= 115 && bursts >= 2300, "{single} {bursts}");
    }

    #[test]
    #[ignore = "takes 12 minutes: tests/run --full"]
    fn b31_twelve_minutes_of_silence_end_no_stream() {
        b31_ends_whole(
            &Upstream::case("b31.steps.json"),
            "",
            Duration::from_secs(780),
        );
    }
}
