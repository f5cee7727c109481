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
//! A request is sent again only where hyper hands it back untouched, which it does when nothing of
//! it was written. What may have reached the peer is never replayed.
//!
//! A connection whose peer has answered with 101 is no HTTP connection any more: it leaves the pool
//! as [`Switched`].

use super::read_on::ReadOn;
use super::{Addresses, Connect, DialError, Plain};
use crate::config::Target;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
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
    /// Bytes of a response head, and of one read of a body.
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
    Broken(hyper::Error),
}

/// When a request went out and its response head came in; stands in a response's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The request was handed to a connection.
    pub sent: Instant,
    /// The response head was read.
    pub answered: Instant,
}

/// The connection that a 101 came on; stands in that response's extensions. Dropped, it is closed.
#[derive(Clone, Debug)]
pub struct Switched(OnUpgrade);

/// See the [module](self) description. Clones share their connections.
pub struct Pool<B, C = Plain> {
    shared: Rc<Shared<B, C>>,
}

struct Shared<B, C> {
    target: Target,
    connect: C,
    limits: PoolLimits,
    idle: RefCell<Vec<Connection<B>>>,
    addresses: Arc<Addresses>,
}

struct Connection<B> {
    sender: SendRequest<B>,
    peer: Option<IpAddr>,
    born: Instant,
    idle_since: Instant,
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

impl<B, C> Pool<B, C> {
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
                idle: RefCell::new(Vec::new()),
                addresses,
            }),
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

    /// Closes what is closed by the peer, has been idle too long, is too old, or leads to where the
    /// target's name does not lead any more. Call it now and then.
    pub fn sweep(&self, now: Instant) {
        let shared = &self.shared;
        let mut idle = shared.idle.borrow_mut();
        idle.retain(|c| shared.usable(c, now));
    }
}

impl<B, C> Pool<B, C> {
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

impl<B, C> Clone for Pool<B, C> {
    fn clone(&self) -> Self {
        Pool {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl<B, C> tower::Service<Request<B>> for Pool<B, C>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    C: Connect + 'static,
{
    type Response = Response<PooledBody<B, C>>;
    type Error = PoolError<C::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>>>>;

    /// Always ready: a request dials when no connection is free.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(exchange(Rc::clone(&self.shared), request))
    }
}

async fn exchange<B, C>(
    shared: Rc<Shared<B, C>>,
    mut request: Request<B>,
) -> Result<Response<PooledBody<B, C>>, PoolError<C::Error>>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    C: Connect,
{
    loop {
        let (mut connection, reused) = match shared.take_idle() {
            Some(connection) => (connection, true),
            None => (shared.connect().await?, false),
        };
        let sent = Instant::now();
        match connection.sender.try_send_request(request).await {
            Ok(response) => {
                let answered = Instant::now();
                let (mut parts, incoming) = response.into_parts();
                parts.extensions.insert(Sent { sent, answered });
                let body = if parts.status == StatusCode::SWITCHING_PROTOCOLS {
                    if let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() {
                        parts.extensions.insert(Switched(upgrade));
                    }
                    PooledBody {
                        incoming,
                        lease: None,
                    }
                } else {
                    PooledBody::new(incoming, connection, Rc::downgrade(&shared))
                };
                return Ok(Response::from_parts(parts, body));
            }
            Err(mut error) => match error.take_message() {
                // Only a kept connection can be closed by the peer before anything was written, and
                // each round uses one up, so this ends.
                Some(untouched) if reused => request = untouched,
                _ => return Err(PoolError::Broken(error.into_error())),
            },
        }
    }
}

// === impl Shared ===

impl<B, C> Shared<B, C> {
    fn usable(&self, connection: &Connection<B>, now: Instant) -> bool {
        connection.usable(now, &self.limits) && self.addresses.has(connection.peer)
    }

    fn take_idle(&self) -> Option<Connection<B>> {
        self.addresses.used();
        let mut idle = self.idle.borrow_mut();
        if idle.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            if !self.usable(&idle[at], now) {
                idle.remove(at);
            } else if idle[at].sender.is_ready() {
                return Some(idle.remove(at));
            }
            // Else the exchange before is not quite over (its request is still being sent).
        }
        None
    }

    fn put_back(&self, mut connection: Connection<B>) {
        self.addresses.used();
        if connection.sender.is_closed()
            || self.limits.max_idle == 0
            || !self.addresses.has(connection.peer)
        {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= self.limits.max_idle {
            idle.remove(0);
        }
        connection.idle_since = Instant::now();
        idle.push(connection);
    }
}

impl<B, C> Shared<B, C>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    C: Connect,
{
    async fn connect(&self) -> Result<Connection<B>, PoolError<C::Error>> {
        let limits = &self.limits;
        let connect = self.connect.connect(&self.target, limits.connect);
        let stream = connect.await.map_err(PoolError::Dial)?;
        let peer = C::peer(&stream);
        self.addresses.dialled(peer);
        let (sender, connection) = http1::Builder::new()
            .max_headers(limits.header_fields)
            .max_header_size(limits.header_bytes)
            .max_buf_size(limits.header_bytes.max(MIN_BUFFER))
            .handshake(TokioIo::new(ReadOn::new(stream)))
            .await
            .map_err(PoolError::Broken)?;
        // Its errors reach whoever waits for the response.
        tokio::task::spawn_local(async move {
            let _ = connection.with_upgrades().await;
        });
        let now = Instant::now();
        Ok(Connection {
            sender,
            peer,
            born: now,
            idle_since: now,
        })
    }
}

// === impl Switched ===

impl Switched {
    /// The socket, and the bytes that came behind the 101's head. `None` when it is not one of
    /// [`Plain`], or has been taken.
    pub async fn into_tcp(self) -> Option<(TcpStream, Bytes)> {
        let upgraded = self.0.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<ReadOn<TcpStream>>>().ok()?;
        Some((parts.io.into_inner().into_inner(), parts.read_buf))
    }
}

/// The least that hyper accepts for its buffers, in bytes.
pub const MIN_BUFFER: usize = 8192;

// === impl Connection ===

impl<B> Connection<B> {
    fn usable(&self, now: Instant, limits: &PoolLimits) -> bool {
        !self.sender.is_closed()
            && now.saturating_duration_since(self.idle_since) < limits.idle
            && now.saturating_duration_since(self.born) < limits.max_age
    }
}

/// A response body that gives its connection back when it has ended. Dropped before that, it takes
/// the connection with it, so that the peer learns at once that nobody listens.
pub struct PooledBody<B, C = Plain> {
    incoming: Incoming,
    lease: Option<Lease<B, C>>,
}

/// A connection that is on loan, and where it belongs.
struct Lease<B, C> {
    connection: Connection<B>,
    pool: Weak<Shared<B, C>>,
}

impl<B, C> PooledBody<B, C> {
    fn new(incoming: Incoming, connection: Connection<B>, pool: Weak<Shared<B, C>>) -> Self {
        let mut body = PooledBody {
            incoming,
            lease: Some(Lease { connection, pool }),
        };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    fn give_back(&mut self) {
        if let Some(lease) = self.lease.take()
            && let Some(pool) = lease.pool.upgrade()
        {
            pool.put_back(lease.connection);
        }
    }
}

impl<B, C> Unpin for PooledBody<B, C> {}

impl<B, C> Body for PooledBody<B, C> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        // After trailers, and after the last frame of an exact length, nobody polls again.
        let last = match &frame {
            Some(Ok(frame)) => frame.is_trailers(),
            Some(Err(_)) => false,
            None => true,
        };
        if last || self.incoming.is_end_stream() {
            self.give_back();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests;
