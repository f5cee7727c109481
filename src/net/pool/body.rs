//! The body of a response that came over a pool's connection.

use super::{About, Kept, Shared};
use crate::net::http1::{Broken, Exchange};
use crate::net::pump::Pumped;
use crate::net::{Connect, Plain};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
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

/// An exchange, and where its connection goes back to.
pub(super) struct Leased<B, C: Connect> {
    pub(super) exchange: Exchange<B, C::Stream>,
    pub(super) pool: Rc<Shared<C>>,
    /// Of the connection, while there is one.
    pub(super) about: Option<About>,
}

impl<B, C> PooledBody<B, C>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    pub(super) fn over() -> Self {
        PooledBody(Rest::Over)
    }

    pub(super) fn new(leased: Box<Leased<B, C>>) -> Self {
        if leased.exchange.is_uploading() && !leased.exchange.decoder().is_done() {
            return PooledBody(Rest::Pumped(Pumped::start(leased.exchange)));
        }
        let mut body = PooledBody(Rest::Answer(leased));
        body.give_back_if_done();
        body
    }

    /// Bytes that are still to come, where that is known.
    fn left(&self) -> Option<u64> {
        match &self.0 {
            Rest::Over => Some(0),
            Rest::Answer(leased) => leased.exchange.decoder().left(),
            Rest::Pumped(pumped) => pumped.left(),
        }
    }

    /// Trailers keep the connection until they are taken.
    fn give_back_if_done(&mut self) {
        if matches!(self.0, Rest::Answer(_)) && self.left() == Some(0) {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let rest = std::mem::replace(&mut self.0, Rest::Over);
        if let Rest::Answer(mut leased) = rest
            && let Some(about) = leased.about
            && let Some(connection) = leased.exchange.take_kept()
        {
            leased.pool.put_back(Kept { connection, about });
        }
    }
}

impl<B, C: Connect> Unpin for PooledBody<B, C> {}

impl<B, C> Body for PooledBody<B, C>
where
    B: Body<Data = Bytes> + Unpin + 'static,
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
            Rest::Answer(leased) => ready!(leased.exchange.poll_frame(cx)),
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
        self.left() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
