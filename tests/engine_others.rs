//! What no real page in `data/expositions` shows: other versions and forks of engines, engines of
//! which there is no page, odd values, and pages that are no engine's.

#![allow(clippy::expect_used, clippy::panic)] // Tests may.

use kvgauge::engine;
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::{Pool, Reading, Role, Unknown};
use proptest::prelude::*;
use std::path::Path;

fn with_page<T>(text: &str, of: impl FnOnce(&Page<'_>) -> T) -> T {
    let limits = Limits {
        max_series: 10_000,
        max_label_bytes: 16 * 1024,
        max_families: 10_000,
    };
    of(&Page::read(text.as_bytes(), &limits).expect("a readable page"))
}

fn read(text: &str) -> Reading {
    with_page(text, engine::read)
}

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path);
    std::fs::read_to_string(path).expect("a page")
}

fn only(reading: &Reading) -> &Pool {
    assert_eq!(reading.pools.len(), 1, "{reading:?}");
    &reading.pools[0]
}

fn usages(reading: &Reading) -> Vec<Result<f64, Unknown>> {
    reading.pools.iter().map(|pool| pool.usage).collect()
}

// === vLLM ===

#[test]
fn b15_old_and_new_names_are_read_and_no_other() {
    let old = read(&file("cases/b15-old.prom"));
    assert_eq!(
        (old.engine.as_deref(), only(&old).usage),
        (Some("vllm"), Ok(0.61))
    );
    assert_eq!(old.chosen, [("usage", "gpu_cache_usage_perc".into())]);
    let new = read(&file("cases/b15-new.prom"));
    assert_eq!(only(&new).usage, Ok(0.62));
    assert_eq!(new.chosen, [("usage", "kv_cache_usage_perc".into())]);
    let none = read(&file("cases/b15-none.prom"));
    assert_eq!(
        (none.engine.as_deref(), none.pools.len()),
        (Some("vllm"), 0)
    );
    assert_eq!(none.role, Some(Role::Unified));

    // Where both are, the newer; and it says so.
    let both = read("vllm:gpu_cache_usage_perc 0.3\nvllm:kv_cache_usage_perc 0.4\n");
    assert_eq!(only(&both).usage, Ok(0.4));
    assert_eq!(
        both.passed_over,
        [("usage", "gpu_cache_usage_perc".into(), "the older name")]
    );
}

#[test]
fn b16_every_data_parallel_engine_is_a_pool() {
    let reading = read(&file("cases/b16-dp.prom"));
    assert_eq!(usages(&reading), [Ok(0.90), Ok(0.10)]);
}

#[test]
fn b17_of_several_processes_shares_are_the_largest_and_requests_are_added() {
    let case = file("cases/b17.prom");
    assert_eq!(usages(&read(&case)), [Ok(0.47)]);
    let requests: String = [(61, 0), (62, 3), (63, 4)]
        .into_iter()
        .map(|(pid, n)| {
            format!(
                "vllm:num_requests_running{{engine=\"0\",model_name=\"m-a\",pid=\"{pid}\"}} {n}\n"
            )
        })
        .collect();
    let reading = read(&(case + &requests));
    assert_eq!(only(&reading).running, Some(7));

    // Ranks repeat each other: only the processes of one rank are added.
    let reading = read(
        "sglang:num_running_reqs{tp_rank=\"0\",pid=\"1\"} 2\n\
         sglang:num_running_reqs{tp_rank=\"0\",pid=\"2\"} 3\n\
         sglang:num_running_reqs{tp_rank=\"1\",pid=\"3\"} 5\n\
         sglang:num_running_reqs{tp_rank=\"1\",pid=\"4\"} NaN\n\
         sglang:num_running_reqs{tp_rank=\"0\",pid=\"2\"} 3\n",
    );
    assert_eq!(only(&reading).running, Some(5));
    assert_eq!(reading.odd, [("nan", 1)]);
}

const V0_INFO: &str = "vllm:cache_config_info{block_size=\"16\",num_cpu_blocks=\"2048\",\
    num_gpu_blocks=\"36464\",sliding_window=\"None\"} 1\n";

