//! The body of a response that came over a pool's connection.

use super::{About, Kept, Shared};
use crate::net::http1::{Answer, Broken, Connection};
use crate::net::pump::Pumped;
use crate::net::{Connect, Plain};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::rc::Weak;
use std::task::{Context, Poll, ready};

/// A response body that gives its connection back when it has ended. Dropped before that, it takes
/// the connection with it, so that the peer learns at once that nobody listens.
pub struct PooledBody<B, C: Connect = Plain>(Rest<B, C>);

enum Rest<B, C: Connect> {
    /// All has been handed on.
    Over,
    Answer(Box<Leased<B, C>>),
    /// The request is still on its way.
    Pumped(Pumped),
}

struct Leased<B, C: Connect> {
    answer: Answer<B, C::Stream>,
    lease: Lease<C>,
}

/// Where a connection on loan belongs.
pub(super) struct Lease<C: Connect> {
    pub(super) about: About,
    pub(super) pool: Weak<Shared<C>>,
}

impl<C: Connect> Lease<C> {
    fn give_back(self, connection: Connection<C::Stream>) {
        if let Some(pool) = self.pool.upgrade() {
            let about = self.about;
            pool.put_back(Kept { connection, about });
        }
    }
}

impl<B, C> PooledBody<B, C>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    pub(super) fn over() -> Self {
        PooledBody(Rest::Over)
    }

    pub(super) fn new(answer: Answer<B, C::Stream>, lease: Lease<C>) -> Self {
        if answer.is_uploading() && !answer.decoder().is_done() {
            return PooledBody(Rest::Pumped(Pumped::start(answer)));
        }
        let mut body = PooledBody(Rest::Answer(Box::new(Leased { answer, lease })));
        body.give_back_if_done();
        body
    }

    /// Trailers keep the connection until they are taken.
    fn give_back_if_done(&mut self) {
        if let Rest::Answer(leased) = &self.0
            && leased.answer.decoder().left() == Some(0)
        {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let rest = std::mem::replace(&mut self.0, Rest::Over);
        if let Rest::Answer(leased) = rest {
            let Leased { answer, lease } = *leased;
            if let Some(connection) = answer.into_kept() {
                lease.give_back(connection);
            }
        }
    }
}

impl<B, C: Connect> Unpin for PooledBody<B, C> {}

impl<B, C> Body for PooledBody<B, C>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = match &mut self.0 {
            Rest::Over => None,
            Rest::Answer(leased) => ready!(leased.answer.poll_frame(cx)),
            Rest::Pumped(pumped) => ready!(pumped.poll_frame(cx)),
        };
        match &frame {
            // After trailers nobody polls again.
            Some(Ok(frame)) if frame.is_trailers() => self.give_back(),
            Some(Ok(_)) => self.give_back_if_done(),
            Some(Err(_)) => self.0 = Rest::Over,
            None => self.give_back(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Rest::Over => true,
            Rest::Answer(leased) => leased.answer.decoder().left() == Some(0),
            Rest::Pumped(pumped) => pumped.left() == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match &self.0 {
            Rest::Over => Some(0),
            Rest::Answer(leased) => leased.answer.decoder().left(),
            Rest::Pumped(pumped) => pumped.left(),
        };
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
