//! Sources found through the real `sglang-router`: its workers come and go, and kvgauge follows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/engines.rs"]
mod engines;
mod support;

use engines::Engines;
use kvgauge::kv::Role;
use serde_json::json;
use std::net::SocketAddr;
use support::router::Router;
use support::{Setup, eventually, get};

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn workers_of_the_real_router_are_sources_as_long_as_it_has_them() {
    let engines = Engines::start(&[Role::Prefill, Role::Decode, Role::Decode]);
    let [prefill, first, second] = [0, 1, 2].map(|at| engines.address(at));
    let router = Router::disaggregated(prefill, first, &[]);
    let kvgauge = Setup::new(router.api)
        .settings(&format!(
            "scrape.interval = \"100ms\"\n[discovery]\ninterval = \"100ms\"\nworkers = \"http://{}\"\n",
            router.api
        ))
        .source_at("router", "", &router.metrics_url())
        .start();
    let names = || -> Vec<String> {
        let answer = get(kvgauge.admin, "/sources").json();
        let all = answer["sources"].as_array().unwrap().iter();
        all.map(|s| s["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let named = |role: &str, at: SocketAddr| format!("{role}-{at}");
    kvgauge.until_up(&named("prefill", prefill));
    kvgauge.until_up(&named("decode", first));
    assert_eq!(
        names(),
        [
            "router".to_owned(),
            named("decode", first),
            named("prefill", prefill)
        ]
    );

    let new = json!({"url": format!("http://{second}"), "worker_type": "decode"});
    router.add(&new, second);
    kvgauge.until_up(&named("decode", second));
    assert_eq!(names().len(), 4);
    let sources = get(kvgauge.admin, "/sources").text();
    assert!(sources.contains(&engines.metrics_url(2)), "{sources}");

    router.remove(first);
    eventually("the worker that left is no source", || {
        (!names().contains(&named("decode", first))).then_some(())
    });
    let page = kvgauge.metrics_text();
    let gone = format!("\"{}\"", named("decode", first));
    assert!(!page.contains(&gone), "series of a worker that has left");
    assert!(page.contains(&format!("\"{}\"", named("decode", second))));
}
