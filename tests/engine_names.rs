//! Every name by which an engine says something of its KV cache, alone or with the least that it needs:
//! what is read of it, in each spelling. A name that is no longer read fails its row.

#![allow(clippy::expect_used, clippy::panic)] // Tests may.

use kvgauge::engine::{self, SourceReading, aggregate};
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::{Pool, PoolKind, Reading, Role, Unknown};
use std::fmt::Write as _;
use std::path::Path;

fn read(text: &str) -> Reading {
    let limits = Limits {
        max_series: 10_000,
        max_label_bytes: 16 * 1024,
        max_families: 10_000,
    };
    engine::read(&Page::read(text.as_bytes(), &limits).expect("a readable page"))
}

fn file(name: &str) -> String {
    let path = format!("tests/data/expositions/{name}.prom");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a page")
}

/// What is known of a pool; `absent` is left out, as it is where nothing says a usage.
fn known(pool: &Pool) -> String {
    let mut out = String::new();
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(out, " {name}={value}");
        }
    };
    let count = |n: Option<u64>| n.map(|n| n.to_string());
    let share = |n: Option<f64>| n.map(|n| n.to_string());
    say("usage", share(pool.usage.ok()));
    let odd = pool.usage.err().filter(|why| *why != Unknown::Absent);
    say("unknown", odd.map(|why| why.to_string()));
    let kind = Some(pool.kind).filter(|kind| *kind != PoolKind::Full);
    say("pool", kind.map(|kind| kind.as_str().to_owned()));
    say("used", count(pool.used));
    say("capacity", count(pool.capacity));
    say("fill", share(pool.fill));
    say("running", count(pool.running));
    say("queued", count(pool.queued));
    for (name, requests) in pool.queues.iter() {
        say(name, count(requests));
    }
    say("pending", share(pool.pending));
    say("hit", share(pool.hit_rate));
    say("preempted", count(pool.preempted));
    say("host", share(pool.host));
    out.trim_start().to_owned()
}

/// Each row: what stands behind the beginning of each name, lines parted by `;`, and what is known then.
fn assert_rows(engine: &str, beginnings: &[&str], rows: &[(&str, &str)]) {
    for beginning in beginnings {
        for (lines, want) in rows {
            let lines = lines.split(';').map(str::trim);
            let page: String = lines.map(|line| format!("{beginning}{line}\n")).collect();
            let reading = read(&page);
            assert_eq!(reading.engine.as_deref(), Some(engine), "{page}");
            let [pool] = &reading.pools[..] else {
                panic!("{page}{reading:?}")
            };
            assert_eq!(known(pool), *want, "{page}");
            assert_eq!(reading.odd, [], "{page}");
        }
    }
}

#[test]
fn sglang() {
    assert_rows(
        "sglang",
        &["sglang:", "sglang_"],
        &[
            ("token_usage 0.5", "usage=0.5"),
            ("full_token_usage 0.5", "usage=0.5"),
            (
                "full_token_usage 0.1; swa_token_usage 0.5",
                "usage=0.5 pool=swa",
            ),
            (
                "full_token_usage 0.1; mamba_usage 0.5",
                "usage=0.5 pool=mamba",
            ),
            (
                "kv_used_tokens 4; max_total_num_tokens 16",
                "usage=0.25 used=4 capacity=16",
            ),
            (
                "num_used_tokens 4; max_total_num_tokens 16",
                "usage=0.25 used=4 capacity=16",
            ),
            (
                "kv_used_tokens 4; page_size 4; num_pages 4",
                "usage=0.25 used=4 capacity=16",
            ),
            (
                "kv_used_tokens 4; cache_config_info{page_size=\"4\",num_pages=\"4\"} 1",
                "usage=0.25 used=4 capacity=16",
            ),
            ("token_usage 0.5; num_used_tokens 4", "usage=0.5 used=4"),
            (
                "kv_available_tokens 4; kv_evictable_tokens 8; kv_used_tokens 4; full_token_usage 0.25",
                "usage=0.25 used=4 fill=0.75",
            ),
            (
                "full_token_usage 0.1; swa_token_usage 0.25; swa_available_tokens 4; \
                 swa_evictable_tokens 8; swa_used_tokens 4; max_total_num_tokens_swa 16",
                "usage=0.25 pool=swa used=4 capacity=16 fill=0.75",
            ),
            (
                "full_token_usage 0.1; mamba_usage 0.25; mamba_available_tokens 4; \
                 mamba_evictable_tokens 8; mamba_used_tokens 4",
                "usage=0.25 pool=mamba fill=0.75",
            ),
            ("num_running_reqs 3", "running=3"),
            ("num_queue_reqs 3", "queued=3"),
            ("num_prefill_bootstrap_queue_reqs 3", "bootstrap=3"),
            ("num_prefill_prealloc_queue_reqs 3", "bootstrap=3"),
            (
                "num_prefill_bootstrap_queue_reqs 3; num_prefill_prealloc_queue_reqs 4",
                "bootstrap=3",
            ),
            ("num_prefill_inflight_queue_reqs 3", "inflight=3"),
            ("num_decode_prealloc_queue_reqs 3", "prealloc=3"),
            ("num_decode_transfer_queue_reqs 3", "transfer=3"),
            ("pending_prealloc_token_usage 0.5", "pending=0.5"),
            ("cache_hit_rate 0.5", "hit=0.5"),
            ("num_retracted_requests_total 3", "preempted=3"),
            (
                "hicache_host_used_tokens 4; hicache_host_total_tokens 16",
                "host=0.25",
            ),
            // Those that wait for a grammar are not in the scheduler's queue yet.
            ("num_queue_reqs 3; num_grammar_queue_reqs 4", "queued=3"),
        ],
    );
}

