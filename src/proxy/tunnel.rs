//! A connection that has switched protocols: bytes as they come, both ways, until both sides have
//! ended. Nothing of them is read.
//!
//! What one side takes slowly is read slowly from the other. The end of one direction (FIN) is passed
//! on as that, and the other goes on, but not in silence for ever: a peer that is gone has ended its
//! direction too, and the other may never say anything. What breaks on one side ends both, by RST, so that nobody takes
//! it for an orderly end.

use super::client::{Asked, Client};
use super::error::{Outcome, TunnelError};
use super::io::{close_by_reset, reset};
use super::ticket::Ticket;
use super::worker::Worker;
use crate::config::Timeouts;
use crate::net::Switched;
use crate::telemetry::Direction;
use bytes::Bytes;
use socket2::SockRef;
use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::rc::Rc;
use std::task::Poll;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Read at a time. On the stack: a tunnel in which nothing moves has no buffer.
const PIECE: usize = 16 * 1024;

/// From the layer that sees a 101 pass to who serves the connection. One for each connection.
#[derive(Clone, Default)]
pub struct Handover(Rc<Slot>);

#[derive(Default)]
struct Slot {
    opening: Cell<Option<Opening>>,
    may_come: Cell<bool>,
}

/// A tunnel whose 101 is on its way to the client.
pub(super) struct Opening {
    pub(super) ticket: Ticket,
    pub(super) router: Switched,
}

/// One end of a tunnel.
#[derive(Clone, Copy)]
struct Side<'a> {
    socket: &'a TcpStream,
    /// What it is when this end breaks.
    broken: TunnelError,
}

/// A socket of a tunnel that has not ended in order: dropped so (a panic, the end of its task), the
/// socket is closed by RST.
struct Unended<'a>(Option<&'a TcpStream>);

/// How long nothing has moved.
struct Silence {
    last: Cell<Instant>,
    /// One side has ended its direction.
    half: Cell<bool>,
    changed: Notify,
}

/// What has moved, one way.
struct Way<'a> {
    bytes: Cell<u64>,
    silence: &'a Silence,
    worker: &'a Worker,
    direction: Direction,
}

// === impl Handover ===

impl Handover {
    pub(super) fn give(&self, opening: Opening) {
        self.0.opening.set(Some(opening));
    }

    pub(super) fn take(&self) -> Option<Opening> {
        self.0.opening.take()
    }

    /// The running request has offered to switch.
    pub(super) fn set_may_come(&self, may_come: bool) {
        self.0.may_come.set(may_come);
    }

    pub(super) fn may_come(&self) -> bool {
        self.0.may_come.get()
    }
}

// === impl Opening ===

impl Opening {
    /// Carries bytes until the end, and records it. `early` is what the client sent behind its head.
    pub(super) async fn run(
        self,
        stream: TcpStream,
        early: Bytes,
        client: &Client,
        worker: &Worker,
    ) {
        let Opening { mut ticket, router } = self;
        client.tunnel_began();
        let near_unended = Unended(Some(&stream));
        let Some((router, first)) = router.into_tcp() else {
            ticket.end(Outcome::UpstreamAborted, Some("upstream_aborted"));
            drop(near_unended);
            return reset(stream);
        };
        let far_unended = Unended(Some(&router));
        let silence = Silence {
            last: Cell::new(Instant::now()),
            half: Cell::new(false),
            changed: Notify::new(),
        };
        let way = |direction| Way {
            bytes: Cell::new(0),
            silence: &silence,
            worker,
            direction,
        };
        let (inward, outward) = (way(Direction::In), way(Direction::Out));
        let near = Side {
            socket: &stream,
            broken: TunnelError::Client,
        };
        let far = Side {
            socket: &router,
            broken: TunnelError::Upstream,
        };
        let both = async {
            tokio::try_join!(
                inward.carry(near, far, early),
                outward.carry(far, near, first)
            )
        };
        let timeouts = &worker.settings.timeouts;
        let result = tokio::select! {
            // What came before a break is carried first.
            biased;
            result = both => result.map(|_| ()),
            error = near.breaks() => Err(error),
            error = far.breaks() => Err(error),
            error = cut(client) => Err(error),
            error = silence.overdue(timeouts, ticket.start().into()) => Err(error),
        };
        ticket.carried(inward.bytes.get(), outward.bytes.get());
        match result {
            Ok(()) => {
                near_unended.has_ended();
                far_unended.has_ended();
                ticket.end(Outcome::Upgraded, None);
            }
            Err(error) => {
                ticket.end(error.outcome(), Some(error.code()));
                drop((near_unended, far_unended));
                reset(stream);
                reset(router);
            }
        }
    }
}

