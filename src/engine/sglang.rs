//! SGLang, 0.4.6 to 0.5.23.
//!
//! Its scheduler publishes one series per rank, with `model_name`, `engine_type`, `tp_rank`,
//! `pp_rank`, `moe_ep_rank`, `dp_rank` (with data parallelism), `priority` (with priority
//! scheduling, where the empty one is the total) and whatever labels the operator adds. Only
//! models and data-parallel ranks are pools of their own. [`pool`] says which gauge gives which
//! value.

mod pool;

use super::gauges::{Key, Sheet, Unit, whole};
use crate::exposition::{Page, Sample};
use crate::kv::{Pool, Reading, Role};
use pool::Chosen;

/// The gauges that speak of the KV pool itself: their `engine_type` is the engine's role. Counters
/// are no guide, they say `unified` on a decode server with several tokenizer processes.
const KV_GAUGES: &[(&str, Unit)] = &[
    ("token_usage", Unit::Fraction),
    ("full_token_usage", Unit::Fraction),
    ("swa_token_usage", Unit::Fraction),
    ("mamba_usage", Unit::Fraction),
    ("kv_used_tokens", Unit::Count),
    ("kv_available_tokens", Unit::Count),
    ("kv_evictable_tokens", Unit::Count),
    ("num_used_tokens", Unit::Count),
    ("swa_used_tokens", Unit::Count),
    ("swa_available_tokens", Unit::Count),
    ("swa_evictable_tokens", Unit::Count),
    ("mamba_used_tokens", Unit::Count),
    ("mamba_available_tokens", Unit::Count),
    ("mamba_evictable_tokens", Unit::Count),
    ("max_total_num_tokens", Unit::Count),
    ("max_total_num_tokens_swa", Unit::Count),
    ("page_size", Unit::Count),
    ("num_pages", Unit::Count),
    ("pending_prealloc_token_usage", Unit::Fraction),
];

/// The scheduler's other gauges that are read.
const REQUEST_GAUGES: &[(&str, Unit)] = &[
    ("num_running_reqs", Unit::Count),
    ("num_queue_reqs", Unit::Count),
    ("num_prefill_bootstrap_queue_reqs", Unit::Count),
    // The name of the former until 0.5.10.
    ("num_prefill_prealloc_queue_reqs", Unit::Count),
    ("num_prefill_inflight_queue_reqs", Unit::Count),
    ("num_decode_prealloc_queue_reqs", Unit::Count),
    ("num_decode_transfer_queue_reqs", Unit::Count),
    ("cache_hit_rate", Unit::Fraction),
];

/// KV state that no value is made of: requests that lost their KV to others, queues beside the
/// scheduler's, and tokens promised to requests that are to come.
const SHOWN_ONLY: &[&str] = &[
    "num_retracted_reqs",
    "num_retracted_requests_total",
    "num_grammar_queue_reqs",
    "num_decode_host_receive_queue_reqs",
    "prealloc_full_token_usage",
    "prealloc_swa_token_usage",
];

/// 0.5.10 and its neighbours: capacity as labels, on one series without a model.
const CONFIG_INFO: &str = "cache_config_info";

/// How SGLang's names begin: `sglang:`, or `sglang_` where no colon is left (an `OpenMetrics` answer
/// without escaping, and what the router merges).
const SPELLINGS: [&str; 2] = ["sglang:", "sglang_"];

/// Every gauge that is read, without its prefix.
fn gauges() -> impl Iterator<Item = &'static str> {
    let all = KV_GAUGES.iter().chain(REQUEST_GAUGES);
    all.map(|(name, _)| *name)
}

/// Whether a family of this name carries KV state.
pub(super) fn is_kv(family: &str) -> bool {
    let name = SPELLINGS.into_iter().find_map(|s| family.strip_prefix(s));
    name.is_some_and(|name| {
        name == CONFIG_INFO || SHOWN_ONLY.contains(&name) || gauges().any(|gauge| gauge == name)
    })
}

