//! The simulated engines' pages against real pages of SGLang 0.5.23: the same families, types and
//! label names, at rest and under load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use kvgauge::kv::Role;
use kvgauge::sim::{DataParallel, Engine, EngineConfig, Prefix, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// A family's type and the sets of label names of its series.
type Families = BTreeMap<String, (String, BTreeSet<Vec<String>>)>;

fn real(name: &str) -> String {
    let shared = std::env::var_os("KVGAUGE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data"),
        PathBuf::from,
    );
    let path = shared.join("expositions").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn families(page: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            current = name.to_owned();
            families.insert(current.clone(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.is_empty() && !line.starts_with('#') {
            let (kind, sets) = families.get_mut(&current).unwrap();
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(name.starts_with(current.as_str()), "{name} under {current}");
            let labels = line.split_once('{').map_or("", |(_, rest)| rest);
            let mut names: Vec<String> = labels
                .split("\",")
                .filter_map(|pair| pair.split_once("=\""))
                .map(|(name, _)| name.to_owned())
                .filter(|name| !(name == "le" && kind == "histogram"))
                .collect();
            names.sort();
            sets.insert(names);
        }
    }
    families
}

/// Compares, but for what the simulation leaves out, family by family, with the reason.
fn assert_same(simulated: &str, real: &str, left_out: &[(&str, &str)]) {
    let (mut simulated, mut real) = (families(simulated), families(real));
    for (name, why) in left_out {
        assert!(real.remove(*name).is_some(), "{name} is on no real page");
        assert!(
            simulated.remove(*name).is_none(),
            "{name} is there: no longer left out for {why}"
        );
    }
    let names = |families: &Families| families.keys().cloned().collect::<BTreeSet<_>>();
    let (ours, theirs) = (names(&simulated), names(&real));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let added: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "missing {missing:?}, added {added:?}"
    );
    for (name, family) in &real {
        assert_eq!(&simulated[name], family, "{name}");
    }
}

fn visited(engine: &mut Engine) {
    for path in ["/health", "/metrics", "/v1/models", "/server_info"] {
        engine.http_started("GET", path);
        engine.http_ended("GET", path, Some(200));
    }
}

fn fresh(role: Role) -> String {
    let mut engine = Engine::new(EngineConfig::new(role, "m"));
    engine.advance(Duration::from_secs(15));
    visited(&mut engine);
    engine.render()
}

/// One of many requests: streamed or whole by `kind`, with one of two prefixes.
fn asked(room: u64, kind: u64) -> Request {
    Request {
        prompt: 9_000,
        output: 60,
        prefix: Some(Prefix {
            key: kind % 2,
            tokens: 4_096,
        }),
        stream: !kind.is_multiple_of(3),
        room: Some(room),
        dp_rank: None,
    }
}

/// Everything that can be seen has happened: streamed and whole, prefix hits, evictions.
fn busy(role: Role) -> String {
    let mut engine = Engine::new(EngineConfig {
        capacity: 64_000,
        alone: true,
        // Off by default on decode engines; the real page was made with one.
        prefix_cache: true,
        ..EngineConfig::new(role, "m")
    });
    visited(&mut engine);
    for i in 0..40u64 {
        let now = Duration::from_millis(i * 500);
        engine.http_started("POST", "/v1/chat/completions");
        engine.submit(now, asked(i, i)).unwrap();
        engine.http_ended("POST", "/v1/chat/completions", Some(200));
    }
    engine.advance(Duration::from_secs(120));
    engine.render()
}

#[test]
fn a_fresh_decode_page_is_the_real_one() {
    let real = real("sglang-0.5.23-decode-tp4-fresh.prom");
    assert_same(&fresh(Role::Decode), &real, &[]);
}

#[test]
fn a_fresh_prefill_page_is_the_real_one() {
    let real = real("sglang-0.5.23-prefill-tp4-fresh.prom");
    assert_same(&fresh(Role::Prefill), &real, &[]);
}

#[test]
fn a_busy_decode_page_is_the_real_one() {
    let real = real("sglang-0.5.23-decode-tp4-busy.prom");
    assert_same(&busy(Role::Decode), &real, &[]);
}

#[test]
fn a_busy_prefill_page_is_the_real_one() {
    let real = real("sglang-0.5.23-prefill-tp4-busy.prom");
    let why = "a prefill engine makes one token, so there is no time between tokens";
    let left_out = [
        ("sglang:inter_token_latency_seconds", why),
        ("sglang:request_time_per_output_token_seconds", why),
    ];
    assert_same(&busy(Role::Prefill), &real, &left_out);
}

/// Data-parallel ranks of DP attention: their labels, and one server's counts of all of them.
#[test]
fn a_page_of_data_parallel_ranks_is_the_real_one() {
    let mut engine = DataParallel::new(EngineConfig {
        capacity: 64_000,
        dp_ranks: 4,
        alone: true,
        prefix_cache: true,
        ..EngineConfig::new(Role::Decode, "m")
    });
    for path in ["/health", "/metrics", "/v1/models", "/server_info"] {
        engine.http_started("GET", path);
        engine.http_ended("GET", path, Some(200));
    }
    for i in 0..160u64 {
        let now = Duration::from_millis(i * 125);
        engine.http_started("POST", "/v1/chat/completions");
        engine.submit(now, asked(i, i / 4)).unwrap();
        engine.http_ended("POST", "/v1/chat/completions", Some(200));
    }
    engine.advance(Duration::from_secs(120));
    let page = engine.render();
    assert_same(&page, &real("sglang-0.5.23-decode-dpattn4-busy.prom"), &[]);
    let values = |name: &str| {
        let of = |line: &&str| line.starts_with(&format!("sglang:{name}{{"));
        let mut lines: Vec<&str> = page.lines().filter(of).collect();
        lines.sort_unstable();
        lines
    };
    let capacities = values("max_total_num_tokens");
    assert_eq!(capacities.len(), 4);
    for (rank, line) in capacities.iter().enumerate() {
        assert_eq!(
            *line,
            format!(
                "sglang:max_total_num_tokens{{dp_rank=\"{rank}\",engine_type=\"decode\",model_name=\"m\",\
                 moe_ep_rank=\"{rank}\",pp_rank=\"0\",tp_rank=\"{rank}\"}} 64000.0"
            )
        );
    }
    let all: f64 = values("num_requests_total")
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(all, 160.0);
}

/// A decode engine whose requests outgrow what was set aside for them.
#[test]
fn a_page_with_retractions_is_the_real_one() {
    let mut engine = Engine::new(EngineConfig {
        capacity: 64_000,
        alone: true,
        prefix_cache: true,
        reserved_output: Some(64),
        ..EngineConfig::new(Role::Decode, "m")
    });
    visited(&mut engine);
    for i in 0..40u64 {
        let request = Request {
            output: 2_000,
            ..asked(i, i)
        };
        engine.http_started("POST", "/v1/chat/completions");
        engine.submit(Duration::from_millis(i), request).unwrap();
        engine.http_ended("POST", "/v1/chat/completions", Some(200));
    }
    engine.advance(Duration::from_secs(900));
    let page = engine.render();
    assert_same(&page, &real("sglang-0.5.23-decode-tp4-hot.prom"), &[]);
}

#[test]
fn usage_stands_on_rank_0_and_capacity_on_every_rank() {
    for role in [Role::Prefill, Role::Decode] {
        let page = busy(role);
        let series = |name: &str| {
            page.lines()
                .filter(|line| line.starts_with(&format!("sglang:{name}{{")))
                .count()
        };
        assert_eq!(series("max_total_num_tokens"), 4);
        for name in ["token_usage", "kv_used_tokens", "num_running_reqs"] {
            assert_eq!(series(name), 1, "{name}");
        }
    }
}

#[test]
fn histograms_have_the_real_buckets() {
    for (role, name) in [(Role::Decode, "decode"), (Role::Prefill, "prefill")] {
        let bounds = |page: &str| {
            let mut bounds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for line in page.lines().filter(|line| line.contains("_bucket{")) {
                let (name, rest) = line.split_once('{').unwrap();
                let le = rest.split("le=\"").nth(1).unwrap();
                let le = le.split('"').next().unwrap();
                bounds
                    .entry(name.to_owned())
                    .or_default()
                    .insert(le.to_owned());
            }
            bounds
        };
        let real = bounds(&real(&format!("sglang-0.5.23-{name}-tp4-busy.prom")));
        for (name, ours) in bounds(&busy(role)) {
            assert_eq!(ours, real[&name], "{name}");
        }
    }
}
