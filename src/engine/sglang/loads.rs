//! SGLang's `GET /v1/loads` (seen in 0.5.23): the scheduler's state of now as JSON, an entry for each
//! data-parallel rank, while its gauges are renewed with each batch only.
//!
//! `token_usage` is the fullest of the engine's pools, to four decimals. `num_used_tokens` may be the
//! sliding-window pool's tokens, and `max_total_num_tokens` is the full-attention pool's capacity, so
//! the one is divided by the other only where that gives `token_usage`. Where it does not, another pool
//! is the fullest, of which there is nothing but its usage. -1 is what is not known.

use super::super::gauges::{Odd, Unit, float, whole};
use super::super::notes::Notes;
use crate::kv::{Pool, PoolKind, Queues, Reading, Role, Unknown};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most ranks that are read, as of a page.
const MOST_RANKS: usize = 1024;

/// How far `token_usage` may lie from the value it was rounded from, with room for the float.
const ROUNDING: f64 = 0.000_05 + 1e-9;

/// The text is not what `/v1/loads` answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadsError {
    /// No JSON, or of another shape. The message tells where.
    #[error("{0}")]
    Shape(String),
    /// Several ranks, of which one has no number.
    #[error("several ranks, one without dp_rank")]
    NoRank,
}

#[derive(Deserialize)]
struct Loads {
    loads: Ranks,
}