/// Reads a page of SGLang; `None` where nothing on it is SGLang's.
pub(super) fn read(page: &Page<'_>) -> Option<Reading> {
    let prefix = prefix(page)?;
    let mut sheet = Sheet::default();
    for &(gauge, unit) in KV_GAUGES.iter().chain(REQUEST_GAUGES) {
        sheet.take(page, &format!("{prefix}{gauge}"), gauge, unit, key);
    }
    sheet.bound();

    let info = info_capacity(page, prefix);
    if sheet.rows.is_empty() && info.is_some() {
        // A fresh 0.5.10 shows nothing but this.
        sheet
            .rows
            .entry(Key {
                model: None,
                rank: None,
            })
            .or_default();
    }

    let role = role(page, prefix);
    let mut chosen = Chosen::default();
    let mut pools: Vec<Pool> = Vec::with_capacity(sheet.rows.len());
    for (key, row) in &sheet.rows {
        let mut pool = pool::read(row, role, info, &mut sheet.odd, &mut chosen);
        pool.model = key.model.as_deref().map(Into::into);
        pool.rank = key.rank.as_deref().map(Into::into);
        pools.push(pool);
    }
    Some(Reading {
        engine: None,
        role,
        pools,
        chosen: chosen.into_vec(),
        odd: sheet.odd.into_vec(),
    })
}

/// How the page spells SGLang's names. The samples decide: where no colon is left in them, HELP and
/// TYPE may keep it.
fn prefix(page: &Page<'_>) -> Option<&'static str> {
    SPELLINGS
        .into_iter()
        .find(|prefix| {
            gauges()
                .chain([CONFIG_INFO])
                .any(|name| page.samples(&format!("{prefix}{name}")).next().is_some())
        })
        // An engine so fresh that it has none of them yet.
        .or_else(|| {
            SPELLINGS.into_iter().find(|prefix| {
                page.families()
                    .iter()
                    .any(|f| f.name().starts_with(*prefix))
            })
        })
}

/// The pool that a sample speaks of; none for the parts of a total.
fn key(sample: &Sample<'_, '_>) -> Option<Key> {
    let mut key = Key {
        model: None,
        rank: None,
    };
    let mut worker = None;
    // An empty label is as if not there; an empty priority marks the total.
    for (name, value) in sample.labels().filter(|(_, value)| !value.is_empty()) {
        match name {
            "priority" => return None,
            "model_name" => key.model = Some(value.into()),
            "dp_rank" => key.rank = Some(value.into()),
            // On a page that a router merged: engines apart.
            "worker_addr" => worker = Some(value),
            _ => {}
        }
    }
    if let Some(worker) = worker {
        key.rank = Some(match key.rank {
            Some(rank) => format!("{worker} {rank}").into(),
            None => worker.into(),
        });
    }
    Some(key)
}

/// The role that the KV gauges name, or else the other gauges; `None` where they name none, several,
/// or one that changes (`dynamic`).
fn role(page: &Page<'_>, prefix: &str) -> Option<Role> {
    [KV_GAUGES, REQUEST_GAUGES]
        .into_iter()
        .find_map(|gauges| {
            let mut named: Option<Result<Role, ()>> = None;
            for (gauge, _) in gauges {
                for sample in page.samples(&format!("{prefix}{gauge}")) {
                    let Some(text) = sample.label("engine_type").filter(|t| !t.is_empty()) else {
                        continue;
                    };
                    let role = text.parse::<Role>();
                    named = match named {
                        None => Some(role),
                        Some(before) if before == role => named,
                        Some(_) => Some(Err(())),
                    };
                }
            }
            named
        })?
        .ok()
}

/// Capacity in tokens from the labels of `cache_config_info`.
fn info_capacity(page: &Page<'_>, prefix: &str) -> Option<u64> {
    page.samples(&format!("{prefix}{CONFIG_INFO}"))
        .filter_map(|sample| {
            let number = |label: &str| sample.label(label)?.parse::<f64>().ok();
            whole(number("page_size")? * number("num_pages")?)
        })
        .filter(|tokens| *tokens > 0)
        .max()
}