#[test]
fn vllm_v0_has_no_engine_label_and_a_hit_rate() {
    let reading = read(&format!(
        "{V0_INFO}vllm:gpu_cache_usage_perc{{model_name=\"m\"}} {}\n\
         vllm:cpu_cache_usage_perc{{model_name=\"m\"}} 0.25\n\
         vllm:gpu_prefix_cache_hit_rate{{model_name=\"m\"}} 0.5\n\
         vllm:num_requests_running{{model_name=\"m\"}} 7\n\
         vllm:num_requests_swapped{{model_name=\"m\"}} 1\n\
         vllm:num_requests_waiting{{model_name=\"m\"}} 2\n",
        9116.0 / 36_464.0
    ));
    let pool = only(&reading);
    assert_eq!(pool.usage, Ok(0.25));
    // 9,116 blocks of 16 of 36,464.
    assert_eq!((pool.used, pool.capacity), (Some(145_856), Some(583_424)));
    assert_eq!((pool.running, pool.queued), (Some(7), Some(2)));
    assert_eq!((pool.hit_rate, pool.host), (Some(0.5), Some(0.25)));
    // Without prefix caching it says -1: not kept, and nothing odd.
    let reading = read("vllm:gpu_cache_usage_perc 0.1\nvllm:gpu_prefix_cache_hit_rate -1\n");
    assert_eq!((only(&reading).hit_rate, reading.odd), (None, vec![]));
}

#[test]
fn vllms_blocks_are_no_capacity_where_they_may_be_others() {
    let gauge = "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n";
    let info = |labels: &str| {
        format!(
            "vllm:cache_config_info{{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"101\"{labels}}} 1\n"
        )
    };
    let plain = read(&(gauge.to_owned() + &info("")));
    assert_eq!(
        (only(&plain).used, only(&plain).capacity),
        (Some(800), Some(1616))
    );
    // A hybrid model.
    for labels in [",mamba_block_size=\"16\"", ",sliding_window=\"4096\""] {
        let hybrid = read(&(gauge.to_owned() + &info(labels)));
        let pool = only(&hybrid);
        assert_eq!(
            (pool.usage, pool.used, pool.capacity),
            (Ok(0.5), None, None)
        );
        assert!(
            hybrid.passed_over.contains(&(
                "capacity",
                "cache_config_info{num_gpu_blocks} * {block_size}".into(),
                "wrong for hybrid models"
            )),
            "{hybrid:?}"
        );
    }
    // A capacity of its own is right for it, but its blocks don't say what is used.
    let hybrid = read(
        &(gauge.to_owned() + &info(",mamba_block_size=\"16\",kv_cache_size_tokens=\"463459\"")),
    );
    assert_eq!(
        (only(&hybrid).used, only(&hybrid).capacity),
        (None, Some(463_459))
    );
    // Two engines: the blocks of both are counted.
    let second = "vllm:kv_cache_usage_perc{engine=\"1\"} 0.7\n\
        vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"101\"} 1\n";
    let both = gauge.to_owned() + &info("") + second;
    // One line that names none of them may be either's, or speak of both.
    let unnamed = "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n\
        vllm:kv_cache_usage_perc{engine=\"1\"} 0.7\n\
        vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"101\"} 1\n";
    for two in [read(&both), read(unnamed)] {
        assert_eq!(usages(&two), [Ok(0.5), Ok(0.7)]);
        assert!(
            two.pools.iter().all(|pool| pool.capacity.is_none()),
            "{two:?}"
        );
    }
}

#[test]
fn ascends_fork_is_read_and_its_negative_usage_is_unknown() {
    let good = read("vllm:npu_cache_usage_perc{model_name=\"m\"} 0.3\n");
    assert_eq!(
        (good.engine.as_deref(), only(&good).usage),
        (Some("vllm"), Ok(0.3))
    );
    let negative = read("vllm:kv_cache_usage_perc{engine=\"0\"} -0.02\n");
    assert_eq!(usages(&negative), [Err(Unknown::Invalid)]);
    assert_eq!(negative.odd, [("negative", 1)]);
}

#[test]
fn vllms_lifetime_counters_are_no_hit_rate() {
    let reading = read(
        "vllm:kv_cache_usage_perc 0.1\nvllm:prefix_cache_hits_total 50\n\
         vllm:prefix_cache_queries_total 100\n",
    );
    assert_eq!(only(&reading).hit_rate, None);
    assert!(
        reading
            .passed_over
            .iter()
            .any(|p| p.0 == "hit_rate" && p.1 == "prefix_cache_hits_total"),
        "{reading:?}"
    );
}

