//! One request over a pool's connection, from its turn to the head of its answer.

use super::body::{Leased, PooledBody};
use super::{About, Kept, PoolError, Sent, Shared, Switched};
use crate::net::http1::{self, Broken, Limits, Outbound};
use crate::net::{Connect, Plain};
use bytes::Bytes;
use http::{Response, StatusCode, response};
use http_body::Body;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// The future of a [`Pool`](super::Pool). What it holds becomes the body of its answer, so that an
/// exchange needs one piece of memory from its beginning to its end.
pub struct Exchange<B, C: Connect = Plain> {
    leased: Option<Box<Leased<B, C>>>,
    stage: Stage<C>,
}

/// How far it is.
enum Stage<C: Connect> {
    /// No connection has been looked for.
    Waits,
    Dials(Dialling<C>),
    /// On a connection since then. One that was used before may have been closed by its peer unseen.
    Asks {
        sent: Instant,
        reused: bool,
    },
}

type Dialling<C> = Pin<
    Box<
        dyn Future<Output = Result<Kept<<C as Connect>::Stream>, PoolError<<C as Connect>::Error>>>,
    >,
>;

/// A head, and when its request was handed to a connection.
type Answered<C> = Result<(response::Parts, Instant), PoolError<<C as Connect>::Error>>;

impl<B, C> Exchange<B, C>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    pub(super) fn new(pool: Rc<Shared<C>>, request: Outbound<B>) -> Exchange<B, C> {
        let leased = Leased {
            exchange: http1::Exchange::new(request),
            pool,
            about: None,
        };
        Exchange {
            leased: Some(Box::new(leased)),
            stage: Stage::Waits,
        }
    }
}

impl<B, C> Leased<B, C>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    fn poll_head(&mut self, stage: &mut Stage<C>, cx: &mut Context<'_>) -> Poll<Answered<C>> {
        loop {
            match stage {
                Stage::Waits => {
                    let now = Instant::now();
                    *stage = match self.pool.take_idle(now) {
                        Some(kept) => self.go_over(kept, now, true),
                        None => Stage::Dials(Box::pin(Rc::clone(&self.pool).connect())),
                    };
                }
                Stage::Dials(dialling) => {
                    let kept = ready!(dialling.as_mut().poll(cx))?;
                    *stage = self.go_over(kept, Instant::now(), false);
                }
                Stage::Asks { sent, reused } => {
                    let limits = Limits {
                        fields: self.pool.limits.header_fields,
                        head_bytes: self.pool.limits.header_bytes,
                    };
                    match ready!(self.exchange.poll_head(&limits, cx)) {
                        Ok(parts) => return Poll::Ready(Ok((parts, *sent))),
                        // Only a kept connection can be closed by the peer before anything was written,
                        // and each round uses one up, so this ends.
                        Err(Broken::Io(_) | Broken::Ended(_))
                            if *reused && !self.exchange.is_written() =>
                        {
                            *stage = Stage::Waits;
                        }
                        Err(error) => return Poll::Ready(Err(PoolError::Broken(error))),
                    }
                }
            }
        }
    }

    fn go_over(&mut self, kept: Kept<C::Stream>, sent: Instant, reused: bool) -> Stage<C> {
        self.about = Some(About {
            idle_since: None,
            ..kept.about
        });
        self.exchange.go_over(kept.connection);
        Stage::Asks { sent, reused }
    }
}

impl<B, C: Connect> Unpin for Exchange<B, C> {}

impl<B, C> Future for Exchange<B, C>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    C: Connect + 'static,
{
    type Output = Result<Response<PooledBody<B, C>>, PoolError<C::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(leased) = &mut this.leased else {
            return Poll::Pending;
        };
        let head = ready!(leased.poll_head(&mut this.stage, cx));
        let Some(mut leased) = this.leased.take() else {
            return Poll::Pending;
        };
        let (mut parts, sent) = head?;
        let answered = Instant::now();
        leased.pool.answered.set(Some(Sent { sent, answered }));
        if let Some(about) = &mut leased.about
            && leased.exchange.has_come()
        {
            about.idle_since = Some(answered);
        }
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(connection) = leased.exchange.take_connection() {
                parts.extensions.insert(Switched::new(connection));
            }
            return Poll::Ready(Ok(Response::from_parts(parts, PooledBody::over())));
        }
        Poll::Ready(Ok(Response::from_parts(parts, PooledBody::new(leased))))
    }
}
