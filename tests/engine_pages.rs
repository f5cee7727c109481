//! What every page of `data/expositions` must say, each value derived by hand from its samples.
//!
//! A row: file, engine and role, then the role's values, then each pool where there are several (or
//! no role to sum them up). What is not known is not there.

#![allow(clippy::expect_used, clippy::panic)] // Tests may.

use kvgauge::engine::{self, SourceReading};
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::{Pool, PoolKind, Queues, Reading, Role, Unknown};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/expositions"
    ))
}

fn text(name: &str) -> String {
    let path = folder().join(format!("{name}.prom"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn with_page<T>(text: &str, of: impl FnOnce(&Page<'_>) -> T) -> T {
    let limits = Limits {
        max_series: 1_000_000,
        max_label_bytes: 16 * 1024,
        max_families: 100_000,
    };
    of(&Page::read(text.as_bytes(), &limits).expect("a readable page"))
}

fn read(text: &str) -> Reading {
    with_page(text, engine::read)
}

/// Appends what is known.
fn known(out: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        let _ = write!(out, " {name}={value}");
    }
}

fn share(out: &mut String, name: &str, value: Option<f64>) {
    known(out, name, value.map(|value| format!("{value:.6}")));
}

fn usage(out: &mut String, usage: Result<f64, Unknown>) {
    share(out, "usage", usage.ok());
    known(out, "unknown", usage.err());
}

fn queues(out: &mut String, queues: &Queues) {
    for (name, value) in queues.iter() {
        known(out, name, value);
    }
}

fn pool(pool: &Pool) -> String {
    let mut out = String::new();
    known(&mut out, "rank", pool.rank.as_ref());
    usage(&mut out, pool.usage);
    known(&mut out, "used", pool.used);
    known(&mut out, "capacity", pool.capacity);
    share(&mut out, "fill", pool.fill);
    known(&mut out, "running", pool.running);
    known(&mut out, "queued", pool.queued);
    queues(&mut out, &pool.queues);
    share(&mut out, "hit", pool.hit_rate);
    known(&mut out, "preempted", pool.preempted);
    share(&mut out, "host", pool.host);
    out.trim_start().to_owned()
}

/// Everything a page says: engine and role; the role's values; each pool, where there are several or
/// one without a role.
fn said(reading: &Reading) -> String {
    let roles: Vec<&str> = reading.roles().iter().map(Role::as_str).collect();
    let mut out = format!(
        "{} {}",
        reading.engine.as_deref().unwrap_or("none"),
        if roles.is_empty() {
            "-".to_owned()
        } else {
            roles.join(",")
        }
    );
    let source = SourceReading {
        roles: reading.roles(),
        reading: Ok(reading),
        age: Some(Duration::ZERO),
    };
    for state in engine::aggregate(&[source]) {
        out.push_str("\n ");
        usage(&mut out, state.usage);
        share(&mut out, "max", state.max);
        share(&mut out, "fill", state.fill);
        known(&mut out, "used", state.used);
        known(&mut out, "capacity", state.capacity);
        if state.kind != PoolKind::Full {
            known(&mut out, "pool", Some(state.kind.as_str()));
        }
        known(&mut out, "running", state.running);
        known(&mut out, "queued", state.queued);
        queues(&mut out, &state.queues);
        share(&mut out, "hit", state.hit_rate);
        known(&mut out, "preempted", state.preempted);
    }
    if reading.pools.len() != 1 || reading.roles().is_empty() {
        for one in &reading.pools {
            let role = match one.role {
                Some(role) if roles.len() > 1 => format!("{role} "),
                _ => String::new(),
            };
            let _ = write!(out, "\n  - {role}{}", pool(one));
        }
    }
    for (reason, count) in &reading.odd {
        let _ = write!(out, "\n  odd {reason}={count}");
    }
    out
}

/// One line a page. How the numbers come about, where more than one page has them:
///
/// - SGLang busy: 12,034 of 2,581,504 tokens are 0.0046616, to six places 0.004662; with 61,248 that
///   may be evicted 73,282 are occupied, 0.028387 of the 2,581,504 (= 2,508,222 free + 61,248 + 12,034).
/// - SGLang fresh: no usage gauge, but the capacity.
/// - Hit rates are the gauge's (0.182 where numbers were fed in); a decode server's 0 is none.
/// - vLLM: 64 blocks of 128 tokens are 8,192 (`kv_cache_size_tokens`); one block is never handed out, so
///   full is 63 * 128 = 8,064.
#[rustfmt::skip] // A row is read across.
const PAGES: &[(&str, &str, &[&str], &[&str])] = &[
    // The gauge is a fraction, 0.42, and its `dynamo_component` is `prefill`. The frontend's 12 and 3
    // are of the only model. No `dynamo_component_total_blocks`, so no capacity.
    ("dynamo.facts", "dynamo prefill",
        &["usage=0.420000 max=0.420000 running=12 queued=3"], &[]),
    // Both KV gauges are gone from these builds.
    ("llamacpp-2025-no-kv-gauge.facts", "llamacpp unified",
        &["unknown=absent running=0 queued=0"], &[]),
    // 31,428 tokens; the capacity is on no page (31,428 / 0.491063 is not it: the ratio is rounded).
    ("llamacpp-fork-2025-08.facts", "llamacpp unified",
        &["usage=0.491063 max=0.491063 used=31428 running=0 queued=0"], &[]),
    // Queued: 1 in the engine and 0 in the API server.
    ("lmdeploy-0.18.0-busy", "lmdeploy unified",
        &["usage=0.371800 max=0.371800 running=3 queued=1 hit=0.182000"], &[]),
    ("lmdeploy-0.18.0-fresh", "lmdeploy unified",
        &["usage=0.000000 max=0.000000 running=0 queued=0 hit=0.000000"], &[]),
    // Neither capacity nor what fill is made of.
    ("sglang-0.4.6-unified-busy", "sglang unified",
        &["usage=0.004662 max=0.004662 used=12034 running=3 queued=0 hit=0.182000"], &[]),
    // Capacity with the first batch; `full_token_usage` is exact.
    ("sglang-0.5.10-decode-tp4-busy", "sglang decode",
        &["usage=0.004662 max=0.004662 used=12034 capacity=2581504 running=3 queued=0 prealloc=2 transfer=1"], &[]),
    // Only `cache_config_info`: 40,336 pages of 64 are 2,581,504. Nothing names a role yet.
    ("sglang-0.5.10-decode-tp4-fresh", "sglang -",
        &[], &["unknown=absent capacity=2581504"]),
    ("sglang-0.5.10-prefill-tp4-busy", "sglang prefill",
        &["usage=0.004662 max=0.004662 used=12034 capacity=2581504 running=3 queued=0 bootstrap=1 inflight=2 hit=0.182000"], &[]),
    // 12,034 + 9,120 + 0 + 310,112 = 331,266 of 4 * 645,376 = 2,581,504: 0.128323; the fullest is
    // 310,112 / 645,376. Occupied: 331,266 and 4,096 + 61,248 that may be evicted, 396,610.
    ("sglang-0.5.23-decode-dpattn4-busy", "sglang decode",
        &["usage=0.128323 max=0.480514 fill=0.153635 used=331266 capacity=2581504 running=49 queued=5 prealloc=0 transfer=0"],
        &[
            "rank=0 usage=0.018646 used=12034 capacity=645376 fill=0.018646 running=3 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0",
            "rank=1 usage=0.014131 used=9120 capacity=645376 fill=0.020478 running=2 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0",
            "rank=2 usage=0.000000 used=0 capacity=645376 fill=0.000000 running=0 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0",
            "rank=3 usage=0.480514 used=310112 capacity=645376 fill=0.575417 running=44 queued=5 bootstrap=0 inflight=0 prealloc=0 transfer=0",
        ]),
    // 3,615 / 16,384, nothing evictable.
    ("sglang-0.5.23-decode-tp2-cpu-real-busy", "sglang decode",
        &["usage=0.220642 max=0.220642 fill=0.220642 used=3615 capacity=16384 running=12 queued=0 prealloc=0 transfer=0"], &[]),
    ("sglang-0.5.23-decode-tp2-cpu-real-fresh", "sglang decode",
        &["unknown=absent capacity=16384"], &[]),
    // 16,384 of 16,384 are free.
    ("sglang-0.5.23-decode-tp2-cpu-real-idle", "sglang decode",
        &["usage=0.000000 max=0.000000 fill=0.000000 used=0 capacity=16384 running=0 queued=0 prealloc=0 transfer=0"], &[]),
    // Four ranks that repeat the same are one pool.
    ("sglang-0.5.23-decode-tp4-allranks-busy", "sglang decode",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 prealloc=2 transfer=1"], &[]),
    // Usage on one rank, capacity on four: 2,581,504 and not four times as much.
    ("sglang-0.5.23-decode-tp4-busy", "sglang decode",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 prealloc=2 transfer=1"], &[]),
    // The same with underscores in the samples' names.
    ("sglang-0.5.23-decode-tp4-busy.openmetrics", "sglang decode",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 prealloc=2 transfer=1"], &[]),
    ("sglang-0.5.23-decode-tp4-fresh", "sglang decode",
        &["unknown=absent capacity=2581504"], &[]),
    // 2,402,118 / 2,581,504; occupied are 20,992 more. Seven were retracted.
    ("sglang-0.5.23-decode-tp4-hot", "sglang decode",
        &["usage=0.930511 max=0.930511 fill=0.938643 used=2402118 capacity=2581504 running=311 queued=41 prealloc=17 transfer=6 preempted=7"], &[]),
    ("sglang-0.5.23-prefill-tp4-busy", "sglang prefill",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 bootstrap=1 inflight=2 hit=0.182000"], &[]),
    ("sglang-0.5.23-prefill-tp4-fresh", "sglang prefill",
        &["unknown=absent capacity=2581504"], &[]),
    // 12,034 + 401,664 = 413,698 of 2 * 2,581,504 = 5,163,008: 0.080127; the fullest is 401,664 of
    // 2,581,504. Occupied: 2 * 61,248 more, 536,194.
    ("sglang-0.5.23-unified-dp2-tp1-busy", "sglang unified",
        &["usage=0.080127 max=0.155593 fill=0.103853 used=413698 capacity=5163008 running=54 queued=0 hit=0.182000"],
        &[
            "rank=0 usage=0.004662 used=12034 capacity=2581504 fill=0.028387 running=3 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0 hit=0.182000",
            "rank=1 usage=0.155593 used=401664 capacity=2581504 fill=0.179319 running=51 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0 hit=0.182000",
        ]),
    // `priority=""` is the total, the others are parts of it; extra labels make no pools.
    ("sglang-0.5.23-unified-priority-extralabels-busy", "sglang unified",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 hit=0.182000"], &[]),
    // The sliding window is fuller (175,616 of 206,528) than the full pool (12,034 of 2,581,504), so all
    // values are its; occupied are 4,096 more, 179,712.
    ("sglang-0.5.23-unified-swa-busy", "sglang unified",
        &["usage=0.850325 max=0.850325 fill=0.870158 used=175616 capacity=206528 pool=swa running=3 queued=0 hit=0.182000"], &[]),
    ("sglang-0.5.23-unified-tp1-busy", "sglang unified",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 hit=0.182000"], &[]),
    ("sglang-0.5.23-unified-tp1-busy.openmetrics", "sglang unified",
        &["usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 hit=0.182000"], &[]),
    // 15,255 / 16,384, nothing evictable; 1 / 33.6 of the last batch were hits.
    ("sglang-0.5.23-unified-tp1-cpu-real-busy", "sglang unified",
        &["usage=0.931091 max=0.931091 fill=0.931091 used=15255 capacity=16384 running=22 queued=2 hit=0.029762"], &[]),
    ("sglang-0.5.23-unified-tp1-cpu-real-fresh", "sglang unified",
        &["unknown=absent capacity=16384"], &[]),
    // Nothing runs, and 16,362 of 16,384 tokens are cache: no pressure, all but full.
    ("sglang-0.5.23-unified-tp1-cpu-real-idle", "sglang unified",
        &["usage=0.000000 max=0.000000 fill=0.998657 used=0 capacity=16384 running=0 queued=0 hit=0.045045"], &[]),
    ("sglang-0.5.23-unified-tp1-fresh", "sglang unified",
        &["unknown=absent capacity=2581504"], &[]),
    ("sglang-0.5.23-unified-tp1-fresh.openmetrics", "sglang unified",
        &["unknown=absent capacity=2581504"], &[]),
    // What was used may be evicted now: 73,282.
    ("sglang-0.5.23-unified-tp1-idle-after", "sglang unified",
        &["usage=0.000000 max=0.000000 fill=0.028387 used=0 capacity=2581504 running=0 queued=0 hit=0.182000"], &[]),
    // 3,269 / 16,384; occupied are 33 more.
    ("sglang-0.5.23-unified-tp2-cpu-real-busy", "sglang unified",
        &["usage=0.199524 max=0.199524 fill=0.201538 used=3269 capacity=16384 running=10 queued=0 hit=0.000000"], &[]),
    // 3,752 / 16,384 are cache.
    ("sglang-0.5.23-unified-tp2-cpu-real-idle", "sglang unified",
        &["usage=0.000000 max=0.000000 fill=0.229004 used=0 capacity=16384 running=0 queued=0 hit=0.000000"], &[]),
    // 0.5.5 publishes no capacity.
    ("sglang-0.5.5-decode-tp4-busy", "sglang decode",
        &["usage=0.004662 max=0.004662 used=12034 running=3 queued=0 prealloc=2 transfer=1"], &[]),
    ("sglang-0.5.5-prefill-tp4-busy", "sglang prefill",
        &["usage=0.004662 max=0.004662 used=12034 running=3 queued=0 bootstrap=1 inflight=2 hit=0.182000"], &[]),
    // Routers are no engines.
    ("sglang-router-0.3.2-pd-after-traffic", "none -", &[], &[]),
    ("sglang-router-0.3.2-pd-before-traffic", "none -", &[], &[]),
    // What a router merged of three workers is their engines' page, of two roles. Decode: 12,034 +
    // 2,402,118 = 2,414,152 of 5,163,008; occupied are 73,282 + 2,423,110 of it. Only
    // one of them has a counter of retractions, so how many there were in all is not known.
    ("sglang-router-0.3.2-pd-engine_metrics", "sglang decode,prefill",
        &[
            "usage=0.467586 max=0.930511 fill=0.483515 used=2414152 capacity=5163008 running=314 queued=41 prealloc=19 transfer=7",
            "usage=0.004662 max=0.004662 fill=0.028387 used=12034 capacity=2581504 running=3 queued=0 bootstrap=1 inflight=2 hit=0.182000",
        ],
        &[
            "prefill rank=http://127.0.0.1:8211 usage=0.004662 used=12034 capacity=2581504 fill=0.028387 running=3 queued=0 bootstrap=1 inflight=2 prealloc=0 transfer=0 hit=0.182000",
            "decode rank=http://127.0.0.1:8221 usage=0.004662 used=12034 capacity=2581504 fill=0.028387 running=3 queued=0 bootstrap=0 inflight=0 prealloc=2 transfer=1",
            "decode rank=http://127.0.0.1:8222 usage=0.930511 used=2402118 capacity=2581504 fill=0.938643 running=311 queued=41 bootstrap=0 inflight=0 prealloc=17 transfer=6 preempted=7",
        ]),
    ("sglang-router-0.3.2-plain-after-traffic", "none -", &[], &[]),
    ("sglang-router-0.3.2-plain-before-traffic", "none -", &[], &[]),
    // A busy worker and an idle one: 12,034 of 5,163,008.
    ("sglang-router-0.3.2-plain-engine_metrics", "sglang unified",
        &["usage=0.002331 max=0.004662 fill=0.028387 used=12034 capacity=5163008 running=3 queued=0 hit=0.182000"],
        &[
            "rank=http://127.0.0.1:8201 usage=0.004662 used=12034 capacity=2581504 fill=0.028387 running=3 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0 hit=0.182000",
            "rank=http://127.0.0.1:8202 usage=0.000000 used=0 capacity=2581504 fill=0.028387 running=0 queued=0 bootstrap=0 inflight=0 prealloc=0 transfer=0 hit=0.182000",
        ]),
    ("sglang-router-0.3.2-plain-workers-down", "none -", &[], &[]),
    // A budget of 4,096 tokens, and no `tgi_batch_max_total_tokens` to measure it by.
    ("tgi.facts", "tgi unified", &["unknown=absent running=5 queued=3"], &[]),
    // 1 block of 6,239, of 64 tokens each: 64 of 399,296. 23.11 has no `waiting`.
    ("triton-trtllm-23.11.facts", "triton unified",
        &["usage=0.000160 max=0.000160 used=64 capacity=399296 running=1"], &[]),
    // 620 blocks of 1,000, of 32 tokens each.
    ("trtllm-serve.facts", "trtllm unified",
        &["usage=0.620000 max=0.620000 used=19840 capacity=32000 running=3 queued=0 hit=0.380000"], &[]),
    ("vllm-0.32.0-after-aborts", "vllm unified",
        &["usage=0.000000 max=0.000000 used=0 capacity=8192 running=0 queued=0 preempted=18"], &[]),
    // Two engines of which no gauge is there yet.
    ("vllm-0.32.0-dp2-fresh", "vllm unified",
        &["unknown=absent capacity=16384 preempted=0"],
        &[
            "rank=0 unknown=absent capacity=8192 preempted=0",
            "rank=1 unknown=absent capacity=8192 preempted=0",
        ]),
    // 28 of 63 blocks each: 28 * 128 = 3,584 tokens. `num_gpu_blocks` says 128, that is of both.
    ("vllm-0.32.0-dp2-loaded", "vllm unified",
        &["usage=0.444444 max=0.444444 used=7168 capacity=16384 running=14 queued=0 preempted=0"],
        &[
            "rank=0 usage=0.444444 used=3584 capacity=8192 running=7 queued=0 preempted=0",
            "rank=1 usage=0.444444 used=3584 capacity=8192 running=7 queued=0 preempted=0",
        ]),
    ("vllm-0.32.0-fresh", "vllm unified",
        &["usage=0.000000 max=0.000000 used=0 capacity=8192 running=0 queued=0 preempted=0"], &[]),
    ("vllm-0.32.0-idle", "vllm unified",
        &["usage=0.000000 max=0.000000 used=0 capacity=8192 running=0 queued=0 preempted=0"], &[]),
    ("vllm-0.32.0-loaded", "vllm unified",
        &["usage=1.000000 max=1.000000 used=8064 capacity=8192 running=9 queued=14 preempted=0"], &[]),
    ("vllm-router-0.1.17-after-traffic", "none -", &[], &[]),
    ("vllm-router-0.1.17-before-traffic", "none -", &[], &[]),
];

/// Every page, without `.prom`.
fn files() -> Vec<String> {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the expositions")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".prom").map(str::to_owned))
        .collect();
    files.sort();
    files
}

#[test]
fn every_page_says_what_its_samples_say() {
    for (file, of, role, pools) in PAGES {
        let mut wanted = (*of).to_owned();
        for state in *role {
            let _ = write!(wanted, "\n  {state}");
        }
        for pool in *pools {
            let _ = write!(wanted, "\n  - {pool}");
        }
        assert_eq!(said(&read(&text(file))), wanted, "{file}");
    }
}

#[test]
fn the_table_has_every_page() {
    let rows: Vec<&str> = PAGES.iter().map(|row| row.0).collect();
    assert_eq!(files(), rows);
}

/// There is no page of an idle 0.5.10, so it is made of the busy one, as that version's idle report
/// does it: all gauges renewed, `token_usage` rounded, but `full_token_usage` left at its last busy
/// value.
#[test]
fn an_idle_0_5_10_is_idle_though_its_exact_gauge_is_stuck() {
    // As the busy page left it (12,034 of 2,581,504 tokens), and busier.
    for left_at in ["0.00466", "0.93"] {
        let idle = idle_0_5_10(left_at);
        let reading = read(&idle);
        assert_eq!(
            said(&reading),
            "sglang decode\n  usage=0.000000 max=0.000000 used=0 capacity=2581504 running=0 queued=0 \
             prealloc=0 transfer=0"
        );
        let (value, metric) = ("usage", "full_token_usage");
        let stuck = (value, metric.into(), "left from a busier moment");
        assert!(reading.passed_over.contains(&stuck), "{reading:?}");
    }
}

fn idle_0_5_10(left_at: &str) -> String {
    text("sglang-0.5.10-decode-tp4-busy")
        .lines()
        .map(|line| {
            let renewed = [
                "sglang:token_usage{",
                "sglang:num_used_tokens{",
                "sglang:num_running_reqs{",
                "sglang:num_decode_prealloc_queue_reqs{",
                "sglang:num_decode_transfer_queue_reqs{",
            ]
            .iter()
            .any(|name| line.starts_with(name));
            match line.rsplit_once(' ') {
                Some((series, _)) if renewed => format!("{series} 0.0\n"),
                Some((series, _)) if series.starts_with("sglang:full_token_usage{") => {
                    format!("{series} {left_at}\n")
                }
                _ => format!("{line}\n"),
            }
        })
        .collect()
}

#[test]
fn a_page_is_claimed_by_one_engine_at_most() {
    for file in files() {
        with_page(&text(&file), |page| {
            let claimants: Vec<_> = engine::claimants(page).collect();
            let read = engine::read(page).engine;
            let read: Vec<_> = read.as_deref().into_iter().collect();
            assert_eq!(claimants, read, "{file}");
        });
    }
    // All of them are in the table, or in `engine_others.rs`.
    let mut names: Vec<_> = engine::names().collect();
    names.sort_unstable();
    let mut seen: Vec<_> = PAGES
        .iter()
        .filter_map(|row| row.1.split(' ').next())
        .filter(|name| *name != "none")
        .chain(["mindie", "nim"])
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(names, seen);
}

#[test]
fn the_engines_name_can_be_forced() {
    for file in files() {
        with_page(&text(&file), |page| {
            let reading = engine::read(page);
            if let Some(name) = &reading.engine {
                assert_eq!(
                    engine::read_as(name, page).as_ref(),
                    Some(&reading),
                    "{file}"
                );
            }
            // Taken for one that it isn't of, a page has nothing to say.
            for name in engine::names().filter(|name| Some(*name) != reading.engine.as_deref()) {
                let forced = engine::read_as(name, page).expect("an engine");
                assert_eq!(forced.engine.as_deref(), Some(name));
                assert_eq!(forced.pools, [], "{file} as {name}");
                assert_eq!((forced.odd, forced.fingerprint), (Vec::new(), None));
            }
            assert_eq!(engine::read_as("abacus", page), None);
        });
    }
}

/// The text with its lines in another order.
fn shuffled(text: &str, mut seed: u64) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    for i in (1..lines.len()).rev() {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let j = usize::try_from(seed >> 33).expect("31 bits") % (i + 1);
        lines.swap(i, j);
    }
    lines.join("\n") + "\n"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn the_order_of_lines_changes_no_reading(seed in any::<u64>()) {
        for file in files() {
            let page = text(&file);
            prop_assert_eq!(read(&shuffled(&page, seed)), read(&page), "{}", file);
        }
    }
}

/// A page moves with each read, since it counts them; the engine's gauges don't.
#[test]
fn reading_a_page_does_not_change_its_fingerprint_and_a_gauge_does() {
    for (file, gauge) in [
        ("sglang-0.5.23-decode-tp4-busy", "sglang:kv_used_tokens{"),
        ("vllm-0.32.0-loaded", "vllm:kv_cache_usage_perc{"),
        ("trtllm-serve.facts", "trtllm_kv_cache_used_blocks{"),
    ] {
        let page = text(file);
        let with = |name: &str, value: &str| -> String {
            page.lines()
                .map(|line| match line.rsplit_once(' ') {
                    Some((series, _)) if series.starts_with(name) => format!("{series} {value}\n"),
                    _ => format!("{line}\n"),
                })
                .collect()
        };
        let still = read(&page).fingerprint;
        assert!(still.is_some(), "{file}");
        let asked = with("sglang:http_requests_total{endpoint=\"/metrics\"", "241.0");
        assert_eq!(read(&asked).fingerprint, still, "{file}");
        assert_ne!(read(&with(gauge, "0.25")).fingerprint, still, "{file}");
    }
    assert_eq!(
        read(&text("vllm-router-0.1.17-after-traffic")).fingerprint,
        None
    );
}