#[test]
fn vllm() {
    let info = "cache_config_info{block_size=\"16\",num_gpu_blocks=\"101\"";
    assert_rows(
        "vllm",
        &["vllm:", "vllm_"],
        &[
            ("kv_cache_usage_perc 0.5", "usage=0.5"),
            ("gpu_cache_usage_perc 0.5", "usage=0.5"),
            ("npu_cache_usage_perc 0.5", "usage=0.5"),
            (
                "kv_cache_usage_perc 0.5; cpu_cache_usage_perc 0.25",
                "usage=0.5 host=0.25",
            ),
            // 50 of the 100 blocks that are handed out.
            (
                &format!("kv_cache_usage_perc 0.5; {info}}} 1"),
                "usage=0.5 used=800 capacity=1616",
            ),
            (
                &format!("kv_cache_usage_perc 0.5; {info},kv_cache_size_tokens=\"1616\"}} 1"),
                "usage=0.5 used=800 capacity=1616",
            ),
            // A capacity of 2^64 or of nothing is none.
            (
                "kv_cache_usage_perc 0.5; \
                 cache_config_info{kv_cache_size_tokens=\"18446744073709551616\"} 1",
                "usage=0.5",
            ),
            (
                "kv_cache_usage_perc 0.5; \
                 cache_config_info{num_gpu_blocks=\"4503599627370496\",block_size=\"4096\"} 1",
                "usage=0.5",
            ),
            (
                "kv_cache_usage_perc 0.5; cache_config_info{num_gpu_blocks=\"0\",block_size=\"16\"} 1",
                "usage=0.5",
            ),
            ("num_requests_running 3", "running=3"),
            ("num_requests_waiting 3", "queued=3"),
            // The same requests again, by reason; and those that V0 had swapped out.
            (
                "num_requests_waiting 3; num_requests_waiting_by_reason{reason=\"capacity\"} 2; \
                 num_requests_waiting_by_reason{reason=\"deferred\"} 1; num_requests_swapped 7",
                "queued=3",
            ),
            ("num_preemptions_total 3", "preempted=3"),
            ("gpu_prefix_cache_hit_rate 0.5", "hit=0.5"),
            // Counters of all time, and adapters, are no values of now.
            (
                "kv_cache_usage_perc 0.5; external_prefix_cache_hits_total 1; \
                 external_prefix_cache_queries_total 2; gpu_prefix_cache_hits_total 1; \
                 gpu_prefix_cache_queries_total 2; \
                 lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a,b\",\
                 waiting_lora_adapters=\"\"} 1.7e9",
                "usage=0.5",
            ),
        ],
    );
}

