//! A page that holds engines of several roles, as a router merges it: each engine feeds its own role.
//!
//! The page is of a prefill engine (12,034 of 2,581,504 tokens) and of two decode engines (12,034 and
//! 2,402,118, so together 2,414,152 of 5,163,008).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use serde_json::Value;
use support::kvgauge::run;
use support::page::Behaviour;
use support::pools::pools;
use support::{Kvgauge, Page, Setup, Upstream, eventually, get, pool};

const MERGED: &str = "sglang-router-0.3.2-pd-engine_metrics";

fn front(source: &str, page: &Page) -> (Kvgauge, Upstream) {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .source(source, "", page)
        .start();
    kvgauge.until_up(source);
    (kvgauge, upstream)
}

/// The page without what it says of engines whose lines contain this.
fn without(text: &str) -> Behaviour {
    let path = format!("tests/data/expositions/{MERGED}.prom");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let page = std::fs::read_to_string(path).unwrap();
    let lines = page.lines().filter(|line| !line.contains(text));
    Behaviour::Text(lines.flat_map(|line| [line, "\n"]).collect())
}

/// What it says on standard output, and its exit code.
fn said(arguments: &[&str]) -> (String, i32) {
    let output = run(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.code().unwrap())
}

#[test]
fn every_engine_of_a_merged_page_feeds_its_own_role() {
    let page = Page::real(MERGED);
    let (kvgauge, _upstream) = front("engines", &page);
    let head = get(kvgauge.listen, "/").head;
    assert_eq!(head.get("x-kv-usage").as_deref(), Some("0.4676"));
    let roles: Vec<String> = pools(&head).into_iter().map(|member| member.role).collect();
    assert_eq!(roles, ["decode", "prefill"]);
    let (decode, prefill) = (pool(&head, "decode"), pool(&head, "prefill"));
    for (member, name, value) in [
        (&decode, "max", 0.931),
        (&decode, "used", 2_414_152.0),
        (&decode, "capacity", 5_163_008.0),
        (&decode, "running", 314.0),
        (&decode, "transfer", 7.0),
        (&prefill, "usage", 0.005),
        (&prefill, "used", 12_034.0),
        (&prefill, "running", 3.0),
        (&prefill, "bootstrap", 1.0),
    ] {
        assert_eq!(member.number(name), Some(value), "{} {name}", member.role);
    }
    assert_eq!(decode.number("missing"), None);
    let metrics = kvgauge.metrics();
    for (role, used) in [("decode", 2_414_152.0), ("prefill", 12_034.0)] {
        let labels = [("role", role), ("model", "/models/tiny")];
        let value = metrics.value("kvgauge_kv_used_tokens", &labels);
        assert_eq!(value, Some(used), "{role}");
    }
    let source: Value = get(kvgauge.admin, "/sources").json()["sources"][0].clone();
    assert_eq!(source["role"], Value::Null);
    assert_eq!(source["unknown"], Value::Null);
    let of_pools: Vec<_> = source["pools"].as_array().unwrap().iter().collect();
    let of_pools: Vec<_> = of_pools.iter().map(|p| p["role"].as_str()).collect();
    assert_eq!(of_pools, [Some("prefill"), Some("decode"), Some("decode")]);
}

/// The headline stays the decode engines', and is unknown: no prefill engine's stands in for it.
#[test]
fn a_role_whose_engines_have_left_a_merged_page_is_unknown() {
    let page = Page::real(MERGED);
    let (kvgauge, _upstream) = front("engines", &page);
    let until = |what: &str, is: &dyn Fn(&support::http::Head) -> bool| {
        eventually(what, || is(&get(kvgauge.listen, "/").head).then_some(()));
    };
    page.set(without("engine_type=\"decode\""));
    until("decode is unknown", &|head| {
        pool(head, "decode").unknown() == Some("absent")
            && pool(head, "prefill").number("used") == Some(12_034.0)
            && head.get("x-kv-usage").is_none()
    });
    page.set(without("engine_type=\"prefill\""));
    until("prefill is unknown", &|head| {
        pool(head, "prefill").unknown() == Some("absent")
            && head.get("x-kv-usage").as_deref() == Some("0.4676")
    });
    page.set(Behaviour::Refuse);
    until("both are gone", &|head| {
        ["decode", "prefill"].map(|role| pool(head, role).unknown() == Some("unreachable"))
            == [true; 2]
    });
}

#[test]
fn a_role_that_is_set_means_the_engines_of_that_role() {
    let page = Page::real(MERGED);
    for (role, used) in [("decode", 2_414_152.0), ("prefill", 12_034.0)] {
        let (kvgauge, _upstream) = front(role, &page);
        let head = get(kvgauge.listen, "/").head;
        assert_eq!(pools(&head).len(), 1);
        assert_eq!(pool(&head, role).number("used"), Some(used), "{role}");
    }
    let (kvgauge, _upstream) = front("unified", &page);
    let head = get(kvgauge.listen, "/").head;
    assert_eq!(pool(&head, "unified").unknown(), Some("absent"));
}

#[test]
fn status_says_a_line_for_each_role_of_a_merged_page() {
    let page = Page::real(MERGED);
    let decode = "decode   2,414,152 / 5,163,008 tokens  46.76% of 2 pools, the fullest 93.05% | \
                  running 314  queued 41  transfer 7  prealloc 19";
    let prefill = "prefill  12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  inflight 2  \
                   bootstrap 1";
    let want = (format!("{decode}\n{prefill}"), 0);
    assert_eq!(said(&["status", &page.url()]), want);
    let (kvgauge, _upstream) = front("engines", &page);
    assert_eq!(
        said(&["status", &format!("http://{}", kvgauge.admin)]),
        want
    );
    let (text, code) = said(&["status", &format!("prefill={}", page.url())]);
    assert_eq!((text, code), (prefill.to_owned(), 0));
}

#[test]
fn doctor_finds_nothing_wrong_with_a_merged_page_but_a_role_that_is_not_on_it() {
    let page = Page::real(MERGED);
    let (text, code) = said(&["doctor", &page.url()]);
    assert!(
        text.contains("engine sglang, roles decode and prefill as its page says"),
        "{text}"
    );
    assert!(
        text.contains("       prefill /models/tiny  12,034 / "),
        "{text}"
    );
    assert!(
        text.contains("       decode /models/tiny  2,414,152 / "),
        "{text}"
    );
    assert!(text.ends_with("Nothing is wrong."), "{text}");
    assert_eq!(code, 0);

    let (text, code) = said(&["doctor", &format!("decode={}", page.url())]);
    let line = "engine sglang, role decode as set; its page says decode and prefill";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("prefill /models/tiny"), "{text}");
    assert_eq!(code, 0);

    let (text, code) = said(&["doctor", &format!("unified={}", page.url())]);
    let lines = "       it is set as unified, but its page says decode and prefill\n       \
                 -> leave its role out, or set one of these\n";
    assert!(text.contains(lines), "{text}");
    assert_eq!(code, 1);
}
