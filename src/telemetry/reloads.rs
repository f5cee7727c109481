//! Reloads of the settings, counted.

use super::{Telemetry, names};
use metrics::{Counter, Gauge};

/// How a reload went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadResult {
    /// All that was read is in force.
    Applied,
    /// What was read is good, and some of it needs a restart, or a file that it names can't be read.
    Partly,
    /// Something in it is wrong: what was in force stays.
    Refused,
}

/// See the [module](self) description.
pub struct Reloads {
    counters: [(ReloadResult, Counter); 3],
    last_was_good: Gauge,
}

impl Reloads {
    /// None so far; the settings of the start were good.
    #[must_use]
    pub fn new(telemetry: &Telemetry) -> Reloads {
        let counter = |result: ReloadResult| {
            let labels = [("result", result.as_str())];
            (result, telemetry.counter(names::CONFIG_RELOADS, &labels))
        };
        let last_was_good = telemetry.gauge(names::CONFIG_LAST_RELOAD);
        last_was_good.set(1.0);
        Reloads {
            counters: [
                counter(ReloadResult::Applied),
                counter(ReloadResult::Partly),
                counter(ReloadResult::Refused),
            ],
            last_was_good,
        }
    }

    /// Counts one.
    pub fn count(&self, result: ReloadResult) {
        for (_, counter) in self.counters.iter().filter(|(known, _)| *known == result) {
            counter.increment(1);
        }
        let good = result != ReloadResult::Refused;
        self.last_was_good.set(f64::from(u8::from(good)));
    }
}

impl ReloadResult {
    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ReloadResult::Applied => "applied",
            ReloadResult::Partly => "partly",
            ReloadResult::Refused => "refused",
        }
    }
}