#[test]
fn tensorrt_llm_and_triton() {
    assert_rows(
        "trtllm",
        &["trtllm_"],
        &[
            ("kv_cache_utilization 0.5", "usage=0.5"),
            (
                "kv_cache_used_blocks 4; kv_cache_max_blocks 16",
                "usage=0.25",
            ),
            (
                "kv_cache_used_blocks 4; kv_cache_max_blocks 16; kv_cache_tokens_per_block 32",
                "usage=0.25 used=128 capacity=512",
            ),
            ("num_requests_running 3", "running=3"),
            ("num_requests_waiting 3", "queued=3"),
            ("kv_cache_hit_rate 0.5", "hit=0.5"),
            ("kv_cache_iter_reuse_rate 0.5", "hit=0.5"),
            (
                "kv_cache_hit_rate 0.5; kv_cache_iter_reuse_rate 0.25",
                "hit=0.5",
            ),
            ("kv_cache_host_utilization 0.5", "host=0.5"),
            ("num_requests_running 3; num_paused_requests 4", "running=3"),
        ],
    );
    let blocks = |kind: &str| format!("kv_cache_block_metrics{{kv_cache_block_type=\"{kind}\"}}");
    let requests = |kind: &str| format!("request_metrics{{request_type=\"{kind}\"}}");
    let (used, max) = (blocks("used"), blocks("max"));
    assert_rows(
        "triton",
        &["nv_trt_llm_"],
        &[
            (&format!("{} 0.5", blocks("fraction")), "usage=0.5"),
            (&format!("{used} 4; {max} 16"), "usage=0.25"),
            (
                &format!("{used} 4; {max} 16; {} 64", blocks("tokens_per")),
                "usage=0.25 used=256 capacity=1024",
            ),
            (&format!("{} 3", requests("scheduled")), "running=3"),
            (&format!("{} 3", requests("active")), "running=3"),
            (&format!("{} 3", requests("waiting")), "queued=3"),
        ],
    );
}

#[test]
fn others_with_a_beginning_of_their_own() {
    assert_rows(
        "tgi",
        &["tgi_"],
        &[
            (
                "batch_current_max_tokens 4; batch_max_total_tokens 16",
                "usage=0.25 used=4 capacity=16",
            ),
            ("batch_max_total_tokens 16", "capacity=16"),
            ("batch_current_size 3", "running=3"),
            ("queue_size 3", "queued=3"),
        ],
    );
    assert_rows(
        "llamacpp",
        &["llamacpp:", "llamacpp_"],
        &[
            ("kv_cache_usage_ratio 0.5", "usage=0.5"),
            (
                "kv_cache_usage_ratio 0.5; kv_cache_tokens 4",
                "usage=0.5 used=4",
            ),
            ("requests_processing 3", "running=3"),
            ("requests_deferred 3", "queued=3"),
            ("requests_deferred 3; n_busy_slots_per_decode 2", "queued=3"),
        ],
    );
    assert_rows(
        "lmdeploy",
        &["lmdeploy:", "lmdeploy_"],
        &[
            ("gpu_cache_usage_perc 0.5", "usage=0.5"),
            ("num_requests_running 3", "running=3"),
            ("num_requests_waiting 3", "queued=3"),
            (
                "num_requests_waiting 3; num_api_requests_waiting 4",
                "queued=7",
            ),
            ("prefix_cache_hit_rate 0.5", "hit=0.5"),
        ],
    );
    assert_rows(
        "dynamo",
        &["dynamo_component_"],
        &[
            ("gpu_cache_usage_percent 0.5", "usage=0.5"),
            ("kvstats_gpu_cache_usage_percent 0.5", "usage=0.5"),
            (
                "kvstats_active_blocks 4; kvstats_total_blocks 16",
                "usage=0.25",
            ),
            (
                "gpu_cache_usage_percent 0.5; kv_cache_hit_rate 0.25",
                "usage=0.5 hit=0.25",
            ),
            ("kvstats_gpu_prefix_cache_hit_rate 0.25", "hit=0.25"),
        ],
    );
    for total in [
        "dynamo_component_total_blocks",
        "dynamo_component_kvstats_total_blocks",
    ] {
        let page = format!(
            "{total} 4\ndynamo_frontend_model_kv_cache_block_size 16\n\
             dynamo_frontend_inflight_requests 3\ndynamo_frontend_queued_requests 2\n"
        );
        let reading = read(&page);
        assert_eq!(
            known(&reading.pools[0]),
            "capacity=64 running=3 queued=2",
            "{page}"
        );
    }
}

