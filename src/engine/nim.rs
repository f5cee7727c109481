//! NVIDIA NIM, `/v1/metrics`: vLLM's old names without a prefix. The usage is a fraction.
//!
//! Names so plain are anyone's, so only the usage gauge shows the engine.

use super::gauges::Gauge;
use super::lacking::{Lacking, NOTHING};
use super::table::{Candidate, Table, Value, nothing_more};

pub(super) const TABLE: Table = Table {
    name: "nim",
    spellings: &[""],
    own: &[],
    shown_by: &["gpu_cache_usage_perc"],
    model: "model_name",
    rank: "",
    gauges: &[
        Gauge::fraction("gpu_cache_usage_perc"),
        Gauge::requests("num_requests_running"),
        Gauge::requests("num_requests_waiting"),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "gpu_cache_usage_perc", ""),
        Candidate::is(Value::Running, "num_requests_running", ""),
        Candidate::is(Value::Queued, "num_requests_waiting", ""),
    ],
    never: &[],
    shown_only: &["num_request_max"],
    lacks: &[
        Lacking::never("used", "NIM publishes no tokens", NOTHING).beside("usage"),
        Lacking::never("capacity", "NIM publishes no tokens", NOTHING).beside("usage"),
        Lacking::no_fill("nim publishes none"),
    ],
    then: nothing_more,
};