#[test]
fn both_spellings_are_read_and_a_router_is_no_engine() {
    let reading = read("vllm_kv_cache_usage_perc{engine=\"0\"} 0.5\n");
    assert_eq!(
        (reading.engine.as_deref(), usages(&reading)),
        (Some("vllm"), vec![Ok(0.5)])
    );
    let reading = read("lmdeploy_gpu_cache_usage_perc{engine=\"0\"} 0.5\n");
    assert_eq!(
        (reading.engine.as_deref(), usages(&reading)),
        (Some("lmdeploy"), vec![Ok(0.5)])
    );
    let reading = read("llamacpp_kv_cache_usage_ratio 0.5\n");
    assert_eq!(
        (reading.engine.as_deref(), usages(&reading)),
        (Some("llamacpp"), vec![Ok(0.5)])
    );
    for page in [
        "vllm_router_active_workers 1\n",
        "smg_worker_health 1\n",
        "up 1\n",
    ] {
        assert_eq!(read(page), Reading::none(), "{page}");
    }
}

// === without a prefix ===

#[test]
fn nim_and_mindie_are_told_apart_by_their_usage_alone() {
    let rest =
        "num_requests_running{model_name=\"m\"} 3\nnum_requests_waiting{model_name=\"m\"} 1\n";
    let nim = read(&format!(
        "gpu_cache_usage_perc{{model_name=\"m\"}} 0.4\n{rest}"
    ));
    assert_eq!(
        (nim.engine.as_deref(), nim.role),
        (Some("nim"), Some(Role::Unified))
    );
    let pool = only(&nim);
    assert_eq!(
        (pool.usage, pool.running, pool.queued),
        (Ok(0.4), Some(3), Some(1))
    );
    let mindie = read(&format!(
        "npu_cache_usage_perc{{model_name=\"m\"}} 0.4\n{rest}"
    ));
    assert_eq!(mindie.engine.as_deref(), Some("mindie"));
    let pool = only(&mindie);
    assert_eq!(
        (pool.usage, pool.running, pool.queued),
        (Ok(0.4), Some(3), Some(1))
    );
    // Such names alone are anyone's.
    assert_eq!(read(rest), Reading::none());
}

#[test]
fn mindies_per_cents_are_unknown_and_never_divided_on_a_guess() {
    let reading = read(
        "npu_cache_usage_perc{model_name=\"Qwen3-8B\"} 30\n\
         num_requests_running{model_name=\"Qwen3-8B\"} 2\n",
    );
    let pool = only(&reading);
    assert_eq!((pool.usage, pool.running), (Err(Unknown::Invalid), Some(2)));
    assert_eq!(reading.odd, [("far_above_one", 1)]);
}

// === the others ===

#[test]
fn trtllm_makes_the_usage_of_blocks_where_its_gauge_is_broken() {
    let page = |utilization: &str| {
        read(&format!(
            "trtllm_kv_cache_utilization {utilization}\ntrtllm_kv_cache_used_blocks 250\n\
             trtllm_kv_cache_max_blocks 1000\ntrtllm_kv_cache_tokens_per_block 32\n\
             trtllm_kv_cache_host_utilization 0.5\ntrtllm_num_paused_requests 2\n"
        ))
    };
    let good = page("0.3");
    assert_eq!((only(&good).usage, only(&good).host), (Ok(0.3), Some(0.5)));
    assert!(
        good.passed_over.iter().any(|p| p.0 == "preempted"),
        "{good:?}"
    );
    let broken = page("NaN");
    assert_eq!(only(&broken).usage, Ok(0.25));
    assert!(
        broken.passed_over.contains(&(
            "usage",
            "kv_cache_utilization".into(),
            "holds what can't be a value"
        )),
        "{broken:?}"
    );
    // Of no blocks nothing can be used.
    let none = read(
        "trtllm_kv_cache_used_blocks 0\ntrtllm_kv_cache_max_blocks 0\ntrtllm_kv_cache_tokens_per_block 32\n",
    );
    assert_eq!(
        (only(&none).usage, only(&none).capacity),
        (Err(Unknown::Absent), None)
    );
    assert_eq!(none.odd, [("zero_capacity", 1)]);
}

