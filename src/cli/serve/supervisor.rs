//! What the service manager is told (`sd_notify(3)`), where one has started kvgauge and asks for it: when
//! it is ready, what it is at, that it is alive.

use super::Server;
use crate::proxy::Beats;
use sd_notify::NotifyState;
use std::cell::Cell;
use std::future::pending;
use std::io;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Between two lines on how the drain goes.
const LOOK: Duration = Duration::from_secs(1);

/// A worker goes on ten times a second, so that more looks would say nothing.
const SHORTEST: Duration = Duration::from_millis(200);

/// While it drains, the manager is asked to wait for so much longer, again and again: how long that may
/// take, `drain.timeout` says, whatever is written in the unit.
const LONGER: Duration = Duration::from_secs(30);

/// See the [module](self) description.
pub struct Supervisor {
    listens: bool,
    /// How often it wants to hear that kvgauge is alive.
    watchdog: Option<Duration>,
    draining: Cell<bool>,
    /// That it can't be told has been told.
    complained: Cell<bool>,
}

impl Supervisor {
    /// The one that has started this process, if it has.
    pub fn new() -> Supervisor {
        Supervisor {
            listens: std::env::var_os("NOTIFY_SOCKET").is_some(),
            watchdog: sd_notify::watchdog_enabled().filter(|every| !every.is_zero()),
            draining: Cell::new(false),
            complained: Cell::new(false),
        }
    }

    /// Both listeners are there.
    pub fn ready(&self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The settings are being read. [`ready`](Supervisor::ready) ends it.
    pub fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.tell(&[NotifyState::Reloading, now]);
        }
    }

    /// It has been told to end.
    pub fn stopping(&self) {
        self.draining.set(true);
        self.tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }

    /// Says that kvgauge is alive while all who carry traffic are, and how the drain goes; never ends.
    ///
    /// The metrics plane is not asked: no request waits for it, so no request is to end for it either.
    pub async fn watch(&self, server: &Server) {
        if !self.listens {
            pending::<()>().await;
        }
        let half = self.watchdog.map_or(LOOK, |every| every / 2);
        let pause = half.clamp(SHORTEST, LOOK);
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beats = Beats::default();
        loop {
            ticks.tick().await;
            if self.watchdog.is_some() && server.running.all_beat(&mut beats) {
                self.tell(&[NotifyState::Watchdog]);
            }
            if self.draining.get() {
                let status = format!("draining, {} in flight", server.running.requests());
                let longer = u32::try_from(LONGER.as_micros()).unwrap_or(u32::MAX);
                self.tell(&[
                    NotifyState::Status(&status),
                    NotifyState::ExtendTimeoutUsec(longer),
                ]);
            }
        }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if !self.listens {
            return;
        }
        if let Err(error) = sd_notify::notify(states) {
            self.complain(&error);
        }
    }

    fn complain(&self, error: &io::Error) {
        if !self.complained.replace(true) {
            tracing::warn!(
                "the service manager that NOTIFY_SOCKET names can't be told that kvgauge is there ({error}): in its unit, NotifyAccess= must let the main process speak, and RestrictAddressFamilies= AF_UNIX"
            );
        }
    }
}
