//! From the readings of all sources to what each role says.
//!
//! - The pools of a role (data-parallel ranks, engines, sources) are summed by capacity, and the
//!   fullest is kept beside the sum. Where a capacity is unknown, or the pools are of different
//!   kinds (their tokens are not the same), there is nothing to weigh by: the fullest is the value,
//!   and no sum is given.
//! - A source's role is that of all its pools, unless its page names several (a page that a router
//!   merged): then each pool is of its own role, and of a source whose settings name one only the
//!   pools of that role count.
//! - Models are never mixed: a role that serves several has a state for each. A pool whose page names
//!   no model belongs to the role's only model where a page of the same engine (or mapping) names that;
//!   all others without a name are a state without one.
//! - A role of which only a part is known takes its value from that part, and says in
//!   [`RoleState::missing`] how much is not in it and why: an operator needs the pressure of the
//!   engines that still answer, and must see that it is not all of them. Where no part is known,
//!   the usage is unknown for the gravest of the reasons.
//! - A number of requests is the sum of the pools that publish it; it is unknown where a pool with
//!   a known usage doesn't.

use super::gauges::TOO_MANY_POOLS;
use crate::kv::{Pool, PoolKind, Queues, Reading, Role, RoleState, Roles, Unknown};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One source, as it goes into the sum.
#[derive(Clone, Copy, Debug)]
pub struct SourceReading<'a> {
    /// The source's role from settings, else those that its page names. A source without any (a
    /// router) is left out.
    pub roles: Roles,
    /// The reading, if it may still be used; else why not.
    pub reading: Result<&'a Reading, Unknown>,
    /// The reading's age.
    pub age: Option<Duration>,
}

/// The pools of one role.
#[derive(Default)]
struct Group<'a> {
    models: BTreeMap<Option<Arc<str>>, Vec<Member<'a>>>,
    /// Sources of which no pool is known at all.
    missing: Vec<Unknown>,
    /// Pools that are not read, as their page has too many.
    beyond: usize,
}

#[derive(Clone, Copy)]
struct Member<'a> {
    pool: &'a Pool,
    engine: Option<&'a str>,
    age: Option<Duration>,
}

impl<'a> Group<'a> {
    /// Takes in what a source of this role says.
    fn add(&mut self, role: Role, source: &SourceReading<'a>) {
        let reading = match source.reading {
            Ok(reading) => reading,
            Err(why) => return self.missing.push(why),
        };
        self.beyond += pools_not_read(reading);
        let apart = source.roles.len() > 1 || reading.roles().len() > 1;
        let mut none = true;
        for pool in &reading.pools {
            match pool.role.or(reading.role) {
                // Whose this one is is not known: it is missing from each.
                None if apart => self.missing.push(Unknown::Absent),
                Some(named) if apart && named != role => continue,
                _ => self
                    .models
                    .entry(pool.model.clone())
                    .or_default()
                    .push(Member {
                        pool,
                        engine: reading.engine.as_deref(),
                        age: source.age,
                    }),
            }
            none = false;
        }
        if none {
            self.missing.push(Unknown::Absent);
        }
    }

    /// Gives pools without a name to the only model that there is, where an engine of their kind serves
    /// it: SGLang's loads name no model, nor does its page before the first request. What another
    /// engine serves is not known.
    fn join_the_only_model(&mut self) {
        if self.models.len() != 2 {
            return;
        }
        let Some(unnamed) = self.models.remove(&None) else {
            return;
        };
        let mut others = Vec::new();
        for named in self.models.values_mut() {
            let engines: BTreeSet<_> = named.iter().map(|member| member.engine).collect();
            let (own, not): (Vec<_>, Vec<_>) = unnamed
                .iter()
                .partition(|member| engines.contains(&member.engine));
            named.extend(own);
            others = not;
        }
        if !others.is_empty() {
            self.models.insert(None, others);
        }
    }
}

