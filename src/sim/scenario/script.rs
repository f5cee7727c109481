//! What happens to a server in the course of a scenario.

use crate::sim::runner::{Condition, Runner};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Changes of a server's condition at times that come again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Seconds since the begin of a round, in order, and what the server is from then on.
    pub changes: &'static [(u64, Condition)],
    /// How long a round is, in seconds.
    pub every: u64,
}

impl Script {
    /// Plays it on a server, round after round, until it is dropped.
    pub async fn run(self, runner: Runner) {
        let mut round = Instant::now();
        if self.changes.is_empty() || self.every == 0 {
            return;
        }
        loop {
            for (at, condition) in self.changes {
                sleep_until(round + Duration::from_secs(*at)).await;
                runner.set(*condition);
            }
            round += Duration::from_secs(self.every);
        }
    }
}
