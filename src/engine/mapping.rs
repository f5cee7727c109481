//! Reading an engine that kvgauge does not know, by a mapping that an operator gives.
//!
//! What a mapping is, and when it can be read by, is in the settings' room. A value that its unit does
//! not allow is unknown and counted, as everywhere.
//!
//! # Whose a series is
//! The labels that the mapping names as `rank` and `model` tell pools apart.
//! - A gauge without them belongs to the only pool, where there is one; of several, it is nobody's.
//! - Several series of one pool, told apart by other labels than those of ranks that share their tokens
//!   and of processes, may be pools that the mapping does not tell apart. Then the fullest's usage is
//!   the value, as of pools without a capacity, where it is known which used is of which capacity; the
//!   rest is unknown, since neither the largest nor the sum is sure to be right.

use super::gauges::{Key, Odd, Row, Sheet, Unit, fit, whole};
use super::notes::Notes;
use crate::config::{BlockSize, MappedGauge, MappedUnit, Mapping, MappingSpec};
use crate::exposition::{Page, Sample};
use crate::kv::{Pool, Reading, Role, Unknown, Unmapped};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Why a gauge gives nothing that has none of the labels by which pools are told apart.
const NOBODYS: &str =
    "has no label of `rank` or `model`, so it is not known which of several pools it is of";

/// Why several series give nothing.
const SEVERAL: &str = "has several series for one pool, which may be pools that are not told apart";

/// What to do about both.
pub(super) const SEE_LABELS: &str = "see the labels of its series on the page: `rank` names the one that tells pools apart, and \
     {label=\"value\"} behind a metric's name chooses some of its series";

/// Labels of ranks that share their tokens, and of processes: their series repeat one another, or are
/// added up.
const NOT_POOLS: [&str; 6] = [
    "worker_addr",
    "tp_rank",
    "pp_rank",
    "ep_rank",
    "moe_ep_rank",
    "pid",
];

/// How a value of this unit is checked.
fn checked_as(unit: MappedUnit) -> Unit {
    match unit {
        MappedUnit::Fraction => Unit::Fraction,
        MappedUnit::Percent => Unit::Percent,
        MappedUnit::Tokens | MappedUnit::Blocks => Unit::Count,
        MappedUnit::Requests => Unit::Requests,
    }
}

/// Whether the gauge means this sample. A label that is not there is an empty one.
fn means(gauge: &MappedGauge, sample: &Sample<'_, '_>) -> bool {
    gauge
        .labels()
        .all(|(label, value)| sample.label(label).unwrap_or_default() == value)
}

/// The gauges of one pool.
#[derive(Default)]
struct Gauges {
    row: Row,
    /// Those that have several series.
    several: BTreeSet<&'static str>,
    /// Of those, the largest quotient of used and capacity of the same labels, in the gauges' units.
    /// `None` where one has no other.
    fullest: Option<f64>,
}

impl Gauges {
    fn has(&self, value: &str) -> bool {
        self.row.get(value) != Err(Unknown::Absent)
    }

    fn of_kv(&self) -> bool {
        ["usage", "used", "capacity"].iter().any(|v| self.has(v))
    }

    fn tell_usage(&self) -> bool {
        self.has("usage") || (self.has("used") && self.has("capacity"))
    }

    fn absorb(&mut self, other: Gauges) {
        let new = other.several.iter().filter(|value| !self.has(value));
        let new: Vec<&'static str> = new.copied().collect();
        self.several.extend(new);
        self.row.absorb(other.row);
    }
}