/// Pools of a page that are not in its reading, as it has more than are read (1,024).
#[must_use]
pub fn pools_not_read(reading: &Reading) -> usize {
    let odd = reading.odd.iter();
    let beyond = odd.filter(|(reason, _)| *reason == TOO_MANY_POOLS);
    let beyond: u64 = beyond.map(|(_, pools)| pools).sum();
    usize::try_from(beyond).unwrap_or(usize::MAX)
}

/// What each role says, in the order of [`Role`] and of the models' names.
///
/// Every role that a source has gets at least one state, also when nothing is known of it.
#[must_use]
pub fn aggregate(sources: &[SourceReading<'_>]) -> Vec<RoleState> {
    let mut groups: BTreeMap<Role, Group<'_>> = BTreeMap::new();
    for source in sources {
        for role in source.roles.iter() {
            groups.entry(role).or_default().add(role, source);
        }
    }

    let mut states = Vec::new();
    for (role, mut group) in groups {
        group.join_the_only_model();
        if group.models.is_empty() {
            states.push(state(role, None, &[], &group.missing, group.beyond));
        }
        for (model, members) in group.models {
            states.push(state(role, model, &members, &group.missing, group.beyond));
        }
    }
    states
}

/// One model's state. `sources` are the role's sources that are missing as a whole: whose model
/// they serve is not known, so they are missing from each, and so are the pools `beyond` a page's bound.
fn state(
    role: Role,
    model: Option<Arc<str>>,
    members: &[Member<'_>],
    sources: &[Unknown],
    beyond: usize,
) -> RoleState {
    let all: Vec<&Pool> = members.iter().map(|member| member.pool).collect();
    let (known, unknown): (Vec<&Pool>, Vec<&Pool>) =
        all.iter().copied().partition(|pool| pool.usage.is_ok());
    let missing: Vec<Unknown> = unknown
        .iter()
        .filter_map(|pool| pool.usage.err())
        .chain(sources.iter().copied())
        .collect();
    let not_read = (beyond > 0).then_some(Unknown::NotRead);
    let gravest = missing
        .iter()
        .copied()
        .chain(not_read)
        .min_by_key(|why| gravity(*why));

    // What the values are of: the pools whose usage is known, or, for a capacity, whatever there is.
    let counted = if known.is_empty() { &all } else { &known };
    // Without a name nothing says that different engines serve the same model.
    let engines: BTreeSet<_> = members.iter().map(|member| member.engine).collect();
    let one_model = model.is_some() || engines.len() < 2;
    let weights = weights(counted).filter(|_| one_model);
    let fullest = counted.iter().copied().reduce(|best, next| {
        if next.usage.unwrap_or(0.0) > best.usage.unwrap_or(0.0) {
            next
        } else {
            best
        }
    });
    let one_kind = |pool: &&Pool| Some(pool.kind) == fullest.map(|f| f.kind);
    let summable = one_model && counted.iter().all(one_kind);

    RoleState {
        role,
        model,
        usage: share(&known, weights.as_deref(), |pool| pool.usage.ok())
            .ok_or(gravest.unwrap_or(Unknown::Absent)),
        max: known
            .iter()
            .filter_map(|pool| pool.usage.ok())
            .reduce(f64::max),
        kind: fullest.map_or(PoolKind::Full, |pool| pool.kind),
        fill: share(counted, weights.as_deref(), |pool| pool.fill),
        used: total(&known, |pool| pool.used).filter(|_| summable),
        capacity: total(counted, |pool| pool.capacity).filter(|_| summable),
        running: requests(&known, &unknown, |pool| pool.running),
        queued: requests(&known, &unknown, |pool| pool.queued),
        queues: queues(role, &known, &unknown),
        pending: if role == Role::Decode {
            share(counted, weights.as_deref(), |pool| pool.pending)
        } else {
            None
        },
        hit_rate: if role == Role::Decode {
            None
        } else {
            mean(counted, |pool| pool.hit_rate)
        },
        preempted: requests(&known, &unknown, |pool| pool.preempted),
        // How much a tier holds is on no page, so there is nothing to weigh by.
        host: counted.iter().filter_map(|pool| pool.host).reduce(f64::max),
        age: members.iter().filter_map(|member| member.age).max(),
        pools: known.len(),
        missing: gravest.map(|why| (missing.len() + beyond, why)),
    }
}

/// Smallest is gravest: what needs a person first.
fn gravity(why: Unknown) -> u8 {
    match why {
        Unknown::Stalled => 0,
        Unknown::Unreachable => 1,
        Unknown::Stale => 2,
        Unknown::Invalid => 3,
        Unknown::Absent => 4,
        Unknown::NotRead => 5,
    }
}

/// Each pool's part of the whole; `None` where the parts can't be compared.
fn weights(pools: &[&Pool]) -> Option<Vec<f64>> {
    let kind = pools.first()?.kind;
    let capacities: Option<Vec<u64>> = pools
        .iter()
        .map(|pool| pool.capacity.filter(|c| *c > 0 && pool.kind == kind))
        .collect();
    // A capacity is far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    let capacities: Vec<f64> = capacities?.into_iter().map(|c| c as f64).collect();
    let sum: f64 = capacities.iter().sum();
    Some(capacities.into_iter().map(|c| c / sum).collect())
}

/// A share over the pools: weighed, or the largest. `None` where a pool doesn't give it.
fn share(
    pools: &[&Pool],
    weights: Option<&[f64]>,
    of: impl Fn(&Pool) -> Option<f64>,
) -> Option<f64> {
    let values: Vec<f64> = pools.iter().map(|pool| of(pool)).collect::<Option<_>>()?;
    match (values.as_slice(), weights) {
        ([], _) => None,
        // As it is, without a rounding error from weighing.
        ([one], _) => Some(*one),
        (many, Some(weights)) => {
            let sum: f64 = many.iter().zip(weights).map(|(v, w)| v * w).sum();
            // No mean is above the largest, but for a rounding error.
            let most = many.iter().copied().fold(0.0, f64::max);
            Some(sum.clamp(0.0, most))
        }
        (many, None) => many.iter().copied().reduce(f64::max),
    }
}

/// The plain mean. `None` where a pool doesn't give it.
fn mean(pools: &[&Pool], of: impl Fn(&Pool) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = pools.iter().map(|pool| of(pool)).collect::<Option<_>>()?;
    let number = u32::try_from(values.len()).ok().filter(|n| *n > 0)?;
    Some(values.iter().sum::<f64>() / f64::from(number))
}

/// The sum. `None` where a pool doesn't give it.
fn total(pools: &[&Pool], of: impl Fn(&Pool) -> Option<u64>) -> Option<u64> {
    pools
        .iter()
        .map(|pool| of(pool))
        .reduce(|sum, next| Some(sum?.saturating_add(next?)))
        .flatten()
}

/// A number of requests: every pool with a known usage must give it, the others may.
fn requests(known: &[&Pool], unknown: &[&Pool], of: impl Fn(&Pool) -> Option<u64>) -> Option<u64> {
    let others = unknown
        .iter()
        .filter_map(|pool| of(pool))
        .reduce(u64::saturating_add);
    if known.is_empty() {
        return others;
    }
    Some(total(known, of)?.saturating_add(others.unwrap_or(0)))
}

/// The queues that the role has; an engine publishes those of the other role too, as 0.
fn queues(role: Role, known: &[&Pool], unknown: &[&Pool]) -> Queues {
    let sum = |of: fn(&Queues) -> Option<u64>| requests(known, unknown, |pool| of(&pool.queues));
    match role {
        Role::Decode => Queues {
            prealloc: sum(|q| q.prealloc),
            transfer: sum(|q| q.transfer),
            ..Queues::default()
        },
        Role::Prefill => Queues {
            bootstrap: sum(|q| q.bootstrap),
            inflight: sum(|q| q.inflight),
            ..Queues::default()
        },
        Role::Unified => Queues::default(),
    }
}
