//! The gauges of a page, sorted by pool and made safe: the part that every engine's file shares.
//!
//! Series that differ in labels other than those that tell pools apart (tp, pp and ep ranks, process
//! ids, an operator's own labels) speak of the same pool, and the largest counts: ranks repeat the
//! same value, and a gauge of several processes is 0 in all that don't talk to the engine. Numbers of
//! requests are the exception: where they come once for each process (label `pid`), each process
//! counts its own, so they are added up, and only then the largest of the ranks counts.

use crate::exposition::{Page, Sample};
use crate::kv::{Role, Unknown};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A fraction up to this is rounding or a moment's overlap, and reads as 1; beyond it something
/// else is meant (a percentage, another pool's tokens).
const ALMOST_ONE: f64 = 1.05;

/// Integers up to here are exact in a 64-bit float: 2^53.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// What pools that are not read are counted by.
pub(super) const TOO_MANY_POOLS: &str = "too_many_pools";

/// The most pools read from one page. The largest deployments have some hundred ranks.
pub(super) const MAX_POOLS: usize = 1024;

/// What a gauge holds.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// A share, 0 to 1.
    Fraction,
    /// A share in per cent, 0 to 100. It is read as a fraction.
    Percent,
    /// What is asked for, as a share of what there is: more than 1 where that does not do.
    Demand,
    /// A share, 0 to 1, or -1 where the engine does not keep it.
    FractionIfKept,
    /// Tokens, blocks or pages.
    Count,
    /// Requests.
    Requests,
}

/// A gauge as an engine names it, behind the beginning that all its names share.
#[derive(Clone, Copy)]
pub(super) struct Gauge {
    /// What it is called in rows and in `chosen`; no two of one engine are called the same.
    pub(super) id: &'static str,
    /// The samples' name.
    pub(super) name: &'static str,
    /// The label, and its value, of the samples that are meant. `None` for all.
    pub(super) only: Option<(&'static str, &'static str)>,
    pub(super) unit: Unit,
}

impl Gauge {
    pub(super) const fn new(name: &'static str, unit: Unit) -> Gauge {
        Gauge {
            id: name,
            name,
            only: None,
            unit,
        }
    }

    pub(super) const fn fraction(name: &'static str) -> Gauge {
        Gauge::new(name, Unit::Fraction)
    }

    pub(super) const fn count(name: &'static str) -> Gauge {
        Gauge::new(name, Unit::Count)
    }

    pub(super) const fn requests(name: &'static str) -> Gauge {
        Gauge::new(name, Unit::Requests)
    }
}

/// What tells one pool of a page from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) model: Option<Box<str>>,
    /// The engine's address on a page that a router merged of several (label `worker_addr`).
    pub(super) worker: Option<Box<str>>,
    /// Where engines of several roles are on the page.
    pub(super) role: Option<Role>,
    pub(super) rank: Option<Box<str>>,
}

impl Ord for Key {
    /// By model and engine, then by rank, with numbers in their natural order (2 before 10).
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |key: &Key| key.rank.as_deref().and_then(|r| r.parse::<u64>().ok());
        self.model
            .cmp(&other.model)
            .then_with(|| self.worker.cmp(&other.worker))
            .then_with(|| self.role.cmp(&other.role))
            .then_with(|| number(self).cmp(&number(other)))
            .then_with(|| self.rank.cmp(&other.rank))
    }
}

impl Key {
    /// The pool of an engine that has only one, and names no model.
    pub(super) const NONE: Key = Key {
        model: None,
        worker: None,
        role: None,
        rank: None,
    };

    /// The pool that a sample speaks of: `model` and `rank` are the labels that name them. An empty
    /// label is as if not there. On a page that a router merged the engines are told apart too.
    pub(super) fn of(sample: &Sample<'_, '_>, model: &str, rank: &str) -> Key {
        let mut key = Key::NONE;
        for (name, value) in sample.labels().filter(|(_, value)| !value.is_empty()) {
            if name == model {
                key.model = Some(value.into());
            } else if name == rank {
                key.rank = Some(value.into());
            } else if name == "worker_addr" {
                key.worker = Some(value.into());
            }
        }
        key
    }