#[test]
fn newer_triton_counts_those_that_wait_and_each_version_has_its_blocks() {
    let sample = |family: &str, label: &str, kind: &str, version: u8, value: f64| {
        format!(
            "nv_trt_llm_{family}{{{label}=\"{kind}\",model=\"m\",version=\"{version}\"}} {value}\n"
        )
    };
    let mut page = String::new();
    for (version, used) in [(1, 50.0), (2, 10.0)] {
        for (kind, value) in [
            ("max", 100.0),
            ("used", used),
            ("tokens_per", 64.0),
            ("fraction", 0.99),
        ] {
            page += &sample(
                "kv_cache_block_metrics",
                "kv_cache_block_type",
                kind,
                version,
                value,
            );
        }
        for (kind, value) in [
            ("scheduled", 4.0),
            ("active", 9.0),
            ("waiting", 5.0),
            ("max", 512.0),
        ] {
            page += &sample("request_metrics", "request_type", kind, version, value);
        }
    }
    let reading = read(&page);
    assert_eq!(reading.engine.as_deref(), Some("triton"));
    assert_eq!(usages(&reading), [Ok(0.5), Ok(0.1)]);
    let first = &reading.pools[0];
    assert_eq!((first.used, first.capacity), (Some(3200), Some(6400)));
    assert_eq!((first.running, first.queued), (Some(4), Some(5)));
}

#[test]
fn tgi_measures_its_batch_by_the_largest_there_may_be() {
    let reading = read(
        "tgi_batch_current_max_tokens 4096\ntgi_batch_max_total_tokens 16384\n\
         tgi_batch_current_size 5\ntgi_queue_size 3\n",
    );
    let pool = only(&reading);
    assert_eq!(
        (pool.usage, pool.used, pool.capacity),
        (Ok(0.25), Some(4096), Some(16_384))
    );
    assert_eq!((pool.running, pool.queued), (Some(5), Some(3)));
}

#[test]
fn lmdeploys_two_queues_are_one() {
    let reading = read(
        "lmdeploy:gpu_cache_usage_perc{engine=\"0\"} 0.1\n\
         lmdeploy:num_requests_waiting{engine=\"0\"} 2\n\
         lmdeploy:num_api_requests_waiting{engine=\"0\"} 5\n",
    );
    assert_eq!(only(&reading).queued, Some(7));
}

#[test]
fn dynamos_names_old_and_new_and_its_capacity() {
    let new = read(
        "dynamo_component_gpu_cache_usage_percent{dp_rank=\"0\",dynamo_component=\"decode\"} 0.5\n\
         dynamo_component_total_blocks{dp_rank=\"0\",dynamo_component=\"decode\"} 100\n\
         dynamo_frontend_model_kv_cache_block_size{model=\"m\"} 64\n",
    );
    assert_eq!(
        (new.engine.as_deref(), new.role),
        (Some("dynamo"), Some(Role::Decode))
    );
    let pool = only(&new);
    assert_eq!((pool.usage, pool.capacity), (Ok(0.5), Some(6400)));
    assert_eq!(pool.model.as_deref(), Some("m"));
    let old = read(
        "dynamo_component_kvstats_gpu_cache_usage_percent 0.5\n\
         dynamo_component_kvstats_active_blocks 50\ndynamo_component_kvstats_total_blocks 100\n\
         dynamo_component_kvstats_gpu_prefix_cache_hit_rate 0.2\n",
    );
    let pool = only(&old);
    assert_eq!(
        (pool.usage, pool.hit_rate, pool.capacity),
        (Ok(0.5), Some(0.2), None)
    );
    assert_eq!(old.role, Some(Role::Unified));
    // Two models at the frontend: whose requests they are is not known.
    let two = read(
        "dynamo_component_gpu_cache_usage_percent{dp_rank=\"0\"} 0.5\n\
         dynamo_frontend_inflight_requests{model=\"a\"} 1\n\
         dynamo_frontend_inflight_requests{model=\"b\"} 2\n",
    );
    assert_eq!((only(&two).running, only(&two).usage), (None, Ok(0.5)));
    // A frontend is a router.
    assert_eq!(
        read("dynamo_frontend_inflight_requests{model=\"a\"} 1\n").engine,
        None
    );
    // A prefill worker that never sets its gauges.
    let empty = read("# TYPE dynamo_component_gpu_cache_usage_percent gauge\nup 1\n");
    assert_eq!(
        (empty.engine.as_deref(), empty.role, empty.pools.len()),
        (Some("dynamo"), None, 0)
    );
}

#[test]
fn a_dynamo_workers_engine_says_more_than_the_worker() {
    let own = "dynamo_component_gpu_cache_usage_percent{dp_rank=\"0\"} 0.5\n";
    let reading = read(&format!(
        "{own}vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.51\n"
    ));
    assert_eq!(
        (reading.engine.as_deref(), usages(&reading)),
        (Some("vllm"), vec![Ok(0.51)])
    );
    // Unless it has only named its gauges.
    let reading = read(&format!("{own}# TYPE vllm:kv_cache_usage_perc gauge\n"));
    assert_eq!(
        (reading.engine.as_deref(), usages(&reading)),
        (Some("dynamo"), vec![Ok(0.5)])
    );
}

