//! Whose a pool is, and what it is called.

use super::current;
use crate::kv::{Pool, Reading, Role, RoleState, Snapshot, SourceState};
use std::time::{Duration, Instant};

/// Characters of a pool's label.
const MOST_LABEL: usize = 80;

/// A pool is of the role that its page names for it, else of its source's.
#[must_use]
pub fn pool_role(source: &SourceState, pool: &Pool) -> Option<Role> {
    match source.roles.only() {
        Some(role) => Some(role).filter(|role| pool.role.is_none_or(|own| own == *role)),
        None => pool.role,
    }
}

/// What tells the pool apart from others of its source; `None` where nothing has to.
#[must_use]
pub fn pool_label(reading: &Reading, pool: &Pool) -> Option<String> {
    let differs = |other: &Pool| other.model != pool.model;
    let several_models = reading.pools.iter().any(differs);
    let model = pool.model.as_deref().filter(|_| several_models);
    let rank = pool.rank.as_deref().map(|rank| {
        let (worker, number) = rank.rsplit_once(' ').unwrap_or(("", rank));
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        match (worker, is_number) {
            ("", true) => format!("rank {number}"),
            (worker, true) => format!("{worker} rank {number}"),
            _ => rank.to_owned(),
        }
    });
    let label: Vec<&str> = [model, rank.as_deref()].into_iter().flatten().collect();
    let label: String = label.join(" ").chars().take(MOST_LABEL).collect();
    (!label.is_empty()).then_some(label)
}

/// What the fullest pool of a role is called; `None` where there are not several, or where it is not known.
#[must_use]
pub fn fullest(
    state: &RoleState,
    snapshot: &Snapshot,
    now: Instant,
    max_age: Duration,
) -> Option<String> {
    let max = state.max.filter(|_| state.pools > 1)?;
    let is_it = |source: &SourceState, pool: &Pool| {
        // A pool without a model counts to the one that is named elsewhere.
        pool_role(source, pool) == Some(state.role)
            && (pool.model.is_none() || pool.model == state.model)
            && pool.usage.is_ok_and(|usage| usage.total_cmp(&max).is_eq())
    };
    snapshot.sources.iter().find_map(|source| {
        let (reading, _) = current(source, now, max_age).ok()?;
        let pool = reading.pools.iter().find(|pool| is_it(source, pool))?;
        Some(pool_label(reading, pool).unwrap_or_else(|| source.name.to_string()))
    })
}
