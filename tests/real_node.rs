//! The real `openai` client for Node through kvgauge: to the real `sglang-router`, and to a server
//! that plays what the router does not. `real_client.rs` does the same with the client in Python.

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
use std::time::Duration;
use support::openai::{self, Passage};
use support::program::node_script;
use support::router::Router;
use support::{Kvgauge, Process, Setup};

/// Runs a script; how many answers its client was given.
fn calls(name: &str, arguments: &[&str]) -> usize {
    let text = node_script(name, arguments);
    text.trim().lines().last().unwrap().parse().unwrap()
}

/// Lets the client make its calls, and compares every exchange in front of kvgauge with the one
/// behind it.
fn through(mode: &str, router: &Router, sources: &[(&str, &str, String)]) {
    let mut all = vec![("router", "", router.metrics_url())];
    all.extend(sources.iter().cloned());
    let passage = Passage::to(router.api, &all);
    let calls = calls("openai_client.mjs", &[&passage.base_url(), MODEL, mode]);
    assert!(calls >= 10, "{calls}");
    passage.passed(calls);
}

#[test]
#[ignore = "needs sglang-router and openai for Node: tests/run"]
fn the_openai_client_through_a_plain_router() {
    let engines = Engines::start(&[Role::Unified]);
    let router = Router::plain(&[engines.address(0)], &["--disable-retries"]);
    through(
        "plain",
        &router,
        &[("engine", "unified", engines.metrics_url(0))],
    );
}

#[test]
#[ignore = "needs sglang-router and openai for Node: tests/run"]
fn the_openai_client_through_a_disaggregated_router() {
    let engines = Engines::start(&[Role::Prefill, Role::Decode]);
    let router = Router::disaggregated(
        engines.address(0),
        engines.address(1),
        &["--disable-retries"],
    );
    through(
        "pd",
        &router,
        &[
            ("prefill", "prefill", engines.metrics_url(0)),
            ("decode", "decode", engines.metrics_url(1)),
        ],
    );
}

#[test]
#[ignore = "needs openai for Node: tests/run"]
fn errors_retries_timeouts_and_broken_streams_are_what_the_client_knows_them_as() {
    let server = openai::played();
    let passage = Passage::to_played(server.address());
    let calls = calls("openai_played.mjs", &[&passage.base_url(), "calls"]);
    passage.passed(calls);
    // The client that gave up waiting has taken its request away from the server.
    let gone = |line: &&serde_json::Value| line["outcome"] == "client_gone";
    let lines = passage.kvgauge.lines();
    assert_eq!(lines.iter().filter(gone).count(), 1, "{lines:#?}");
    assert_eq!(lines.len(), calls + 1, "one line a request");
    server.none_open(Duration::from_secs(10));
}

#[test]
#[ignore = "needs sglang-router and openai for Node: tests/run"]
fn embeddings_through_the_real_router() {
    // The simulated engines have none, so the worker is played.
    let worker = openai::played();
    let router = Router::plain(&[worker.address()], &["--disable-retries"]);
    let passage = Passage::to(router.api, &[("router", "", router.metrics_url())]);
    let calls = calls("openai_played.mjs", &[&passage.base_url(), "embeddings"]);
    passage.passed(calls);
}

#[test]
#[ignore = "needs openai for Node: tests/run"]
fn a_hundred_megabytes_of_images_pass_whole_and_are_not_kept() {
    let server = openai::summing(false);
    images(&Setup::new(server.address()).start());
}

#[test]
#[ignore = "needs sglang-router and openai for Node: tests/run"]
fn a_hundred_megabytes_of_images_through_the_real_router() {
    let worker = openai::summing(true);
    let router = Router::plain(&[worker.address()], &["--disable-retries"]);
    images(&Setup::new(router.api).start());
}

/// The server refuses them unless all have come.
fn images(kvgauge: &Kvgauge) {
    let process = Process::new(kvgauge.pid());
    let before = process.resident_kib();
    let base = format!("http://{}/v1", kvgauge.listen);
    assert_eq!(calls("openai_played.mjs", &[&base, "images"]), 1);
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "complete", "{line}");
    assert!(line["bytes_in"].as_u64() > Some(100_000_000), "{line}");
    let grown = process.peak_kib() - before;
    println!("resident memory grew by {grown} KiB at most, from {before} KiB");
    assert!(grown < 20 * 1024, "{grown} KiB more at the peak");
}
