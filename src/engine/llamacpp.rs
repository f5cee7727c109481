//! llama.cpp's server, with `--metrics`.
//!
//! Builds of 2025 and later have dropped both KV gauges: their usage is unknown, though requests
//! are counted. Older builds and forks have them; the capacity (`n_ctx`) is on no page.

use super::gauges::Gauge;
use super::lacking::Lacking;
use super::table::{Candidate, Table, Value, nothing_more};

pub(super) const TABLE: Table = Table {
    name: "llamacpp",
    spellings: &["llamacpp:", "llamacpp_"],
    own: &["llamacpp:", "llamacpp_"],
    shown_by: &[],
    model: "model",
    rank: "",
    gauges: &[
        Gauge::fraction("kv_cache_usage_ratio"),
        Gauge::count("kv_cache_tokens"),
        Gauge::requests("requests_processing"),
        Gauge::requests("requests_deferred"),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "kv_cache_usage_ratio", ""),
        Candidate::is(Value::Used, "kv_cache_tokens", ""),
        Candidate::is(Value::Running, "requests_processing", ""),
        Candidate::is(Value::Queued, "requests_deferred", ""),
    ],
    never: &[(
        "usage",
        "n_busy_slots_per_decode",
        "slots that are busy, not the tokens in them",
    )],
    shown_only: &[],
    lacks: &[
        Lacking::never(
            "usage",
            "this build publishes no KV usage: builds of 2025 and later have dropped the gauge",
            "its usage stays unknown; /slots of the server shows the tokens of each slot, and n_ctx, what fits",
        ),
        Lacking::never(
            "capacity",
            "it is on no page of llama.cpp's",
            "/props of the server says it (n_ctx)",
        ),
        Lacking::no_fill("llamacpp publishes none"),
    ],
    then: nothing_more,
};
