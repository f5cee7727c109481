//! One client connection as the layers and the sweeper see it.

use super::io::{Arming, ends_already, peer_has_left};
use super::ticket::Ticket;
use crate::config::{Audience, Settings};
use http::HeaderValue;
use ipnet::IpNet;
use std::cell::{Cell, Ref, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// What a connection waits for; the sweeper holds it to its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For the first byte of the first request.
    FirstByte,
    /// For the rest of a request's head.
    Head,
    /// For the next request.
    NextRequest,
    /// For nothing of the client's: a request runs.
    Nothing,
    /// For nothing that anyone here knows of: it is a tunnel, which has clocks of its own.
    Tunnel,
}

/// What a connection was asked to do. A later one in this list replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Go on.
    Nothing,
    /// End after the running request.
    Finish,
    /// End at once: the peer has left, or has taken nothing for too long.
    Gone,
    /// End at once: nothing of a request came in time.
    Silent,
    /// End at once: a head did not come whole in time.
    SlowHead,
    /// End at once: the request has taken longer than `timeouts.request`.
    Overdue,
    /// End at once: the drain is over.
    Cut,
    /// End at once: kvgauge has panicked over it.
    Panicked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakingOff {
    No,
    /// When all that came before has left.
    Waits,
    /// At once: the peer has taken nothing for too long.
    Now,
}

/// Of what came last, as much as the end of a head takes.
const TAIL: usize = 4;

/// See the [module](self) description.
pub struct Client {
    /// Where it comes from.
    pub addr: Box<str>,
    /// Whether its `X-Forwarded-…` headers are believed.
    pub trusted: bool,
    /// Whether it is shown the KV headers.
    pub sees_kv: bool,
    /// The id of the request that is being called.
    request_id: RefCell<Option<HeaderValue>>,
    waiting: Cell<(Waiting, Instant)>,
    /// A head has begun to come within the running poll.
    head_began: Cell<bool>,
    asked: Cell<Asked>,
    /// Bytes of the request's body are still to come.
    body_left: Cell<bool>,
    /// Pieces of a request's body taken since the connection was last polled.
    pieces: Cell<usize>,
    /// The next request's head has begun to come while this one runs.
    next_began: Cell<bool>,
    /// The last bytes that came.
    tail: Cell<[u8; TAIL]>,
    socket: RefCell<Weak<TcpStream>>,
    pub(super) arming: Arming,
    connection: RefCell<Option<Waker>>,
    flushes: Cell<u64>,
    /// Something waits within the connection for what was written to leave.
    flush_awaited: Cell<bool>,
    /// Whether an answer that broke off waits until what came before has left.
    breaking_off: Cell<BreakingOff>,
    /// A request whose answer is whole, but has not all been handed to the kernel.
    leaving: RefCell<Option<Ticket>>,
    /// The kernel has taken something since it last took nothing more.
    some_left: Cell<bool>,
    /// Since when the kernel has taken nothing more: the peer does not read.
    stuck: Cell<Option<Instant>>,
    /// Bytes that the kernel has taken.
    sent: Cell<u64>,
    /// The end of the connection would be taken for the end of the running answer.
    until_close: Cell<bool>,
    reset_on_close: Cell<bool>,
}

