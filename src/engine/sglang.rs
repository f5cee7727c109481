//! SGLang, 0.4.6 to 0.5.23.
//!
//! Its scheduler publishes one series per rank, with `model_name`, `engine_type`, `tp_rank`,
//! `pp_rank`, `moe_ep_rank`, `dp_rank` (with data parallelism), `priority` (with priority
//! scheduling, where the empty one is the total) and whatever labels the operator adds. Only
//! models and data-parallel ranks are pools of their own. [`pool`] says which gauge gives which
//! value.
//!
//! `engine_type` is the role: `unified`, `prefill`, `decode`, or `dynamic` where a server changes between
//! the two (role switch). It does both then, by turns, and so is `unified`.

mod loads;
mod pool;

pub use loads::{LoadsError, read_loads};

use super::gauges::{Gauge, Key, Sheet, Unit, whole};
use super::lacking::{Lacking, SEND};
use super::notes::Notes;
use super::table::Draft;
use super::{Claim, Engine};
use crate::exposition::{Page, Sample};
use crate::kv::{Reading, Role};
use std::collections::{BTreeMap, BTreeSet};

/// See the [module](self) description.
pub(super) struct Sglang;

/// The gauges that speak of the KV pool itself: their `engine_type` is the engine's role. Counters
/// are no guide, they say `unified` on a decode server with several tokenizer processes.
const KV_GAUGES: &[Gauge] = &[
    Gauge::fraction("token_usage"),
    Gauge::fraction("full_token_usage"),
    Gauge::fraction("swa_token_usage"),
    Gauge::fraction("mamba_usage"),
    Gauge::count("kv_used_tokens"),
    Gauge::count("kv_available_tokens"),
    Gauge::count("kv_evictable_tokens"),
    Gauge::count("num_used_tokens"),
    Gauge::count("swa_used_tokens"),
    Gauge::count("swa_available_tokens"),
    Gauge::count("swa_evictable_tokens"),
    Gauge::count("mamba_used_tokens"),
    Gauge::count("mamba_available_tokens"),
    Gauge::count("mamba_evictable_tokens"),
    Gauge::count("max_total_num_tokens"),
    Gauge::count("max_total_num_tokens_swa"),
    Gauge::count("page_size"),
    Gauge::count("num_pages"),
    Gauge::new("pending_prealloc_token_usage", Unit::Demand),
];

/// The scheduler's other gauges that are read.
const REQUEST_GAUGES: &[Gauge] = &[
    Gauge::requests("num_running_reqs"),
    Gauge::requests("num_queue_reqs"),
    Gauge::requests("num_prefill_bootstrap_queue_reqs"),
    // The name of the former until 0.5.10.
    Gauge::requests("num_prefill_prealloc_queue_reqs"),
    Gauge::requests("num_prefill_inflight_queue_reqs"),
    Gauge::requests("num_decode_prealloc_queue_reqs"),
    Gauge::requests("num_decode_transfer_queue_reqs"),
    Gauge::fraction("cache_hit_rate"),
];

/// What is read beside them, most of it since 0.5.10. It names no role.
const OTHER_GAUGES: &[Gauge] = &[
    Gauge::requests("num_retracted_requests_total"),
    Gauge::requests("num_grammar_queue_reqs"),
    Gauge::count("hicache_host_used_tokens"),
    Gauge::count("hicache_host_total_tokens"),
];

/// KV state that no value is made of: prefix hits since the engine's start, requests that have lost
/// their KV to others and not got it back, tokens lost so, queues beside the scheduler's, and tokens
/// promised to requests that are to come.
const SHOWN_ONLY: &[&str] = &[
    "prefill_effective_tokens_total",
    "num_retracted_reqs",
    "num_retracted_input_tokens_total",
    "num_retracted_output_tokens_total",
    "num_paused_reqs",
    "num_decode_host_receive_queue_reqs",
    "prealloc_full_token_usage",
    "prealloc_swa_token_usage",
];

/// 0.5.10 and its neighbours: capacity as labels, on one series without a model.
const CONFIG_INFO: &str = "cache_config_info";

