//! TensorRT-LLM's own server, `trtllm-serve`. Its page is `/prometheus/metrics`; `/metrics` is JSON.
//!
//! One engine a page, labels `model_name` and `engine_type` (which says `trtllm` or `undefined`, no
//! role). Blocks are counted exactly.

use super::gauges::Gauge;
use super::lacking::Lacking;
use super::table::{Candidate, Formula, Table, Value, nothing_more};

pub(super) const TABLE: Table = Table {
    name: "trtllm",
    spellings: &["trtllm_"],
    own: &["trtllm_"],
    shown_by: &[],
    model: "model_name",
    rank: "dp_rank",
    gauges: &[
        Gauge::fraction("kv_cache_utilization"),
        Gauge::count("kv_cache_used_blocks"),
        Gauge::count("kv_cache_max_blocks"),
        Gauge::count("kv_cache_tokens_per_block"),
        Gauge::requests("num_requests_running"),
        Gauge::requests("num_requests_waiting"),
        Gauge::fraction("kv_cache_hit_rate"),
        Gauge::fraction("kv_cache_iter_reuse_rate"),
        Gauge::fraction("kv_cache_host_utilization"),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "kv_cache_utilization", ""),
        Candidate::made(
            Value::Usage,
            Formula::Over("kv_cache_used_blocks", "kv_cache_max_blocks"),
            "kv_cache_used_blocks / kv_cache_max_blocks",
            "kv_cache_utilization says the same",
        ),
        Candidate::made(
            Value::Used,
            Formula::Times("kv_cache_used_blocks", "kv_cache_tokens_per_block"),
            "kv_cache_used_blocks * kv_cache_tokens_per_block",
            "",
        ),
        Candidate::made(
            Value::Capacity,
            Formula::Times("kv_cache_max_blocks", "kv_cache_tokens_per_block"),
            "kv_cache_max_blocks * kv_cache_tokens_per_block",
            "",
        ),
        Candidate::is(Value::Running, "num_requests_running", ""),
        Candidate::is(Value::Queued, "num_requests_waiting", ""),
        Candidate::is(Value::HitRate, "kv_cache_hit_rate", ""),
        Candidate::is(
            Value::HitRate,
            "kv_cache_iter_reuse_rate",
            "of the last iteration alone",
        ),
        Candidate::is(Value::Host, "kv_cache_host_utilization", ""),
    ],
    never: &[(
        "preempted",
        "num_paused_requests",
        "those paused now, not those since the start",
    )],
    shown_only: &[
        "kv_cache_free_blocks",
        "kv_cache_offload_bytes_total",
        "kv_cache_onboard_bytes_total",
    ],
    lacks: &[Lacking::no_fill("trtllm publishes none")],
    then: nothing_more,
};
