//! A small pool of HTTP/1.1 connections to one target, for one thread, behind [`tower::Service`].
//!
//! A request takes the connection used last (the one least likely to have been closed by the
//! peer), or dials. A connection goes back when its response body has ended, and never when it was
//! dropped half-way. Idle connections are bounded in number and age; what has been idle too long is
//! not used again, as Python servers close after 5 s and a request written at that moment is lost.
//!
//! Where the target is a name, a connection to an address that it does not have any more is not used
//! again (`moved.rs`).
//!
//! A request is sent again only where nothing of it was written, since a kept connection turned out to
//! be closed. What may have reached the peer is never replayed.
//!
//! A connection whose peer has answered with 101 is no HTTP connection any more: it leaves the pool
//! as [`Switched`].

mod body;
mod exchange;

use super::http1::{Broken, Connection, Outbound};
use super::moved::Known;
use super::{Addresses, Connect, DialError, Plain};
use crate::config::Target;
pub use body::PooledBody;
use bytes::Bytes;
pub use exchange::Exchange;
use http::Response;
use http_body::Body;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What bounds a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// For connecting, the name look-up included.
    pub connect: Duration,
    /// A connection idle for longer is closed.
    pub idle: Duration,
    /// A connection older than this is not used again.
    pub max_age: Duration,
    /// Idle connections kept.
    pub max_idle: usize,
    /// Header fields of a response.
    pub header_fields: usize,
    /// Bytes of a response head.
    pub header_bytes: usize,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum PoolError<E = DialError> {
    /// No connection: nothing was sent.
    #[error("{0}")]
    Dial(E),
    /// The peer closed or reset before a whole response head, or sent something that is not HTTP.
    #[error("{0}")]
    Broken(Broken),
}

/// When a request went out and its response head came in.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The request was handed to a connection.
    pub sent: Instant,
    /// The response head was read.
    pub answered: Instant,
}

/// The connection that a 101 came on; stands in that response's extensions. Dropped, it is closed.
#[derive(Clone)]
pub struct Switched(Arc<Mutex<Option<Socket>>>);

/// A stream, and what came behind the head.
type Socket = (Box<dyn Any + Send>, Bytes);

/// See the [module](self) description. Clones share their connections.
pub struct Pool<B, C: Connect = Plain> {
    shared: Rc<Shared<C>>,
    bodies: PhantomData<fn(B)>,
}

struct Shared<C: Connect> {
    target: Target,
    connect: C,
    limits: PoolLimits,
    /// The one used last is behind. Of the one in front room can be made at once, however many there are.
    idle: RefCell<VecDeque<Kept<C::Stream>>>,
    addresses: Arc<Addresses>,
    known: Known,
    answered: Cell<Option<Sent>>,
}

/// A connection that waits for its next request, or is on loan.
struct Kept<S> {
    connection: Connection<S>,
    about: About,
}

#[derive(Clone, Copy)]
struct About {
    peer: Option<IpAddr>,
    born: Instant,
    /// Since it brought the last of an answer; nothing while that is awaited.
    idle_since: Option<Instant>,
}

// === impl Pool ===

impl<B> Pool<B> {
    /// A pool without connections, for plain TCP.
    #[must_use]
    pub fn new(target: Target, limits: PoolLimits) -> Pool<B> {
        Pool::by(Plain, target, limits)
    }

    /// The same, of several that lead to the same target and can [follow](Pool::follow) it.
    #[must_use]
    pub fn following(target: Target, limits: PoolLimits, addresses: Arc<Addresses>) -> Pool<B> {
        Pool::with(Plain, target, limits, addresses)
    }
}

impl<B, C: Connect> Pool<B, C> {
    /// A pool without connections, which are opened by `connect`.
    #[must_use]
    pub fn by(connect: C, target: Target, limits: PoolLimits) -> Pool<B, C> {
        Pool::with(connect, target, limits, Arc::default())
    }

    fn with(
        connect: C,
        target: Target,
        limits: PoolLimits,
        addresses: Arc<Addresses>,
    ) -> Pool<B, C> {
        Pool {
            shared: Rc::new(Shared {
                target,
                connect,
                limits,
                idle: RefCell::new(VecDeque::new()),
                known: addresses.known(),
                addresses,
                answered: Cell::new(None),
            }),
            bodies: PhantomData,
        }
    }

