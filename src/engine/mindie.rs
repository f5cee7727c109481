//! Huawei's `MindIE`, `/metrics` of its management port: names without a prefix.
//!
//! Its help text calls the usage a fraction ("1 means 100 percent usage"), and pages are known that
//! say 30. A value above 1.05 can't be a fraction, so it is unknown (`invalid`) and counted: it is
//! never divided by 100 on a guess, since nothing tells 1 per cent from all. Where a server counts in
//! per cent, a [mapping](super::Mapping) with that unit says so.
//!
//! Names so plain are anyone's, so only the usage gauge shows the engine.

use super::gauges::{Gauge, Unit};
use super::lacking::{Lacking, NOTHING};
use super::table::{Candidate, Table, Value, nothing_more};

pub(super) const TABLE: Table = Table {
    name: "mindie",
    spellings: &[""],
    own: &[],
    shown_by: &["npu_cache_usage_perc"],
    model: "model_name",
    rank: "",
    gauges: &[
        Gauge::fraction("npu_cache_usage_perc"),
        Gauge::fraction("cpu_cache_usage_perc"),
        Gauge::requests("num_requests_running"),
        Gauge::requests("num_requests_waiting"),
        Gauge::requests("num_preemptions_total"),
        Gauge::new("npu_prefix_cache_hit_rate", Unit::FractionIfKept),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "npu_cache_usage_perc", ""),
        Candidate::is(Value::Running, "num_requests_running", ""),
        Candidate::is(Value::Queued, "num_requests_waiting", ""),
        Candidate::is(Value::Preempted, "num_preemptions_total", ""),
        Candidate::is(Value::HitRate, "npu_prefix_cache_hit_rate", ""),
        Candidate::is(Value::Host, "cpu_cache_usage_perc", ""),
    ],
    never: &[],
    shown_only: &["num_requests_swapped"],
    lacks: &[
        Lacking::never("used", "MindIE publishes no tokens", NOTHING).beside("usage"),
        Lacking::never("capacity", "MindIE publishes no tokens", NOTHING).beside("usage"),
        Lacking::no_fill("mindie publishes none"),
    ],
    then: nothing_more,
};
