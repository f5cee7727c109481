//! Renders the stamp after each reading and every 100 ms, so that ages are exact to that, and so that
//! a value vanishes when its reading is too old, whether or not anyone reads.

use super::Stamps;
use crate::config::Current;
use crate::engine;
use crate::kv::Handle;
use crate::net::again;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Between two renderings at most.
const TICK: Duration = Duration::from_millis(100);

/// A stamp that was not renewed for so long is not used any more. Ten ticks: enough for a machine
/// whose cores are all busy, little beside the age that a reading may have.
const STALLED: Duration = Duration::from_secs(1);

/// Between two renderings at least, for each source. A rendering looks at every source, and a reading of
/// each asks for one: without a pause a thousand sources would cost a thousand times a thousand looks. So
/// it is at most a twentieth of the thread's time, however many there are.
const PAUSE_A_SOURCE: Duration = Duration::from_micros(10);

/// Shorter pauses are none: the clock of timers has milliseconds.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// After a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// See the [module](self) description.
pub struct Publisher {
    /// Where readings come from.
    pub snapshot: Handle,
    /// Where the stamp goes.
    pub stamps: Stamps,
    /// Told after each reading.
    pub changed: Arc<Notify>,
    /// The settings that are in force: how old a reading may be, and which role the usage header speaks
    /// of.
    pub settings: Current,
}

impl Publisher {
    /// Publishes until it is dropped. Should it panic, nothing is known for a second at least.
    pub async fn run(self) {
        again(AFTER_PANIC, || self.keep_publishing()).await;
    }

    async fn keep_publishing(&self) {
        loop {
            let wait = self.publish(Instant::now());
            if let Some(pause) = pause(self.snapshot.load().sources.len()) {
                sleep(pause).await;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Renders once; says how long what was rendered holds, at most a tick.
    fn publish(&self, now: Instant) -> Duration {
        let (max_age, headline) = {
            let settings = self.settings.now();
            (settings.scrape.max_age, settings.headers.headline)
        };
        let states = engine::observe(&self.snapshot.load(), now, max_age);
        let oldest = states.iter().filter_map(|state| state.age).max();
        // The first reading to grow too old ends the stamp, and the next one is rendered then.
        let holds = match oldest {
            Some(age) => max_age.saturating_sub(age).min(STALLED),
            None => STALLED,
        };
        self.stamps.publish(&states, headline, now + holds);
        (holds + Duration::from_millis(1)).min(TICK)
    }
}

/// From a rendering to the next reading that is looked at; none where the sources are few.
fn pause(sources: usize) -> Option<Duration> {
    let sources = u32::try_from(sources).unwrap_or(u32::MAX);
    let pause = PAUSE_A_SOURCE.saturating_mul(sources).min(TICK);
    (pause >= LEAST_PAUSE).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_sources_wait_for_each_other() {
        assert_eq!(pause(0), None);
        assert_eq!(pause(99), None);
        assert_eq!(pause(256), Some(Duration::from_micros(2560)));
        assert_eq!(pause(usize::MAX), Some(TICK));
    }
}
