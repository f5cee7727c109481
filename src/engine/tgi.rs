//! Hugging Face's Text Generation Inference, 3.
//!
//! It has no gauge of its KV cache. What it has is the budget of tokens that the running batch was
//! promised (prompt and all tokens still to come), and the largest budget a batch may have, which is
//! what fits: their quotient is the pressure. Versions without the latter have no usage.

use super::gauges::Gauge;
use super::lacking::{Lacking, SEND};
use super::table::{Candidate, Formula, Table, Value, nothing_more};

pub(super) const TABLE: Table = Table {
    name: "tgi",
    spellings: &["tgi_"],
    own: &[],
    shown_by: &[],
    model: "model_name",
    rank: "",
    gauges: &[
        Gauge::count("batch_current_max_tokens"),
        Gauge::count("batch_max_total_tokens"),
        Gauge::requests("batch_current_size"),
        Gauge::requests("queue_size"),
    ],
    candidates: &[
        Candidate::made(
            Value::Usage,
            Formula::Over("batch_current_max_tokens", "batch_max_total_tokens"),
            "batch_current_max_tokens / batch_max_total_tokens",
            "",
        ),
        Candidate::is(Value::Used, "batch_current_max_tokens", ""),
        Candidate::is(Value::Capacity, "batch_max_total_tokens", ""),
        Candidate::is(Value::Running, "batch_current_size", ""),
        Candidate::is(Value::Queued, "queue_size", ""),
    ],
    never: &[],
    shown_only: &[],
    lacks: &[
        Lacking::yet(
            "usage",
            "it has no KV usage yet: the running batch's budget comes with the first request",
            SEND,
        )
        .beside("capacity"),
        Lacking::never(
            "usage",
            "this version publishes no KV usage: tgi_batch_max_total_tokens, the most tokens that a batch may \
             hold, is not on its page",
            "its usage stays unknown; a version of TGI 3 that publishes it is read",
        ),
        Lacking::never(
            "capacity",
            "tgi_batch_max_total_tokens is not on its page",
            "a version of TGI 3 that publishes it is read",
        ),
        Lacking::no_fill("tgi publishes none"),
    ],
    then: nothing_more,
};
