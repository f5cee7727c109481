//! The KV pool: pages that are free, held by running requests, set aside for KV that is still
//! arriving, or kept as a prefix cache that can be evicted.
//!
//! free + held + arriving + evictable = capacity, always.

use std::collections::{BTreeMap, HashMap};

/// One prefix that is kept.
#[derive(Debug)]
struct Entry {
    pages: u64,
    /// Requests that use it now. While there is one its pages are held, not evictable.
    users: u64,
    /// Its place in `idle`, the order of eviction.
    used_at: u64,
}

/// All numbers are pages.
#[derive(Debug)]
pub(super) struct Pool {
    capacity: u64,
    held: u64,
    arriving: u64,
    evictable: u64,
    entries: HashMap<u64, Entry>,
    /// Entries without users, the least recently used first.
    idle: BTreeMap<u64, u64>,
    clock: u64,
    /// Pages evicted since they were last asked for.
    evicted: u64,
}

/// Keys of what nobody else can hit; real prefixes are hashes with this bit cleared.
const PRIVATE: u64 = 1 << 63;

impl Pool {
    pub(super) fn new(capacity: u64) -> Pool {
        Pool {
            capacity,
            held: 0,
            arriving: 0,
            evictable: 0,
            entries: HashMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
            evicted: 0,
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn arriving(&self) -> u64 {
        self.arriving
    }

    pub(super) fn evictable(&self) -> u64 {
        self.evictable
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity
            .saturating_sub(self.held + self.arriving + self.evictable)
    }

    /// Pages evicted since the last call.
    pub(super) fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// Pages cached under `key`, and how many of them would have to be locked anew.
    pub(super) fn cached(&self, key: u64) -> (u64, u64) {
        match self.entries.get(&(key & !PRIVATE)) {
            Some(entry) if entry.users == 0 => (entry.pages, entry.pages),
            Some(entry) => (entry.pages, 0),
            None => (0, 0),
        }
    }

    /// Keeps a prefix from eviction until [`Pool::unlock`].
    pub(super) fn lock(&mut self, key: u64) {
        if let Some(entry) = self.entries.get_mut(&(key & !PRIVATE)) {
            if entry.users == 0 {
                self.idle.remove(&entry.used_at);
                self.evictable -= entry.pages;
                self.held += entry.pages;
            }
            entry.users += 1;
        }
    }

    /// The pages that were unlocked: 0 while others use the prefix.
    pub(super) fn unlock(&mut self, key: u64) -> u64 {
        let key = key & !PRIVATE;
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.users > 0) else {
            return 0;
        };
        entry.users -= 1;
        if entry.users > 0 {
            return 0;
        }
        self.clock += 1;
        entry.used_at = self.clock;
        self.idle.insert(self.clock, key);
        self.held -= entry.pages;
        self.evictable += entry.pages;
        entry.pages
    }

    /// Holds `pages`, evicting where needed; false, and nothing taken, when there is no room.
    pub(super) fn hold(&mut self, pages: u64) -> bool {
        let room = self.make_room(pages);
        if room {
            self.held += pages;
        }
        room
    }

    /// Sets `pages` aside for KV that will arrive; false when there is no room.
    pub(super) fn set_aside(&mut self, pages: u64) -> bool {
        let room = self.make_room(pages);
        if room {
            self.arriving += pages;
        }
        room
    }

    /// KV has arrived: what was set aside is held.
    pub(super) fn arrived(&mut self, pages: u64) {
        let pages = pages.min(self.arriving);
        self.arriving -= pages;
        self.held += pages;
    }

    /// Frees what was set aside.
    pub(super) fn cancel(&mut self, pages: u64) {
        self.arriving = self.arriving.saturating_sub(pages);
    }

    /// Frees what was held.
    pub(super) fn release(&mut self, pages: u64) {
        self.held = self.held.saturating_sub(pages);
    }

    /// Keeps what was held as an evictable prefix: under `key`, or where nobody else finds it.
    /// What is cached under the key already is freed.
    pub(super) fn keep(&mut self, pages: u64, key: Option<u64>) {
        let pages = pages.min(self.held);
        self.held -= pages;
        self.clock += 1;
        let key = key.map_or(self.clock | PRIVATE, |key| key & !PRIVATE);
        if pages == 0 || self.entries.contains_key(&key) {
            return;
        }
        self.evictable += pages;
        self.idle.insert(self.clock, key);
        let used_at = self.clock;
        self.entries.insert(
            key,
            Entry {
                pages,
                users: 0,
                used_at,
            },
        );
    }

    /// Evicts everything that nobody uses.
    pub(super) fn flush(&mut self) {
        while self.evict_one() {}
        self.evicted = 0;
    }

    fn make_room(&mut self, pages: u64) -> bool {
        if pages > self.free() + self.evictable {
            return false;
        }
        while self.free() < pages && self.evict_one() {}
        self.free() >= pages
    }

    fn evict_one(&mut self) -> bool {
        let Some((_, key)) = self.idle.pop_first() else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&key) {
            self.evictable -= entry.pages;
            self.evicted += entry.pages;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_prefix_goes_first() {
        let mut pool = Pool::new(10);
        assert!(pool.hold(8));
        pool.keep(4, Some(1));
        pool.keep(4, Some(2));
        pool.lock(1);
        pool.unlock(1);
        assert!(pool.hold(6));
        assert_eq!(pool.cached(1), (4, 4));
        assert_eq!(pool.cached(2), (0, 0));
        assert_eq!(pool.take_evicted(), 4);
        assert_eq!(pool.take_evicted(), 0);
    }

    #[test]
    fn a_prefix_in_use_is_not_evicted() {
        let mut pool = Pool::new(10);
        assert!(pool.hold(4));
        pool.keep(4, Some(1));
        pool.lock(1);
        assert!(!pool.hold(7));
        assert_eq!((pool.held(), pool.free()), (4, 6));
        assert_eq!(pool.unlock(1), 4);
        assert!(pool.hold(7));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Hold(u64),
        SetAside(u64),
        Arrived(u64),
        Cancel(u64),
        Release(u64),
        Keep(u64, Option<u64>),
        Lock(u64),
        Unlock(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let pages = 0u64..40;
        let key = 0u64..5;
        prop_oneof![
            pages.clone().prop_map(Step::Hold),
            pages.clone().prop_map(Step::SetAside),
            pages.clone().prop_map(Step::Arrived),
            pages.clone().prop_map(Step::Cancel),
            pages.clone().prop_map(Step::Release),
            (pages, proptest::option::of(key.clone())).prop_map(|(p, k)| Step::Keep(p, k)),
            key.clone().prop_map(Step::Lock),
            key.prop_map(Step::Unlock),
        ]
    }

    proptest! {
        /// Whatever is done to it, the pool holds no more than its capacity. (What is locked can
        /// only be released by its users, so releases stay below what requests hold themselves.)
        #[test]
        fn never_above_capacity(steps in proptest::collection::vec(step(), 0..200)) {
            let mut pool = Pool::new(100);
            let mut own = 0u64;
            let mut locks: HashMap<u64, u64> = HashMap::new();
            for step in steps {
                match step {
                    Step::Hold(n) => if pool.hold(n) { own += n },
                    Step::SetAside(n) => { pool.set_aside(n); }
                    Step::Arrived(n) => {
                        own += n.min(pool.arriving());
                        pool.arrived(n);
                    }
                    Step::Cancel(n) => pool.cancel(n.min(pool.arriving())),
                    Step::Release(n) => { let n = n.min(own); own -= n; pool.release(n); }
                    Step::Keep(n, key) => { let n = n.min(own); own -= n; pool.keep(n, key); }
                    Step::Lock(key) => if pool.cached(key).0 > 0 {
                        pool.lock(key);
                        *locks.entry(key).or_default() += 1;
                    },
                    Step::Unlock(key) => if let Some(n) = locks.get_mut(&key).filter(|n| **n > 0) {
                        *n -= 1;
                        pool.unlock(key);
                    },
                }
                let sum = pool.free() + pool.held() + pool.arriving() + pool.evictable();
                prop_assert_eq!(sum, 100);
                prop_assert!(pool.held() >= own);
            }
        }
    }
}
