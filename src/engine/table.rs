//! An engine as a table: which gauges it has, and which of them give which value.
//!
//! Most engines are read by nothing but their table. What does not fit one (values that stand in
//! labels, another engine's numbers on the same page) an engine's file adds in [`Table::then`].

use super::gauges::{Gauge, Key, MORE_THAN_FIT, Odd, Row, Sheet, Unit, fit, whole};
use super::notes::Notes;
use super::{Claim, Engine, Lacking};
use crate::exposition::Page;
use crate::kv::{Pool, Reading, Role, Unknown};
use std::collections::BTreeMap;

/// What a candidate is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Usage,
    Used,
    Capacity,
    Running,
    Queued,
    Preempted,
    HitRate,
    Host,
}

/// How a value is made of gauges, which are named by [`Gauge::id`].
#[derive(Clone, Copy)]
pub(super) enum Formula {
    Is(&'static str),
    /// The product of two.
    Times(&'static str, &'static str),
    /// The quotient of two, a share.
    Over(&'static str, &'static str),
    /// The sum of two; the second is 0 where the page does not have it.
    Plus(&'static str, &'static str),
}

/// One way to a value.
pub(super) struct Candidate {
    value: Value,
    formula: Formula,
    /// What it is called in `chosen` and `passed_over`.
    called: &'static str,
    /// Why it is passed over where one that stands before it in the table gave the value.
    passed: &'static str,
}

/// See the [module](self) description.
pub(super) struct Table {
    /// The name in [`Reading::engine`].
    pub(super) name: &'static str,
    /// How all its names begin: a row for each spelling. The first with samples on the page counts.
    pub(super) spellings: &'static [&'static str],
    /// Beginnings that only this engine's names have: a family that begins so shows the engine,
    /// whatever it is.
    pub(super) own: &'static [&'static str],
    /// Gauges (without the beginning) that show the engine. Empty: all of `gauges`.
    pub(super) shown_by: &'static [&'static str],
    /// The label that names the model.
    pub(super) model: &'static str,
    /// The label that tells its pools apart.
    pub(super) rank: &'static str,
    pub(super) gauges: &'static [Gauge],
    /// The ways to each value, the best first.
    pub(super) candidates: &'static [Candidate],
    /// Value, samples' name, reason: what looks like a candidate, and is none.
    pub(super) never: &'static [(&'static str, &'static str, &'static str)],
    /// Other families with KV state, and those that `then` reads.
    pub(super) shown_only: &'static [&'static str],
    /// What is known of values that a page lacks, as `doctor` says it.
    pub(super) lacks: &'static [Lacking],
    /// What is left to do when the table has been read.
    pub(super) then: fn(&Page<'_>, &mut Draft),
}

/// A reading that is being made.
pub(super) struct Draft {
    /// How names begin on this page.
    pub(super) prefix: &'static str,
    pub(super) role: Option<Role>,
    pub(super) pools: BTreeMap<Key, Pool>,
    pub(super) notes: Notes,
    pub(super) odd: Odd,
}

// === impl Value ===

impl Value {
    /// In the order they are read: what is used is told only where the usage is known, and fits.
    const ALL: [Value; 8] = [
        Value::Usage,
        Value::Capacity,
        Value::Used,
        Value::Running,
        Value::Queued,
        Value::Preempted,
        Value::HitRate,
        Value::Host,
    ];

    /// The name in `chosen`.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Value::Usage => "usage",
            Value::Used => "used",
            Value::Capacity => "capacity",
            Value::Running => "running",
            Value::Queued => "queued",
            Value::Preempted => "preempted",
            Value::HitRate => "hit_rate",
            Value::Host => "host",
        }
    }

    /// Puts it into the pool.
    fn put(self, pool: &mut Pool, value: f64) {
        match self {
            Value::Usage => pool.usage = Ok(value),
            Value::Used => pool.used = whole(value),
            Value::Capacity => pool.capacity = whole(value),
            Value::Running => pool.running = whole(value),
            Value::Queued => pool.queued = whole(value),
            Value::Preempted => pool.preempted = whole(value),
            Value::HitRate => pool.hit_rate = Some(value),
            Value::Host => pool.host = Some(value),
        }
    }
}

// === impl Formula ===

impl Formula {
    fn of(self, row: &Row, odd: &mut Odd) -> Result<f64, Unknown> {
        let both = |a, b| match (row.get(a), row.get(b)) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (Err(Unknown::Invalid), _) | (_, Err(Unknown::Invalid)) => Err(Unknown::Invalid),
            _ => Err(Unknown::Absent),
        };
        match self {
            Formula::Is(gauge) => row.get(gauge),
            Formula::Times(a, b) => {
                let (a, b) = both(a, b)?;
                odd.check(a * b, Unit::Count).ok_or(Unknown::Invalid)
            }
            Formula::Over(a, b) => {
                let (a, b) = both(a, b)?;
                if b <= 0.0 {
                    return Err(Unknown::Absent);
                }
                odd.check(a / b, Unit::Fraction).ok_or(Unknown::Invalid)
            }
            Formula::Plus(a, b) => {
                let more = match row.get(b) {
                    Err(Unknown::Absent) => 0.0,
                    more => more?,
                };
                Ok(row.get(a)? + more)
            }
        }
    }
}

// === impl Candidate ===

impl Candidate {
    /// The gauge itself gives the value.
    pub(super) const fn is(value: Value, gauge: &'static str, passed: &'static str) -> Candidate {
        Candidate {
            value,
            formula: Formula::Is(gauge),
            called: gauge,
            passed,
        }
    }