#[test]
fn those_without_a_beginning() {
    assert_rows(
        "nim",
        &[""],
        &[
            ("gpu_cache_usage_perc 0.5", "usage=0.5"),
            (
                "gpu_cache_usage_perc 0.5; num_requests_running 3",
                "usage=0.5 running=3",
            ),
            (
                "gpu_cache_usage_perc 0.5; num_requests_waiting 3",
                "usage=0.5 queued=3",
            ),
            // The most there may be, not those there are.
            ("gpu_cache_usage_perc 0.5; num_request_max 9", "usage=0.5"),
        ],
    );
    assert_rows(
        "mindie",
        &[""],
        &[
            ("npu_cache_usage_perc 0.5", "usage=0.5"),
            (
                "npu_cache_usage_perc 0.5; num_requests_running 3",
                "usage=0.5 running=3",
            ),
            (
                "npu_cache_usage_perc 0.5; num_requests_waiting 3; num_requests_swapped 4",
                "usage=0.5 queued=3",
            ),
            (
                "npu_cache_usage_perc 0.5; num_preemptions_total 3",
                "usage=0.5 preempted=3",
            ),
            (
                "npu_cache_usage_perc 0.5; npu_prefix_cache_hit_rate 0.25",
                "usage=0.5 hit=0.25",
            ),
            (
                "npu_cache_usage_perc 0.5; npu_prefix_cache_hit_rate -1",
                "usage=0.5",
            ),
            (
                "npu_cache_usage_perc 0.5; cpu_cache_usage_perc 0.25",
                "usage=0.5 host=0.25",
            ),
        ],
    );
}

/// `metrics.expose = "kv"` shows them again, whether a value is made of them or not.
#[test]
fn every_name_counts_as_kv_state_in_each_spelling() {
    let names = [
        (
            &["sglang:", "sglang_"][..],
            "token_usage full_token_usage swa_token_usage mamba_usage kv_used_tokens \
             kv_available_tokens kv_evictable_tokens num_used_tokens swa_used_tokens \
             swa_available_tokens swa_evictable_tokens mamba_used_tokens mamba_available_tokens \
             mamba_evictable_tokens max_total_num_tokens max_total_num_tokens_swa page_size num_pages \
             cache_config_info pending_prealloc_token_usage prealloc_full_token_usage \
             prealloc_swa_token_usage num_running_reqs num_queue_reqs num_grammar_queue_reqs \
             num_prefill_bootstrap_queue_reqs num_prefill_prealloc_queue_reqs \
             num_prefill_inflight_queue_reqs num_decode_prealloc_queue_reqs \
             num_decode_transfer_queue_reqs num_decode_host_receive_queue_reqs num_paused_reqs \
             num_retracted_reqs num_retracted_requests_total num_retracted_input_tokens_total \
             num_retracted_output_tokens_total cache_hit_rate prefill_effective_tokens_total \
             hicache_host_used_tokens hicache_host_total_tokens",
        ),
        (
            &["vllm:", "vllm_"],
            "kv_cache_usage_perc gpu_cache_usage_perc npu_cache_usage_perc cpu_cache_usage_perc \
             num_requests_running num_requests_waiting num_requests_waiting_by_reason \
             num_requests_swapped num_preemptions_total gpu_prefix_cache_hit_rate \
             prefix_cache_hits_total prefix_cache_queries_total gpu_prefix_cache_hits_total \
             gpu_prefix_cache_queries_total external_prefix_cache_hits_total \
             external_prefix_cache_queries_total cache_config_info",
        ),
        (
            &["trtllm_"],
            "kv_cache_utilization kv_cache_host_utilization kv_cache_max_blocks kv_cache_used_blocks \
             kv_cache_free_blocks kv_cache_tokens_per_block kv_cache_hit_rate \
             kv_cache_iter_reuse_rate kv_cache_offload_bytes_total kv_cache_onboard_bytes_total \
             num_requests_running num_requests_waiting num_paused_requests",
        ),
        (&["nv_trt_llm_"], "kv_cache_block_metrics request_metrics"),
        (
            &["tgi_"],
            "batch_current_max_tokens batch_max_total_tokens batch_current_size queue_size",
        ),
        (
            &["llamacpp:", "llamacpp_"],
            "kv_cache_usage_ratio kv_cache_tokens requests_processing requests_deferred \
             n_busy_slots_per_decode",
        ),
        (
            &["lmdeploy:", "lmdeploy_"],
            "gpu_cache_usage_perc num_requests_running num_requests_waiting \
             num_api_requests_waiting prefix_cache_hit_rate",
        ),
        (
            &["dynamo_component_"],
            "gpu_cache_usage_percent total_blocks kv_cache_hit_rate inflight_requests \
             kvstats_gpu_cache_usage_percent kvstats_active_blocks kvstats_total_blocks \
             kvstats_gpu_prefix_cache_hit_rate",
        ),
        (
            &["dynamo_frontend_"],
            "inflight_requests queued_requests model_kv_cache_block_size model_total_kv_blocks",
        ),
        (
            &[""],
            "gpu_cache_usage_perc npu_cache_usage_perc cpu_cache_usage_perc num_requests_running \
             num_requests_waiting num_requests_swapped num_request_max num_preemptions_total \
             npu_prefix_cache_hit_rate",
        ),
    ];
    for (beginnings, names) in names {
        for (beginning, name) in beginnings
            .iter()
            .flat_map(|b| names.split_whitespace().map(move |name| (b, name)))
        {
            let name = format!("{beginning}{name}");
            assert!(engine::is_kv_family(&name), "{name}");
        }
    }
}

