//! The end of a pod of kvgauge and the real `sglang-router`, as `config/kubernetes/sidecar.yaml` has it and
//! the kubelet plays it, in seconds in place of minutes: no request that was taken fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/engines.rs"]
mod engines;
mod support;

use engines::{Engines, MODEL};
use kvgauge::kv::Role;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::client::post;
use support::kvgauge::run;
use support::router::Router;
use support::wait::pause;
use support::{Client, End, Setup, eventually, get};

/// `drain.delay`.
const DELAY: Duration = Duration::from_secs(1);

/// What the router's `preStop` sleeps for: longer than the delay.
const SLEEP: Duration = Duration::from_millis(1500);

/// More than the rest takes.
const GRACE: Duration = Duration::from_secs(30);

/// Steps of 5 ms: much longer than [`SLEEP`].
const STREAM_TOKENS: usize = 800;

fn chat(id: &str, tokens: usize, more: &str) -> String {
    let body = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"sim:output={tokens}"}}],"max_tokens":{tokens}{more}}}"#
    );
    let id = format!("x-request-id: {id}\r\n");
    post("/v1/chat/completions", &id, &body)
}

/// How a client fared that asks again and again until nobody is there any more.
#[derive(Debug)]
struct Fared {
    answered: Vec<Instant>,
    /// When a connection was refused, or ended without a byte of an answer.
    turned_away: Instant,
}

/// `keeps`: goes on with a connection until its answer says that it ends.
fn ask_on(address: SocketAddr, name: usize, keeps: bool, asked: &AtomicUsize) -> Fared {
    let mut answered = Vec::new();
    let mut kept: Option<Client> = None;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < 2 * GRACE, "it is never turned away");
        let id = format!("{name}-{}", answered.len());
        let client = kept.take().map_or_else(|| Client::try_connect(address), Ok);
        let Ok(mut client) = client else {
            break;
        };
        if client.try_send(chat(&id, 8, "")).is_err() {
            break;
        }
        let Ok(answer) = client.try_response("POST") else {
            break;
        };
        assert_eq!(answer.status(), 200, "{id}: {}", answer.text());
        assert_eq!(answer.end, End::Complete, "{id}");
        assert_eq!(answer.json()["usage"]["completion_tokens"], 8, "{id}");
        answered.push(Instant::now());
        asked.fetch_add(1, Ordering::Relaxed);
        let goes_on = answer.head.get("connection").as_deref() != Some("close");
        kept = (keeps && goes_on).then_some(client);
    }
    Fared {
        answered,
        turned_away: Instant::now(),
    }
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn a_pod_ends_without_failing_a_request_that_it_took() {
    let engines = Engines::start(&[Role::Unified]);
    let patience = GRACE.as_secs().to_string();
    let mut router = Router::plain(
        &[engines.address(0)],
        &["--shutdown-grace-period-secs", &patience],
    );
    let drain = format!("[drain]\ndelay = \"{DELAY:?}\"\ntimeout = \"{GRACE:?}\"\n");
    let mut kvgauge = Setup::new(router.api)
        .settings(&drain)
        .source_at("engine", "", &engines.metrics_url(0))
        .start();
    let listen = kvgauge.listen;
    let asked = AtomicUsize::new(0);

    let (fared, began) = thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|name| {
                let asked = &asked;
                scope.spawn(move || ask_on(listen, name, name % 2 == 0, asked))
            })
            .collect();
        eventually("they are answered", || {
            (asked.load(Ordering::Relaxed) > 30).then_some(())
        });
        let mut stream = Client::connect(listen);
        stream.send(chat("stream", STREAM_TOKENS, r#","stream":true"#));
        let head = stream.head();
        assert_eq!(head.status(), 200);

        // Both hooks.
        let began = Instant::now();
        let told = run(&["drain", "--pid", &kvgauge.pid().to_string()]);
        assert!(told.status.success(), "{told:?}");
        eventually("it is not ready", || {
            (get(kvgauge.admin, "/readyz").status() == 503).then_some(())
        });
        pause(SLEEP.saturating_sub(began.elapsed()));
        assert!(Client::try_connect(listen).is_err());
        router.program.terminate();
        // It has no listener any more, and still the stream.
        eventually("the router closes its listener", || {
            Client::try_connect(router.api).is_err().then_some(())
        });
        let rest = stream.body_of(head, "POST");
        assert_eq!(rest.end, End::Complete);
        assert!(rest.text().ends_with("data: [DONE]\n\n"), "{}", rest.text());
        let much_later = SLEEP + Duration::from_secs(1);
        assert!(began.elapsed() > much_later, "{:?}", began.elapsed());
        let fared = clients.into_iter().map(|client| client.join().unwrap());
        (fared.collect::<Vec<_>>(), began)
    });
    // The main container first; then the sidecar gets its SIGTERM, and has ended or still does.
    assert_eq!(router.program.exit_code(GRACE), Some(0));
    kvgauge.signal(Signal::TERM);
    assert_eq!(kvgauge.exit_code(GRACE), 0);

    for client in &fared {
        assert!(client.turned_away >= began + DELAY, "{client:?}");
        let meanwhile = client.answered.iter().filter(|at| **at > began).count();
        assert!(meanwhile > 1, "{client:?}");
    }
    kvgauge.says("drained: every request has finished");
    let lines = kvgauge.lines();
    let answers: usize = fared.iter().map(|client| client.answered.len()).sum();
    assert_eq!(lines.len(), answers + 1);
    for line in lines {
        assert_eq!(line["outcome"], "complete", "{line}");
        assert_eq!(line["http.response.status_code"], 200, "{line}");
    }
}
