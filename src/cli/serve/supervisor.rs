//! What the service manager is told (`sd_notify(3)`), where one has started kvgauge and asks for it: when
//! it is ready, what it is at, that it is alive. Nobody waits for one that does not listen: what finds no
//! room with it is dropped, but its state is told again.

use super::Server;
use crate::proxy::Beats;
use sd_notify::NotifyState;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
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
    /// Where it listens, if it does.
    socket: Option<OsString>,
    /// How often it wants to hear that kvgauge is alive.
    watchdog: Option<Duration>,
    draining: Cell<bool>,
    /// That it can't be told has been told.
    complained: Cell<bool>,
    /// The state that found no room.
    unsaid: RefCell<Option<String>>,
}

impl Supervisor {
    /// The one that has started this process, if it has.
    pub fn new() -> Supervisor {
        Supervisor {
            socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog: sd_notify::watchdog_enabled().filter(|every| !every.is_zero()),
            draining: Cell::new(false),
            complained: Cell::new(false),
            unsaid: RefCell::default(),
        }
    }

    /// Both listeners are there.
    pub fn ready(&self, status: &str) {
        self.tell_state(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The settings are being read. [`ready`](Supervisor::ready) ends it.
    pub fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.tell_state(&[NotifyState::Reloading, now]);
        }
    }

    /// It has been told to end.
    pub fn stopping(&self) {
        self.draining.set(true);
        self.tell_state(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }

    /// Says that kvgauge is alive while all who carry traffic are, and how the drain goes; never ends.
    ///
    /// The metrics plane is not asked: no request waits for it, so no request is to end for it either.
    pub async fn watch(&self, server: &Server) {
        if self.socket.is_none() {
            pending::<()>().await;
        }
        let half = self.watchdog.map_or(LOOK, |every| every / 2);
        let pause = half.clamp(SHORTEST, LOOK);
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beats = Beats::default();
        loop {
            ticks.tick().await;
            let unsaid = self.unsaid.take();
            if let Some(state) = unsaid
                && !self.send(&state)
            {
                self.unsaid.replace(Some(state));
            }
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

    /// Tells it now or, where it has no room, when it has: the newest is enough.
    fn tell_state(&self, states: &[NotifyState<'_>]) {
        let text = lines(states);
        let unsaid = (!self.send(&text)).then_some(text);
        self.unsaid.replace(unsaid);
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        self.send(&lines(states));
    }

    /// Whether it is to be told no more: one that can't be told will not be, whenever it is tried.
    fn send(&self, text: &str) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        let Err(error) = send(socket, text) else {
            return true;
        };
        let full = error.kind() == io::ErrorKind::WouldBlock;
        self.complain(&error, full);
        !full
    }

    fn complain(&self, error: &io::Error, full: bool) {
        if self.complained.replace(true) {
            return;
        }
        if full {
            tracing::warn!(
                "the service manager that NOTIFY_SOCKET names does not take what it is told, and its queue is full: what finds no room is dropped, and the state of kvgauge told again each second; look what it waits for"
            );
        } else {
            tracing::warn!(
                "the service manager that NOTIFY_SOCKET names can't be told that kvgauge is there ({error}): in its unit, NotifyAccess= must let the main process speak, and RestrictAddressFamilies= AF_UNIX"
            );
        }
    }
}

fn lines(states: &[NotifyState<'_>]) -> String {
    let mut text = String::new();
    for state in states {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{state}");
    }
    text
}

/// As `sd_notify::notify` does, but without waiting for room.
fn send(socket: &OsString, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let datagrams = UnixDatagram::unbound()?;
    datagrams.set_nonblocking(true)?;
    datagrams.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}
