//! What a page does not say: why, and what to do about it. For people; no value is made of it.
//!
//! Each engine lists what is known of its versions; the rest is said in words that fit any engine.

use super::ENGINES;
use super::mapping::SEE_LABELS;
use crate::kv::{Pool, PoolKind, Reading, Unknown, Unmapped};

/// What makes the first gauges of an engine appear.
pub(super) const SEND: &str =
    "send a request through the router (kvgauge doctor --warmup does), then look again";

/// Where it is a pity, and no more.
pub(super) const NOTHING: &str = "nothing is to be done: how full it is, is known";

/// How what gives the readings of `/v1/loads` begins in [`Reading::chosen`].
const LOADS: &str = "/v1/loads";

/// A value that no pool of a page has; the usage, where a pool does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// `usage`, `used`, `capacity`, `fill`, `running` or `queued`.
    pub value: &'static str,
    /// Whether it may come by itself, with the first requests.
    pub comes: bool,
    /// The cause, in words.
    pub why: &'static str,
    /// The next step, in words.
    pub next: &'static str,
    /// Only said where this value is there.
    beside: Option<&'static str>,
}

// === impl Lacking ===

impl Lacking {
    /// May come with the first requests.
    pub(super) const fn yet(value: &'static str, why: &'static str, next: &'static str) -> Self {
        Lacking {
            value,
            comes: true,
            why,
            next,
            beside: None,
        }
    }

    /// Does not come by itself.
    pub(super) const fn never(value: &'static str, why: &'static str, next: &'static str) -> Self {
        Lacking {
            comes: false,
            ..Lacking::yet(value, why, next)
        }
    }

    /// Of engines that never say what their cached prefixes hold.
    pub(super) const fn no_fill(why: &'static str) -> Self {
        Lacking::never("fill", why, "nothing is to be done, as only SGLang does")
    }

    /// Where the page has this other value.
    pub(super) const fn beside(self, value: &'static str) -> Self {
        Lacking {
            beside: Some(value),
            ..self
        }
    }
}

/// What to do where nothing on a page is what its mapping names.
const COMPARE: &str = "compare the mapping's metrics and labels with the page; where the engine publishes them with its \
     first request, send one, then look again";

/// Of a page that is read by a mapping.
const MAPPED: &[Lacking] = &[Lacking::yet(
    "usage",
    "it has no KV usage: no sample on its page is what its mapping names for it",
    COMPARE,
)];

/// What a reading lacks, usage first. Empty where nobody known wrote the page.
#[must_use]
pub fn lacking(reading: &Reading) -> Vec<Lacking> {
    let Some(name) = reading.engine.as_deref() else {
        return Vec::new();
    };
    let engine = ENGINES.iter().find(|engine| engine.name() == name);
    let known = engine.map_or(MAPPED, |engine| engine.lacks());
    let mut fresh = false;
    ["usage", "used", "capacity", "fill", "running", "queued"]
        .into_iter()
        .filter(|value| lacks(reading, value))
        .map(|value| {
            let fits = |lacking: &&Lacking| {
                lacking.value == value && lacking.beside.is_none_or(|other| has(reading, other))
            };
            let not_taken = || {
                // A mapping's gauges are on the page then, but not as it reads them.
                let mut passed = reading.passed_over.iter().filter(|_| engine.is_none());
                let (_, _, why) = passed.find(|(passed, _, _)| *passed == value)?;
                Some(Lacking::never(value, why, SEE_LABELS))
            };
            let lacking = not_taken()
                .or_else(|| of_the_mapping(reading, value))
                .or_else(|| of_its_kind(reading, value))
                .or_else(|| known.iter().find(fits).copied())
                .unwrap_or_else(|| of_any(value, fresh, engine.is_none()));
            // Where the usage may come, the others may come with it.
            fresh |= value == "usage" && lacking.comes;
            lacking
        })
        .collect()
}

/// Whether a pool has it, and as a value that can be one.
fn has(reading: &Reading, value: &str) -> bool {
    match value {
        "usage" => reading.pools.iter().any(|pool| pool.usage.is_ok()),
        _ => !lacks(reading, value),
    }
}

fn lacks(reading: &Reading, value: &str) -> bool {
    let none = |has: fn(&Pool) -> bool| !reading.pools.iter().any(has);
    match value {
        "usage" => {
            let absent = |pool: &Pool| pool.usage == Err(Unknown::Absent);
            reading.pools.is_empty() || reading.pools.iter().any(absent)
        }
        "used" => none(|pool| pool.used.is_some()),
        "capacity" => none(|pool| pool.capacity.is_some()),
        "fill" => none(|pool| pool.fill.is_some()),
        "running" => none(|pool| pool.running.is_some()),
        _ => none(|pool| pool.queued.is_some()),
    }
}

/// What does not depend on the engine's version.
fn of_its_kind(reading: &Reading, value: &'static str) -> Option<Lacking> {
    let from_loads = reading
        .chosen
        .iter()
        .any(|(_, from)| from.starts_with(LOADS));
    if from_loads {
        return Some(Lacking::never(
            value,
            "SGLang's loads do not say it",
            "kind = \"metrics\" at the source takes what there is from its page",
        ));
    }
    if value == "usage" && has(reading, value) {
        let why = "some of its pools have no KV usage yet";
        return Some(Lacking::yet(value, why, SEND));
    }
    let other = |pool: &Pool| pool.usage.is_ok() && pool.kind != PoolKind::Full;
    (matches!(value, "used" | "capacity") && reading.pools.iter().any(other)).then(|| {
        let why = "of its fullest pool no tokens are published";
        Lacking::never(value, why, NOTHING)
    })
}

/// What its mapping leaves out.
fn of_the_mapping(reading: &Reading, value: &'static str) -> Option<Lacking> {
    let (_, why) = reading.unmapped.iter().find(|(of, _)| *of == value)?;
    if *why == Unmapped::NoBlockSize {
        let why = "its mapping counts it in blocks, and how many tokens a block has is not known";
        let next =
            "block_size in the mapping takes the number, or the metric on the page that says it";
        return Some(Lacking::never(value, why, next));
    }
    let next = match value {
        "used" => {
            "where the page has one, add used = { metric = \"…\", unit = \"tokens\" } (or blocks) to the mapping"
        }
        "capacity" => {
            "where the page has one, add capacity = { metric = \"…\", unit = \"tokens\" } (or blocks) to the mapping"
        }
        "fill" => {
            "where the page has one, add fill = { metric = \"…\", unit = \"fraction\" } (or percent) to the mapping"
        }
        "running" => {
            "where the page has one, add running = { metric = \"…\", unit = \"requests\" } to the mapping"
        }
        "queued" => {
            "where the page has one, add queued = { metric = \"…\", unit = \"requests\" } to the mapping"
        }
        _ => return None,
    };
    Some(Lacking::never(
        value,
        "the mapping in the settings names no metric for it",
        next,
    ))
}

fn of_any(value: &'static str, fresh: bool, mapped: bool) -> Lacking {
    match value {
        _ if mapped => Lacking {
            comes: fresh,
            ..Lacking::never(
                value,
                "no sample on its page is what its mapping names for it",
                COMPARE,
            )
        },
        "usage" => Lacking::yet(
            value,
            "it has no KV usage on its page",
            "send a request through the router (kvgauge doctor --warmup does), then look again; where \
             it stays so, this version of the engine publishes none, and another may",
        ),
        _ if fresh => Lacking::yet(value, "not on the page yet", SEND),
        _ => Lacking::never(
            value,
            "not on the page",
            "it is left out everywhere; another version of the engine may publish it",
        ),
    }
}
