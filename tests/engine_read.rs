//! From a page to a reading: SGLang's own pages, cases from public reports, and what no page may do.

#![allow(clippy::expect_used, clippy::panic)] // Tests may.

use kvgauge::engine::{self, SourceReading, aggregate};
use kvgauge::exposition::{Format, Limits, Page, Prepared, merge};
use kvgauge::kv::{Pool, PoolKind, Reading, Role, Roles, Unknown};
use proptest::prelude::*;
use std::path::PathBuf;

fn shared(path: &str) -> PathBuf {
    let root = std::env::var_os("KVGAUGE_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")),
        PathBuf::from,
    );
    root.join(path)
}

fn text(path: &str) -> String {
    let path = shared(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(text: &str) -> Reading {
    let limits = Limits {
        max_series: 1_000_000,
        max_label_bytes: 16 * 1024,
        max_families: 100_000,
    };
    let page = Page::read(text.as_bytes(), &limits).expect("a readable page");
    engine::read(&page)
}

fn exposition(name: &str) -> Reading {
    read(&text(&format!("expositions/{name}.prom")))
}

fn case(name: &str) -> Reading {
    read(&text(&format!("cases/{name}.prom")))
}

/// The only pool of a reading.
fn only(reading: &Reading) -> &Pool {
    assert_eq!(reading.pools.len(), 1, "{reading:?}");
    &reading.pools[0]
}

fn four_places(usage: Result<f64, Unknown>) -> String {
    usage.map_or_else(|why| why.to_string(), |usage| format!("{usage:.4}"))
}

const FULL: Option<u64> = Some(2_581_504);

#[test]
fn fill_counts_the_evictable_cache_and_usage_does_not() {
    let reading = exposition("sglang-0.5.23-decode-tp4-busy");
    let fill = only(&reading).fill.expect("fill");
    assert_eq!(format!("{fill:.4}"), "0.0284");
    // After use the pool of an idle engine is full of cache, and nothing presses.
    let reading = exposition("sglang-0.5.23-unified-tp1-cpu-real-idle");
    let fill = only(&reading).fill.expect("fill");
    assert_eq!(format!("{fill:.4}"), "0.9987");
    // Of the sliding window where that is the fullest: (4096 + 175616) / 206528.
    let reading = exposition("sglang-0.5.23-unified-swa-busy");
    let fill = only(&reading).fill.expect("fill");
    assert_eq!(format!("{fill:.4}"), "0.8702");
    // 0.5.10 does not say.
    assert_eq!(
        only(&exposition("sglang-0.5.10-decode-tp4-busy")).fill,
        None
    );
}

#[test]
fn the_hit_rate_is_known_on_prefill_and_unknown_on_decode() {
    let prefill = exposition("sglang-0.5.23-prefill-tp4-busy");
    assert_eq!(only(&prefill).hit_rate, Some(0.182));
    let decode = exposition("sglang-0.5.23-decode-tp4-busy");
    assert_eq!(only(&decode).hit_rate, None);
    assert!(!decode.chosen.iter().any(|(value, _)| *value == "hit_rate"));
}

#[test]
fn the_sliding_window_pool_gives_every_value_and_is_named() {
    let reading = exposition("sglang-0.5.23-unified-swa-busy");
    assert_eq!(only(&reading).kind, PoolKind::Swa);
    for (value, metric) in [
        ("usage", "swa_token_usage"),
        ("used", "swa_used_tokens"),
        ("capacity", "max_total_num_tokens_swa"),
    ] {
        assert!(
            reading.chosen.contains(&(value, metric.into())),
            "{value} {:?}",
            reading.chosen
        );
    }
}

#[test]
fn tokens_of_the_larger_pool_are_taken_only_where_it_is_known_which_it_is() {
    // Without `swa_used_tokens`: more than the full pool holds, so they are the window's.
    let page = text("expositions/sglang-0.5.23-unified-swa-busy.prom");
    let page: String = page
        .lines()
        .filter(|line| !line.contains("swa_used_tokens"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let reading = read(&page);
    assert_eq!(only(&reading).used, Some(175_616));
    assert!(reading.chosen.contains(&("used", "num_used_tokens".into())));

    // The full pool is fuller, but the tokens may be the window's.
    let reading = read(
        "sglang:full_token_usage 0.9\nsglang:swa_token_usage 0.5\nsglang:token_usage 0.9\n\
         sglang:num_used_tokens 100\nsglang:max_total_num_tokens 1000\n",
    );
    let pool = only(&reading);
    assert_eq!((pool.kind, pool.usage), (PoolKind::Full, Ok(0.9)));
    assert_eq!((pool.used, pool.capacity), (None, Some(1000)));
}

#[test]
fn each_value_says_which_metric_gave_it() {
    let chosen = |file| exposition(file).chosen;
    let usage = |file| {
        chosen(file)
            .into_iter()
            .filter(|(value, _)| *value == "usage")
            .map(|(_, metric)| metric)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        usage("sglang-0.5.23-decode-tp4-busy"),
        ["kv_used_tokens / max_total_num_tokens"]
    );
    assert_eq!(usage("sglang-0.5.10-decode-tp4-busy"), ["full_token_usage"]);
    assert_eq!(usage("sglang-0.5.5-decode-tp4-busy"), ["token_usage"]);
    assert_eq!(usage("sglang-0.4.6-unified-busy"), ["token_usage"]);
    assert!(
        chosen("sglang-0.5.10-prefill-tp4-busy")
            .contains(&("bootstrap", "num_prefill_prealloc_queue_reqs".into()))
    );
    assert!(
        chosen("sglang-0.5.23-prefill-tp4-busy")
            .contains(&("bootstrap", "num_prefill_bootstrap_queue_reqs".into()))
    );
    // An engine that has none of the usage gauges yet has none to name.
    assert_eq!(
        chosen("sglang-0.5.23-decode-tp4-fresh"),
        [("capacity", "max_total_num_tokens".into())]
    );
    assert_eq!(
        chosen("sglang-0.5.10-decode-tp4-fresh"),
        [("capacity", "cache_config_info".into())]
    );
}

#[test]
fn pages_and_page_size_give_the_capacity_where_no_gauge_does() {
    let page: String = text("expositions/sglang-0.5.23-decode-tp4-busy.prom")
        .lines()
        .filter(|line| !line.starts_with("sglang:max_total_num_tokens"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let reading = read(&page);
    assert_eq!(only(&reading).capacity, FULL);
    assert_eq!(four_places(only(&reading).usage), "0.0047");
    assert!(
        reading
            .chosen
            .contains(&("capacity", "page_size * num_pages".into()))
    );
}

#[test]
fn without_any_share_tokens_over_capacity_are_one_where_they_are_of_one_pool() {
    let page = |used: u32, more: &str| {
        read(&format!(
            "sglang:num_used_tokens {used}\nsglang:max_total_num_tokens 1000\n{more}"
        ))
    };
    let plain = page(250, "");
    assert_eq!(
        (only(&plain).usage, only(&plain).used),
        (Ok(0.25), Some(250))
    );
    let far = page(2000, "");
    assert_eq!(only(&far).usage, Err(Unknown::Invalid));
    // With a sliding window they may be its tokens, and the capacity is the other pool's.
    let hybrid = page(250, "sglang:max_total_num_tokens_swa 300\n");
    assert_eq!(only(&hybrid).usage, Err(Unknown::Absent));
    assert_eq!(only(&hybrid).capacity, Some(1000));
}

/// 0.5.10's page with other usages on it.
fn page_0_5_10(token_usage: &str, full: &str, swa: &str, used: &str) -> String {
    text("expositions/sglang-0.5.10-decode-tp4-busy.prom")
        .lines()
        .map(|line| {
            let value = match line.split('{').next() {
                Some("sglang:token_usage") => token_usage,
                Some("sglang:full_token_usage") => full,
                Some("sglang:swa_token_usage") => swa,
                Some("sglang:num_used_tokens") => used,
                _ => return format!("{line}\n"),
            };
            let (series, _) = line.rsplit_once(' ').expect("a sample");
            format!("{series} {value}\n")
        })
        .collect()
}

#[test]
fn in_0_5_10_a_full_gauge_that_stands_above_the_headline_is_left_from_a_busier_moment() {
    for (token_usage, full, swa, used, want) in [
        // Idle: the exact gauge still says what it was, the headline and the tokens are right.
        (
            "0.0",
            "0.73",
            "0.0",
            "0.0",
            ("0.0000", PoolKind::Full, Some(0), "token_usage"),
        ),
        (
            "0.11",
            "0.73",
            "0.0",
            "283965",
            ("0.1100", PoolKind::Full, Some(283_965), "token_usage"),
        ),
        // Rounded, not stuck: the exact one counts.
        (
            "0.73",
            "0.7349",
            "0.0",
            "1897147",
            (
                "0.7349",
                PoolKind::Full,
                Some(1_897_147),
                "full_token_usage",
            ),
        ),
        (
            "0.0",
            "0.0047",
            "0.0",
            "12034",
            ("0.0047", PoolKind::Full, Some(12_034), "full_token_usage"),
        ),
        // Stuck, by less than the rounding: nothing is used, so it can't be what it says. The same of a
        // sliding window.
        (
            "0.0",
            "0.0047",
            "0.0",
            "0.0",
            ("0.0000", PoolKind::Full, Some(0), "token_usage"),
        ),
        (
            "0.0",
            "0.0",
            "0.0031",
            "0.0",
            ("0.0000", PoolKind::Full, Some(0), "full_token_usage"),
        ),
        // Stuck, and the headline is the sliding window's.
        (
            "0.35",
            "0.73",
            "0.352",
            "999",
            ("0.3520", PoolKind::Swa, None, "swa_token_usage"),
        ),
    ] {
        let reading = read(&page_0_5_10(token_usage, full, swa, used));
        let pool = only(&reading);
        let from = reading.chosen.iter().find(|(value, _)| *value == "usage");
        assert_eq!(
            (
                four_places(pool.usage).as_str(),
                pool.kind,
                pool.used,
                &*from.expect("usage").1
            ),
            want,
            "token_usage {token_usage}, full {full}, swa {swa}"
        );
    }
}

#[test]
fn with_exact_tokens_the_rounded_headline_never_counts() {
    // As `kv_used_tokens` is never stuck, a lower headline is no reason to distrust it.
    let reading = read(
        "sglang:kv_used_tokens 500\nsglang:max_total_num_tokens 1000\n\
         sglang:full_token_usage 0.7\nsglang:token_usage 0.4\n",
    );
    assert_eq!(only(&reading).usage, Ok(0.5));
}

#[test]
fn in_0_5_5_the_headline_stands_for_the_full_pool_unless_it_is_the_windows() {
    for (headline, swa, want) in [
        (0.0047, 0.0, (0.0047, PoolKind::Full)),
        (0.0047, 0.0001, (0.0047, PoolKind::Full)),
        (0.0, 0.0, (0.0, PoolKind::Full)),
        (0.85, 0.8503, (0.8503, PoolKind::Swa)),
        (0.85, 0.8478, (0.8478, PoolKind::Swa)),
        (0.8503, 0.8503, (0.8503, PoolKind::Swa)),
        (0.85, 0.4, (0.85, PoolKind::Full)),
    ] {
        let reading = read(&format!(
            "sglang:token_usage {headline}\nsglang:swa_token_usage {swa}\nsglang:mamba_usage 0\n"
        ));
        let pool = only(&reading);
        assert_eq!(
            (pool.usage, pool.kind),
            (Ok(want.0), want.1),
            "{headline} {swa}"
        );
    }
}

#[test]
fn a_headline_above_every_kind_is_a_kind_without_a_gauge() {
    let page = text("expositions/sglang-0.5.23-unified-tp1-busy.prom");
    let page: String = page
        .lines()
        .map(|line| match line.rsplit_once(' ') {
            Some((series, _)) if series.starts_with("sglang:token_usage{") => {
                format!("{series} 0.97\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let reading = read(&page);
    let pool = only(&reading);
    assert_eq!((pool.kind, pool.usage), (PoolKind::Other, Ok(0.97)));
    assert_eq!((pool.used, pool.capacity), (None, None));
}

#[test]
fn the_real_servers_gauges_agree_with_their_loads_within_the_lag() {
    for file in [
        "sglang-0.5.23-unified-tp1-cpu-real-busy",
        "sglang-0.5.23-unified-tp2-cpu-real-busy",
        "sglang-0.5.23-decode-tp2-cpu-real-busy",
    ] {
        let loads: serde_json::Value =
            serde_json::from_str(&text(&format!("expositions/{file}.v1_loads.json")))
                .expect("JSON");
        let load = &loads["loads"][0];
        let reading = exposition(file);
        let pool = only(&reading);
        assert_eq!(
            pool.capacity,
            load["max_total_num_tokens"].as_u64(),
            "{file}"
        );
        assert_eq!(pool.running, load["num_running_reqs"].as_u64(), "{file}");
        assert_eq!(pool.queued, load["num_waiting_reqs"].as_u64(), "{file}");
        let newer = load["token_usage"].as_f64().expect("usage");
        let usage = pool.usage.expect("usage");
        assert!(
            (newer - usage).abs() < 0.05,
            "{file}: {usage}, later {newer}"
        );
    }
}

#[test]
fn b13_a_gauge_without_a_sample_is_unknown_and_a_sample_of_0_is_0() {
    let prefill = case("b13-p");
    let pool = only(&prefill);
    assert_eq!(prefill.engine.as_deref(), Some("sglang"));
    assert_eq!(pool.usage, Err(Unknown::Absent));
    assert_eq!((pool.used, pool.fill, pool.running), (None, None, Some(0)));
    assert_eq!(only(&case("b13-d")).usage, Ok(0.37));

    let later = format!(
        "{}sglang:token_usage{{model_name=\"m-a\"}} 0.0\n",
        text("cases/b13-p.prom")
    );
    assert_eq!(only(&read(&later)).usage, Ok(0.0));
}

#[test]
fn b14_a_frozen_gauge_is_taken_as_it_stands() {
    let reading = case("b14");
    let pool = only(&reading);
    assert_eq!((pool.usage, pool.running), (Ok(0.11), Some(0)));
}

#[test]
fn b16_two_models_are_two_pools() {
    let reading = case("b16-models");
    let pools: Vec<_> = reading
        .pools
        .iter()
        .map(|pool| (pool.model.as_deref(), pool.usage))
        .collect();
    assert_eq!(
        pools,
        [(Some("m-a"), Ok(0.20)), (Some("org/m-b"), Ok(0.80))]
    );
}

#[test]
fn b17_of_several_processes_the_one_that_knows_counts() {
    let page: String = [67, 63, 61, 65, 62, 66, 64, 68]
        .into_iter()
        .map(|pid| {
            let usage = if pid == 65 { 0.47 } else { 0.0 };
            format!("sglang:token_usage{{model_name=\"m-a\",pid=\"{pid}\"}} {usage}\n")
        })
        .collect();
    assert_eq!(only(&read(&page)).usage, Ok(0.47));
}

#[test]
fn b18_the_role_is_the_kv_gauges_and_not_the_counters() {
    let reading = case("b18");
    assert_eq!(reading.role, Some(Role::Decode));
    assert_eq!(only(&reading).usage, Ok(0.52));
    // Nor that of requests, where the KV gauges name one.
    let reading = read(
        "sglang:num_running_reqs{engine_type=\"unified\"} 1\n\
         sglang:token_usage{engine_type=\"prefill\"} 0.1\n",
    );
    assert_eq!(reading.role, Some(Role::Prefill));
    // One that changes does both, by turns.
    let dynamic = "sglang:token_usage{engine_type=\"dynamic\",tp_rank=\"0\"} 0.1\n";
    let reading = read(dynamic);
    assert_eq!(
        (reading.role, reading.passed_over),
        (Some(Role::Unified), Vec::new())
    );
    // Beside another one it is a role of its own.
    let decode = "sglang:token_usage{engine_type=\"decode\",tp_rank=\"0\"} 0.5\n";
    let roles = read(&format!("{dynamic}{decode}")).roles();
    assert_eq!(
        roles.iter().collect::<Vec<_>>(),
        [Role::Decode, Role::Unified]
    );
    // Of a word that is none, it is told which; of several the first, and not all of a long one.
    let long = "x".repeat(1000);
    let reading = read(&format!(
        "sglang:token_usage{{engine_type=\"{long}\"}} 0.1\n\
         sglang:token_usage{{engine_type=\"encode\\n\"}} 0.1\n"
    ));
    assert_eq!((reading.role, reading.roles()), (None, Roles::default()));
    let word = "engine_type=\"encode\\n\"".into();
    let told = ("role", word, "is no role that is known here");
    assert_eq!(reading.passed_over, [told]);
}

/// A router's page of three 0.5.10 engines: the fresh one shows its capacity alone, and each its own.
#[test]
fn engines_that_a_router_merged_keep_their_capacities_and_roles_apart() {
    let worker = |port: u32, pages: u32, role: &str, usage: f64| {
        let at = format!("worker_addr=\"http://127.0.0.1:{port}\"");
        let mut text =
            format!("sglang_cache_config_info{{num_pages=\"{pages}\",page_size=\"64\",{at}}} 1\n");
        if !role.is_empty() {
            text += &format!(
                "sglang_token_usage{{engine_type=\"{role}\",model_name=\"m\",{at}}} {usage}\n"
            );
        }
        text
    };
    let text = worker(1, 100, "decode", 0.5) + &worker(2, 300, "prefill", 0.1);
    let reading = read(&(text + &worker(3, 200, "", 0.0)));
    let pools: Vec<_> = reading
        .pools
        .iter()
        .map(|p| (p.rank.as_deref(), p.role, p.usage, p.capacity))
        .collect();
    let absent = Err(Unknown::Absent);
    assert_eq!(
        pools,
        [
            (Some("http://127.0.0.1:3"), None, absent, Some(12_800)),
            (
                Some("http://127.0.0.1:1"),
                Some(Role::Decode),
                Ok(0.5),
                Some(6_400)
            ),
            (
                Some("http://127.0.0.1:2"),
                Some(Role::Prefill),
                Ok(0.1),
                Some(19_200)
            ),
        ]
    );
    assert_eq!(reading.role, None);
}

/// Two engines that write into one directory of metrics show both on each one's page.
#[test]
fn engines_of_two_roles_on_one_page_are_two_pools() {
    let engine = |role: &str, used: u32, capacity: u32| {
        let labels = format!("{{engine_type=\"{role}\",model_name=\"m\",tp_rank=\"0\"}}");
        format!(
            "sglang:kv_used_tokens{labels} {used}\nsglang:max_total_num_tokens{labels} {capacity}\n\
             sglang:num_running_reqs{labels} {used}\nsglang:cache_hit_rate{labels} 0.5\n"
        )
    };
    let reading = read(&(engine("prefill", 1, 4) + &engine("decode", 9, 10)));
    let pools: Vec<_> = reading
        .pools
        .iter()
        .map(|p| (p.role, p.usage, p.capacity, p.running, p.hit_rate))
        .collect();
    assert_eq!(
        pools,
        [
            (Some(Role::Decode), Ok(0.9), Some(10), Some(9), None),
            (Some(Role::Prefill), Ok(0.25), Some(4), Some(1), Some(0.5)),
        ]
    );
    assert_eq!((reading.role, reading.roles().len()), (None, 2));
}

#[test]
fn b21_nothing_of_nothing_is_unknown_and_a_little_over_one_is_one() {
    let zero = case("b21-zero");
    let pool = only(&zero);
    assert_eq!(pool.usage, Err(Unknown::Absent));
    assert_eq!((pool.used, pool.capacity, pool.fill), (None, None, None));
    assert_eq!(zero.odd, [("zero_capacity", 1)]);

    let over = case("b21-over");
    assert_eq!(only(&over).usage, Ok(1.0));
    assert_eq!(over.odd, [("above_one", 1)]);
}

#[test]
fn b21_values_that_cannot_be_a_usage_are_unknown_and_counted() {
    for (value, reason) in [
        ("1.06", "far_above_one"),
        ("93", "far_above_one"),
        ("-0.1", "negative"),
        ("NaN", "nan"),
        ("+Inf", "infinite"),
        ("-Inf", "infinite"),
    ] {
        let reading = read(&format!(
            "sglang:token_usage{{tp_rank=\"0\"}} {value}\nsglang:num_running_reqs 3\n"
        ));
        assert_eq!(only(&reading).usage, Err(Unknown::Invalid), "{value}");
        assert_eq!(only(&reading).running, Some(3), "{value}");
        assert_eq!(reading.odd, [(reason, 1)], "{value}");
    }
    // Used over capacity is measured in the same way.
    let over = read("sglang:kv_used_tokens 1030\nsglang:max_total_num_tokens 1000\n");
    assert_eq!(
        (only(&over).usage, over.odd),
        (Ok(1.0), vec![("above_one", 1)])
    );
    let far = read("sglang:kv_used_tokens 1060\nsglang:max_total_num_tokens 1000\n");
    assert_eq!(only(&far).usage, Err(Unknown::Invalid));
    assert_eq!((only(&far).used, only(&far).capacity), (None, Some(1000)));
}

#[test]
fn b21_nothing_is_made_of_a_value_that_is_refused() {
    let page = |used: &str, more: &str| {
        read(&format!(
            "sglang:kv_used_tokens {used}\nsglang:kv_available_tokens 100\n\
             sglang:kv_evictable_tokens 200\nsglang:max_total_num_tokens 1000\n{more}"
        ))
    };
    let share = "sglang:full_token_usage 0.7\n";
    let fill = |reading: &Reading| only(reading).fill;
    assert_eq!(fill(&page("700", "")), Some(0.9));
    // More than fits: no usage, and no fill, which would be 0.96.
    let far = page("2400", "");
    assert_eq!(
        (only(&far).usage, fill(&far)),
        (Err(Unknown::Invalid), None)
    );
    // Where a share says the usage, the tokens are refused all the same.
    let beside = page("2400", share);
    let pool = only(&beside);
    assert_eq!((pool.usage, pool.used, pool.fill), (Ok(0.7), None, None));
    assert!(
        beside
            .passed_over
            .iter()
            .any(|(value, _, why)| *value == "fill" && why.starts_with("more than the capacity")),
        "{beside:?}"
    );
    assert_eq!(fill(&page("NaN", share)), None);
    // Whose fill it would be is not known where another pool may be fuller.
    let other = page("700", "sglang:mamba_usage NaN\n");
    assert_eq!(
        (only(&other).usage, fill(&other)),
        (Err(Unknown::Invalid), None)
    );
}

/// A sum without one of its parts is none.
#[test]
fn requests_of_a_process_that_says_nonsense_make_the_sum_unknown() {
    let page = |second: &str| {
        read(&format!(
            "sglang:token_usage 0.5\nsglang:num_running_reqs{{pid=\"1\"}} 3\n\
             sglang:num_running_reqs{{pid=\"2\"}} {second}\n"
        ))
    };
    assert_eq!(only(&page("4")).running, Some(7));
    let broken = page("-4");
    assert_eq!(
        (only(&broken).running, broken.odd),
        (None, vec![("negative", 1)])
    );
}

/// Mamba states are not counted in tokens, so no tokens used says nothing of them.
#[test]
fn no_tokens_used_does_not_empty_the_mamba_pool() {
    let reading = read(
        "sglang:token_usage 0.3\nsglang:full_token_usage 0.0047\nsglang:mamba_usage 0.3012\n\
         sglang:num_used_tokens 0\n",
    );
    let pool = only(&reading);
    assert_eq!((pool.usage, pool.kind), (Ok(0.3012), PoolKind::Mamba));
}

#[test]
fn a_broken_kind_is_covered_by_the_headline_or_makes_the_usage_unknown() {
    let kinds = "sglang:full_token_usage 0.2\nsglang:mamba_usage NaN\n";
    assert_eq!(only(&read(kinds)).usage, Err(Unknown::Invalid));
    let covered = read(&format!("{kinds}sglang:token_usage 0.91\n"));
    assert_eq!(only(&covered).usage, Ok(0.91));
    // One rank's bad value does not spoil the others'.
    let rank =
        read("sglang:token_usage{tp_rank=\"0\"} NaN\nsglang:token_usage{tp_rank=\"1\"} 0.3\n");
    assert_eq!((only(&rank).usage, rank.odd), (Ok(0.3), vec![("nan", 1)]));
}

/// A long queue for room asks for more than the pool holds; that is no fault of the page.
#[test]
fn what_is_waited_for_may_be_more_than_the_pool() {
    for (gauge, pending, odd) in [
        ("1.1397", Some(1.1397), vec![]),
        ("0.5", Some(0.5), vec![]),
        ("-0.1", None, vec![("negative", 1)]),
        ("NaN", None, vec![("nan", 1)]),
    ] {
        let reading = read(&format!(
            "sglang:token_usage 0.9\nsglang:pending_prealloc_token_usage {gauge}\n"
        ));
        assert_eq!(
            (only(&reading).pending, reading.odd),
            (pending, odd),
            "{gauge}"
        );
    }
}

#[test]
fn b22_the_fullest_kind_gives_the_usage_and_the_lora_pool_never() {
    let reading = case("b22");
    let pool = only(&reading);
    assert_eq!((pool.usage, pool.kind), (Ok(0.91), PoolKind::Mamba));
    assert_eq!(pool.pending, Some(0.05));
    assert_eq!((pool.used, pool.capacity), (None, None));

    let without = |metrics: &[&str]| -> String {
        text("cases/b22.prom")
            .lines()
            .filter(|line| {
                !metrics
                    .iter()
                    .any(|m| line.contains(&format!("sglang:{m}")))
            })
            .flat_map(|line| [line, "\n"])
            .collect()
    };
    // Without the headline the exact gauges say the same.
    assert_eq!(only(&read(&without(&["token_usage"]))).usage, Ok(0.91));
    // Without any, nothing stands in for them.
    let rest = read(&without(&[
        "token_usage",
        "full_token_usage",
        "swa_token_usage",
        "mamba_usage",
    ]));
    assert_eq!(only(&rest).usage, Err(Unknown::Absent));
}

#[test]
fn b50_both_spellings_are_read() {
    assert_eq!(only(&case("b50-colon")).usage, Ok(0.4));
    assert_eq!(only(&case("b50-under")).usage, Ok(0.5));
    // Where both are on one page, the engine's own.
    let both = read("sglang_token_usage 0.9\nsglang:token_usage 0.1\n");
    assert_eq!(only(&both).usage, Ok(0.1));
}

#[test]
fn more_pools_than_any_deployment_has_are_bounded_and_counted() {
    let page: String = (0..3000)
        .map(|rank| format!("sglang:token_usage{{dp_rank=\"{rank}\"}} 0.5\n"))
        .collect();
    let reading = read(&page);
    assert_eq!(reading.pools.len(), 1024);
    assert_eq!(reading.odd, [("too_many_pools", 1976)]);
}

/// The lines in another order, the same one each time for a seed.
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

const GAUGES: [&str; 31] = [
    "token_usage",
    "full_token_usage",
    "swa_token_usage",
    "mamba_usage",
    "kv_used_tokens",
    "kv_available_tokens",
    "kv_evictable_tokens",
    "num_used_tokens",
    "swa_used_tokens",
    "swa_available_tokens",
    "swa_evictable_tokens",
    "max_total_num_tokens",
    "max_total_num_tokens_swa",
    "page_size",
    "num_pages",
    "pending_prealloc_token_usage",
    "num_running_reqs",
    "num_prefill_prealloc_queue_reqs",
    "cache_hit_rate",
    "cache_config_info",
    "mamba_used_tokens",
    "mamba_available_tokens",
    "mamba_evictable_tokens",
    "num_queue_reqs",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
    "num_retracted_requests_total",
    "hicache_host_used_tokens",
    "hicache_host_total_tokens",
];

fn line() -> impl Strategy<Value = String> {
    let label = prop_oneof![
        Just("model_name"),
        Just("dp_rank"),
        Just("tp_rank"),
        Just("pid"),
        Just("priority"),
        Just("engine_type"),
        Just("worker_addr"),
        Just("page_size"),
        Just("num_pages"),
    ];
    let label_value = prop_oneof![
        Just(String::new()),
        Just("decode".to_owned()),
        Just("prefill".to_owned()),
        Just("dynamic".to_owned()),
        (0u8..3).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
    ];
    let value = prop_oneof![
        (0.0..1.2f64).prop_map(|v| v.to_string()),
        (0u32..5000).prop_map(|v| v.to_string()),
        any::<f64>().prop_map(|v| v.to_string()),
        Just("NaN".to_owned()),
        Just("-Inf".to_owned()),
        Just("-0".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just("9007199254740992".to_owned()),
        Just("1e300".to_owned()),
    ];
    (
        prop_oneof![9 => Just("sglang:"), 1 => Just("sglang_")],
        prop::sample::select(&GAUGES[..]),
        prop::collection::btree_map(label, label_value, 0..4),
        value,
    )
        .prop_map(|(prefix, gauge, labels, value)| {
            let labels: Vec<String> = labels
                .into_iter()
                .map(|(name, value)| format!("{name}=\"{value}\""))
                .collect();
            format!("{prefix}{gauge}{{{}}} {value}", labels.join(","))
        })
}

fn assert_sane(reading: &Reading) {
    let share = |value: Option<f64>| value.is_none_or(|v| (0.0..=1.0).contains(&v));
    for pool in &reading.pools {
        assert!(share(pool.usage.ok()), "{pool:?}");
        assert!(share(pool.fill) && share(pool.host), "{pool:?}");
        assert!(share(pool.hit_rate) && pool.pending.is_none_or(|v| v >= 0.0 && v.is_finite()));
        assert_ne!(pool.capacity, Some(0), "{pool:?}");
        assert!(pool.usage.is_ok() || pool.used.is_none(), "{pool:?}");
        if let (Some(used), Some(capacity)) = (pool.used, pool.capacity) {
            assert!(
                u128::from(used) * 100 <= u128::from(capacity) * 106,
                "{pool:?}"
            );
        }
    }
}

/// What the roles of a page say is made of its pools, each once, and of nothing else.
fn assert_whole(reading: &Reading) {
    let roles = reading.roles();
    let states = aggregate(&[SourceReading {
        roles,
        reading: Ok(reading),
        age: None,
    }]);
    let said: Roles = states.iter().map(|state| state.role).collect();
    assert_eq!(said, roles);
    let counted: usize = states.iter().map(|state| state.pools).sum();
    let known = reading.pools.iter().filter(|pool| {
        let role = pool.role.or(reading.role);
        pool.usage.is_ok() && role.is_some_and(|role| roles.hold(Some(role).into()))
    });
    assert_eq!(counted, known.count(), "{reading:?}{states:?}");
    for state in &states {
        assert!(
            state.max.unwrap_or(0.0) >= state.usage.unwrap_or(0.0),
            "{state:?}"
        );
        assert_eq!(state.usage.is_ok(), state.pools > 0, "{state:?}");
        assert!(state.usage.is_ok() || state.used.is_none(), "{state:?}");
        assert!(state.usage.is_ok() || state.missing.is_some(), "{state:?}");
        let of_role = |pool: &&Pool| pool.role.or(reading.role) == Some(state.role);
        let pools = || reading.pools.iter().filter(of_role);
        // A sum is never more than all that the pools say.
        let sum =
            |of: fn(&Pool) -> Option<u64>| pools().filter_map(of).map(u128::from).sum::<u128>();
        assert!(u128::from(state.used.unwrap_or(0)) <= sum(|p| p.used));
        assert!(u128::from(state.capacity.unwrap_or(0)) <= sum(|p| p.capacity));
        assert!(u128::from(state.running.unwrap_or(0)) <= sum(|p| p.running));
        assert!(u128::from(state.queued.unwrap_or(0)) <= sum(|p| p.queued));
    }
}

proptest! {
    #[test]
    fn any_gauges_give_shares_from_0_to_1_or_unknown(
        lines in prop::collection::vec(line(), 0..40),
        seed in any::<u64>(),
    ) {
        let page = lines.join("\n") + "\n";
        let reading = read(&page);
        assert_sane(&reading);
        assert_whole(&reading);
        prop_assert_eq!(read(&shuffled(&page, seed)), reading);
    }

    #[test]
    fn any_text_is_read_without_panic(text in any::<Vec<u8>>()) {
        let limits = Limits { max_series: 100, max_label_bytes: 1000, max_families: 100 };
        if let Ok(page) = Page::read(&text, &limits) {
            assert_sane(&engine::read(&page));
        }
    }
}

/// What is called KV state is all that a reading is made of: with nothing else on the page, every page
/// reads the same.
#[test]
fn the_families_with_kv_state_are_enough_for_every_reading() {
    let limits = Limits {
        max_series: 1_000_000,
        max_label_bytes: 16 * 1024,
        max_families: 100_000,
    };
    let mut compared = 0;
    for folder in ["expositions", "cases"] {
        for entry in std::fs::read_dir(shared(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|ext| ext != "prom") {
                continue;
            }
            let bytes = std::fs::read(&path).expect("a page");
            let Ok(page) = Page::read(&bytes, &limits) else {
                continue;
            };
            let whole = engine::read(&page);
            let kept = Prepared::filtered(&page, None, &engine::is_kv_family);
            let text = merge(&[&kept], 0, Format::CLASSIC).text;
            if whole.pools.is_empty() {
                continue;
            }
            let page = Page::read(&text, &limits).expect("a readable page");
            assert_eq!(engine::read(&page), whole, "{}", path.display());
            assert!(kept.family_count() < 60, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn a_family_without_kv_state_is_told_from_one_with_it() {
    for (name, is) in [
        ("sglang:token_usage", true),
        ("sglang_token_usage", true),
        ("sglang:max_total_num_tokens", true),
        ("sglang:num_running_reqs", true),
        ("sglang_num_decode_transfer_queue_reqs", true),
        ("sglang:cache_hit_rate", true),
        ("sglang:cache_config_info", true),
        ("sglang:num_retracted_reqs", true),
        ("sglang_num_retracted_requests_total", true),
        ("token_usage", false),
        ("sglang:token_usage_", false),
        ("sglang::token_usage", false),
        ("vllm:token_usage", false),
        ("sglang:time_to_first_token_seconds", false),
        ("sglang:gen_throughput", false),
        ("python_gc_collections_total", false),
        ("smg_router_requests_total", false),
        ("", false),
    ] {
        assert_eq!(engine::is_kv_family(name), is, "{name}");
    }
}