    /// What the pool is called beside others of its model.
    pub(super) fn place(&self) -> Option<Arc<str>> {
        match (&self.worker, &self.rank) {
            (Some(worker), Some(rank)) => Some(format!("{worker} {rank}").into()),
            (Some(one), None) | (None, Some(one)) => Some((**one).into()),
            (None, None) => None,
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Values that can't be right, counted by reason.
#[derive(Default)]
pub(super) struct Odd(BTreeMap<&'static str, u64>);

impl Odd {
    pub(super) fn add(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// Pools of one page that are more than [`MAX_POOLS`], and so are not read.
    pub(super) fn too_many_pools(&mut self, beyond: usize) {
        if beyond > 0 {
            *self.0.entry(TOO_MANY_POOLS).or_default() += beyond as u64;
        }
    }

    pub(super) fn into_vec(self) -> Vec<(&'static str, u64)> {
        self.0.into_iter().collect()
    }

    /// The value as its unit allows it, or `None`, counted.
    pub(super) fn check(&mut self, value: f64, unit: Unit) -> Option<f64> {
        let share = matches!(unit, Unit::Fraction | Unit::FractionIfKept | Unit::Percent);
        let value = if matches!(unit, Unit::Percent) {
            value / 100.0
        } else {
            value
        };
        let (reason, value) = if value.is_nan() {
            ("nan", None)
        } else if value.is_infinite() {
            ("infinite", None)
        } else if value < 0.0 {
            ("negative", None)
        } else if share && value > ALMOST_ONE {
            ("far_above_one", None)
        } else if share && value > 1.0 {
            ("above_one", Some(1.0))
        } else if value > MAX_COUNT {
            ("too_large", None)
        } else {
            // Adding 0 turns -0 into 0.
            return Some(value + 0.0);
        };
        self.add(reason);
        value
    }
}

/// The gauges of one pool: per gauge the largest good value, or `Invalid` where none was good.
#[derive(Default)]
pub(super) struct Row(Vec<(&'static str, Result<f64, Unknown>)>);

impl Row {
    /// The gauge's value; `Absent` where the page has no sample of it for this pool.
    pub(super) fn get(&self, gauge: &str) -> Result<f64, Unknown> {
        self.0
            .iter()
            .find(|(name, _)| *name == gauge)
            .map_or(Err(Unknown::Absent), |(_, value)| *value)
    }

    /// The gauge's value as a whole number.
    pub(super) fn count(&self, gauge: &str) -> Option<u64> {
        self.get(gauge).ok().and_then(whole)
    }

    /// Takes over the gauges that this row does not have.
    pub(super) fn absorb(&mut self, other: Row) {
        for (gauge, value) in other.0 {
            if self.get(gauge) == Err(Unknown::Absent) {
                self.0.push((gauge, value));
            }
        }
    }

    fn put(&mut self, gauge: &'static str, value: Option<f64>) {
        let new = value.ok_or(Unknown::Invalid);
        match self.0.iter_mut().find(|(name, _)| *name == gauge) {
            None => self.0.push((gauge, new)),
            Some((_, old)) => {
                if let Ok(new) = new {
                    *old = Ok(old.map_or(new, |old| old.max(new)));
                }
            }
        }
    }
}

/// A checked count as an integer.
pub(super) fn whole(value: f64) -> Option<u64> {
    let value = value.round();
    // The range makes the conversion exact.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (0.0..=MAX_COUNT).contains(&value).then_some(value as u64)
}

/// A count as a float: exact up to 2^53, which is far more than any pool holds.
#[allow(clippy::cast_precision_loss)]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

/// Why tokens used are unknown where they are more than fit.
pub(super) const MORE_THAN_FIT: &str = "more than the capacity, so one of the two is wrong";

/// Whether so many tokens fit, as far as the capacity is known.
pub(super) fn fit(used: u64, capacity: Option<u64>) -> bool {
    capacity.is_none_or(|capacity| float(used) <= float(capacity) * ALMOST_ONE)
}

/// Every gauge that was taken, by pool.
#[derive(Default)]
pub(super) struct Sheet {
    pub(super) rows: BTreeMap<Key, Row>,
    pub(super) odd: Odd,
    taken: u64,
    sum: u64,
}

/// One process's number of requests.
struct OfProcess {
    key: Key,
    /// The labels but `pid`, sorted.
    labels: Vec<(Box<str>, Box<str>)>,
    pid: Box<str>,
    /// `None` where the value can't be one.
    requests: Option<f64>,
}

// === impl Sheet ===

impl Sheet {
    /// Takes the samples of `gauge`, whose name on the page begins with `prefix`. `key` says which
    /// pool a sample speaks of; a sample for which it says `None` is left out.
    pub(super) fn take<'t>(
        &mut self,
        page: &Page<'t>,
        prefix: &str,
        gauge: &Gauge,
        key: impl Fn(&Sample<'_, 't>) -> Option<Key>,
    ) {
        let name = format!("{prefix}{}", gauge.name);
        self.take_named(page, &name, gauge.id, gauge.unit, |sample| {
            let meant = gauge
                .only
                .is_none_or(|(label, value)| sample.label(label).is_some_and(|v| v == value));
            meant.then(|| key(sample)).flatten()
        });
    }

    /// Takes every sample named `name` as the gauge `id`, as [`Sheet::take`] does.
    pub(super) fn take_named<'t>(
        &mut self,
        page: &Page<'t>,
        name: &str,
        id: &'static str,
        unit: Unit,
        key: impl Fn(&Sample<'_, 't>) -> Option<Key>,
    ) {
        let mut processes = Vec::new();
        for sample in page.samples(name) {
            let Some(key) = key(&sample) else { continue };
            self.count_in(id, &sample);
            if matches!(unit, Unit::FractionIfKept) && sample.value() == -1.0 {
                continue;
            }
            let value = self.odd.check(sample.value(), unit);
            match of_process(&sample, unit) {
                Some((pid, labels)) => processes.push(OfProcess {
                    key,
                    labels,
                    pid,
                    requests: value,
                }),
                None => self.rows.entry(key).or_default().put(id, value),
            }
        }
        self.put_sums(id, processes);
    }

    /// Adds up what the processes of one rank say.
    fn put_sums(&mut self, id: &'static str, mut processes: Vec<OfProcess>) {
        // What is refused is smaller than anything.
        let of = |process: &OfProcess| process.requests.unwrap_or(-1.0);
        // Sorted, so that floats are added in the same order however the page was written; of a
        // series that stands there twice the largest counts.
        processes.sort_by(|a, b| {
            (&a.key, &a.labels, &a.pid)
                .cmp(&(&b.key, &b.labels, &b.pid))
                .then_with(|| of(b).total_cmp(&of(a)))
        });
        processes.dedup_by(|b, a| (&a.key, &a.labels, &a.pid) == (&b.key, &b.labels, &b.pid));
        for rank in processes.chunk_by(|a, b| (&a.key, &a.labels) == (&b.key, &b.labels)) {
            let Some(first) = rank.first() else { continue };
            // Without one of its parts it is no sum.
            let sum: Option<f64> = rank.iter().map(|process| process.requests).sum();
            let sum = sum.and_then(|sum| self.odd.check(sum, Unit::Requests));
            self.rows.entry(first.key.clone()).or_default().put(id, sum);
        }
    }

    /// Keeps the first [`MAX_POOLS`] pools, and counts the others.
    pub(super) fn bound(&mut self) {
        if let Some(first) = self.rows.keys().nth(MAX_POOLS).cloned() {
            let beyond = self.rows.split_off(&first);
            self.odd.too_many_pools(beyond.len());
        }
    }

    /// A number that is the same for two pages where the samples taken are the same, in whatever
    /// order; `None` where none was taken. Comparable within one build.
    pub(super) fn fingerprint(&self) -> Option<u64> {
        (self.taken > 0).then_some(self.sum)
    }

    fn count_in(&mut self, id: &'static str, sample: &Sample<'_, '_>) {
        // Labels are hashed in the page's order, as a server writes a series the same each time.
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        for label in sample.labels() {
            label.hash(&mut hasher);
        }
        sample.value_text().hash(&mut hasher);
        self.sum = self.sum.wrapping_add(hasher.finish());
        self.taken += 1;
    }
}

/// The process that a number of requests is of, and its other labels. `None` where the sample is of
/// the engine as a whole.
#[allow(clippy::type_complexity)] // Used once, and taken apart at once.
fn of_process(
    sample: &Sample<'_, '_>,
    unit: Unit,
) -> Option<(Box<str>, Vec<(Box<str>, Box<str>)>)> {
    if !matches!(unit, Unit::Requests) {
        return None;
    }
    let pid = sample.label("pid").filter(|pid| !pid.is_empty())?;
    let mut labels: Vec<(Box<str>, Box<str>)> = sample
        .labels()
        .filter(|(name, value)| *name != "pid" && !value.is_empty())
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    labels.sort_unstable();
    Some((pid.into(), labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(model: &str, rank: &str) -> Key {
        Key {
            model: Some(model.into()),
            worker: None,
            role: None,
            rank: Some(rank.into()),
        }
    }

    #[test]
    fn ranks_stand_in_the_order_of_their_numbers() {
        let mut keys = vec![key("a", "10"), key("b", "0"), key("a", "2"), key("a", "x")];
        keys.sort();
        assert_eq!(
            keys,
            [key("a", "x"), key("a", "2"), key("a", "10"), key("b", "0")]
        );
    }

    #[test]
    fn a_value_is_used_clamped_or_refused_and_counted() {
        for (value, unit, want, reason) in [
            (0.5, Unit::Fraction, Some(0.5), None),
            (1.0, Unit::Fraction, Some(1.0), None),
            (1.03, Unit::Fraction, Some(1.0), Some("above_one")),
            (1.05, Unit::Fraction, Some(1.0), Some("above_one")),
            (1.06, Unit::Fraction, None, Some("far_above_one")),
            (93.0, Unit::Fraction, None, Some("far_above_one")),
            (-0.001, Unit::Fraction, None, Some("negative")),
            (f64::NAN, Unit::Fraction, None, Some("nan")),
            (f64::INFINITY, Unit::Count, None, Some("infinite")),
            (f64::NEG_INFINITY, Unit::Count, None, Some("infinite")),
            (1e300, Unit::Count, None, Some("too_large")),
            (2_581_504.0, Unit::Count, Some(2_581_504.0), None),
        ] {
            let mut odd = Odd::default();
            assert_eq!(odd.check(value, unit), want, "{value}");
            let counted: Vec<_> = reason.map(|r| (r, 1)).into_iter().collect();
            assert_eq!(odd.into_vec(), counted, "{value}");
        }
        assert!(
            Odd::default()
                .check(-0.0, Unit::Fraction)
                .is_some_and(f64::is_sign_positive)
        );
    }

    #[test]
    fn the_largest_good_value_of_a_pool_counts() {
        let mut row = Row::default();
        for value in [Some(0.0), None, Some(0.47), Some(0.0)] {
            row.put("usage", value);
        }
        row.put("broken", None);
        assert_eq!(row.get("usage"), Ok(0.47));
        assert_eq!(row.get("broken"), Err(Unknown::Invalid));
        assert_eq!(row.get("other"), Err(Unknown::Absent));
    }
}
