//! The clocks of a request: time to the router's head, silence between two pieces of its body, and
//! the whole. All are off by default: an answer may take an hour, and a reasoning model may be silent
//! for minutes. A clock that is off costs nothing; one that is on makes its timer when the exchange
//! first waits.

use super::error::{BodyError, ProxyError, Retry, Stage};
use super::worker::Worker;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

/// See the [module](self) description.
#[derive(Clone)]
pub struct DeadlineLayer(pub Rc<Worker>);

/// The service of [`DeadlineLayer`].
#[derive(Clone)]
pub struct Deadline<S> {
    inner: S,
    worker: Rc<Worker>,
}

/// A timer that is made when it is first needed.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

#[derive(Clone, Copy)]
struct Clocks {
    head: Option<Instant>,
    whole: Option<Instant>,
    silence: Option<Duration>,
}

pin_project! {
    /// The future of [`Deadline`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        clocks: Clocks,
        timer: Timer,
    }
}

pin_project! {
    /// A response body that fails when it is silent or slow for too long.
    pub struct Timed<B> {
        #[pin]
        inner: B,
        clocks: Clocks,
        last: Option<Instant>,
        timer: Timer,
    }
}

// === impl DeadlineLayer ===

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline {
            inner,
            worker: Rc::clone(&self.0),
        }
    }
}

// === impl Deadline ===

impl<S, B, R> Service<Request<B>> for Deadline<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = ProxyError>,
{
    type Response = Response<Timed<R>>;
    type Error = ProxyError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limits = &self.worker.settings.timeouts;
        let from_now = |limit: Option<Duration>| limit.map(|limit| Instant::now() + limit);
        ResponseFuture {
            clocks: Clocks {
                head: from_now(limits.response_head),
                whole: from_now(limits.request),
                silence: limits.stream_silence,
            },
            inner: self.inner.call(request),
            timer: Timer::default(),
        }
    }
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, ProxyError>>,
{
    type Output = Result<Response<Timed<R>>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(result) = this.inner.poll(cx) {
            return Poll::Ready(result.map(|response| {
                response.map(|inner| Timed {
                    inner,
                    clocks: *this.clocks,
                    last: None,
                    timer: Timer::default(),
                })
            }));
        }
        let Some((at, stage)) = this.clocks.before_head() else {
            return Poll::Pending;
        };
        if this.timer.poll_at(at, cx).is_pending() {
            return Poll::Pending;
        }
        let message = match stage {
            Stage::Deadline => "the request took longer than timeouts.request",
            _ => "the router has not begun to answer within timeouts.response_head",
        };
        let retry = Retry::Unsafe;
        Poll::Ready(Err(ProxyError::upstream(stage, retry, message.to_owned())))
    }
}

impl Clocks {
    fn before_head(&self) -> Option<(Instant, Stage)> {
        match (self.head, self.whole) {
            (Some(head), Some(whole)) if whole < head => Some((whole, Stage::Deadline)),
            (Some(head), _) => Some((head, Stage::ResponseHeadTimeout)),
            (None, Some(whole)) => Some((whole, Stage::Deadline)),
            (None, None) => None,
        }
    }
}

// === impl Timer ===

impl Timer {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

// === impl Timed ===

impl<B: Body<Error = BodyError>> Body for Timed<B> {
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BodyError>>> {
        let this = self.project();
        if this
            .clocks
            .whole
            .is_some_and(|whole| Instant::now() >= whole)
        {
            return Poll::Ready(Some(Err(BodyError::Deadline)));
        }
        if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
            *this.last = None;
            return Poll::Ready(frame);
        }
        // The time since the last piece counts from the first moment there was nothing.
        let silence = this
            .clocks
            .silence
            .map(|limit| *this.last.get_or_insert_with(Instant::now) + limit);
        let (at, error) = match (silence, this.clocks.whole) {
            (Some(silence), Some(whole)) if whole < silence => (whole, BodyError::Deadline),
            (Some(silence), _) => (silence, BodyError::Silence),
            (None, Some(whole)) => (whole, BodyError::Deadline),
            (None, None) => return Poll::Pending,
        };
        match this.timer.poll_at(at, cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(error))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
