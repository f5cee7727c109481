//! The snapshot, rendered for responses and the log, and the handle that requests load it from.

use super::{log, pools, usage};
use crate::config::Headline;
use crate::engine;
use crate::kv::{RoleState, Unknown};
use arc_swap::{ArcSwap, Cache};
use http::HeaderValue;
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
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

/// Where a request loads the stamp from.
pub trait LoadStamp {
    /// A stamp that stays as it was loaded.
    type Loaded: Deref<Target = Stamp>;

    /// The stamp that holds at `now`.
    fn load(&self, now: Instant) -> Self::Loaded;
}

/// Shared handle to the current stamp.
#[derive(Clone, Debug)]
pub struct Stamps(Arc<ArcSwap<Published>>);

/// One thread's handle to it. It keeps a copy of its own, so that loading is a look whether that is
/// still the newest, and threads don't count the same words up and down. Clones share the copy.
#[derive(Clone, Debug)]
pub struct OwnStamps(Rc<RefCell<Own>>);

#[derive(Debug)]
struct Own {
    newest: Cache<Arc<ArcSwap<Published>>, Arc<Published>>,
    /// What `copy` is a copy of.
    copied: Arc<Published>,
    copy: Published<Rc<Stamp>>,
}

#[derive(Debug)]
struct Published<S = Arc<Stamp>> {
    stamp: S,
    /// Past this, the publisher has stalled and `unknown` holds.
    valid_until: Option<Instant>,
    unknown: S,
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

    /// A copy that shares nothing: a clone would share the values' memory, and its count.
    fn copied(&self) -> Stamp {
        let value =
            |value: &Option<HeaderValue>| HeaderValue::from_bytes(value.as_ref()?.as_bytes()).ok();
        Stamp {
            usage: value(&self.usage),
            pools: value(&self.pools),
            ..self.clone()
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
        Arc::clone(self.0.load().at(now))
    }

    /// For one thread to load from.
    #[must_use]
    pub fn own(&self) -> OwnStamps {
        let mut newest = Cache::new(Arc::clone(&self.0));
        let copied = Arc::clone(newest.load());
        OwnStamps(Rc::new(RefCell::new(Own {
            copy: copied.copied(),
            copied,
            newest,
        })))
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

impl LoadStamp for Stamps {
    type Loaded = Arc<Stamp>;

    fn load(&self, now: Instant) -> Arc<Stamp> {
        Stamps::load(self, now)
    }
}

// === impl OwnStamps ===

impl LoadStamp for OwnStamps {
    type Loaded = Rc<Stamp>;

    fn load(&self, now: Instant) -> Rc<Stamp> {
        let own = &mut *self.0.borrow_mut();
        let newest = own.newest.load();
        if !Arc::ptr_eq(newest, &own.copied) {
            own.copied = Arc::clone(newest);
            own.copy = newest.copied();
        }
        Rc::clone(own.copy.at(now))
    }
}

// === impl Published ===

impl<S> Published<S> {
    fn at(&self, now: Instant) -> &S {
        if self.valid_until.is_none_or(|until| now <= until) {
            &self.stamp
        } else {
            &self.unknown
        }
    }
}

impl Published {
    fn copied(&self) -> Published<Rc<Stamp>> {
        Published {
            stamp: Rc::new(self.stamp.copied()),
            valid_until: self.valid_until,
            unknown: Rc::new(self.unknown.copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Role;
    use std::time::Duration;

    fn used(tokens: u64) -> [RoleState; 1] {
        [RoleState {
            used: Some(tokens),
            ..RoleState::unknown(Role::Decode, None, Unknown::Stalled)
        }]
    }

    fn logged(stamps: &OwnStamps, now: Instant) -> String {
        let stamp = stamps.load(now);
        let text = str::from_utf8(&stamp.log_end).unwrap();
        text.split(',').nth(1).unwrap().to_owned()
    }

    #[test]
    fn the_newest_holds_for_as_long_as_it_says() {
        let which = Headline::Role(Role::Decode);
        let stamps = Stamps::new(&used(1), which);
        let own = [stamps.own(), stamps.own()];
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let late = until + Duration::from_nanos(1);
        for (tokens, known) in [(1, late), (2, now), (3, until)] {
            if tokens > 1 {
                stamps.publish(&used(tokens), which, until);
            }
            for own in &own {
                let expected = format!("\"kv.end.used\":{tokens}");
                assert_eq!(logged(own, known), expected);
            }
        }
        assert_eq!(logged(&own[0], late), "\"kv.end.used\":null");
        stamps.publish(&used(4), which, late);
        assert_eq!(logged(&own[0].clone(), late), "\"kv.end.used\":4");
    }
}