/// What a page says when it is read by the mapping of this name. Gauges without the labels that tell
/// pools apart belong to the only pool, where there is one; of several, they are nobody's.
#[must_use]
pub fn read_mapped(page: &Page<'_>, name: &str, mapping: &Mapping) -> Reading {
    let spec = mapping.spec();
    let key = |sample: &Sample<'_, '_>| {
        Key::of(
            sample,
            spec.model.as_deref().unwrap_or_default(),
            spec.rank.as_deref().unwrap_or_default(),
        )
    };
    let mut sheet = Sheet::default();
    let mut several = BTreeSet::new();
    let mut parts = Parts::default();
    for (value, gauge) in mapping.gauges() {
        let Some(gauge) = gauge else { continue };
        let unit = checked_as(gauge.unit());
        let mut first = BTreeMap::new();
        sheet.take_named(page, gauge.name(), value, unit, |sample| {
            means(gauge, sample).then(|| key(sample))
        });
        for sample in page.samples(gauge.name()).filter(|s| means(gauge, s)) {
            let (key, labels) = (key(&sample), other_labels(&sample, gauge, spec));
            parts.take(value, &key, labels, sample.value());
            if *first.entry(key.clone()).or_insert(labels) != labels {
                several.insert((key, value));
            }
        }
    }
    sheet.bound();
    let mut odd = std::mem::take(&mut sheet.odd);
    let fingerprint = sheet.fingerprint();

    let mut pools: BTreeMap<Key, Gauges> = BTreeMap::new();
    for (key, row) in sheet.rows {
        let gauges = Gauges {
            row,
            several: BTreeSet::new(),
            fullest: parts.fullest(&key),
        };
        pools.insert(key, gauges);
    }
    for (key, value) in several {
        if let Some(gauges) = pools.get_mut(&key) {
            gauges.several.insert(value);
        }
    }
    let mut notes = Notes::default();
    put_together(&mut pools, mapping, &mut notes);

    let reader = Reader {
        mapping,
        block_size: block_size(page, spec),
    };
    let unmapped = unmapped(mapping, &pools, reader.block_size.is_some());
    let pools = pools
        .iter()
        .map(|(key, gauges)| {
            if gauges.row.get("capacity") == Ok(0.0) {
                odd.add("zero_capacity");
            }
            let mut pool = reader.pool(gauges, &mut odd, &mut notes);
            pool.model = key.model.as_deref().map(Into::into);
            pool.rank = key.place();
            pool
        })
        .collect();
    let (chosen, passed_over) = notes.into_vecs();
    Reading {
        engine: Some(name.to_owned().into()),
        role: Some(Role::Unified),
        pools,
        chosen,
        passed_over,
        unmapped,
        odd: odd.into_vec(),
        fingerprint,
    }
}

/// What can't be read by the mapping, whatever is on the page.
fn unmapped(
    mapping: &Mapping,
    pools: &BTreeMap<Key, Gauges>,
    block_size: bool,
) -> Vec<(&'static str, Unmapped)> {
    let why = |value: &str, gauge: Option<&MappedGauge>| match gauge {
        // What it is made of is named: a mapping has one or the other.
        None => (value != "usage").then_some(Unmapped::NoMetric),
        Some(gauge) => {
            let blocks = gauge.unit() == MappedUnit::Blocks && !block_size;
            let is_there = || pools.values().any(|gauges| gauges.has(value));
            (blocks && is_there()).then_some(Unmapped::NoBlockSize)
        }
    };
    mapping
        .gauges()
        .filter_map(|(value, gauge)| Some((value, why(value, gauge)?)))
        .collect()
}

/// What is used and what fits, by their labels.
#[derive(Default)]
struct Parts {
    used: BTreeMap<(Key, u64), f64>,
    capacity: BTreeMap<(Key, u64), f64>,
}

impl Parts {
    fn take(&mut self, value: &str, key: &Key, labels: u64, number: f64) {
        let parts = match value {
            "used" => &mut self.used,
            "capacity" => &mut self.capacity,
            _ => return,
        };
        // What can't be a number of tokens was counted before.
        if let Some(number) = Odd::default().check(number, Unit::Count) {
            let largest = parts.entry((key.clone(), labels)).or_insert(number);
            *largest = number.max(*largest);
        }
    }

    fn fullest(&self, key: &Key) -> Option<f64> {
        let of_key = |parts: &BTreeMap<(Key, u64), f64>| {
            let all = parts.range((key.clone(), 0)..=(key.clone(), u64::MAX));
            all.map(|((_, labels), number)| (*labels, *number))
                .collect::<BTreeMap<_, _>>()
        };
        let (used, capacity) = (of_key(&self.used), of_key(&self.capacity));
        if used.len() != capacity.len() {
            return None;
        }
        let quotients = used.iter().map(|(labels, used)| {
            let capacity = capacity.get(labels).filter(|capacity| **capacity > 0.0)?;
            Some(used / capacity)
        });
        let quotients: Vec<f64> = quotients.collect::<Option<_>>()?;
        quotients.into_iter().reduce(f64::max)
    }
}