// === impl Unended ===

impl Unended<'_> {
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.0 {
            close_by_reset(socket);
        }
    }
}

// === impl Way ===

impl Way<'_> {
    /// Until `from` has ended, and `to` has been told so.
    async fn carry(&self, from: Side<'_>, to: Side<'_>, first: Bytes) -> Result<(), TunnelError> {
        self.deliver(to, &first).await?;
        drop(first);
        loop {
            let ready = poll_fn(|cx| from.socket.poll_read_ready(cx)).await;
            ready.map_err(|_| from.broken)?;
            match self.pass(from, to)? {
                Some(left) => self.deliver(to, &left).await?,
                None => break,
            }
        }
        let told = SockRef::from(to.socket).shutdown(Shutdown::Write);
        told.map_err(|_| to.broken)?;
        self.silence.half.set(true);
        self.silence.last.set(Instant::now());
        self.silence.changed.notify_one();
        Ok(())
    }

    /// Reads once, and writes what can be written at once. What could not, or `None` at the end.
    fn pass(&self, from: Side<'_>, to: Side<'_>) -> Result<Option<Box<[u8]>>, TunnelError> {
        let mut piece = [0; PIECE];
        let read = match from.socket.try_read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(read) => read,
            Err(error) if is_no_error(&error) => return Ok(Some(Box::default())),
            Err(_) => return Err(from.broken),
        };
        let read = piece.get(..read).unwrap_or_default();
        let written = self.write(to, read)?;
        Ok(Some(read.get(written..).unwrap_or_default().into()))
    }

    async fn deliver(&self, to: Side<'_>, mut bytes: &[u8]) -> Result<(), TunnelError> {
        while !bytes.is_empty() {
            let ready = poll_fn(|cx| to.socket.poll_write_ready(cx)).await;
            ready.map_err(|_| to.broken)?;
            let written = self.write(to, bytes)?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn write(&self, to: Side<'_>, bytes: &[u8]) -> Result<usize, TunnelError> {
        match to.socket.try_write(bytes) {
            Ok(written) => {
                let count = written as u64;
                self.bytes.set(self.bytes.get() + count);
                self.worker.meters.tunnelled(self.direction, count);
                self.silence.last.set(Instant::now());
                Ok(written)
            }
            Err(error) if is_no_error(&error) => Ok(0),
            Err(_) => Err(to.broken),
        }
    }
}

fn is_no_error(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

// === what ends a tunnel ===

impl Side<'_> {
    /// A reset is seen also while nothing is read from this side, or nothing more can come.
    async fn breaks(self) -> TunnelError {
        match self.socket.ready(Interest::ERROR).await {
            Ok(_) => self.broken,
            // The runtime ends.
            Err(_) => pending().await,
        }
    }
}

async fn cut(client: &Client) -> TunnelError {
    poll_fn(|cx| match client.poll_asked(cx) {
        Asked::Cut => Poll::Ready(TunnelError::Drained),
        _ => Poll::Pending,
    })
    .await
}

impl Silence {
    async fn overdue(&self, timeouts: &Timeouts, start: Instant) -> TunnelError {
        loop {
            let of_half = self.half.get().then_some(timeouts.client_idle);
            let limit = [timeouts.stream_silence, of_half]
                .into_iter()
                .flatten()
                .min();
            let silence = limit.map(|limit| (self.last.get() + limit, TunnelError::Silence));
            let whole = timeouts
                .request
                .map(|limit| (start + limit, TunnelError::Deadline));
            let first = [silence, whole]
                .into_iter()
                .flatten()
                .min_by_key(|(at, _)| *at);
            match first {
                Some((at, error)) if Instant::now() >= at => return error,
                Some((at, _)) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }
}
