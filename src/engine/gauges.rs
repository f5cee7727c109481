//! The gauges of a page, sorted by pool and made safe: the part that every engine's file shares.
//!
//! Series that differ in labels other than those that tell pools apart (tp, pp and ep ranks, process
//! ids, an operator's own labels) speak of the same pool, and the largest counts: ranks repeat the
//! same value, and a gauge of several processes is 0 in all that don't talk to the engine.

use crate::exposition::{Page, Sample};
use crate::kv::Unknown;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A fraction up to this is rounding or a moment's overlap, and reads as 1; beyond it something
/// else is meant (a percentage, another pool's tokens).
const ALMOST_ONE: f64 = 1.05;

/// Integers up to here are exact in a 64-bit float: 2^53.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// The most pools read from one page. The largest deployments have some hundred ranks.
const MAX_POOLS: usize = 1024;

/// What a gauge holds.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// A share, 0 to 1.
    Fraction,
    /// Tokens, pages or requests.
    Count,
}

/// What tells one pool of a page from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) model: Option<Box<str>>,
    pub(super) rank: Option<Box<str>>,
}

impl Ord for Key {
    /// By model, then by rank, with numbers in their natural order (2 before 10).
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |key: &Key| key.rank.as_deref().and_then(|r| r.parse::<u64>().ok());
        self.model
            .cmp(&other.model)
            .then_with(|| number(self).cmp(&number(other)))
            .then_with(|| self.rank.cmp(&other.rank))
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

    pub(super) fn into_vec(self) -> Vec<(&'static str, u64)> {
        self.0.into_iter().collect()
    }

    /// The value as its unit allows it, or `None`, counted.
    pub(super) fn check(&mut self, value: f64, unit: Unit) -> Option<f64> {
        let (reason, value) = if value.is_nan() {
            ("nan", None)
        } else if value.is_infinite() {
            ("infinite", None)
        } else if value < 0.0 {
            ("negative", None)
        } else {
            match unit {
                Unit::Fraction if value > ALMOST_ONE => ("far_above_one", None),
                Unit::Fraction if value > 1.0 => ("above_one", Some(1.0)),
                Unit::Count if value > MAX_COUNT => ("too_large", None),
                // Adding 0 turns -0 into 0.
                _ => return Some(value + 0.0),
            }
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

/// Every gauge that was taken, by pool.
#[derive(Default)]
pub(super) struct Sheet {
    pub(super) rows: BTreeMap<Key, Row>,
    pub(super) odd: Odd,
}

impl Sheet {
    /// Takes every sample named `sample_name` as the gauge `gauge`. `key` says which pool a sample
    /// speaks of; a sample for which it says `None` is left out.
    pub(super) fn take<'t>(
        &mut self,
        page: &Page<'t>,
        sample_name: &str,
        gauge: &'static str,
        unit: Unit,
        key: impl Fn(&Sample<'_, 't>) -> Option<Key>,
    ) {
        for sample in page.samples(sample_name) {
            if let Some(key) = key(&sample) {
                let value = self.odd.check(sample.value(), unit);
                self.rows.entry(key).or_default().put(gauge, value);
            }
        }
    }

    /// Keeps the first [`MAX_POOLS`] pools, and counts it when there were more.
    pub(super) fn bound(&mut self) {
        if let Some(beyond) = self.rows.keys().nth(MAX_POOLS).cloned() {
            self.rows.split_off(&beyond);
            self.odd.add("too_many_pools");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(model: &str, rank: &str) -> Key {
        Key {
            model: Some(model.into()),
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
