//! When a source is read: once an interval at a moment of its own, later where that costs its server
//! too much, and more seldom while it fails.

use std::time::{Duration, Instant};

/// The share of a server's time that reading its page may take: one fiftieth.
const STRETCH: u32 = 50;

/// The longest pause while a source fails.
const MOST: Duration = Duration::from_secs(30);

/// Where in each interval a source is read.
pub(super) struct Pace {
    started: Instant,
    /// Of the interval, in 2^-32.
    offset: u32,
}

// === impl Pace ===

impl Pace {
    /// The same place for the same name, now and after a restart, so that sources do not all answer at
    /// once, and series do not jump against each other.
    pub(super) fn new(name: &str, started: Instant) -> Pace {
        Pace {
            started,
            offset: hash(name),
        }
    }

    /// From `now` to the next read of a source that was asked at `asked` and is read once in `every`: to
    /// its place that is nearest to a whole interval after the last read.
    pub(super) fn pause(&self, asked: Instant, now: Instant, every: Duration) -> Duration {
        /// So that no source, however slow, keeps the thread to itself.
        const LEAST: Duration = Duration::from_millis(1);
        let nanos = every.as_nanos().max(1);
        let offset = (nanos * u128::from(self.offset)) >> 32;
        let earliest = asked.saturating_duration_since(self.started).as_nanos() + nanos / 2;
        let rounds = (earliest.saturating_sub(offset)).div_ceil(nanos);
        let next = u64::try_from(rounds * nanos + offset).unwrap_or(u64::MAX);
        let next = Duration::from_nanos(next);
        next.saturating_sub(now.saturating_duration_since(self.started))
            .max(LEAST)
    }
}

/// The interval, stretched to 50 times the last read's duration, so that a slow page costs its server at
/// most two per cent, but never so far that the reading would get old.
pub(super) fn stretched(set: Duration, took: Duration, max_age: Duration) -> Duration {
    set.max((took * STRETCH).min(max_age / 3))
}

/// From one attempt to the next after so many failures in a row: one interval after the first, so that
/// a lost read costs no reading its life, then twice as long after each, at most half of `max_age` or
/// 30 s.
pub(super) fn back_off(set: Duration, failures: u32, max_age: Duration) -> Duration {
    let doubled = set.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min((max_age / 2).min(MOST)).max(set)
}

/// FNV-1a, 32 bits, mixed once more since names differ in their last characters: stable between
/// versions and machines, which the standard library's hash is not.
pub(super) fn hash(name: &str) -> u32 {
    let fnv = |hash: u32, b: u8| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, fnv);
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash ^ (hash >> 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_source_is_read_once_an_interval_at_its_own_moment() {
        let start = Instant::now();
        let pace = Pace::new("decode-10.0.0.1:30002", start);
        let mut asked = start;
        let mut moments = Vec::new();
        for _ in 0..10 {
            // A read takes 30 ms.
            let now = asked + Duration::from_millis(30);
            let next = now + pace.pause(asked, now, SECOND);
            assert!(next - asked >= SECOND / 2, "{:?}", next - asked);
            assert!(next - asked <= SECOND * 3 / 2, "{:?}", next - asked);
            moments.push(next);
            asked = next;
        }
        for pair in moments.windows(2) {
            assert_eq!(pair[1] - pair[0], SECOND);
        }
    }

    #[test]
    fn the_moments_of_a_fleet_are_spread() {
        let start = Instant::now();
        let mut tenths = [0; 10];
        for n in 0..200 {
            let pace = Pace::new(&format!("decode-10.0.0.{n}:30002"), start);
            tenths[usize::try_from((u64::from(pace.offset) * 10) >> 32).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|n| (8..=40).contains(n)), "{tenths:?}");
    }

    #[test]
    fn a_read_longer_than_the_interval_is_followed_by_the_next_moment() {
        let start = Instant::now();
        let pace = Pace::new("a", start);
        let now = start + Duration::from_millis(2500);
        let pause = pace.pause(start, now, SECOND);
        assert_eq!(pause, Duration::from_millis(1));
    }

    #[test]
    fn a_slow_page_is_read_more_seldom_but_never_too_seldom() {
        let ms = Duration::from_millis;
        assert_eq!(stretched(SECOND, ms(5), ms(10_000)), SECOND);
        assert_eq!(stretched(SECOND, ms(40), ms(10_000)), ms(2_000));
        assert_eq!(stretched(SECOND, ms(900), ms(9_000)), ms(3_000));
    }

    #[test]
    fn a_source_that_fails_is_tried_more_and_more_seldom() {
        let ms = Duration::from_millis;
        let pauses: Vec<u128> = [1, 2, 3, 4, 5, 100]
            .map(|n| back_off(SECOND, n, ms(10_000)).as_millis())
            .to_vec();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
        assert_eq!(back_off(SECOND, 50, ms(600_000)), MOST);
        // An interval that is longer than that stays.
        assert_eq!(back_off(60 * SECOND, 50, ms(600_000)), 60 * SECOND);
    }
}
