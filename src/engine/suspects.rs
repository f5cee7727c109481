//! Names on a page of no known engine that look like KV usage, for whoever writes a mapping.
//!
//! It is a guess by words in names, and only ever shown to a person: no value is read by it.

use super::MappedUnit;
use crate::exposition::{Family, MetricType, Page};

/// The most that are given.
const MOST: usize = 16;

/// A metric that may hold a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The value that it may hold: a key of a mapping.
    pub value: &'static str,
    /// The metric's name.
    pub metric: Box<str>,
    /// The unit that its name and its values suggest.
    pub unit: MappedUnit,
    /// Labels that several of its samples differ in, so that one may have to be selected.
    pub labels: Vec<Box<str>>,
}

/// What looks like KV usage on the page, at most 16; usage first, then in order of names. Empty where
/// nothing does.
#[must_use]
pub fn suspects(page: &Page<'_>) -> Vec<Suspect> {
    let mut found: Vec<(u8, Suspect)> = page
        .families()
        .iter()
        .filter(|family| matches!(family.kind(), MetricType::Gauge | MetricType::Unknown))
        .filter(|family| family.sample_count() > 0)
        .filter_map(|family| suspect(page, family))
        .collect();
    found.sort_by(|a, b| (a.0, &a.1.metric).cmp(&(b.0, &b.1.metric)));
    found.truncate(MOST);
    found.into_iter().map(|(_, suspect)| suspect).collect()
}

fn suspect(page: &Page<'_>, family: &Family<'_>) -> Option<(u8, Suspect)> {
    let name = family.name().to_ascii_lowercase();
    let words: Vec<&str> = name.split(['_', ':']).collect();
    let any = |of: &[&str]| words.iter().any(|word| of.contains(word));
    // Other caches, other memory, and what is counted up.
    if any(&[
        "lora", "mm", "encoder", "http", "gc", "cpu", "disk", "swap", "bytes", "seconds",
        "latency", "time", "host",
    ]) || matches!(words.last(), Some(&("total" | "created")))
    {
        return None;
    }
    let largest = page
        .family_samples(family)
        .map(|sample| sample.value())
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let kv = any(&[
        "kv", "kvcache", "token", "tokens", "block", "blocks", "cache",
    ]);
    let share = any(&[
        "usage",
        "utilization",
        "utilisation",
        "util",
        "perc",
        "percent",
        "percentage",
        "ratio",
        "fraction",
        "occupancy",
        "pressure",
    ]);
    let amount = if any(&["block", "blocks", "page", "pages"]) {
        MappedUnit::Blocks
    } else {
        MappedUnit::Tokens
    };
    let fraction = if largest > 1.05 {
        MappedUnit::Percent
    } else {
        MappedUnit::Fraction
    };
    let (rank, value, unit) = if any(&["hit", "hits", "reuse"]) {
        (kv && (share || any(&["rate"]))).then_some((5, "hit_rate", fraction))
    } else if kv && share && largest <= 105.0 {
        Some((0, "usage", fraction))
    } else if kv && any(&["used", "active", "inuse", "allocated"]) {
        Some((1, "used", amount))
    } else if kv && any(&["max", "capacity", "num", "size", "available"]) && amounts(&words) {
        Some((2, "capacity", amount))
    } else if any(&["requests", "reqs", "request", "sequences", "seqs"]) {
        if any(&["running", "active", "processing", "inflight"]) {
            Some((3, "running", MappedUnit::Requests))
        } else if any(&["waiting", "queued", "queue", "pending", "deferred"]) {
            Some((4, "queued", MappedUnit::Requests))
        } else {
            None
        }
    } else {
        None
    }?;
    Some((
        rank,
        Suspect {
            value,
            metric: family.name().into(),
            unit,
            labels: differing(page, family),
        },
    ))
}

/// Whether it counts tokens or blocks.
fn amounts(words: &[&str]) -> bool {
    let counted = ["token", "tokens", "block", "blocks", "page", "pages"];
    words.iter().any(|word| counted.contains(word))
}

/// The labels whose values differ between the first samples of a family.
fn differing(page: &Page<'_>, family: &Family<'_>) -> Vec<Box<str>> {
    let mut samples = page.family_samples(family).take(MOST);
    let Some(first) = samples.next() else {
        return Vec::new();
    };
    let rest: Vec<_> = samples.collect();
    first
        .labels()
        .filter(|(name, value)| {
            rest.iter()
                .any(|sample| sample.label(name).as_deref() != Some(value))
        })
        .map(|(name, _)| name.into())
        .take(MOST)
        .collect()
}
