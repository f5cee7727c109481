//! `docs/walkthrough.md`: its questions, asked of the demo that it is about; and that what it names exists.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::demo::Demo;
use support::wait::within;
use support::{Client, Samples};

/// Longer than the scenario takes to get there: only a failure takes that long.
const LIMIT: Duration = Duration::from_secs(50);

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

fn document() -> String {
    text("docs/walkthrough.md")
}

// === the answers ===

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// How full decode is, and who waits, as the document tells it of the role.
fn is_as_told(decode: &Value) {
    assert!(number(&decode["usage"]) < 0.6, "{decode}");
    assert!(number(&decode["max"]) > 0.9, "{decode}");
    assert_eq!(decode["pools"], 4);
    let queues = &decode["queues"];
    assert!(
        number(&queues["prealloc"]) > 4.0 * number(&decode["queued"]) + 4.0,
        "{decode}"
    );
}

fn role<'a>(roles: &'a Value, name: &str) -> &'a Value {
    let mut all = roles.as_array().unwrap().iter();
    all.find(|role| role["role"] == name).unwrap()
}

/// The first moment of `/kv/stream` that is so; each second brings one.
fn moment(demo: &Demo, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut client = Client::connect(demo.admin);
    client.send("GET /kv/stream HTTP/1.1\r\nHost: k\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    let start = Instant::now();
    let mut text = String::new();
    loop {
        let chunk = client.chunk().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some((event, rest)) = text.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            let moment: Option<Value> = data.map(|data| serde_json::from_str(data).unwrap());
            text = rest.to_owned();
            let Some(moment) = moment else { continue };
            if is(&moment) {
                return moment;
            }
            assert!(start.elapsed() < LIMIT, "not yet {what}: {moment:#}");
        }
    }
}

/// A series of the decode engine's, by rank.
fn by_rank(page: &Samples, name: &str) -> BTreeMap<String, f64> {
    let all = page.all(name, &[("source", "decode")]);
    let ranks = all
        .iter()
        .map(|one| (one.label("dp_rank").unwrap().to_owned(), one.value()));
    let ranks: BTreeMap<_, _> = ranks.collect();
    assert_eq!(ranks.len(), 4, "{name}: {ranks:?}");
    ranks
}

/// The rank with the largest value.
fn hottest(ranks: &BTreeMap<String, f64>) -> &str {
    let (rank, _) = ranks.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    rank
}

/// The end of the bucket in which a quantile of a histogram of kvgauge's lies.
fn quantile(page: &Samples, name: &str, quantile: f64) -> f64 {
    let count = page.value(&format!("{name}_count"), &[]).unwrap();
    let buckets = page.all(&format!("{name}_bucket"), &[]);
    let bucket = buckets.iter().find(|b| b.value() >= quantile * count);
    let end = bucket.unwrap().label("le").unwrap();
    end.parse().unwrap()
}

const TTFT: &str = "kvgauge_time_to_first_token_seconds";
const TPOT: &str = "kvgauge_time_per_output_token_seconds";