/// Characters of a word in `engine_type` that are shown where it is no role.
const MOST_OF_WORD: usize = 32;

/// How SGLang's names begin: `sglang:`, or `sglang_` where no colon is left (an `OpenMetrics` answer
/// without escaping, and what the router merges).
const SPELLINGS: [&str; 2] = ["sglang:", "sglang_"];

/// What is known of its versions.
const LACKS: &[Lacking] = &[
    Lacking::yet(
        "usage",
        "it has no KV usage yet: its gauges come with the first request",
        SEND,
    ),
    Lacking::never(
        "capacity",
        "this version publishes no capacity, as 0.4.6 and 0.5.5 do not",
        "GET /get_server_info of the server says it (max_total_num_tokens); newer versions have it on the page",
    )
    .beside("usage"),
    Lacking::never(
        "fill",
        "this version does not publish which tokens are free and which can be evicted",
        "newer versions do: kv_available_tokens, kv_evictable_tokens",
    )
    .beside("usage"),
];

/// Every gauge that is read.
fn gauges() -> impl Iterator<Item = &'static Gauge> {
    KV_GAUGES.iter().chain(REQUEST_GAUGES).chain(OTHER_GAUGES)
}

impl Engine for Sglang {
    fn name(&self) -> &'static str {
        "sglang"
    }

    fn is_kv(&self, family: &str) -> bool {
        let name = SPELLINGS.into_iter().find_map(|s| family.strip_prefix(s));
        name.is_some_and(|name| {
            name == CONFIG_INFO
                || SHOWN_ONLY.contains(&name)
                || gauges().any(|gauge| gauge.name == name)
        })
    }

    fn lacks(&self) -> &'static [Lacking] {
        LACKS
    }

    fn claim(&self, page: &Page<'_>) -> Option<Claim> {
        prefix(page).map(|(_, claim)| claim)
    }

    fn read(&self, page: &Page<'_>) -> Reading {
        let prefix = prefix(page).map_or(SPELLINGS[0], |(prefix, _)| prefix);
        let named = role(page, prefix);
        let mut sheet = Sheet::default();
        for gauge in gauges() {
            sheet.take(page, prefix, gauge, |sample| {
                let mut key = key(sample)?;
                if named == Named::Several {
                    key.role = Named::by(sample).role();
                }
                Some(key)
            });
        }
        let role = match named {
            Named::One(role) => Some(role),
            // Gauges that name no role are those of an engine without disaggregation.
            Named::None if !sheet.rows.is_empty() => Some(Role::Unified),
            Named::None | Named::Several => None,
        };
        let infos = info_capacities(page, prefix);
        let seen: BTreeSet<_> = sheet.rows.keys().map(|key| key.worker.clone()).collect();
        // A fresh 0.5.10 shows nothing but this.
        for worker in infos.keys().filter(|worker| !seen.contains(*worker)) {
            let key = Key {
                worker: worker.clone(),
                ..Key::NONE
            };
            sheet.rows.entry(key).or_default();
        }
        sheet.bound();

        let fingerprint = sheet.fingerprint();
        let mut notes = Notes::default();
        if let Some(word) = (named == Named::Several)
            .then(|| strange_word(page, prefix))
            .flatten()
        {
            notes.passed("role", word, "is no role that is known here");
        }
        let mut draft = Draft {
            prefix,
            role,
            pools: BTreeMap::new(),
            notes,
            odd: sheet.odd,
        };
        for (key, row) in sheet.rows {
            let role = key.role.or(role);
            let info = infos.get(&key.worker).or(infos.get(&None)).copied();
            let mut pool = pool::read(&row, role, info, &mut draft.odd, &mut draft.notes);
            pool.role = key.role.or(named.role());
            draft.pools.insert(key, pool);
        }
        draft.into_reading(self.name(), fingerprint)
    }
}