/// The first [`MOST_RANKS`] entries, and how many more there are.
struct Ranks {
    ranks: Vec<Load>,
    more: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Load {
    dp_rank: Option<u64>,
    num_running_reqs: Option<f64>,
    num_waiting_reqs: Option<f64>,
    num_used_tokens: Option<f64>,
    max_total_num_tokens: Option<f64>,
    token_usage: Option<f64>,
    cache_hit_rate: Option<f64>,
    disaggregation: Option<Disaggregation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Disaggregation {
    mode: Option<String>,
    prefill_bootstrap_queue_reqs: Option<f64>,
    prefill_inflight_queue_reqs: Option<f64>,
    decode_prealloc_queue_reqs: Option<f64>,
    decode_transfer_queue_reqs: Option<f64>,
}

/// What an answer of `/v1/loads` says of the engine's pools. No model, fill, host tier or retractions
/// stand in it, so they are unknown. A single rank has no number, as on a page.
///
/// # Errors
/// When the text is something else.
pub fn read_loads(text: &[u8]) -> Result<Reading, LoadsError> {
    let Loads { loads } = serde_json::from_slice(text)
        .map_err(|error| LoadsError::Shape(error.to_string().chars().take(200).collect()))?;
    let mut odd = Odd::default();
    let mut notes = Notes::default();
    odd.too_many_pools(loads.more);
    let several = loads.ranks.len() > 1;
    let role = role(&loads.ranks);
    let mut fingerprint = 0_u64;
    let mut pools: BTreeMap<Option<u64>, Pool> = BTreeMap::new();
    for load in &loads.ranks {
        if several && load.dp_rank.is_none() {
            return Err(LoadsError::NoRank);
        }
        fingerprint = fingerprint.wrapping_add(load.fingerprint());
        let rank = load.dp_rank.filter(|_| several);
        let mut pool = load.pool(role, &mut odd, &mut notes);
        pool.rank = rank.map(|rank| rank.to_string().into());
        // Of a rank that stands there twice the fuller counts, as of two series.
        match pools.get(&rank) {
            Some(before) if before.usage.unwrap_or(-1.0) >= pool.usage.unwrap_or(-1.0) => {}
            _ => {
                pools.insert(rank, pool);
            }
        }
    }
    let (chosen, passed_over) = notes.into_vecs();
    Ok(Reading {
        engine: Some("sglang".into()),
        role,
        fingerprint: (!pools.is_empty()).then_some(fingerprint),
        pools: pools.into_values().collect(),
        chosen,
        passed_over,
        unmapped: Vec::new(),
        odd: odd.into_vec(),
    })
}

/// The role that all ranks name; without disaggregation `mode` is `null`, as a text.
fn role(loads: &[Load]) -> Option<Role> {
    let mut roles = loads.iter().map(|load| {
        let mode = load.disaggregation.as_ref()?.mode.as_deref()?;
        match mode {
            "null" => Some(Role::Unified),
            mode => mode.parse().ok(),
        }
    });
    let first = roles.next()??;
    roles.all(|role| role == Some(first)).then_some(first)
}

/// A number as it is meant: -1 is not known.
fn known(number: Option<f64>) -> Option<f64> {
    number.filter(|number| *number != -1.0)
}

// === impl Load ===

impl Load {
    fn pool(&self, role: Option<Role>, odd: &mut Odd, notes: &mut Notes) -> Pool {
        let mut pool = Pool::unknown(Unknown::Absent);
        let mut count = |number: Option<f64>, unit| {
            known(number).and_then(|number| whole(odd.check(number, unit)?))
        };
        let used = count(self.num_used_tokens, Unit::Count);
        let capacity = count(self.max_total_num_tokens, Unit::Count);
        pool.running = count(self.num_running_reqs, Unit::Requests);
        pool.queued = count(self.num_waiting_reqs, Unit::Requests);
        if let (Some(queues), Some(role)) = (&self.disaggregation, role) {
            match role {
                Role::Prefill => {
                    pool.queues = Queues {
                        bootstrap: count(queues.prefill_bootstrap_queue_reqs, Unit::Requests),
                        inflight: count(queues.prefill_inflight_queue_reqs, Unit::Requests),
                        ..Queues::default()
                    }
                }
                Role::Decode => {
                    pool.queues = Queues {
                        prealloc: count(queues.decode_prealloc_queue_reqs, Unit::Requests),
                        transfer: count(queues.decode_transfer_queue_reqs, Unit::Requests),
                        ..Queues::default()
                    }
                }
                Role::Unified => {}
            }
        }
        if capacity == Some(0) {
            odd.add("zero_capacity");
        }
        let capacity = capacity.filter(|tokens| *tokens > 0);
        self.usage(&mut pool, used, capacity, odd, notes);
        if role != Some(Role::Decode) {
            let rate = known(self.cache_hit_rate);
            pool.hit_rate = rate.and_then(|rate| odd.check(rate, Unit::Fraction));
        }
        for (value, there, from) in [
            ("used", pool.used.is_some(), "/v1/loads num_used_tokens"),
            (
                "capacity",
                pool.capacity.is_some(),
                "/v1/loads max_total_num_tokens",
            ),
            (
                "running",
                pool.running.is_some(),
                "/v1/loads num_running_reqs",
            ),
            (
                "queued",
                pool.queued.is_some(),
                "/v1/loads num_waiting_reqs",
            ),
            (
                "hit_rate",
                pool.hit_rate.is_some(),
                "/v1/loads cache_hit_rate",
            ),
        ] {
            if there {
                notes.chose(value, from);
            }
        }
        for (queue, requests) in pool.queues.iter() {
            if requests.is_some() {
                notes.chose(queue, "/v1/loads disaggregation");
            }
        }
        pool
    }

    /// Usage, and what it is made of.
    fn usage(
        &self,
        pool: &mut Pool,
        used: Option<u64>,
        capacity: Option<u64>,
        odd: &mut Odd,
        notes: &mut Notes,
    ) {
        let Some(stated) = known(self.token_usage) else {
            // Whose tokens these are is not known then.
            return;
        };
        if let (Some(used), Some(capacity)) = (used, capacity) {
            let exact = float(used) / float(capacity);
            if (exact - stated).abs() <= ROUNDING {
                pool.usage = odd.check(exact, Unit::Fraction).ok_or(Unknown::Invalid);
                if pool.usage.is_ok() {
                    pool.used = Some(used);
                    notes.chose("usage", "/v1/loads num_used_tokens / max_total_num_tokens");
                    notes.passed("usage", "/v1/loads token_usage", "rounded to four decimals");
                }
                pool.capacity = Some(capacity);
                return;
            }
        }
        pool.usage = odd.check(stated, Unit::Fraction).ok_or(Unknown::Invalid);
        if pool.usage.is_ok() {
            pool.kind = PoolKind::Other;
            notes.chose("usage", "/v1/loads token_usage");
            notes.passed(
                "usage",
                "/v1/loads num_used_tokens / max_total_num_tokens",
                "may be of another pool than the fullest",
            );
        }
    }

    /// Of what a reading is made of, in the order of the fields.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.dp_rank.hash(&mut hasher);
        let queues = self.disaggregation.as_ref();
        for number in [
            self.num_running_reqs,
            self.num_waiting_reqs,
            self.num_used_tokens,
            self.max_total_num_tokens,
            self.token_usage,
            self.cache_hit_rate,
            queues.and_then(|q| q.prefill_bootstrap_queue_reqs),
            queues.and_then(|q| q.prefill_inflight_queue_reqs),
            queues.and_then(|q| q.decode_prealloc_queue_reqs),
            queues.and_then(|q| q.decode_transfer_queue_reqs),
        ] {
            number.map(f64::to_bits).hash(&mut hasher);
        }
        hasher.finish()
    }
}

// === impl Ranks ===

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Ranks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of loads")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ranks, A::Error> {
                let mut ranks = Vec::new();
                while ranks.len() < MOST_RANKS {
                    match list.next_element()? {
                        Some(load) => ranks.push(load),
                        None => return Ok(Ranks { ranks, more: 0 }),
                    }
                }
                let mut more = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    more += 1;
                }
                Ok(Ranks { ranks, more })
            }
        }
        deserializer.deserialize_seq(List)
    }
}
