//! `kvgauge doctor` on a host with the real `sglang-router`: finds its workers, and warms up fresh
//! engines behind it with one request.

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
use serde_json::Value;
use std::net::SocketAddr;
use support::kvgauge::run;
use support::router::Router;
use support::tap::Tap;

fn doctor(arguments: &[&str]) -> (String, i32) {
    let mut all = vec!["doctor"];
    all.extend(arguments);
    let output = run(&all);
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().unwrap())
}

/// The completions that passed.
fn completions(tap: &Tap) -> Vec<Value> {
    let exchanges = tap.exchanges();
    let posts = exchanges.iter().filter(|e| e.request.method() == "POST");
    posts
        .map(|exchange| {
            assert_eq!(exchange.request.target(), "/v1/chat/completions");
            assert_eq!(exchange.answer.status(), 200);
            serde_json::from_slice(&exchange.request_body).unwrap()
        })
        .collect()
}

/// Settings in which the router says who its workers are.
fn settings(folder: &tempfile::TempDir, front: SocketAddr, router: &Router) -> String {
    let file = folder.path().join("kvgauge.toml");
    let text = format!(
        "upstream = \"http://{front}\"\n[discovery]\nworkers = \"http://{}\"\n\
         [[source]]\nname = \"router\"\nurl = \"{}\"\n",
        router.api,
        router.metrics_url()
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn fresh_engines_behind_the_real_router_are_found_and_have_their_gauges_after_the_warm_up() {
    let engines = Engines::with(&[Role::Prefill, Role::Decode], false);
    let router = Router::disaggregated(engines.address(0), engines.address(1), &[]);
    let tap = Tap::new(router.api);
    let folder = tempfile::tempdir().unwrap();
    let file = settings(&folder, tap.address(), &router);

    let (text, code) = doctor(&["--config", &file]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("discovery.workers"), "{text}");
    assert!(text.contains("found 2 pages"), "{text}");
    let fresh = "it has no KV usage yet: its gauges come with the first request";
    assert_eq!(text.matches(fresh).count(), 2, "{text}");
    assert!(
        text.ends_with("2 of 5 WRONG: see the arrows (->)."),
        "{text}"
    );
    assert!(completions(&tap).is_empty());

    let (text, code) = doctor(&["--config", &file, "--warmup"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("\n\nNothing is wrong."), "{text}");
    for role in ["prefill", "decode"] {
        let says = format!("engine sglang, role {role} as its page says");
        assert!(text.contains(&says), "{text}");
    }
    assert!(
        text.contains("usage      from kv_used_tokens / max_total_num_tokens"),
        "{text}"
    );
    let sent = completions(&tap);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0]["model"], MODEL);
    assert!(sent[0]["max_tokens"].as_u64().unwrap() <= 64, "{sent:?}");
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn nothing_is_sent_where_engines_behind_the_real_router_are_warm() {
    let engines = Engines::start(&[Role::Unified]);
    let router = Router::plain(&[engines.address(0)], &[]);
    let tap = Tap::new(router.api);
    let front = format!("http://{}", tap.address());
    let pages = [
        format!("router={}", router.metrics_url()),
        format!("one={}", engines.metrics_url(0)),
    ];
    let (text, code) = doctor(&["--warmup", "--upstream", &front, &pages[0], &pages[1]]);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("warm-up: nothing is sent"), "{text}");
    assert!(completions(&tap).is_empty());
}
