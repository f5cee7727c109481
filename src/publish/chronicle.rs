//! Keeps the past for who looks later: a step of the history every two seconds, from the same snapshot
//! that the stamp is made of, what went wrong with sources, and the last minute's traffic.

use super::{History, Incidents, STEP};
use crate::config::Current;
use crate::engine;
use crate::kv::Handle;
use crate::net::again;
use crate::telemetry::{Look, Telemetry, Window};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval};

/// After a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// One moment by each clock that is needed.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the machine was started, its sleep included: never goes back, and is never set.
    pub at: Duration,
    /// That of readings.
    pub instant: Instant,
    /// That on the wall, since 1970.
    pub unix: Duration,
}

/// What is kept of the past.
#[derive(Debug, Default)]
pub struct Past {
    /// The last hour.
    pub history: History,
    /// What went wrong with sources.
    pub incidents: Incidents,
    /// The last minute's looks at kvgauge's own counts.
    pub window: Window,
}

/// Shared handle to the past. Only the metrics plane's thread ever takes the lock.
#[derive(Clone, Debug, Default)]
pub struct Chronicle(Arc<Mutex<Past>>);

/// Writes the chronicle.
pub struct Chronicler {
    /// Where it is written.
    pub chronicle: Chronicle,
    /// Where readings come from.
    pub snapshot: Handle,
    /// kvgauge's own counts.
    pub telemetry: Arc<Telemetry>,
    /// The settings that are in force: how old a reading may be.
    pub settings: Current,
}

// === impl Now ===

impl Now {
    /// Looks at all of them.
    #[must_use]
    pub fn look() -> Now {
        let since_boot = clock_gettime(ClockId::Boottime);
        Now {
            at: Duration::try_from(since_boot).unwrap_or_default(),
            instant: Instant::now(),
            unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }
}

// === impl Chronicle ===

impl Chronicle {
    /// What is kept, to be looked at for a moment.
    pub fn past(&self) -> MutexGuard<'_, Past> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Chronicler ===

impl Chronicler {
    /// Writes until it is dropped.
    pub async fn run(self) {
        again(AFTER_PANIC, || self.keep_writing()).await;
    }

    async fn keep_writing(&self) {
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.write(Now::look());
        }
    }

    fn write(&self, now: Now) {
        let snapshot = self.snapshot.load();
        let max_age = self.settings.now().scrape.max_age;
        let states = engine::observe(&snapshot, now.instant, max_age);
        let look = Look::read(&self.telemetry.render());
        let mut past = self.chronicle.past();
        let traffic = past.window.traffic(now.at, &look);
        past.window.keep(now.at, look);
        let fullest = |state: &_| engine::fullest(state, &snapshot, now.instant, max_age);
        past.history.note(now.at, &states, fullest, &traffic);
        past.incidents.look(now.at, now.instant, &snapshot.sources);
    }
}
