//! Whether a source's last reading may still be used.

use super::{SourceReading, aggregate};
use crate::kv::{FailureReason, Reading, RoleState, Snapshot, SourceState, Unknown};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The source's reading and its age at `now`, or why there is none that may be used.
///
/// - A source that can't be reached (refused, reset, not resolved) is unknown at once.
/// - After a timeout, a bad status or a bad body the last reading holds until it is older than
///   `max_age`. It gets as old as that, too, when nobody reads any more.
/// - A source that has never been read is `NotRead`, or `Unreachable` where that is known.
///
/// A failure before the last good page doesn't count. What a page without gauges means is in the
/// reading itself: its pools' usage is `Absent`.
///
/// The scraper must take `reading` out of the state when a failure ends it, and may leave `taken`;
/// otherwise a timeout after a refusal would bring the old value back.
///
/// # Errors
/// The reason why no reading may be used.
pub fn current(
    source: &SourceState,
    now: Instant,
    max_age: Duration,
) -> Result<(&Arc<Reading>, Duration), Unknown> {
    let failure = source
        .failure
        .as_ref()
        .filter(|_| source.up != Some(true))
        .map(|failure| failure.reason);
    if failure.is_some_and(FailureReason::ends_reading) {
        return Err(Unknown::Unreachable);
    }
    match (&source.reading, source.taken) {
        (Some(reading), Some(taken)) => {
            let age = now.saturating_duration_since(taken);
            if age > max_age {
                Err(Unknown::Stale)
            } else {
                Ok((reading, age))
            }
        }
        (None, Some(_)) => Err(Unknown::Stale),
        (_, None) => Err(Unknown::NotRead),
    }
}

/// From when on an engine with work whose gauges don't move may hang. An idle SGLang renews its gauges
/// every 30 s, and until then one of before sglang#31517 says of the requests that have just ended that
/// they run.
pub const STANDS_STILL: Duration = Duration::from_secs(35);

/// Whether the source can be read, says that requests run or wait, and has said nothing else for
/// [`STANDS_STILL`]: its engine may hang while its page still answers.
#[must_use]
pub fn stands_still(source: &SourceState, now: Instant, max_age: Duration) -> bool {
    let unchanged = |since| now.saturating_duration_since(since) >= STANDS_STILL;
    if source.up != Some(true) || !source.unchanged_since.is_some_and(unchanged) {
        return false;
    }
    let work = |n: Option<u64>| n.is_some_and(|n| n > 0);
    current(source, now, max_age)
        .is_ok_and(|(reading, _)| work(reading.running()) || work(reading.waiting()))
}

/// What each role says at `now`, from the readings that may be used: [`current`] and [`aggregate`](fn@aggregate)
/// over a snapshot.
#[must_use]
pub fn observe(snapshot: &Snapshot, now: Instant, max_age: Duration) -> Vec<RoleState> {
    let sources: Vec<SourceReading<'_>> = snapshot
        .sources
        .iter()
        .map(|source| {
            let current = current(source, now, max_age);
            SourceReading {
                roles: source.roles,
                reading: current.map(|(reading, _)| &**reading),
                age: current.ok().map(|(_, age)| age),
            }
        })
        .collect();
    aggregate(&sources)
}
