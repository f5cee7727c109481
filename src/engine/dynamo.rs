//! Workers of NVIDIA Dynamo, at `DYN_SYSTEM_PORT`.
//!
//! Its `gpu_cache_usage_percent` is a fraction, despite the name. Newer workers name gauges
//! `dynamo_component_…`, older ones `dynamo_component_kvstats_…`; pools are told apart by `dp_rank`.
//! Running and queued requests and the size of a block are the frontend's, labelled with the model:
//! they are taken where they stand on the same page and there is one model and one pool, so that it is
//! sure whose they are. A page with nothing but the frontend's numbers is a router's.
//!
//! A worker passes on the series of the engine in it; where those are there, they are read instead, as
//! they say more.

use super::gauges::{Gauge, Key, Sheet, Unit, whole};
use super::lacking::{Lacking, NOTHING};
use super::table::{Candidate, Draft, Formula, Table, Value};
use crate::exposition::Page;
use crate::kv::Role;

const RUNNING: &str = "dynamo_frontend_inflight_requests";
const QUEUED: &str = "dynamo_frontend_queued_requests";
const BLOCK_SIZE: &str = "dynamo_frontend_model_kv_cache_block_size";

pub(super) const TABLE: Table = Table {
    name: "dynamo",
    spellings: &[""],
    own: &[],
    shown_by: &[],
    model: "model",
    rank: "dp_rank",
    gauges: &[
        Gauge::fraction("dynamo_component_gpu_cache_usage_percent"),
        Gauge::fraction("dynamo_component_kvstats_gpu_cache_usage_percent"),
        Gauge::count("dynamo_component_kvstats_active_blocks"),
        Gauge::count("dynamo_component_kvstats_total_blocks"),
        Gauge::count("dynamo_component_total_blocks"),
        Gauge::fraction("dynamo_component_kv_cache_hit_rate"),
        Gauge::fraction("dynamo_component_kvstats_gpu_prefix_cache_hit_rate"),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "dynamo_component_gpu_cache_usage_percent", ""),
        Candidate::is(
            Value::Usage,
            "dynamo_component_kvstats_gpu_cache_usage_percent",
            "the older name",
        ),
        Candidate::made(
            Value::Usage,
            Formula::Over(
                "dynamo_component_kvstats_active_blocks",
                "dynamo_component_kvstats_total_blocks",
            ),
            "dynamo_component_kvstats_active_blocks / dynamo_component_kvstats_total_blocks",
            "the engine's own share was there",
        ),
        Candidate::is(Value::HitRate, "dynamo_component_kv_cache_hit_rate", ""),
        Candidate::is(
            Value::HitRate,
            "dynamo_component_kvstats_gpu_prefix_cache_hit_rate",
            "the older name",
        ),
    ],
    never: &[
        (
            "running",
            "dynamo_component_inflight_requests",
            "counts requests that wait in the worker too",
        ),
        (
            "capacity",
            "dynamo_frontend_model_total_kv_blocks",
            "the model's, which may be served by several workers",
        ),
    ],
    shown_only: &[RUNNING, QUEUED, BLOCK_SIZE],
    lacks: &[
        Lacking::yet(
            "usage",
            "it has no KV usage yet: its gauges come with the first request, and prefill workers of some \
             versions never set them",
            "send a request through the router (kvgauge doctor --warmup does), then look again; where it \
             stays so, let the worker pass on the series of the engine in it, which are read then",
        ),
        Lacking::never("used", "a Dynamo worker publishes no tokens used", NOTHING).beside("usage"),
        Lacking::never(
            "capacity",
            "the number of its blocks, or their size, is not on this page",
            NOTHING,
        )
        .beside("usage"),
        Lacking::no_fill("dynamo publishes none"),
    ],
    then,
};

fn then(page: &Page<'_>, draft: &mut Draft) {
    // One that has no samples yet may still turn out to be a prefill worker.
    draft.role = role(page).or(draft.role.filter(|_| !draft.pools.is_empty()));

    let mut of_frontend = Sheet::default();
    for (name, unit) in [
        (RUNNING, Unit::Requests),
        (QUEUED, Unit::Requests),
        (BLOCK_SIZE, Unit::Count),
    ] {
        of_frontend.take_named(page, name, name, unit, |sample| {
            Some(Key::of(sample, TABLE.model, ""))
        });
    }
    let mut total = Sheet::default();
    for name in [
        "dynamo_component_total_blocks",
        "dynamo_component_kvstats_total_blocks",
    ] {
        total.take_named(page, name, "total", Unit::Count, |_| Some(Key::NONE));
    }
    let one_model = of_frontend.rows.len() == 1;
    let Some((key, row)) = of_frontend.rows.pop_first().filter(|_| one_model) else {
        return;
    };
    let Some(mut pool) = draft.only_pool().cloned() else {
        return;
    };
    pool.running = row.count(RUNNING);
    pool.queued = row.count(QUEUED);
    if pool.running.is_some() {
        draft.notes.chose("running", RUNNING);
    }
    if pool.queued.is_some() {
        draft.notes.chose("queued", QUEUED);
    }
    let blocks = total.rows.get(&Key::NONE).map(|row| row.get("total"));
    if let (Some(Ok(blocks)), Ok(size)) = (blocks, row.get(BLOCK_SIZE)) {
        pool.capacity = whole(blocks * size).filter(|tokens| *tokens > 0);
        if pool.capacity.is_some() {
            let from = "dynamo_component_total_blocks * dynamo_frontend_model_kv_cache_block_size";
            draft.notes.chose("capacity", from);
        }
    }
    if let Some((mut of_pool, _)) = draft.pools.pop_first() {
        of_pool.model = of_pool.model.or(key.model);
        draft.pools.insert(of_pool, pool);
    }
}

/// The role that `dynamo_component` names, where it names one: workers of one role are often called
/// `backend`, which says nothing.
fn role(page: &Page<'_>) -> Option<Role> {
    let mut roles = TABLE.gauges.iter().flat_map(|gauge| {
        page.samples(gauge.name)
            .filter_map(|sample| sample.label("dynamo_component")?.parse::<Role>().ok())
    });
    let first = roles.next()?;
    roles.all(|role| role == first).then_some(first)
}
