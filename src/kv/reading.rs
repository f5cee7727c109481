//! What one source says of its pools at one moment.

use super::{Role, Roles, Unknown};
use std::borrow::Cow;
use std::sync::Arc;

/// A usage as the engine publishes it: a fraction from 0 to 1, or the reason why there is none.
pub type Usage = Result<f64, Unknown>;

/// Which of an engine's memory pools a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// Full attention: the ordinary KV pool.
    Full,
    /// Sliding-window attention.
    Swa,
    /// State-space (Mamba) states. They are counted in slots, so tokens used and capacity are unknown.
    Mamba,
    /// A kind that the engine counts in its headline gauge and has no gauge of its own for.
    Other,
}

impl PoolKind {
    /// The name used in headers and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PoolKind::Full => "full",
            PoolKind::Swa => "swa",
            PoolKind::Mamba => "mamba",
            PoolKind::Other => "other",
        }
    }
}

/// Requests waiting in the queues of prefill/decode disaggregation, in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queues {
    /// Prefill: waiting for the decode side's handshake.
    pub bootstrap: Option<u64>,
    /// Prefill: prefilled, KV still being sent.
    pub inflight: Option<u64>,
    /// Decode: waiting for KV space to be set aside.
    pub prealloc: Option<u64>,
    /// Decode: waiting for KV to arrive.
    pub transfer: Option<u64>,
}

impl Queues {
    /// Name and value of each queue, in the order they are shown.
    #[must_use]
    pub fn iter(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("bootstrap", self.bootstrap),
            ("inflight", self.inflight),
            ("prealloc", self.prealloc),
            ("transfer", self.transfer),
        ]
    }
}

/// One engine's KV cache: tp, pp, ep ranks and processes that share the same tokens are one pool;
/// each data-parallel rank is a pool of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The model served, where the page names it.
    pub model: Option<Arc<str>>,
    /// The data-parallel rank (SGLang `dp_rank`, vLLM `engine`, Triton `version`), where the page has
    /// one.
    pub rank: Option<Arc<str>>,
    /// The role that the page names for this pool's engine (SGLang's `engine_type`), where it does.
    pub role: Option<Role>,
    /// Which kind of pool gives usage, used and capacity: the fullest one.
    pub kind: PoolKind,
    /// Share of the pool held by running requests, evictable cache left out, 0 to 1.
    pub usage: Usage,
    /// Tokens held by running requests.
    pub used: Option<u64>,
    /// Tokens the pool can hold.
    pub capacity: Option<u64>,
    /// Share of the pool that is physically occupied, evictable cache included, 0 to 1.
    pub fill: Option<f64>,
    /// Requests running.
    pub running: Option<u64>,
    /// Requests in the scheduler's queue.
    pub queued: Option<u64>,
    /// Queues of prefill/decode disaggregation.
    pub queues: Queues,
    /// Decode: what the requests that wait for room will need, as a share of the pool (not part of
    /// `usage`); from 0, over 1 where they wait for more than the pool holds.
    pub pending: Option<f64>,
    /// Prefix cache hit rate as the engine gives it (SGLang: of the last prefill batch), 0 to 1.
    /// Unknown on SGLang's decode servers.
    pub hit_rate: Option<f64>,
    /// Requests that lost their KV to others since the engine's start (SGLang: retracted, vLLM:
    /// preempted).
    pub preempted: Option<u64>,
    /// Share of the tier in host memory that is occupied, 0 to 1.
    pub host: Option<f64>,
}

impl Pool {
    /// A pool of which nothing is known yet.
    #[must_use]
    pub fn unknown(why: Unknown) -> Pool {
        Pool {
            model: None,
            rank: None,
            role: None,
            kind: PoolKind::Full,
            usage: Err(why),
            used: None,
            capacity: None,
            fill: None,
            running: None,
            queued: None,
            queues: Queues::default(),
            pending: None,
            hit_rate: None,
            preempted: None,
            host: None,
        }
    }
}

/// What one source says of its pools at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The engine recognised from the page (`sglang`), or the name of the mapping that it was read by;
    /// `None` where there is neither.
    pub engine: Option<Cow<'static, str>>,
    /// The role the page itself names (SGLang's `engine_type`), where it does; `unified` where its
    /// engine has KV gauges and names no role. Settings win over it. A router has none, nor has a page
    /// that names several: there each pool has its own ([`Reading::roles`]).
    pub role: Option<Role>,
    /// The pools found, in order of model and rank. Empty when the engine was not recognised.
    pub pools: Vec<Pool>,
    /// Which metric gave each value: `("usage", "kv_used_tokens / max_total_num_tokens")`.
    pub chosen: Vec<(&'static str, Cow<'static, str>)>,
    /// Metrics on the page that could have given a value and did not, with the reason: value, metric,
    /// why. Each once, so a few dozen at most.
    pub passed_over: Vec<(&'static str, Cow<'static, str>, &'static str)>,
    /// Values that the mapping by which it was read can't give, whatever is on the page.
    pub unmapped: Vec<(&'static str, Unmapped)>,
    /// Values that can't be right, counted by reason: `above_one` (over 1 by at most 0.05, read as
    /// 1); all others are read as unknown: `far_above_one`, `nan`, `negative`, `infinite`,
    /// `too_large`, `zero_capacity`, `too_many_pools`.
    pub odd: Vec<(&'static str, u64)>,
    /// Changes when a gauge of the engine's that was read changes: the same for the same samples in
    /// whatever order, comparable within one process. `None` where no gauge was read.
    pub fingerprint: Option<u64>,
}

/// Why a mapping does not give a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// It names no metric for it.
    NoMetric,
    /// It counts it in blocks, and how many tokens a block has is not known.
    NoBlockSize,
}

impl Reading {
    /// The roles that the page names: one, or those of its pools where they differ, as on a page that
    /// a router merged of several engines.
    #[must_use]
    pub fn roles(&self) -> Roles {
        if self.role.is_some() {
            return self.role.into();
        }
        let named: Roles = self.pools.iter().filter_map(|pool| pool.role).collect();
        // One among pools that name none is not the page's.
        if named.len() > 1 {
            named
        } else {
            Roles::default()
        }
    }

    /// Requests running, of all pools that say it.
    #[must_use]
    pub fn running(&self) -> Option<u64> {
        let known = self.pools.iter().filter_map(|pool| pool.running);
        known.reduce(u64::saturating_add)
    }

    /// Requests in the scheduler's queue and in those of prefill and decode, of all pools that say it.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        let queues = |pool: &Pool| pool.queues.iter().map(|(_, length)| length);
        let all = self.pools.iter();
        let known = all.flat_map(|pool| std::iter::once(pool.queued).chain(queues(pool)));
        known.flatten().reduce(u64::saturating_add)
    }

    /// What a page of no known engine gives: no pools.
    #[must_use]
    pub fn none() -> Reading {
        Reading {
            engine: None,
            role: None,
            pools: Vec::new(),
            chosen: Vec::new(),
            passed_over: Vec::new(),
            unmapped: Vec::new(),
            odd: Vec::new(),
            fingerprint: None,
        }
    }
}
