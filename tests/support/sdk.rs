//! What the official `openai` clients do through kvgauge: to the real `sglang-router`, and to a server
//! that plays what the router does not.

use crate::engines::{Engines, MODEL};
use crate::support::openai::{self, Passage};
use crate::support::router::Router;
use crate::support::{Kvgauge, Process, Setup};
use kvgauge::kv::Role;
use std::time::Duration;

/// One of the clients, by the scripts that use it.
pub(crate) struct Sdk {
    /// Runs a script to its end; what it prints.
    pub(crate) run: fn(&str, &[&str]) -> String,
    /// How its scripts' names end.
    pub(crate) ending: &'static str,
}

impl Sdk {
    /// Runs a script; how many answers its client was given.
    fn calls(&self, name: &str, arguments: &[&str]) -> usize {
        let text = (self.run)(&format!("{name}.{}", self.ending), arguments);
        text.trim().lines().last().unwrap().parse().unwrap()
    }

    /// Lets the client make its calls, and compares every exchange in front of kvgauge with the one
    /// behind it.
    fn through(&self, mode: &str, router: &Router, sources: &[(&str, &str, String)]) {
        let mut all = vec![("router", "", router.metrics_url())];
        all.extend(sources.iter().cloned());
        let passage = Passage::to(router.api, &all);
        let calls = self.calls("openai_client", &[&passage.base_url(), MODEL, mode]);
        assert!(calls >= 10, "{calls}");
        passage.passed(calls);
    }

    pub(crate) fn through_a_plain_router(&self) {
        let engines = Engines::start(&[Role::Unified]);
        let router = Router::plain(&[engines.address(0)], &["--disable-retries"]);
        self.through(
            "plain",
            &router,
            &[("engine", "unified", engines.metrics_url(0))],
        );
    }

    pub(crate) fn through_a_disaggregated_router(&self) {
        let engines = Engines::start(&[Role::Prefill, Role::Decode]);
        let router = Router::disaggregated(
            engines.address(0),
            engines.address(1),
            &["--disable-retries"],
        );
        self.through(
            "pd",
            &router,
            &[
                ("prefill", "prefill", engines.metrics_url(0)),
                ("decode", "decode", engines.metrics_url(1)),
            ],
        );
    }

    pub(crate) fn knows_errors(&self) {
        let server = openai::played();
        let passage = Passage::to_played(server.address());
        let calls = self.calls("openai_played", &[&passage.base_url(), "calls"]);
        passage.passed(calls);
        // The client that gave up waiting has taken its request away from the server.
        let gone = |line: &&serde_json::Value| line["outcome"] == "client_gone";
        let lines = passage.kvgauge.lines();
        assert_eq!(lines.iter().filter(gone).count(), 1, "{lines:#?}");
        assert_eq!(lines.len(), calls + 1, "one line a request");
        server.none_open(Duration::from_secs(10));
    }

    pub(crate) fn embeddings(&self) {
        // The simulated engines have none, so the worker is played.
        let worker = openai::played();
        let router = Router::plain(&[worker.address()], &["--disable-retries"]);
        let passage = Passage::to(router.api, &[("router", "", router.metrics_url())]);
        let calls = self.calls("openai_played", &[&passage.base_url(), "embeddings"]);
        passage.passed(calls);
    }

    pub(crate) fn images(&self) {
        let server = openai::summing(false);
        self.summed(&Setup::new(server.address()).start());
    }

    pub(crate) fn images_through_the_router(&self) {
        let worker = openai::summing(true);
        let router = Router::plain(&[worker.address()], &["--disable-retries"]);
        self.summed(&Setup::new(router.api).start());
    }

    /// The server refuses them unless all have come.
    fn summed(&self, kvgauge: &Kvgauge) {
        let process = Process::new(kvgauge.pid());
        let before = process.resident_kib();
        let base = format!("http://{}/v1", kvgauge.listen);
        assert_eq!(self.calls("openai_played", &[&base, "images"]), 1);
        let line = kvgauge.line(1);
        assert_eq!(line["outcome"], "complete", "{line}");
        assert!(line["bytes_in"].as_u64() > Some(100_000_000), "{line}");
        let grown = process.peak_kib() - before;
        println!("resident memory grew by {grown} KiB at most, from {before} KiB");
        assert!(grown < 20 * 1024, "{grown} KiB more at the peak");
    }
}
