//! Waiting for things that happen, with a limit that names what did not.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long a test waits for what should come at once. Long, for busy machines: only a failure
/// takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The one place where a test sleeps: to play a slow peer, or between two looks.
#[allow(
    clippy::disallowed_methods,
    reason = "plays a slow peer on a thread of its own"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Looks every 10 ms until there is something, for `PATIENCE`.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

/// Looks every 10 ms until there is something.
pub(crate) fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        pause(Duration::from_millis(10));
    }
}

/// Something that has happened or not; one side says so, others wait for it.
#[derive(Default)]
pub(crate) struct Signal {
    happened: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(crate) fn set(&self) {
        *self.happened.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self) {
        let guard = self.happened.lock().unwrap();
        let (guard, timeout) = self
            .changed
            .wait_timeout_while(guard, PATIENCE, |happened| !*happened)
            .unwrap();
        assert!(!timeout.timed_out(), "the signal was never given");
        drop(guard);
    }
}
