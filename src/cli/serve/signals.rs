//! What kvgauge is told by signals.

use crate::cli::disposition;
use anyhow::Context as _;
use rustix::process::Signal as Unix;
use std::fs;
use std::future::pending;
use std::io::{IsTerminal as _, stdin};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// To read the settings anew.
    Reload,
    /// To drain: `kvgauge drain`.
    Drain,
    /// To end; the signal's name.
    End(&'static str),
}

/// The signals that are watched.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    drain: Signal,
    /// Standard input was a terminal at the start, and whoever started kvgauge did not say that it shall
    /// outlive it.
    ends_with_terminal: bool,
}

impl Signals {
    /// Begins to watch.
    ///
    /// # Errors
    /// When a signal can't be watched.
    pub fn new() -> anyhow::Result<Signals> {
        // Before it is watched.
        let outlives = hang_up_is_ignored();
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("SIGTERM can't be watched")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT can't be watched")?,
            hang_up: signal(SignalKind::hangup()).context("SIGHUP can't be watched")?,
            drain: signal(SignalKind::user_defined1()).context("SIGUSR1 can't be watched")?,
            ends_with_terminal: !outlives && stdin().is_terminal(),
        })
    }

    /// The next.
    pub async fn next(&mut self) -> Told {
        let (told, came) = tokio::select! {
            biased;
            came = self.hang_up.recv() => (self.hung_up(), came),
            // Before the SIGTERM that follows a hook.
            came = self.drain.recv() => (Told::Drain, came),
            came = self.interrupt.recv() => (Told::End("SIGINT"), came),
            came = self.terminate.recv() => (Told::End("SIGTERM"), came),
        };
        if came.is_none() {
            pending::<()>().await;
        }
        told
    }

    /// SIGHUP comes from whoever has changed the settings, and from a terminal that is closed, which is
    /// none any more: what was started in it ends with it, as programs do. Who ignores SIGHUP at the start
    /// (`nohup`, `trap '' HUP`) wants it to stay, and it is read as a wish for other settings only.
    fn hung_up(&self) -> Told {
        if self.ends_with_terminal && !stdin().is_terminal() {
            Told::End("SIGHUP (the terminal is gone)")
        } else {
            Told::Reload
        }
    }
}

/// Whether this process was started with SIGHUP ignored; no, where that can't be known.
fn hang_up_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status");
    status.is_ok_and(|status| disposition::ignores(&status, Unix::HUP))
}