// === SGLang: what its own tests do not have ===

#[test]
fn an_engine_that_names_no_role_is_unified_and_one_that_may_still_name_one_is_not() {
    assert_eq!(read("sglang:token_usage 0.1\n").role, Some(Role::Unified));
    assert_eq!(
        read("sglang:token_usage{engine_type=\"decode\"} 0.1\n").role,
        Some(Role::Decode)
    );
    assert_eq!(read("# TYPE sglang:token_usage gauge\nup 1\n").role, None);
    assert_eq!(
        read("sglang:cache_config_info{page_size=\"1\",num_pages=\"9\"} 1\n").role,
        None
    );
}

#[test]
fn the_tier_in_host_memory_is_a_share_of_its_own() {
    let page = |used: u32, total: u32| {
        read(&format!(
            "sglang:token_usage 0.1\nsglang:hicache_host_used_tokens {used}\n\
             sglang:hicache_host_total_tokens {total}\n"
        ))
    };
    assert_eq!(only(&page(250, 1000)).host, Some(0.25));
    assert_eq!(only(&page(0, 0)).host, None);
    assert_eq!(only(&page(250, 1000)).usage, Ok(0.1));
}

#[test]
fn what_is_passed_over_is_told_with_its_reason() {
    let of = |name: &str| read(&file(&format!("expositions/{name}.prom"))).passed_over;
    let busy = of("sglang-0.5.23-decode-tp4-busy");
    for wanted in [
        (
            "usage",
            "token_usage",
            "the fullest pool's, rounded to two decimals",
        ),
        (
            "usage",
            "full_token_usage",
            "kv_used_tokens over the capacity is exact to the token, and never left from before",
        ),
        ("usage", "swa_token_usage", "of a pool that is less full"),
        (
            "hit_rate",
            "cache_hit_rate",
            "a decode server looks up no prefix and always says 0",
        ),
    ] {
        let (value, metric, why) = wanted;
        let said = (value, metric.into(), why);
        assert!(busy.contains(&said), "{wanted:?} in {busy:?}");
    }
    // Bounded by the tables, and only what is on the page.
    for name in [
        "sglang-0.5.23-decode-dpattn4-busy",
        "vllm-0.32.0-dp2-loaded",
    ] {
        assert!(of(name).len() < 16, "{name}");
    }
    assert_eq!(
        of("sglang-0.5.23-decode-tp4-fresh"),
        [(
            "capacity",
            "num_pages".into(),
            "max_total_num_tokens says it in tokens"
        )]
    );
    assert_eq!(of("sglang-router-0.3.2-pd-after-traffic"), []);
}

// === which families have KV state ===

#[test]
fn each_engines_families_are_told_from_others() {
    for (name, is) in [
        ("vllm:kv_cache_usage_perc", true),
        ("vllm_gpu_cache_usage_perc", true),
        ("vllm:npu_cache_usage_perc", true),
        ("vllm:cache_config_info", true),
        ("vllm:num_preemptions_total", true),
        ("vllm:prefix_cache_queries_total", true),
        ("vllm:time_to_first_token_seconds", false),
        ("vllm_router_active_workers", false),
        ("trtllm_kv_cache_utilization", true),
        ("trtllm_request_success_total", false),
        ("nv_trt_llm_kv_cache_block_metrics", true),
        ("nv_trt_llm_runtime_memory_metrics", false),
        ("nv_inference_count", false),
        ("tgi_batch_current_max_tokens", true),
        ("tgi_request_count", false),
        ("llamacpp:kv_cache_usage_ratio", true),
        ("llamacpp:prompt_tokens_total", false),
        ("lmdeploy:gpu_cache_usage_perc", true),
        ("lmdeploy:prompt_tokens_total", false),
        ("dynamo_component_gpu_cache_usage_percent", true),
        ("dynamo_frontend_queued_requests", true),
        ("dynamo_frontend_requests_total", false),
        ("gpu_cache_usage_perc", true),
        ("npu_cache_usage_perc", true),
        ("num_requests_running", true),
        ("process_cpu_seconds_total", false),
        ("smg_http_requests_total", false),
    ] {
        assert_eq!(engine::is_kv_family(name), is, "{name}");
    }
}

// === whatever comes ===

