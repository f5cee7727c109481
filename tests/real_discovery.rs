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
use serde_json::{Value, json};
use std::net::SocketAddr;
use support::router::Router;
use support::{Kvgauge, Setup, eventually, get};

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

/// The page that the router merges of its workers says of each role what the workers' own pages say.
#[test]
#[ignore = "needs sglang-router: tests/run"]
fn the_real_routers_merged_page_says_what_its_workers_pages_say() {
    let engines = Engines::start(&[Role::Prefill, Role::Decode]);
    let [prefill, decode] = [0, 1].map(|at| engines.address(at));
    let router = Router::disaggregated(prefill, decode, &[]);
    let merged = Setup::new(router.api)
        .source_at(
            "engines",
            "",
            &format!("http://{}/engine_metrics", router.api),
        )
        .start();
    let apart = Setup::new(router.api)
        .source_at("prefill", "prefill", &engines.metrics_url(0))
        .source_at("decode", "decode", &engines.metrics_url(1))
        .start();
    let roles = |kvgauge: &Kvgauge| -> Vec<Value> {
        let mut kv = get(kvgauge.admin, "/kv").json();
        let roles = kv["roles"].as_array_mut().unwrap();
        for role in roles.iter_mut() {
            role["age_ms"].take();
        }
        roles.clone()
    };
    for name in ["prefill", "decode"] {
        apart.until_up(name);
    }
    merged.until_up("engines");
    let said = eventually("both say the same, with a usage", || {
        let said = roles(&merged);
        let known = said.iter().all(|role| role["usage"].is_number());
        (known && said.len() == 2 && said == roles(&apart)).then_some(said)
    });
    assert_eq!(said[0]["role"], "decode");
    assert_eq!(said[0]["capacity"], 2_581_504);
    assert_eq!(said[1]["role"], "prefill");

    router.remove(decode);
    eventually("decode is unknown, and prefill is not in its place", || {
        let said = roles(&merged);
        let is = said[0]["unknown"] == "absent" && said[1]["usage"].is_number();
        is.then_some(())
    });
    assert!(
        get(merged.listen, "/v1/models")
            .head
            .get("x-kv-usage")
            .is_none()
    );
}