/// How the page spells SGLang's names, and how surely they are its. The samples decide: where no colon
/// is left in them, HELP and TYPE may keep it.
fn prefix(page: &Page<'_>) -> Option<(&'static str, Claim)> {
    let with_samples = SPELLINGS.into_iter().find(|prefix| {
        gauges()
            .map(|gauge| gauge.name)
            .chain([CONFIG_INFO])
            .any(|name| page.samples(&format!("{prefix}{name}")).next().is_some())
    });
    if let Some(prefix) = with_samples {
        return Some((prefix, Claim::Samples));
    }
    // An engine so fresh that it has none of them yet.
    let of_page = |prefix: &&str| {
        page.families()
            .iter()
            .any(|f| f.name().starts_with(*prefix))
    };
    let prefix = SPELLINGS.into_iter().find(of_page)?;
    Some((prefix, Claim::Names))
}

/// The pool that a sample speaks of; none for the parts of a total.
fn key(sample: &Sample<'_, '_>) -> Option<Key> {
    // An empty priority marks the total.
    let part = sample.label("priority").is_some_and(|p| !p.is_empty());
    (!part).then(|| Key::of(sample, "model_name", "dp_rank"))
}

/// What `engine_type` says on a page.
#[derive(Clone, Copy, PartialEq)]
enum Named {
    None,
    One(Role),
    /// Several roles, or a word that is none.
    Several,
}

/// The role of a word in `engine_type`.
fn role_of(word: &str) -> Option<Role> {
    match word {
        "dynamic" => Some(Role::Unified),
        word => word.parse().ok(),
    }
}

/// The first word in `engine_type`, in the order of letters, that is no role: fit for a terminal, and
/// short.
fn strange_word(page: &Page<'_>, prefix: &str) -> Option<String> {
    let mut first: Option<Box<str>> = None;
    for gauge in KV_GAUGES.iter().chain(REQUEST_GAUGES) {
        for sample in page.samples(&format!("{prefix}{}", gauge.name)) {
            let word = sample.label("engine_type").unwrap_or_default();
            let strange = !word.is_empty() && role_of(&word).is_none();
            if strange && first.as_deref().is_none_or(|first| *word < *first) {
                first = Some((&*word).into());
            }
        }
    }
    let word = first?.chars().take(MOST_OF_WORD).collect::<String>();
    Some(format!("engine_type={word:?}"))
}

impl Named {
    fn role(self) -> Option<Role> {
        match self {
            Named::One(role) => Some(role),
            Named::None | Named::Several => None,
        }
    }

    fn and(self, other: Named) -> Named {
        match (self, other) {
            (one, Named::None) | (Named::None, one) => one,
            (one, other) if one == other => one,
            _ => Named::Several,
        }
    }

    fn by(sample: &Sample<'_, '_>) -> Named {
        match sample.label("engine_type").filter(|text| !text.is_empty()) {
            Some(word) => role_of(&word).map_or(Named::Several, Named::One),
            None => Named::None,
        }
    }
}

/// The role that the KV gauges name, or else the other gauges.
fn role(page: &Page<'_>, prefix: &str) -> Named {
    let of = |gauges: &[Gauge]| {
        let names = gauges.iter().map(|gauge| format!("{prefix}{}", gauge.name));
        names.fold(Named::None, |named, name| {
            page.samples(&name)
                .fold(named, |named, sample| named.and(Named::by(&sample)))
        })
    };
    match of(KV_GAUGES) {
        Named::None => of(REQUEST_GAUGES),
        named => named,
    }
}

/// Capacity in tokens from the labels of `cache_config_info`, for each engine of the page.
fn info_capacities(page: &Page<'_>, prefix: &str) -> BTreeMap<Option<Box<str>>, u64> {
    let mut capacities = BTreeMap::new();
    for sample in page.samples(&format!("{prefix}{CONFIG_INFO}")) {
        let number = |label: &str| {
            let number: f64 = sample.label(label)?.parse().ok()?;
            (number > 0.0).then_some(number)
        };
        let pages = number("page_size").zip(number("num_pages"));
        let tokens = pages.and_then(|(size, number)| whole(size * number));
        if let Some(tokens) = tokens.filter(|tokens| *tokens > 0) {
            let most = capacities
                .entry(Key::of(&sample, "", "").worker)
                .or_insert(0);
            *most = tokens.max(*most);
        }
    }
    capacities
}
