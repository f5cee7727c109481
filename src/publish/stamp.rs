//! The snapshot, rendered for responses and the log, and the handle that requests load it from.

use super::{log, pools, usage};
use crate::config::Headline;
use crate::engine;
use crate::kv::{RoleState, Unknown};
use arc_swap::ArcSwap;
use http::HeaderValue;
use std::sync::Arc;
use std::time::Instant;

/// Header values and log members, ready to be copied.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// `X-KV-Usage`; `None` when unknown.
    pub usage: Option<HeaderValue>,
    /// `X-KV-Pools`.
    pub pools: Option<HeaderValue>,
    /// `"kv.start.usage":…,…`
    pub log_start: Vec<u8>,
    /// `"kv.end.usage":…,…`
    pub log_end: Vec<u8>,
}

/// Shared handle to the current stamp. Loading it is one atomic load and one comparison.
#[derive(Clone, Debug)]
pub struct Stamps(Arc<ArcSwap<Published>>);

#[derive(Debug)]
struct Published {
    stamp: Arc<Stamp>,
    /// Past this, the publisher has stalled and `unknown` holds.
    valid_until: Option<Instant>,
    unknown: Arc<Stamp>,
}

// === impl Stamp ===

impl Stamp {
    /// Renders what the roles say.
    #[must_use]
    pub fn render(states: &[RoleState], which: Headline) -> Stamp {
        let headline = engine::headline(states, which);
        let pools = pools::render(states);
        let mut log_start = log::render("kv.start.", headline);
        log::append_pools(&mut log_start, pools.as_deref());
        let value = |text: Option<String>| HeaderValue::try_from(text?).ok();
        Stamp {
            usage: value(usage::render(headline)),
            pools: value(pools),
            log_start,
            log_end: log::render("kv.end.", headline),
        }
    }

    /// The same roles, nothing known of them.
    fn unknown(states: &[RoleState], which: Headline) -> Stamp {
        let unknown: Vec<RoleState> = states
            .iter()
            .map(|state| RoleState::unknown(state.role, state.model.clone(), Unknown::Stalled))
            .collect();
        Stamp::render(&unknown, which)
    }
}

// === impl Stamps ===

impl Stamps {
    /// Before anything is published: everything unknown.
    #[must_use]
    pub fn new(states: &[RoleState], which: Headline) -> Stamps {
        let stamp = Arc::new(Stamp::render(states, which));
        Stamps(Arc::new(ArcSwap::from_pointee(Published {
            unknown: Arc::clone(&stamp),
            stamp,
            valid_until: None,
        })))
    }

    /// The stamp that holds at `now`.
    #[must_use]
    pub fn load(&self, now: Instant) -> Arc<Stamp> {
        let published = self.0.load();
        let holds = published.valid_until.is_none_or(|until| now <= until);
        Arc::clone(if holds {
            &published.stamp
        } else {
            &published.unknown
        })
    }

    /// Puts a new stamp in place.
    pub fn publish(&self, states: &[RoleState], which: Headline, valid_until: Instant) {
        self.0.store(Arc::new(Published {
            stamp: Arc::new(Stamp::render(states, which)),
            valid_until: Some(valid_until),
            unknown: Arc::new(Stamp::unknown(states, which)),
        }));
    }
}