/// The same number for the same labels in whatever order, but for those of the pool, those by which the
/// gauge's samples are chosen, and those in [`NOT_POOLS`].
fn other_labels(sample: &Sample<'_, '_>, gauge: &MappedGauge, spec: &MappingSpec) -> u64 {
    sample
        .labels()
        .filter(|(name, value)| {
            let of_pool = [spec.model.as_deref(), spec.rank.as_deref()].contains(&Some(*name));
            let chosen = gauge.labels().any(|(label, _)| label == *name);
            !of_pool && !chosen && !value.is_empty() && !NOT_POOLS.contains(name)
        })
        .fold(0, |sum, label| {
            let mut hasher = DefaultHasher::new();
            label.hash(&mut hasher);
            hasher.finish().wrapping_add(sum)
        })
}

/// Gives gauges that have not all labels of a pool to the only one that they may be of; where there are
/// several, to none.
fn put_together(pools: &mut BTreeMap<Key, Gauges>, mapping: &Mapping, notes: &mut Notes) {
    let spec = mapping.spec();
    let lacks_label = |key: &Key| {
        (spec.rank.is_some() && key.rank.is_none()) || (spec.model.is_some() && key.model.is_none())
    };
    let loose: Vec<Key> = pools
        .iter()
        .filter(|(key, gauges)| lacks_label(key) && !gauges.tell_usage())
        .map(|(key, _)| key.clone())
        .collect();
    for key in loose {
        let may_be = |(other, gauges): &(&Key, &Gauges)| {
            **other != key && gauges.of_kv() && agree(&key, other)
        };
        let mut owners = pools.iter().filter(may_be).map(|(key, _)| key.clone());
        let (owner, another) = (owners.next(), owners.next());
        let Some(owner) = owner else { continue };
        let Some(gauges) = pools.remove(&key) else {
            continue;
        };
        if another.is_none() {
            pools.entry(owner).or_default().absorb(gauges);
            continue;
        }
        for (value, gauge) in mapping.gauges() {
            if let Some(gauge) = gauge.filter(|_| gauges.has(value)) {
                notes.passed(value, gauge.to_string(), NOBODYS);
            }
        }
    }
    // The other way round: the only pool has no label, its requests have.
    if let [(a, of_a), (b, of_b)] = pools.iter().collect::<Vec<_>>()[..]
        && agree(a, b)
        && of_a.of_kv() != of_b.of_kv()
    {
        let loose = if of_a.of_kv() { b } else { a }.clone();
        if let Some(gauges) = pools.remove(&loose)
            && let Some(mut pool) = pools.first_entry()
        {
            pool.get_mut().absorb(gauges);
        }
    }
}

/// Whether two keys may be one pool's: what both name is the same.
fn agree(a: &Key, b: &Key) -> bool {
    let same = |a: &Option<Box<str>>, b: &Option<Box<str>>| a.is_none() || b.is_none() || a == b;
    same(&a.model, &b.model) && same(&a.worker, &b.worker) && same(&a.rank, &b.rank)
}

/// How many tokens a block has.
fn block_size(page: &Page<'_>, spec: &MappingSpec) -> Option<f64> {
    match spec.block_size.as_ref()? {
        BlockSize::Tokens(tokens) => whole_float(*tokens),
        BlockSize::Gauge(gauge) => {
            let mut sizes = Sheet::default();
            sizes.take_named(page, gauge.name(), "block_size", Unit::Count, |sample| {
                means(gauge, sample).then_some(Key::NONE)
            });
            let row = sizes.rows.get(&Key::NONE);
            row.and_then(|row| row.get("block_size").ok())
        }
    }
}

struct Reader<'a> {
    mapping: &'a Mapping,
    block_size: Option<f64>,
}

