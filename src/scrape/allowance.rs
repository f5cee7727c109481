//! How much a source may make the diagnostics say of it: what it sends may change at every read.

use std::time::{Duration, Instant};

/// Lines at once.
const BURST: u32 = 20;

/// A further one after so long.
const EACH: Duration = Duration::from_secs(30);

/// Lines that may still be written, of one source or of all those that were found.
pub(super) struct Allowance {
    most: u32,
    left: u32,
    counted: Instant,
}

/// Whether a line may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    Yes,
    /// It is the last one for now.
    Last,
    No,
}

// === impl Allowance ===

impl Allowance {
    /// For one source.
    pub(super) fn new(now: Instant) -> Allowance {
        Allowance::of(BURST, now)
    }

    /// For all sources that are found, of which there are at most so many: each has an allowance of its
    /// own too, but may come and go. Two lines of each at once, as at the start or in an outage.
    pub(super) fn shared(sources: usize, now: Instant) -> Allowance {
        let sources = u32::try_from(sources).unwrap_or(u32::MAX);
        Allowance::of(sources.saturating_mul(2).max(BURST), now)
    }

    fn of(most: u32, now: Instant) -> Allowance {
        Allowance {
            most,
            left: most,
            counted: now,
        }
    }

    /// Takes one line.
    pub(super) fn take(&mut self, now: Instant) -> Allowed {
        let since = now.saturating_duration_since(self.counted);
        let more = u32::try_from(since.as_secs() / EACH.as_secs()).unwrap_or(self.most);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(self.most);
            self.counted = now;
        }
        match self.left {
            0 => Allowed::No,
            left => {
                self.left = left - 1;
                if left == 1 {
                    Allowed::Last
                } else {
                    Allowed::Yes
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_heard_at_once_and_then_now_and_then() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        for _ in 1..BURST {
            assert_eq!(allowance.take(start), Allowed::Yes);
        }
        assert_eq!(allowance.take(start), Allowed::Last);
        let told = (1..=600u64)
            .filter(|s| allowance.take(start + Duration::from_secs(*s)) != Allowed::No)
            .count();
        assert_eq!(told, 20);
        let later = start + Duration::from_secs(100_000);
        assert_eq!(allowance.take(later), Allowed::Yes);
    }
}
