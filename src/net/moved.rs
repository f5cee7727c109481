//! Whether a name has moved: an address that it does not have any more is not used again.
//!
//! While connections to it are in use the name is looked up every few seconds, in the background and
//! once for all threads: no request waits for it, and where nobody answers, what was known holds.

use super::lookup;
use crate::config::Target;
use arc_swap::ArcSwapOption;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// From one look to the next.
const PAUSE: Duration = Duration::from_secs(5);

/// The addresses of one name, for all pools that lead there.
#[derive(Debug)]
pub struct Addresses {
    /// What the last look found; nothing where nothing is known, and every address is well.
    known: ArcSwapOption<Vec<IpAddr>>,
    /// A look has found something at some time. Never where the target is an address.
    has_found: AtomicBool,
    started: Instant,
    /// The next look is not sooner than so many ms after the start.
    next: AtomicU64,
    looking: AtomicBool,
    /// A connection has been used since the last look.
    used: AtomicBool,
}

/// Takes note when a look ends, by a panic or the end of its thread too.
struct Looking<'a>(&'a Addresses);

// === impl Addresses ===

impl Default for Addresses {
    fn default() -> Self {
        Addresses {
            known: ArcSwapOption::empty(),
            has_found: AtomicBool::new(false),
            started: Instant::now(),
            next: AtomicU64::new(0),
            looking: AtomicBool::new(false),
            used: AtomicBool::new(false),
        }
    }
}

impl Addresses {
    /// A connection is used.
    pub(super) fn used(&self) {
        // Threads don't fight for a word that says so already.
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Whether the name still has this address, as far as is known.
    pub(super) fn has(&self, peer: Option<IpAddr>) -> bool {
        if !self.has_found.load(Relaxed) {
            return true;
        }
        match (&*self.known.load(), peer) {
            (Some(known), Some(peer)) => known.contains(&peer),
            _ => true,
        }
    }

    /// A connection to this address has just been opened, by a look-up of its own: it knows better.
    pub(super) fn dialled(&self, peer: Option<IpAddr>) {
        if !self.has(peer) {
            self.known.store(None);
        }
    }

    /// Whether it is this caller's turn to [look](Self::look) now. `idle`: connections wait to be used.
    pub(super) fn is_due(&self, target: &Target, idle: bool, now: Instant) -> bool {
        (idle || self.used.load(Relaxed))
            && self.since_start(now) >= self.next.load(Relaxed)
            && target.host.parse::<IpAddr>().is_err()
            && !self.looking.swap(true, Relaxed)
    }

    /// Looks the name up, however long that takes.
    pub(super) async fn look(&self, target: &Target) {
        self.used.store(false, Relaxed);
        let _looking = Looking(self);
        if let Some(found) = lookup::addresses(&target.host).await {
            self.known.store(Some(Arc::new(found.to_vec())));
            self.has_found.store(true, Relaxed);
        }
    }

    fn since_start(&self, now: Instant) -> u64 {
        let time = now.saturating_duration_since(self.started);
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let next = self.0.since_start(Instant::now() + PAUSE);
        self.0.next.store(next, Relaxed);
        self.0.looking.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str) -> Target {
        Target {
            tls: false,
            server_name: None,
            host: host.into(),
            port: 1,
            path: "/".into(),
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_now_and_then_while_it_is_used() {
        let (addresses, name) = (Addresses::default(), target("localhost"));
        let now = Instant::now();
        assert!(!addresses.is_due(&name, false, now), "nobody uses it");
        assert!(!addresses.is_due(&target("127.0.0.1"), true, now));
        addresses.used();
        assert!(addresses.is_due(&name, false, now));
        assert!(!addresses.is_due(&name, false, now), "another has the turn");
        addresses.look(&name).await;
        let now = Instant::now();
        assert!(!addresses.is_due(&name, true, now), "too soon");
        assert!(!addresses.is_due(&name, false, now + PAUSE), "not used");
        assert!(addresses.is_due(&name, true, now + PAUSE));
    }

    #[tokio::test]
    async fn an_address_that_the_name_lost_is_not_well() {
        let (addresses, name) = (Addresses::default(), target("localhost"));
        let (here, gone) = (["127.0.0.1", "::1"], Some([192, 0, 2, 1].into()));
        assert!(addresses.has(gone), "nothing is known");
        addresses.look(&name).await;
        let has = |ip: &str| addresses.has(Some(ip.parse().unwrap()));
        assert!(here.into_iter().any(has));
        assert!(!addresses.has(gone));
        assert!(addresses.has(None), "it has no address");
        // A name that is not answered for changes nothing.
        addresses.look(&target("no\0name")).await;
        assert!(!addresses.has(gone));
        // A dial has found it there: what the look said is old.
        addresses.dialled(gone);
        assert!(addresses.has(gone));
    }
}