    /// The address that requests go to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// Idle connections right now.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.shared.idle.borrow().len()
    }

    /// The times of the answer whose head came last, once. To be asked for within the poll that brings the
    /// answer, in which no other can come between; an answer's extensions would need memory for it.
    #[must_use]
    pub fn take_answered(&self) -> Option<Sent> {
        self.shared.answered.take()
    }

    /// Closes what is closed by the peer, has been idle too long, is too old, or leads to where the
    /// target's name does not lead any more. Call it now and then.
    pub fn sweep(&self, now: Instant) {
        let shared = &self.shared;
        let mut idle = shared.idle.borrow_mut();
        idle.retain_mut(|kept| shared.usable(kept, now) && kept.connection.is_quiet());
    }
}

impl<B, C: Connect> Pool<B, C> {
    /// Looks in the background, now and then, whether the target's name has moved; the next sweep closes
    /// what waits where it is not any more. Call it often, within a tokio `LocalRuntime` or `LocalSet`.
    pub fn follow(&self, now: Instant) {
        let (target, addresses) = (&self.shared.target, &self.shared.addresses);
        if addresses.is_due(target, self.idle() > 0, now) {
            let (target, addresses) = (target.clone(), Arc::clone(addresses));
            tokio::task::spawn_local(async move { addresses.look(&target).await });
        }
    }
}

impl<B, C: Connect> Clone for Pool<B, C> {
    fn clone(&self) -> Self {
        Pool {
            shared: Rc::clone(&self.shared),
            bodies: PhantomData,
        }
    }
}

impl<R, B, C> tower::Service<R> for Pool<B, C>
where
    R: Into<Outbound<B>>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    type Response = Response<PooledBody<B, C>>;
    type Error = PoolError<C::Error>;
    type Future = Exchange<B, C>;

    /// Always ready: a request dials when no connection is free.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        Exchange::new(Rc::clone(&self.shared), request.into())
    }
}

// === impl Shared ===

impl<C: Connect> Shared<C> {
    fn usable(&self, kept: &Kept<C::Stream>, now: Instant) -> bool {
        kept.about.is_young(now, &self.limits) && self.known.has(kept.about.peer)
    }

    fn take_idle(&self, now: Instant) -> Option<Kept<C::Stream>> {
        self.addresses.used();
        let mut idle = self.idle.borrow_mut();
        let mut kept = idle.pop_back()?;
        while !(self.usable(&kept, now) && kept.connection.is_quiet_now(C::is_quiet)) {
            kept = idle.pop_back()?;
        }
        Some(kept)
    }

    fn put_back(&self, mut kept: Kept<C::Stream>) {
        self.addresses.used();
        if self.limits.max_idle == 0 || !self.known.has(kept.about.peer) {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= self.limits.max_idle {
            idle.pop_front();
        }
        kept.about.idle_since.get_or_insert_with(Instant::now);
        idle.push_back(kept);
    }

    async fn connect(self: Rc<Self>) -> Result<Kept<C::Stream>, PoolError<C::Error>> {
        let connect = self.connect.connect(&self.target, self.limits.connect);
        let stream = connect.await.map_err(PoolError::Dial)?;
        let peer = C::peer(&stream);
        self.addresses.dialled(peer);
        let now = Instant::now();
        Ok(Kept {
            connection: Connection::new(stream),
            about: About {
                peer,
                born: now,
                idle_since: None,
            },
        })
    }
}

// === impl Switched ===

impl Switched {
    fn new<S>(connection: Connection<S>) -> Switched
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stream, came) = connection.into_parts();
        let stream: Box<dyn Any + Send> = Box::new(stream);
        Switched(Arc::new(Mutex::new(Some((stream, came.freeze())))))
    }

    /// The socket, and the bytes that came behind the 101's head. `None` when it is not one of
    /// [`Plain`], or has been taken.
    #[must_use]
    pub fn into_tcp(self) -> Option<(TcpStream, Bytes)> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, came) = place.take()?;
        let stream = stream.downcast::<TcpStream>().ok()?;
        Some((*stream, came))
    }
}

impl fmt::Debug for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switched")
    }
}

// === impl About ===

impl About {
    fn is_young(&self, now: Instant, limits: &PoolLimits) -> bool {
        let within = |since: Instant, limit| since.checked_add(limit).is_none_or(|end| now < end);
        self.idle_since
            .is_none_or(|since| within(since, limits.idle))
            && within(self.born, limits.max_age)
    }
}

#[cfg(test)]
mod tests;
