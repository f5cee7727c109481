//! Renders the stamp after each reading and every 100 ms, so that ages are exact to that, and so that
//! a value vanishes when its reading is too old, whether or not anyone reads.

use super::Stamps;
use crate::config::Headline;
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
    /// Readings older than this are unknown.
    pub max_age: Duration,
    /// Which role the usage header speaks of.
    pub headline: Headline,
}

impl Publisher {
    /// Publishes until it is dropped. Should it panic, nothing is known for a second at least.
    pub async fn run(self) {
        again(AFTER_PANIC, || self.keep_publishing()).await;
    }

    async fn keep_publishing(&self) {
        loop {
            let wait = self.publish(Instant::now());
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Renders once; says how long what was rendered holds, at most a tick.
    fn publish(&self, now: Instant) -> Duration {
        let states = engine::observe(&self.snapshot.load(), now, self.max_age);
        let oldest = states.iter().filter_map(|state| state.age).max();
        // The first reading to grow too old ends the stamp, and the next one is rendered then.
        let holds = match oldest {
            Some(age) => self.max_age.saturating_sub(age).min(STALLED),
            None => STALLED,
        };
        self.stamps.publish(&states, self.headline, now + holds);
        (holds + Duration::from_millis(1)).min(TICK)
    }
}