    pub(super) const fn made(
        value: Value,
        formula: Formula,
        called: &'static str,
        passed: &'static str,
    ) -> Candidate {
        Candidate {
            value,
            formula,
            called,
            passed,
        }
    }
}

// === impl Table ===

impl Table {
    /// How names begin on this page, and how surely they are this engine's.
    fn find(&self, page: &Page<'_>) -> Option<(&'static str, Claim)> {
        let shows =
            |gauge: &&Gauge| self.shown_by.is_empty() || self.shown_by.contains(&gauge.name);
        let named = |what: &dyn Fn(&str) -> bool| {
            self.spellings.iter().copied().find(|prefix| {
                let mut gauges = self.gauges.iter().filter(shows);
                gauges.any(|gauge| what(&format!("{prefix}{}", gauge.name)))
            })
        };
        if let Some(prefix) = named(&|name| page.samples(name).next().is_some()) {
            return Some((prefix, Claim::Samples));
        }
        if let Some(prefix) = named(&|name| page.family(name).is_some()) {
            return Some((prefix, Claim::Names));
        }
        let own = self
            .own
            .iter()
            .copied()
            .find(|own| page.families().iter().any(|f| f.name().starts_with(own)))?;
        let prefix = self.spellings.iter().find(|s| own.starts_with(**s));
        Some((prefix.copied().unwrap_or(own), Claim::Names))
    }

    fn pool(&self, row: &Row, odd: &mut Odd, notes: &mut Notes) -> Pool {
        let mut pool = Pool::unknown(Unknown::Absent);
        for value in Value::ALL {
            if value == Value::Used && pool.usage.is_err() {
                continue;
            }
            let mut known = false;
            for candidate in self.candidates.iter().filter(|c| c.value == value) {
                match candidate.formula.of(row, odd) {
                    Ok(_) if known => {
                        notes.passed(value.as_str(), candidate.called, candidate.passed);
                    }
                    Ok(number) if value == Value::Capacity && whole(number) == Some(0) => {
                        odd.add("zero_capacity");
                    }
                    Ok(number)
                        if value == Value::Used
                            && whole(number).is_some_and(|used| !fit(used, pool.capacity)) =>
                    {
                        notes.passed(value.as_str(), candidate.called, MORE_THAN_FIT);
                    }
                    Ok(number) => {
                        known = true;
                        value.put(&mut pool, number);
                        notes.chose(value.as_str(), candidate.called);
                    }
                    Err(Unknown::Invalid) => {
                        notes.passed(
                            value.as_str(),
                            candidate.called,
                            "holds what can't be a value",
                        );
                        if value == Value::Usage && !known {
                            pool.usage = Err(Unknown::Invalid);
                        }
                    }
                    Err(_) => {}
                }
            }
        }
        pool
    }
}

impl Engine for Table {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_kv(&self, family: &str) -> bool {
        let mut names = self.spellings.iter().filter_map(|s| family.strip_prefix(s));
        names.any(|name| {
            self.gauges.iter().any(|gauge| gauge.name == name)
                || self.never.iter().any(|never| never.1 == name)
                || self.shown_only.contains(&name)
        })
    }

    fn lacks(&self) -> &'static [Lacking] {
        self.lacks
    }

    fn claim(&self, page: &Page<'_>) -> Option<Claim> {
        self.find(page).map(|(_, claim)| claim)
    }

    fn read(&self, page: &Page<'_>) -> Reading {
        let prefix = match self.find(page) {
            Some((prefix, _)) => prefix,
            // Forced on a page that has none of its names.
            None => self.spellings.first().copied().unwrap_or_default(),
        };
        let mut sheet = Sheet::default();
        for gauge in self.gauges {
            sheet.take(page, prefix, gauge, |sample| {
                Some(Key::of(sample, self.model, self.rank))
            });
        }
        sheet.bound();
        let fingerprint = sheet.fingerprint();
        let mut odd = sheet.odd;
        let mut notes = Notes::default();
        let mut pools = BTreeMap::new();
        for (key, row) in sheet.rows {
            let pool = self.pool(&row, &mut odd, &mut notes);
            pools.insert(key, pool);
        }
        for (value, name, why) in self.never {
            if page.samples(&format!("{prefix}{name}")).next().is_some() {
                notes.passed(value, *name, why);
            }
        }
        let mut draft = Draft {
            prefix,
            role: Some(Role::Unified),
            pools,
            notes,
            odd,
        };
        (self.then)(page, &mut draft);
        draft.into_reading(self.name, fingerprint)
    }
}

/// For a table that says all there is to say.
pub(super) fn nothing_more(_: &Page<'_>, _: &mut Draft) {}

// === impl Draft ===

impl Draft {
    /// The only pool there is.
    pub(super) fn only_pool(&mut self) -> Option<&mut Pool> {
        if self.pools.len() == 1 {
            self.pools.values_mut().next()
        } else {
            None
        }
    }

    pub(super) fn into_reading(self, engine: &'static str, fingerprint: Option<u64>) -> Reading {
        let (chosen, passed_over) = self.notes.into_vecs();
        let pools: Vec<Pool> = self
            .pools
            .into_iter()
            .map(|(key, pool)| Pool {
                model: key.model.as_deref().map(Into::into),
                rank: key.place(),
                ..pool
            })
            .collect();
        Reading {
            engine: Some(engine.into()),
            role: self.role,
            pools,
            chosen,
            passed_over,
            unmapped: Vec::new(),
            odd: self.odd.into_vec(),
            fingerprint,
        }
    }
}
