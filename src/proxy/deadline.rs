//! The clocks of a request: silence in its body, time from its end to the router's head, silence in the
//! answer's body, and the whole. All are off by default: an answer may take an hour, and a reasoning
//! model may be silent for minutes. A clock that is off costs nothing; one that is on makes its timer
//! when the exchange first waits.

use super::error::{BodyError, ProxyError, Retry, Stage, Who};
use super::worker::Worker;
use crate::config::{Timeouts, written};
use crate::net::Outbound;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
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

/// The clocks of one exchange, where any is on.
struct Clocks {
    head: Option<Duration>,
    whole: Option<Whole>,
    silence: Option<Duration>,
    upload: Option<Rc<Cell<Upload>>>,
    /// Since when nothing has come of the answer's body.
    silent_since: Option<Instant>,
    timer: Timer,
}

/// When the whole exchange is to be over.
#[derive(Clone, Copy)]
struct Whole {
    at: Instant,
    limit: Duration,
}

/// What a request's body is doing.
#[derive(Clone, Copy)]
enum Upload {
    /// The router took something of it then, and it is not known that more has to be waited for.
    Flows(Instant),
    /// The client has sent nothing of it since.
    Awaited(Instant),
    /// It has been whole since.
    Whole(Instant),
}

pin_project! {
    /// The future of [`Deadline`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        // Boxed, so that an exchange without clocks, as most are, need not carry their room.
        clocks: Option<Box<Clocks>>,
    }
}

pin_project! {
    /// A request body that says when the client was last heard of, where a clock asks for it.
    pub struct Heard<B> {
        #[pin]
        inner: B,
        upload: Option<Rc<Cell<Upload>>>,
    }
}