const NAMES: [&str; 36] = [
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:num_requests_running",
    "vllm:num_preemptions_total",
    "vllm:gpu_prefix_cache_hit_rate",
    "vllm_kv_cache_usage_perc",
    "trtllm_kv_cache_utilization",
    "trtllm_kv_cache_used_blocks",
    "trtllm_kv_cache_max_blocks",
    "trtllm_kv_cache_tokens_per_block",
    "trtllm_num_requests_waiting",
    "nv_trt_llm_kv_cache_block_metrics",
    "nv_trt_llm_request_metrics",
    "tgi_batch_current_max_tokens",
    "tgi_batch_max_total_tokens",
    "tgi_queue_size",
    "llamacpp:kv_cache_usage_ratio",
    "llamacpp:kv_cache_tokens",
    "lmdeploy:gpu_cache_usage_perc",
    "lmdeploy:num_requests_waiting",
    "lmdeploy:num_api_requests_waiting",
    "gpu_cache_usage_perc",
    "npu_cache_usage_perc",
    "cpu_cache_usage_perc",
    "num_requests_running",
    "dynamo_component_gpu_cache_usage_percent",
    "dynamo_component_kvstats_active_blocks",
    "dynamo_component_kvstats_total_blocks",
    "dynamo_component_total_blocks",
    "dynamo_frontend_inflight_requests",
    "dynamo_frontend_model_kv_cache_block_size",
    "sglang:token_usage",
    "sglang:num_running_reqs",
    "sglang:hicache_host_used_tokens",
    "sglang:hicache_host_total_tokens",
];

fn line() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec![
        "model_name",
        "model",
        "engine",
        "dp_rank",
        "version",
        "pid",
        "worker_addr",
        "kv_cache_block_type",
        "request_type",
        "dynamo_component",
        "kv_cache_size_tokens",
        "num_gpu_blocks",
        "block_size",
        "sliding_window",
    ]);
    let label_value = prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "None",
            "prefill",
            "decode",
            "max",
            "used",
            "tokens_per",
            "fraction",
            "scheduled",
            "waiting",
        ])
        .prop_map(str::to_owned),
        (0u32..300).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
    ];
    let value = prop_oneof![
        (0.0..1.2f64).prop_map(|v| v.to_string()),
        (0u32..5000).prop_map(|v| v.to_string()),
        any::<f64>().prop_map(|v| v.to_string()),
        Just("NaN".to_owned()),
        Just("-1".to_owned()),
    ];
    let labels = prop::collection::btree_map(label, label_value, 0..5);
    (prop::sample::select(&NAMES[..]), labels, value).prop_map(|(name, labels, value)| {
        let labels: Vec<String> = labels
            .into_iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        format!("{name}{{{}}} {value}", labels.join(","))
    })
}

fn assert_sane(reading: &Reading) {
    let share = |value: Option<f64>| value.is_none_or(|v| (0.0..=1.0).contains(&v));
    for pool in &reading.pools {
        assert!(share(pool.usage.ok()), "{pool:?}");
        assert!(share(pool.hit_rate) && share(pool.host), "{pool:?}");
        assert!(share(pool.fill) && share(pool.pending), "{pool:?}");
        assert_ne!(pool.capacity, Some(0), "{pool:?}");
        assert!(pool.usage.is_ok() || pool.used.is_none(), "{pool:?}");
        if let (Some(used), Some(capacity)) = (pool.used, pool.capacity) {
            assert!(
                u128::from(used) * 100 <= u128::from(capacity) * 106,
                "{pool:?}"
            );
        }
    }
    assert!(
        reading.chosen.len() + reading.passed_over.len() < 64,
        "{reading:?}"
    );
}

proptest! {
    #[test]
    fn any_gauges_of_any_engines_give_shares_from_0_to_1_or_unknown(
        lines in prop::collection::vec(line(), 0..30),
        turn in any::<prop::sample::Index>(),
    ) {
        let page = lines.join("\n") + "\n";
        let mut others = lines.clone();
        others.reverse();
        let middle = turn.index(others.len().max(1)).min(others.len());
        others.rotate_left(middle);
        let other = others.join("\n") + "\n";
        with_page(&page, |page| {
            with_page(&other, |other| {
                assert_sane(&engine::read(page));
                assert_eq!(engine::read(page), engine::read(other));
                for name in engine::names() {
                    let reading = engine::read_as(name, page).expect("an engine");
                    assert_sane(&reading);
                    assert_eq!(Some(reading), engine::read_as(name, other));
                }
                let _ = engine::suspects(page);
            });
        });
    }
}