#[test]
fn kv_stream_and_metrics_answer_as_the_walk_through_tells() {
    let demo = Demo::start("hot-rank");

    // What the page and the terminal are fed with.
    let seen = moment(&demo, "hot, with a queue and slow first tokens", |moment| {
        let decode = moment["roles"].as_array().unwrap().iter();
        let decode = decode.into_iter().find(|role| role["role"] == "decode");
        let Some(decode) = decode else { return false };
        let above = |value: &Value, limit: f64| value.as_f64().is_some_and(|v| v > limit);
        let ttft = &moment["traffic"]["ttft_ms"];
        let slow = ttft["p50"].as_f64().map(|p50| 5.0 * p50);
        above(&decode["max"], 0.9)
            && above(&decode["queues"]["prealloc"], 12.0)
            && slow.is_some_and(|slow| above(&ttft["p99"], slow))
    });
    let decode = role(&seen["roles"], "decode");
    is_as_told(decode);
    // Which rank: the fullest comes first, and no other is near.
    let pools = seen["pools"].as_array().unwrap().iter();
    let pools: Vec<&Value> = pools.filter(|pool| pool["role"] == "decode").collect();
    assert_eq!(pools.len(), 4);
    assert_eq!(pools[0]["pool"], "rank 2");
    assert_eq!(pools[0]["usage"], decode["max"]);
    for pool in &pools[1..] {
        assert!(number(&pool["usage"]) < 0.6, "{pool}");
    }
    // Why: who waits for decode's KV waits at the prefill server as well, whose own pool has room.
    let prefill = role(&seen["roles"], "prefill");
    assert!(number(&prefill["queues"]["bootstrap"]) > 4.0, "{prefill}");
    assert!(number(&prefill["usage"]) < 0.6, "{prefill}");
    // It is waiting, and no slowness of the engine.
    let tpot = &seen["traffic"]["tpot_ms"];
    assert!(
        number(&tpot["p99"]) < 3.0 * number(&tpot["p50"]),
        "{tpot}: each token is slow, too"
    );

    // `/kv`, and `/sources` for the ranks.
    let hot = demo.until(LIMIT, "still hot at /kv", "decode", |role| {
        role["max"].as_f64().is_some_and(|max| max > 0.9)
    });
    is_as_told(&hot);
    let source = demo.source("decode");
    let ranks: BTreeMap<String, f64> = source["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| {
            let rank = pool["rank"].as_str().unwrap().to_owned();
            (rank, number(&pool["usage"]))
        })
        .collect();
    assert_eq!(hottest(&ranks), "2", "{ranks:?}");

    // `/metrics`: kvgauge's own series, and the engine's with their rank.
    let of_decode = [("role", "decode")];
    let page = within(LIMIT, "still hot on /metrics", || {
        let page = Samples::parse(&demo.get("/metrics").text());
        let max = page.value("kvgauge_kv_usage_max_ratio", &of_decode);
        max.is_some_and(|max| max > 0.9).then_some(page)
    });
    let usage = page.value("kvgauge_kv_usage_ratio", &of_decode).unwrap();
    assert!(usage < 0.6, "{usage}");
    let ranks = by_rank(&page, "sglang:token_usage");
    assert_eq!(hottest(&ranks), "2", "{ranks:?}");
    assert!(ranks["2"] > 0.85, "{ranks:?}");
    assert!(
        ranks
            .iter()
            .all(|(rank, usage)| rank == "2" || *usage < 0.6),
        "{ranks:?}"
    );
    let waiting = by_rank(&page, "sglang:num_decode_prealloc_queue_reqs");
    let elsewhere: f64 = waiting.values().sum::<f64>() - waiting["2"];
    assert!(waiting["2"] > 4.0 * elsewhere + 4.0, "{waiting:?}");
    let prealloc = [("role", "decode"), ("queue", "prealloc")];
    assert!(page.value("kvgauge_pd_requests", &prealloc).unwrap() > 4.0);
    let [p50, p99] = [0.5, 0.99].map(|q| quantile(&page, TTFT, q));
    assert!(p99 >= 5.0 * p50, "{p99} s, {p50} s");
    let [p50, p99] = [0.5, 0.99].map(|q| quantile(&page, TPOT, q));
    assert!(p99 <= 3.0 * p50, "{p99} s, {p50} s");

    // What the document says of them is what it shows, and what it names is there.
    let document = document();
    let shown = document.lines().find(|line| line.starts_with("{\"usage\""));
    let shown: Value = serde_json::from_str(shown.unwrap()).unwrap();
    is_as_told(&shown);
    for name in shown.as_object().unwrap().keys() {
        assert!(hot.get(name).is_some(), "no {name} at /kv");
    }
    let named = names(&document, &["kvgauge_", "sglang:"]);
    assert!(named.len() > 5, "{named:?}");
    for name in named {
        // What ends so is the beginning of several, for grep.
        let there = |one: &str| one == name || (name.ends_with('_') && one.starts_with(&name));
        assert!(
            page.0.iter().any(|sample| there(&sample.name)),
            "{name} is not on the page"
        );
    }
    let routes = document.split("http://127.0.0.1:30090").skip(1);
    let routes: Vec<&str> = routes
        .filter_map(|rest| rest.split(['`', ' ', '\n']).next())
        .collect();
    assert!(routes.len() > 5, "{routes:?}");
    for route in routes {
        assert_eq!(demo.get(route).status(), 200, "{route}");
    }
}

// === what it names ===

/// Words that begin so, each once.
fn names(document: &str, beginnings: &[&str]) -> Vec<String> {
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let words = document.split(part);
    let named = words.filter(|word| beginnings.iter().any(|start| word.starts_with(start)));
    let mut names: Vec<String> = named.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// Title and expressions of each panel.
fn panels() -> BTreeMap<String, Vec<String>> {
    let dashboard: Value = serde_json::from_str(&text("config/grafana/kvgauge.json")).unwrap();
    let mut panels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let expressions = panel["targets"].as_array().into_iter().flatten();
        let expressions = expressions.filter_map(|target| target["expr"].as_str());
        let title = panel["title"].as_str().unwrap().to_owned();
        let known = panels.entry(title).or_default();
        known.extend(expressions.map(str::to_owned));
    }
    panels
}

#[test]
fn its_expressions_are_those_of_the_panels_that_it_names() {
    let document = document();
    let panels = panels();
    let mut panel = None;
    let mut found = 0;
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some((_, rest)) = line.split_once("panel **") {
            let (title, _) = rest.split_once("**").unwrap();
            let expressions = panels.get(title);
            panel = Some(expressions.unwrap_or_else(|| panic!("no panel {title}")));
        }
        if line != "```promql" {
            continue;
        }
        let expression = lines.next().unwrap();
        assert_eq!(lines.next(), Some("```"), "{expression}");
        if expression.contains('$') {
            let of_panel = panel.unwrap();
            assert!(
                of_panel.iter().any(|one| one.contains(expression)),
                "{expression}\nis none of\n{of_panel:#?}"
            );
            found += 1;
        }
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn its_rules_alerts_and_pictures_exist() {
    let document = document();
    let rules = text("config/prometheus/kvgauge.rules.yml");
    let recorded = names(&document, &["role:"]);
    assert!(!recorded.is_empty());
    for name in recorded {
        assert!(rules.contains(&format!("record: {name}\n")), "{name}");
    }
    let alerts = text("config/prometheus/kvgauge.alerts.yml");
    let alarming = names(&document, &["KvCache", "KvPool"]);
    assert!(alarming.len() > 1);
    for name in alarming {
        assert!(alerts.contains(&format!("alert: {name}\n")), "{name}");
    }

    let pictures = document.split("](walkthrough-").skip(1);
    let shown: Vec<String> = pictures
        .map(|rest| format!("walkthrough-{}", rest.split(')').next().unwrap()))
        .collect();
    for picture in &shown {
        let file = std::fs::metadata(path("docs").join(picture));
        let size = file
            .unwrap_or_else(|error| panic!("{picture}: {error}"))
            .len();
        assert!(size < 150_000, "{picture} has {size} bytes");
    }
    for file in std::fs::read_dir(path("docs")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if name.starts_with("walkthrough-") {
            assert!(shown.contains(&name), "{name} is shown nowhere");
        }
    }
}