impl Client {
    /// A connection just accepted.
    #[must_use]
    pub fn new(peer: SocketAddr, settings: &Settings) -> Client {
        let addr = peer.ip().to_canonical();
        let within = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&addr));
        Client {
            addr: addr.to_string().into(),
            trusted: within(&settings.trusted_proxies),
            sees_kv: match &settings.headers.audience {
                Audience::All => true,
                Audience::Ranges(ranges) => within(ranges),
            },
            request_id: RefCell::default(),
            waiting: Cell::new((Waiting::FirstByte, Instant::now())),
            head_began: Cell::new(false),
            asked: Cell::new(Asked::Nothing),
            body_left: Cell::new(false),
            pieces: Cell::new(0),
            next_began: Cell::new(false),
            tail: Cell::new([0; TAIL]),
            socket: RefCell::default(),
            arming: Arming::default(),
            connection: RefCell::new(None),
            flushes: Cell::new(0),
            flush_awaited: Cell::new(false),
            breaking_off: Cell::new(BreakingOff::No),
            leaving: RefCell::new(None),
            some_left: Cell::new(false),
            stuck: Cell::new(None),
            sent: Cell::new(0),
            until_close: Cell::new(false),
            reset_on_close: Cell::new(false),
        }
    }

    // === what its request is known by ===

    /// A request begins that is known by this id. It is handed from layer to layer here, as in the map of the
    /// request's fields it would be hashed to get in, and again by everyone who asks for it.
    pub(super) fn request_is(&self, id: Option<HeaderValue>) {
        self.request_id.replace(id);
    }

    /// The id of the request that is called.
    pub(super) fn request_id(&self) -> Ref<'_, Option<HeaderValue>> {
        self.request_id.borrow()
    }

    /// The same for the last layer that asks, so that a connection that waits holds none.
    pub(super) fn take_request_id(&self) -> Option<HeaderValue> {
        self.request_id.take()
    }

    // === what it waits for ===

    /// What it waits for.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.waiting.get().0
    }

    /// For how long it has waited.
    #[must_use]
    pub fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.waiting.get().1)
    }

    /// A whole head has come. hyper keeps what came with it of the next one (RFC 9112, 9.3.2:
    /// pipelining) and says nothing of it, but without a body the blank line would be the last thing.
    pub(super) fn request_began(&self, now: Instant, has_body: bool) {
        self.waiting.set((Waiting::Nothing, now));
        self.head_began.set(false);
        self.body_left.set(has_body);
        self.next_began
            .set(!has_body && !ends_a_head(self.tail.get()));
        // Who has left already is no work for the router.
        self.look_for_peer();
    }

    /// What comes from now on is no HTTP.
    pub(super) fn tunnel_began(&self) {
        self.waiting.set((Waiting::Tunnel, Instant::now()));
    }

    /// Whether bytes of the request's body have not been taken.
    pub(super) fn has_body_left(&self) -> bool {
        self.body_left.get()
    }

    /// The connection is polled.
    pub(super) fn polled(&self) {
        self.pieces.set(0);
    }

    /// The connection has been polled.
    pub(super) fn poll_ended(&self) {
        // Mostly a head is whole by then, and nobody asks since when it has come.
        if self.head_began.take() {
            self.waiting.set((Waiting::Head, Instant::now()));
        }
    }

    /// A piece of the request's body has been taken, for which hyper wakes the connection.
    pub(super) fn body_taken(&self) {
        self.pieces.set(self.pieces.get().saturating_add(1));
    }

    /// Whether the connection was woken so often within its own poll only for pieces of a body that has
    /// come whole since, while its request runs: then there is nothing to look for.
    pub(super) fn woken_for_nothing(&self, woken: usize) -> bool {
        woken <= self.pieces.get() && !self.body_left.get() && self.waiting() == Waiting::Nothing
    }

    /// The request's body has come whole: what came with its end, and what comes from now on, is the
    /// next request's. `last` is what ended it, where that was not a chunk or trailer (which end as a
    /// head does).
    pub(super) fn body_came_whole(&self, last: Option<&[u8]>) {
        if !self.body_left.replace(false) {
            return;
        }
        let tail = self.tail.get();
        let nothing_behind = match last {
            Some(last) => ends_with(&tail, last),
            None => ends_a_head(tail),
        };
        self.next_began.set(!nothing_behind);
    }

    /// A head that has begun to come behind the request is held to a head's limit, not an idle
    /// connection's.
    pub(super) fn request_ended(&self, now: Instant) {
        let next = if self.next_began.get() {
            Waiting::Head
        } else {
            Waiting::NextRequest
        };
        self.waiting.set((next, now));
    }

    pub(super) fn bytes_arrived(&self, bytes: &[u8]) {
        self.tail.set(match bytes.last_chunk() {
            Some(tail) => *tail,
            None => {
                let mut tail = self.tail.get();
                for &byte in bytes {
                    tail.rotate_left(1);
                    tail[TAIL - 1] = byte;
                }
                tail
            }
        });
        match self.waiting() {
            // What is left of a body that was answered early is no head.
            Waiting::NextRequest if self.body_left.get() => {}
            Waiting::FirstByte | Waiting::NextRequest => {
                let (_, before) = self.waiting.get();
                self.waiting.set((Waiting::Head, before));
                self.head_began.set(true);
            }
            Waiting::Nothing => {
                // A stray line end is no head (RFC 9112, 2.2).
                if !self.body_left.get() && bytes.iter().any(|b| !matches!(b, b'\r' | b'\n')) {
                    self.next_began.set(true);
                }
            }
            Waiting::Head | Waiting::Tunnel => {}
        }
    }

    // === what it is asked ===

    /// Asks the connection to end; a stronger request replaces a weaker one.
    pub fn ask(&self, asked: Asked) {
        if asked > self.asked.get() {
            self.asked.set(asked);
            self.wake();
        }
    }

    /// What it was asked.
    #[must_use]
    pub fn asked(&self) -> Asked {
        self.asked.get()
    }

    /// Has the connection's task look again, even from within its own poll.
    pub(super) fn wake(&self) {
        let waker = self.connection.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    // === whether the peer is still there ===

    pub(super) fn connected(&self, socket: &Rc<TcpStream>) {
        self.socket.replace(Rc::downgrade(socket));
    }

    /// Whether the peer has left while a request runs.
    fn has_left(&self) -> bool {
        let socket = self.socket.borrow().upgrade();
        // Of a new connection the kernel has reported nothing when its first bytes are read.
        let is_new = self.sent() == 0;
        self.waiting() == Waiting::Nothing
            && socket
                .is_some_and(|socket| peer_has_left(&socket) || (is_new && ends_already(&socket)))
    }

    /// Asks the socket, which hyper does not, whether the peer has left: behind a body that nobody takes, or
    /// the bytes of a next request (RFC 9112, 9.3.2: pipelining), nothing wakes the connection for it.
    pub fn look_for_peer(&self) {
        if self.has_left() {
            self.ask(Asked::Gone);
        }
    }

    /// While a request runs whose body has come whole, nobody reads: the connection is woken all the same
    /// when the peer leaves, and ends.
    pub(super) fn watch(&self, cx: &mut Context<'_>) {
        if self.waiting() != Waiting::Nothing || self.body_left.get() {
            return;
        }
        let socket = self.socket.borrow().upgrade();
        if socket.is_some_and(|socket| self.arming.poll(&socket, cx).is_ready()) {
            self.look_for_peer();
        }
    }

    pub(super) fn poll_asked(&self, cx: &Context<'_>) -> Asked {
        let mut waker = self.connection.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.asked.get()
    }

    // === what has left ===

    /// How often everything written so far had been handed to the kernel.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.get()
    }

    /// Everything written so far has been handed to the kernel.
    pub(super) fn flushed(&self) {
        self.flushes.set(self.flushes.get().wrapping_add(1));
        if self.flush_awaited.take() {
            self.wake();
        }
        let whole = self.leaving.take();
        if let Some(ticket) = whole {
            self.until_close.set(false);
            ticket.left();
        }
        // A request that came while the kernel took nothing is looked at now.
        if self.stuck.take().is_some() {
            self.wake();
        }
    }

    /// The kernel takes nothing more at present; true where it has taken something since the last time.
    pub(super) fn got_stuck(&self) -> bool {
        if self.stuck.get().is_none() {
            self.stuck.set(Some(Instant::now()));
        }
        self.some_left.replace(false)
    }

    /// The kernel has taken so many bytes more.
    pub(super) fn bytes_left(&self, count: usize) {
        self.sent.set(self.sent.get() + count as u64);
        self.some_left.set(true);
        if self.stuck.get().is_some() {
            self.stuck.set(Some(Instant::now()));
        }
    }

    /// Bytes that the kernel has taken since the connection began, those of heads and framing too.
    pub(super) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// hyper has been given the last of an answer: its request ends when all of it has been handed to
    /// the kernel, or with the connection.
    pub(super) fn answer_is_whole(&self, ticket: Ticket) {
        self.leaving.replace(Some(ticket));
    }

    /// For how long the peer has taken nothing of what is left of an answer that is whole, or has
    /// broken off.
    pub(super) fn takes_nothing(&self, now: Instant) -> Option<Duration> {
        let since = self.stuck.get().filter(|_| {
            self.leaving.borrow().is_some() || self.breaking_off.get() == BreakingOff::Waits
        })?;
        Some(now.saturating_duration_since(since))
    }

    /// Whether all of the answer before has been handed to the kernel.
    pub(super) fn all_has_left(&self) -> bool {
        self.leaving.borrow().is_none()
    }

    /// Ready when that is so: a request that is pipelined behind it
    /// waits, so that one that is never read is not answered on and on.
    pub(super) fn poll_all_left(&self) -> Poll<()> {
        if self.all_has_left() {
            return Poll::Ready(());
        }
        self.flush_awaited.set(true);
        Poll::Pending
    }

    /// The socket is gone, and what had not left with it.
    pub(super) fn connection_ended(&self) {
        drop(self.leaving.take());
    }

    /// Ready at the first flush after `since`, or when the peer has taken nothing for too long.
    pub(super) fn poll_flushed(&self, since: u64) -> Poll<()> {
        if self.flushes.get() == since && self.breaking_off.get() != BreakingOff::Now {
            self.breaking_off.set(BreakingOff::Waits);
            self.flush_awaited.set(true);
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    /// The answer that begins ends with the connection (RFC 9112, 6.3): until all of it has left, the
    /// connection must not end cleanly, whoever ends it.
    pub(super) fn answers_until_close(&self) {
        self.until_close.set(true);
    }

    /// The peer has taken nothing for too long: an answer that broke off ends as one that did, any
    /// other is the peer's to have left.
    pub(super) fn give_up(&self) {
        if self.breaking_off.get() == BreakingOff::No {
            self.ask(Asked::Gone);
            return;
        }
        self.breaking_off.set(BreakingOff::Now);
        if self.flush_awaited.take() {
            self.wake();
        }
    }

    /// The connection must not end cleanly, whatever runs on it.
    pub(super) fn reset_on_close(&self) {
        self.reset_on_close.set(true);
    }

    pub(super) fn must_reset(&self) -> bool {
        self.reset_on_close.get() || self.until_close.get()
    }
}

/// Whether what came last is the end of `body`, or that and a stray line end (RFC 9112, 2.2).
fn ends_with(tail: &[u8; TAIL], body: &[u8]) -> bool {
    [&tail[..], without_line_end(tail)].iter().any(|tail| {
        let n = body.len().min(tail.len());
        tail[tail.len() - n..] == body[body.len() - n..]
    })
}

fn without_line_end(tail: &[u8]) -> &[u8] {
    let tail = tail.strip_suffix(b"\n").unwrap_or(tail);
    tail.strip_suffix(b"\r").unwrap_or(tail)
}

fn ends_a_head(tail: [u8; TAIL]) -> bool {
    tail.ends_with(b"\n\r\n") || tail.ends_with(b"\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_not_whole_when_the_poll_ends_has_come_since_then() {
        let client = Client::new("192.0.2.7:1".parse().unwrap(), &Settings::defaults());
        client.bytes_arrived(b"GET / HT");
        assert_eq!(client.waiting(), Waiting::Head);
        let arrived = Instant::now();
        client.poll_ended();
        let (waiting, since) = client.waiting.get();
        assert!(waiting == Waiting::Head && since >= arrived);
        client.bytes_arrived(b"TP/1.1\r\n");
        client.poll_ended();
        assert_eq!(client.waiting.get(), (Waiting::Head, since), "not anew");

        client.request_began(arrived, false);
        client.request_ended(arrived);
        client.bytes_arrived(b"GET / HTTP/1.1\r\n\r\n");
        client.request_began(arrived, false);
        client.poll_ended();
        assert_eq!(client.waiting.get(), (Waiting::Nothing, arrived));
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_listener_is_known_by_its_ipv4_address() {
        let range = |text: &str| text.parse::<IpNet>().unwrap();
        let mut settings = Settings::defaults();
        settings.headers.audience =
            Audience::Ranges(vec![range("192.0.2.0/24"), range("2001:db8::/32")]);
        for (peer, shown, sees_kv, trusted) in [
            ("192.0.2.7:1", "192.0.2.7", true, false),
            ("[::ffff:192.0.2.7]:1", "192.0.2.7", true, false),
            ("[::ffff:203.0.113.7]:1", "203.0.113.7", false, false),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1", false, true),
            ("[2001:db8::7]:1", "2001:db8::7", true, false),
            ("[2001:db9::7]:1", "2001:db9::7", false, false),
            ("[::1]:1", "::1", false, true),
            // Not a mapped address (RFC 4291, 2.5.5.1): nobody's.
            ("[::192.0.2.7]:1", "::c000:207", false, false),
        ] {
            let client = Client::new(peer.parse().unwrap(), &settings);
            assert_eq!(&*client.addr, shown);
            assert_eq!(
                (client.sees_kv, client.trusted),
                (sees_kv, trusted),
                "{peer}"
            );
        }
    }
}
