//! Whether a name has moved: an address that it does not have any more is not used again.
//!
//! While connections to it are in use the name is looked up every few seconds, in the background and
//! once for all threads: no request waits for it, and where nobody answers, what was known holds.

use super::lookup;
use crate::config::Target;
use arc_swap::{ArcSwapOption, Cache};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// From one look to the next.
const PAUSE: Duration = Duration::from_secs(5);

/// The addresses of one name, for all pools that lead there.
#[derive(Debug)]
pub struct Addresses {
    known: Arc<Shared>,
    started: Instant,
    /// The next look is not sooner than so many ms after the start.
    next: AtomicU64,
    looking: AtomicBool,
    /// A connection has been used since the last look.
    used: AtomicBool,
}

/// What is known, for one thread: it keeps what it saw last, and only looks whether that still holds.
#[derive(Debug)]
pub(super) struct Known(RefCell<Cache<Arc<Shared>, Found>>);

/// What the last look found; nothing where nothing is known, and every address is well.
type Found = Option<Arc<Vec<IpAddr>>>;

type Shared = ArcSwapOption<Vec<IpAddr>>;

/// Takes note when a look ends, by a panic or the end of its thread too.
struct Looking<'a>(&'a Addresses);

// === impl Addresses ===

impl Default for Addresses {
    fn default() -> Self {
        Addresses {
            known: Arc::default(),
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

    /// For one thread to look at.
    pub(super) fn known(&self) -> Known {
        Known(RefCell::new(Cache::new(Arc::clone(&self.known))))
    }

    /// Whether the name still has this address, as far as is known.
    fn has(&self, peer: Option<IpAddr>) -> bool {
        has(&self.known.load(), peer)
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
        }
    }

    fn since_start(&self, now: Instant) -> u64 {
        let time = now.saturating_duration_since(self.started);
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}

// === impl Known ===

impl Known {
    /// Whether the name still has this address.
    pub(super) fn has(&self, peer: Option<IpAddr>) -> bool {
        has(self.0.borrow_mut().load(), peer)
    }
}

fn has(known: &Found, peer: Option<IpAddr>) -> bool {
    match (known, peer) {
        (Some(known), Some(peer)) => known.contains(&peer),
        _ => true,
    }
}

// === impl Looking ===

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
        let known = addresses.known();
        let (here, gone) = (["127.0.0.1", "::1"], Some([192, 0, 2, 1].into()));
        assert!(known.has(gone), "nothing is known");
        addresses.look(&name).await;
        let has = |ip: &str| known.has(Some(ip.parse().unwrap()));
        assert!(here.into_iter().any(has));
        assert!(!known.has(gone));
        assert!(known.has(None), "it has no address");
        // A name that is not answered for changes nothing.
        addresses.look(&target("no\0name")).await;
        assert!(!known.has(gone));
        // A dial has found it there: what the look said is old.
        addresses.dialled(gone);
        assert!(known.has(gone));
    }
}