impl Reader<'_> {
    fn pool(&self, gauges: &Gauges, odd: &mut Odd, notes: &mut Notes) -> Pool {
        let spec = self.mapping.spec();
        let row = &gauges.row;
        let apart = ["usage", "used", "capacity"]
            .iter()
            .all(|value| !gauges.several.contains(value));
        let same_unit = spec.used.as_ref().map(MappedGauge::unit)
            == spec.capacity.as_ref().map(MappedGauge::unit);
        let used = self.tokens(spec.used.as_ref(), row.get("used"));
        let capacity = self.tokens(spec.capacity.as_ref(), row.get("capacity"));
        let parts = if same_unit {
            row.get("used").ok().zip(row.get("capacity").ok())
        } else {
            used.zip(capacity)
        };

        let share = if apart {
            let parts = parts.filter(|(_, capacity)| *capacity > 0.0);
            parts.map(|(used, capacity)| used / capacity)
        } else {
            gauges.fullest.and_then(|share| {
                let units = [&spec.used, &spec.capacity].map(|g| g.as_ref().map(MappedGauge::unit));
                match units {
                    _ if same_unit => Some(share),
                    [Some(MappedUnit::Blocks), _] => Some(share * self.block_size?),
                    _ => Some(share / self.block_size?),
                }
            })
        };

        let mut pool = Pool::unknown(Unknown::Absent);
        let quotient = row.get("usage") == Err(Unknown::Absent);
        pool.usage = match (row.get("usage"), share) {
            (Err(Unknown::Absent), Some(share)) => {
                odd.check(share, Unit::Fraction).ok_or(Unknown::Invalid)
            }
            (usage, _) => usage,
        };
        pool.capacity = capacity
            .and_then(whole)
            .filter(|tokens| *tokens > 0 && apart);
        pool.used = used
            .and_then(whole)
            .filter(|used| apart && pool.usage.is_ok() && fit(*used, pool.capacity));
        pool.fill = row.get("fill").ok();
        let once = |value| !gauges.several.contains(value);
        pool.running = row.count("running").filter(|_| once("running"));
        pool.queued = row.count("queued").filter(|_| once("queued"));
        pool.hit_rate = row.get("hit_rate").ok().filter(|_| once("hit_rate"));

        for (value, known) in [
            ("usage", pool.usage.is_ok()),
            ("used", pool.used.is_some()),
            ("capacity", pool.capacity.is_some()),
            ("fill", pool.fill.is_some()),
            ("running", pool.running.is_some()),
            ("queued", pool.queued.is_some()),
            ("hit_rate", pool.hit_rate.is_some()),
        ] {
            let there = gauges.has(value)
                || (value == "usage" && gauges.has("used") && gauges.has("capacity"));
            if !there {
                continue;
            }
            let from = self.from(value, value == "usage" && quotient, same_unit);
            let of_kv = matches!(value, "usage" | "used" | "capacity");
            if known {
                notes.chose(value, from);
            } else if !once(value) || (of_kv && !apart) {
                notes.passed(value, from, SEVERAL);
            }
        }
        pool
    }

    /// In tokens, where they are known.
    fn tokens(&self, gauge: Option<&MappedGauge>, value: Result<f64, Unknown>) -> Option<f64> {
        let value = value.ok()?;
        match gauge?.unit() {
            MappedUnit::Blocks => Some(value * self.block_size?),
            _ => Some(value),
        }
    }

    /// What gives a value, in the words of the mapping.
    fn from(&self, value: &str, quotient: bool, same_unit: bool) -> String {
        let of = |value: &str| self.mapping.gauges().find(|(v, _)| *v == value)?.1;
        let called = |value: &str, in_tokens: bool| {
            let Some(gauge) = of(value) else {
                return String::new();
            };
            match &self.mapping.spec().block_size {
                Some(size) if in_tokens && gauge.unit() == MappedUnit::Blocks => match size {
                    BlockSize::Tokens(tokens) => format!("{gauge} * {tokens}"),
                    BlockSize::Gauge(size) => format!("{gauge} * {size}"),
                },
                _ => gauge.to_string(),
            }
        };
        if quotient {
            let part = |value| match called(value, !same_unit) {
                product if product.contains(" * ") => format!("({product})"),
                gauge => gauge,
            };
            format!("{} / {}", part("used"), part("capacity"))
        } else {
            called(value, true)
        }
    }
}

/// A number of tokens as a float.
fn whole_float(tokens: u64) -> Option<f64> {
    let float = super::gauges::float(tokens);
    whole(float).map(|_| float)
}
