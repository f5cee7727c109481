//! Names on a page of no known engine that look like KV usage, for whoever writes a mapping.
//!
//! It is a guess by words in names, and only ever shown to a person: no value is read by it.

use super::MappedUnit;
use crate::exposition::{Family, MetricType, Page};

/// The most that are given.
const MOST: usize = 16;

/// Bytes of the longest name that is given.
const MOST_NAME: usize = 200;

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
    /// A usage that the likeliest used and capacity say as well, and more exactly.
    pub spare: bool,
}

/// What looks like KV usage on the page, at most 16; usage first, then in order of names. Empty where
/// nothing does.
#[must_use]
pub fn suspects(page: &Page<'_>) -> Vec<Suspect> {
    let mut found: Vec<(Rank, Suspect, f64)> = page
        .families()
        .iter()
        .filter(|family| matches!(family.kind(), MetricType::Gauge | MetricType::Unknown))
        .filter(|family| family.sample_count() > 0)
        .filter_map(|family| suspect(page, family))
        .collect();
    found.sort_by(|a, b| (a.0, &a.1.metric).cmp(&(b.0, &b.1.metric)));
    found.truncate(MOST);
    if let Some(at) = rounded(&found)
        && let Some((_, usage, _)) = found.get_mut(at)
    {
        usage.spare = true;
    }
    found.into_iter().map(|(_, suspect, _)| suspect).collect()
}

/// Where the first usage is, if it is the first used over the first capacity to two decimals.
fn rounded(found: &[(Rank, Suspect, f64)]) -> Option<usize> {
    let first = |value: &str| found.iter().position(|(_, s, _)| s.value == value);
    let (usage, used, capacity) = (first("usage")?, first("used")?, first("capacity")?);
    let ((_, s, share), (_, u, used), (_, c, capacity)) =
        (found.get(usage)?, found.get(used)?, found.get(capacity)?);
    let share = match s.unit {
        MappedUnit::Percent => share / 100.0,
        _ => *share,
    };
    let same = u.unit == c.unit && (used / capacity - share).abs() < 0.011;
    (same && *capacity > 0.0).then_some(usage)
}

/// What comes first: by the value, then the likelier, then the shorter name.
type Rank = (u8, u8, usize);

fn suspect(page: &Page<'_>, family: &Family<'_>) -> Option<(Rank, Suspect, f64)> {
    let name = family.name().to_ascii_lowercase();
    let words: Vec<&str> = name.split(['_', ':']).collect();
    let any = |of: &[&str]| words.iter().any(|word| of.contains(word));
    // What is free is neither used nor all there is.
    let free = any(&["free", "available", "avail", "evictable", "remaining"]);
    // Other caches, other memory, and what is counted up.
    if any(&[
        "lora", "mm", "encoder", "http", "gc", "cpu", "disk", "swap", "bytes", "seconds",
        "latency", "time", "host", "memory", "mem", "gb", "gib", "mb", "mib",
    ]) || matches!(words.last(), Some(&("total" | "created")))
        || free
        || name.len() > MOST_NAME
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
    } else if kv && any(&["max", "total", "capacity", "num", "size"]) && amounts(&words) {
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
    // A part of the pool, or what is not of the pool's tokens.
    let part = any(&["pending", "prealloc", "swa", "mamba", "grammar", "offline"]);
    let whole = any(&["max", "total", "capacity"]) && !any(&["running", "graph", "seq", "len"]);
    let unlikely = match value {
        "used" => u8::from(!any(&["kv", "kvcache"])),
        "capacity" => u8::from(!whole),
        _ => 0,
    };
    Some((
        (rank, unlikely + 2 * u8::from(part), words.len()),
        Suspect {
            value,
            metric: family.name().into(),
            unit,
            labels: differing(page, family),
            spare: false,
        },
        largest,
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
        .filter(|(name, _)| name.len() <= MOST_NAME)
        .map(|(name, _)| name.into())
        .take(MOST)
        .collect()
}