/// Ranks that shard the same tokens, operators' labels and processes are one pool, whoever of them tells.
#[test]
fn labels_that_make_no_pool() {
    for (engine, usage, running) in [
        ("sglang", "sglang:token_usage", "sglang:num_running_reqs"),
        (
            "vllm",
            "vllm:kv_cache_usage_perc",
            "vllm:num_requests_running",
        ),
        (
            "trtllm",
            "trtllm_kv_cache_utilization",
            "trtllm_num_requests_running",
        ),
        (
            "lmdeploy",
            "lmdeploy:gpu_cache_usage_perc",
            "lmdeploy:num_requests_running",
        ),
    ] {
        for label in ["tp_rank", "pp_rank", "moe_ep_rank", "zone"] {
            // The second says what the first does not, or says it later.
            let page = format!(
                "{usage}{{{label}=\"1\"}} 0.5\n{usage}{{{label}=\"0\"}} 0.25\n\
                 {running}{{{label}=\"1\"}} 3\n"
            );
            let reading = read(&page);
            assert_eq!(reading.engine.as_deref(), Some(engine));
            assert_eq!(reading.pools.len(), 1, "{page}");
            assert_eq!(known(&reading.pools[0]), "usage=0.5 running=3", "{page}");
        }
        // A model that is not named, or is named with nothing, is none.
        let page = format!("{usage} 0.5\n{running}{{model_name=\"\"}} 3\n");
        let reading = read(&page);
        assert_eq!(reading.pools.len(), 1, "{page}");
        assert_eq!(reading.pools[0].model, None);
        // Several models are never mixed.
        let page = format!("{usage}{{model_name=\"a\"}} 0.5\n{usage}{{model_name=\"b\"}} 0.25\n");
        let usages: Vec<_> = read(&page).pools.iter().map(|pool| pool.usage).collect();
        assert_eq!(usages, [Ok(0.5), Ok(0.25)], "{page}");
    }
    // Capacities of ranks that differ: the largest, once.
    let page = "sglang:max_total_num_tokens{tp_rank=\"0\"} 100\n\
                sglang:max_total_num_tokens{tp_rank=\"1\"} 90\nsglang:kv_used_tokens{tp_rank=\"1\"} 25\n";
    assert_eq!(
        known(&read(page).pools[0]),
        "usage=0.25 used=25 capacity=100"
    );
}

