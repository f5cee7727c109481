//! LMDeploy, port 23333.
//!
//! Despite its name `gpu_cache_usage_perc` is a fraction. `engine` is the data-parallel engine; the
//! `TurboMind` backend gives one value for all of them. No capacity is published.

use super::gauges::Gauge;
use super::lacking::{Lacking, NOTHING};
use super::table::{Candidate, Formula, Table, Value, nothing_more};

pub(super) const TABLE: Table = Table {
    name: "lmdeploy",
    spellings: &["lmdeploy:", "lmdeploy_"],
    own: &["lmdeploy:", "lmdeploy_"],
    shown_by: &[],
    model: "model_name",
    rank: "engine",
    gauges: &[
        Gauge::fraction("gpu_cache_usage_perc"),
        Gauge::requests("num_requests_running"),
        Gauge::requests("num_requests_waiting"),
        Gauge::requests("num_api_requests_waiting"),
        Gauge::fraction("prefix_cache_hit_rate"),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "gpu_cache_usage_perc", ""),
        Candidate::is(Value::Running, "num_requests_running", ""),
        // Those that the API server holds back wait as well.
        Candidate::made(
            Value::Queued,
            Formula::Plus("num_requests_waiting", "num_api_requests_waiting"),
            "num_requests_waiting + num_api_requests_waiting",
            "",
        ),
        Candidate::is(Value::HitRate, "prefix_cache_hit_rate", ""),
    ],
    never: &[],
    shown_only: &[],
    lacks: &[
        Lacking::never("used", "LMDeploy publishes no tokens", NOTHING).beside("usage"),
        Lacking::never("capacity", "LMDeploy publishes no tokens", NOTHING).beside("usage"),
        Lacking::no_fill("lmdeploy publishes none"),
    ],
    then: nothing_more,
};
