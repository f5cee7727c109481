//! What all readings together say of one role.

use super::{PoolKind, Queues, Role, Unknown, Usage};
use std::sync::Arc;
use std::time::Duration;

/// What all readings together say of one role, or of one model where a role serves several.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleState {
    /// The role.
    pub role: Role,
    /// The model, where a page names it.
    pub model: Option<Arc<str>>,
    /// Usage of the role's pools together, weighed by capacity, 0 to 1; the fullest pool's where
    /// capacities are unknown or the pools are of different kinds. Covers the known pools only:
    /// see `missing`.
    pub usage: Usage,
    /// Usage of the fullest single pool, 0 to 1.
    pub max: Option<f64>,
    /// Which kind of pool the values are of.
    pub kind: PoolKind,
    /// Share that is physically occupied, evictable cache included, 0 to 1.
    pub fill: Option<f64>,
    /// Tokens held by running requests, summed over the pools.
    pub used: Option<u64>,
    /// Tokens that fit, summed over the pools that `usage` speaks of (over all where it is unknown).
    pub capacity: Option<u64>,
    /// Requests running, summed.
    pub running: Option<u64>,
    /// Requests in the schedulers' queues, summed.
    pub queued: Option<u64>,
    /// Queues of prefill/decode disaggregation, summed; only those of the role.
    pub queues: Queues,
    /// Decode: what the requests that wait for room will need, as a share of the pools (not part of
    /// `usage`); from 0, over 1 where they wait for more than the pools hold.
    pub pending: Option<f64>,
    /// Prefix cache hit rate as the engines give it, plain mean over the pools, 0 to 1.
    pub hit_rate: Option<f64>,
    /// Requests that lost their KV to others since the engines' start, summed.
    pub preempted: Option<u64>,
    /// Share of the tier in host memory that is occupied, of the pool whose tier is the fullest, 0 to 1.
    /// Pools without such a tier don't count.
    pub host: Option<f64>,
    /// Age of the oldest reading used.
    pub age: Option<Duration>,
    /// Pools whose usage is known and in `usage`.
    pub pools: usize,
    /// What is not in `usage`: how many sources or pools of the role have no trustworthy value, and
    /// the gravest reason. `None` where everything is known, so that a part is never taken for
    /// the whole.
    pub missing: Option<(usize, Unknown)>,
}

impl RoleState {
    /// A role of which nothing is known.
    #[must_use]
    pub fn unknown(role: Role, model: Option<Arc<str>>, why: Unknown) -> RoleState {
        RoleState {
            role,
            model,
            usage: Err(why),
            max: None,
            kind: PoolKind::Full,
            fill: None,
            used: None,
            capacity: None,
            running: None,
            queued: None,
            queues: Queues::default(),
            pending: None,
            hit_rate: None,
            preempted: None,
            host: None,
            age: None,
            pools: 0,
            missing: None,
        }
    }
}