/// A data-parallel rank that says nothing yet is missing, and is neither idle nor left out silently.
#[test]
fn a_rank_without_gauges_is_missing_and_not_idle() {
    let page: String = file("sglang-0.5.23-decode-dpattn4-busy")
        .lines()
        .filter(|line| {
            let of_rank = line.contains("dp_rank=\"3\"");
            !of_rank || line.starts_with("sglang:max_total_num_tokens")
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let reading = read(&page);
    assert_eq!(reading.pools.len(), 4);
    assert_eq!(known(&reading.pools[3]), "capacity=645376");
    let states = aggregate(&[SourceReading {
        roles: reading.roles(),
        reading: Ok(&reading),
        age: None,
    }]);
    let [state] = &states[..] else {
        panic!("{states:?}")
    };
    // 12,034 + 9,120 + 0 of the three that are known, 1,936,128.
    assert_eq!((state.role, state.pools), (Role::Decode, 3));
    assert_eq!(
        (state.used, state.capacity),
        (Some(21_154), Some(1_936_128))
    );
    assert_eq!(state.missing, Some((1, Unknown::Absent)));
    assert_eq!(state.running, Some(5));
}

/// Two tokens counts that can't both be right are not shown side by side as if they were a usage.
#[test]
fn tokens_that_do_not_fit_are_not_used_tokens() {
    for (page, want) in [
        (
            "sglang:full_token_usage 0.5\nsglang:kv_used_tokens 5000\nsglang:max_total_num_tokens 1000\n",
            "usage=0.5 capacity=1000",
        ),
        (
            "sglang:token_usage 0.5\nsglang:num_used_tokens 5000\nsglang:max_total_num_tokens 1000\n",
            "usage=0.5 capacity=1000",
        ),
        (
            "trtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_used_blocks 2000\n\
             trtllm_kv_cache_max_blocks 1000\ntrtllm_kv_cache_tokens_per_block 32\n",
            "usage=0.5 capacity=32000",
        ),
        // A moment's overlap is none.
        (
            "sglang:kv_used_tokens 1040\nsglang:max_total_num_tokens 1000\n",
            "usage=1 used=1040 capacity=1000",
        ),
    ] {
        let reading = read(page);
        assert_eq!(known(&reading.pools[0]), want, "{page}");
        let told = reading.passed_over.iter();
        let told = told
            .filter(|p| p.2.starts_with("more than the capacity"))
            .count();
        assert_eq!(told, usize::from(!want.contains("used=")), "{reading:?}");
    }
}

/// Two vLLM servers on a page that a router merged: the blocks of one are not the other's.
#[test]
fn servers_that_a_router_merged_keep_their_blocks_apart() {
    let server = |port: u32, blocks: u32, usage: f64| {
        let at = format!("engine=\"0\",worker_addr=\"http://127.0.0.1:{port}\"");
        format!(
            "vllm_kv_cache_usage_perc{{{at}}} {usage}\n\
             vllm_cache_config_info{{block_size=\"16\",num_gpu_blocks=\"{blocks}\",{at}}} 1\n"
        )
    };
    let reading = read(&(server(1, 101, 0.5) + &server(2, 201, 0.25)));
    let seen: Vec<_> = reading.pools.iter().map(known).collect();
    assert_eq!(
        seen,
        [
            "usage=0.5 used=800 capacity=1616",
            "usage=0.25 used=800 capacity=3216"
        ]
    );
}

/// However many engines a page names, what is read of it has an end, and it is counted.
#[test]
fn engines_that_show_nothing_but_their_labels_are_bounded() {
    let page = |name: &str, labels: &str| -> String {
        (0..20_000)
            .map(|n| format!("{name}{{worker_addr=\"h:{n}\",engine=\"{n}\",{labels}}} 1\n"))
            .collect()
    };
    for (name, labels) in [
        (
            "sglang:cache_config_info",
            "page_size=\"4\",num_pages=\"4\"",
        ),
        ("vllm:cache_config_info", "kv_cache_size_tokens=\"16\""),
    ] {
        let limits = Limits {
            max_series: 100_000,
            max_label_bytes: 16 * 1024,
            max_families: 10,
        };
        let text = page(name, labels);
        let page = Page::read(text.as_bytes(), &limits).expect("a readable page");
        let reading = engine::read_as(name.split(':').next().unwrap_or_default(), &page);
        let reading = reading.expect("an engine");
        assert_eq!(reading.pools.len(), 1024, "{name}");
        assert_eq!(reading.odd, [("too_many_pools", 18_976)], "{name}");
    }
}