pin_project! {
    /// A response body that fails when it is silent or slow for too long.
    pub struct Timed<B> {
        #[pin]
        inner: B,
        clocks: Option<Box<Clocks>>,
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

impl<S, B, R> Service<Outbound<B>> for Deadline<S>
where
    S: Service<Outbound<Heard<B>>, Response = Response<R>, Error = ProxyError>,
    B: Body,
{
    type Response = Response<Timed<R>>;
    type Error = ProxyError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, outbound: Outbound<B>) -> Self::Future {
        let body = outbound.request.body();
        let clocks = Clocks::begin(&self.worker.settings.timeouts, body);
        let upload = clocks.as_ref().and_then(|clocks| clocks.upload.clone());
        let outbound = outbound.map(|inner| Heard { inner, upload });
        ResponseFuture {
            inner: self.inner.call(outbound),
            clocks,
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
            let mut clocks = this.clocks.take();
            if let Some(clocks) = &mut clocks {
                clocks.timer = Timer::default();
            }
            return Poll::Ready(
                result.map(|response| response.map(|inner| Timed { inner, clocks })),
            );
        }
        let Some(clocks) = this.clocks else {
            return Poll::Pending;
        };
        loop {
            let Some((at, next)) = clocks.before_head(Instant::now()) else {
                return Poll::Pending;
            };
            ready!(clocks.timer.poll_at(at, cx));
            if let Next::Over(limit, error) = next {
                return Poll::Ready(Err(error(limit)));
            }
        }
    }
}

/// What it means when a timer has run down.
#[derive(Clone, Copy)]
enum Next {
    /// This limit has been passed.
    Over(Duration, fn(Duration) -> ProxyError),
    /// The upload goes on elsewhere and is to be looked at again. A limit that began with what happened
    /// there since then ends later than this, so none is missed.
    Look,
}

impl Clocks {
    /// Of an exchange that begins, where a limit is set.
    fn begin<B: Body>(limits: &Timeouts, body: &B) -> Option<Box<Clocks>> {
        let (head, silence) = (limits.response_head, limits.stream_silence);
        let by_piece = head.is_some() || silence.is_some();
        if !by_piece && limits.request.is_none() {
            return None;
        }
        let now = Instant::now();
        let upload = by_piece.then(|| {
            Rc::new(Cell::new(if body.is_end_stream() {
                Upload::Whole(now)
            } else {
                Upload::Flows(now)
            }))
        });
        let whole = limits.request.map(|limit| Whole {
            at: now + limit,
            limit,
        });
        Some(Box::new(Clocks {
            head,
            whole,
            silence,
            upload,
            silent_since: None,
            timer: Timer::default(),
        }))
    }

    fn before_head(&self, now: Instant) -> Option<(Instant, Next)> {
        let look = |limit: Option<Duration>| limit.map(|limit| (now + limit, Next::Look));
        let over = |limit: Option<Duration>, since, error| {
            limit.map(|limit| (since + limit, Next::Over(limit, error)))
        };
        let (limit, look) = match self.upload.as_ref().map(|upload| upload.get()) {
            None => (None, None),
            Some(Upload::Whole(since)) => (over(self.head, since, no_head), None),
            // A router that takes nothing does not answer either.
            Some(Upload::Flows(since)) => (over(self.head, since, no_head), look(self.silence)),
            Some(Upload::Awaited(since)) => (over(self.silence, since, no_body), look(self.head)),
        };
        let whole = self
            .whole
            .map(|whole| (whole.at, Next::Over(whole.limit, too_long)));
        [whole, limit, look]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }
}

fn too_long(limit: Duration) -> ProxyError {
    let message = format!(
        "the router had not begun to answer when timeouts.request ({}) was over: see its load and its own log, or raise the limit",
        written(limit)
    );
    ProxyError::upstream(Stage::Deadline, Retry::Unsafe, message)
}

fn no_head(limit: Duration) -> ProxyError {
    let message = format!(
        "the router has not begun to answer within timeouts.response_head ({}): see its load and its own log, or raise the limit",
        written(limit)
    );
    ProxyError::upstream(Stage::ResponseHeadTimeout, Retry::Unsafe, message)
}

fn no_body(limit: Duration) -> ProxyError {
    ProxyError {
        who: Who::Client,
        stage: Stage::RequestBodyTimeout,
        retry: Retry::Unsafe,
        message: Cow::Owned(format!(
            "nothing of the request's body came for timeouts.stream_silence ({}): send it without such pauses",
            written(limit)
        )),
    }
}

// === impl Heard ===

impl<B: Body> Body for Heard<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = this.inner.as_mut().poll_frame(cx);
        if let Some(upload) = this.upload {
            upload.set(match (&frame, upload.get()) {
                (Poll::Pending, Upload::Flows(_)) => Upload::Awaited(Instant::now()),
                (Poll::Pending, same) => same,
                (Poll::Ready(Some(_)), _) if !this.inner.is_end_stream() => {
                    Upload::Flows(Instant::now())
                }
                (_, Upload::Whole(since)) => Upload::Whole(since),
                _ => Upload::Whole(Instant::now()),
            });
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
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
        let Some(clocks) = this.clocks else {
            return this.inner.poll_frame(cx);
        };
        if clocks.whole.is_some_and(|whole| Instant::now() >= whole.at) {
            return Poll::Ready(Some(Err(BodyError::Deadline)));
        }
        if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
            clocks.silent_since = None;
            return Poll::Ready(frame);
        }
        // The time since the last piece counts from the first moment there was nothing.
        let silence = clocks
            .silence
            .map(|limit| *clocks.silent_since.get_or_insert_with(Instant::now) + limit);
        let (at, error) = match (silence, clocks.whole) {
            (Some(silence), Some(whole)) if whole.at < silence => (whole.at, BodyError::Deadline),
            (Some(silence), _) => (silence, BodyError::Silence),
            (None, Some(whole)) => (whole.at, BodyError::Deadline),
            (None, None) => return Poll::Pending,
        };
        match clocks.timer.poll_at(at, cx) {
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
