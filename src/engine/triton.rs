//! Triton's TensorRT-LLM backend, port 8002.
//!
//! A label says what a sample is: `kv_cache_block_type` is `max`, `used`, `free`, `tokens_per` and,
//! in newer releases, `fraction`; `request_type` is `scheduled`, `active`, `max` and, in newer
//! ones, `waiting`. Models stand in `model`; each `version` of one has blocks of its own.

use super::gauges::{Gauge, Unit};
use super::lacking::Lacking;
use super::table::{Candidate, Formula, Table, Value, nothing_more};

const BLOCKS: &str = "kv_cache_block_metrics";
const REQUESTS: &str = "request_metrics";

const fn blocks(id: &'static str, kind: &'static str, unit: Unit) -> Gauge {
    Gauge {
        id,
        name: BLOCKS,
        only: Some(("kv_cache_block_type", kind)),
        unit,
    }
}

const fn requests(id: &'static str, kind: &'static str) -> Gauge {
    Gauge {
        id,
        name: REQUESTS,
        only: Some(("request_type", kind)),
        unit: Unit::Requests,
    }
}

const MAX: &str = "kv_cache_block_metrics{max}";
const USED: &str = "kv_cache_block_metrics{used}";
const TOKENS_PER: &str = "kv_cache_block_metrics{tokens_per}";
const FRACTION: &str = "kv_cache_block_metrics{fraction}";
const SCHEDULED: &str = "request_metrics{scheduled}";
const ACTIVE: &str = "request_metrics{active}";
const WAITING: &str = "request_metrics{waiting}";

pub(super) const TABLE: Table = Table {
    name: "triton",
    spellings: &["nv_trt_llm_"],
    own: &["nv_trt_llm_"],
    shown_by: &[],
    model: "model",
    rank: "version",
    gauges: &[
        blocks(MAX, "max", Unit::Count),
        blocks(USED, "used", Unit::Count),
        blocks(TOKENS_PER, "tokens_per", Unit::Count),
        blocks(FRACTION, "fraction", Unit::Fraction),
        requests(SCHEDULED, "scheduled"),
        requests(ACTIVE, "active"),
        requests(WAITING, "waiting"),
    ],
    candidates: &[
        Candidate::made(
            Value::Usage,
            Formula::Over(USED, MAX),
            "kv_cache_block_metrics{used} / {max}",
            "",
        ),
        Candidate::is(
            Value::Usage,
            FRACTION,
            "blocks used of all blocks are exact to the block",
        ),
        Candidate::made(
            Value::Used,
            Formula::Times(USED, TOKENS_PER),
            "kv_cache_block_metrics{used} * {tokens_per}",
            "",
        ),
        Candidate::made(
            Value::Capacity,
            Formula::Times(MAX, TOKENS_PER),
            "kv_cache_block_metrics{max} * {tokens_per}",
            "",
        ),
        Candidate::is(Value::Running, SCHEDULED, ""),
        Candidate::is(
            Value::Running,
            ACTIVE,
            "counts those that wait for the scheduler too",
        ),
        Candidate::is(Value::Queued, WAITING, ""),
    ],
    never: &[],
    shown_only: &[],
    lacks: &[Lacking::no_fill("triton publishes none")],
    then: nothing_more,
};
