//! A panic below this layer ends its request and nothing else: before the head it is answered as any
//! other error, in the client's body it breaks that off; of the router's body `break_off.rs` takes care.
//! Where it was is told by the hook in `telemetry`, which counts it too. What panics above this layer
//! ends its connection, in `connection.rs`.

use super::error::{BoxError, ProxyError};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// See the [module](self) description.
#[derive(Clone, Copy)]
pub struct GuardLayer;

/// The service of [`GuardLayer`].
#[derive(Clone)]
pub struct Guard<S> {
    inner: S,
}

pin_project! {
    /// The future of [`Guard`].
    pub struct ResponseFuture<F> {
        // Gone after a panic, and with it its connection to the router.
        #[pin]
        inner: Option<F>,
    }
}

pin_project! {
    /// A request body that fails where it panics: it is read by the task of the router's connection.
    pub struct Guarded<B> {
        #[pin]
        inner: B,
    }
}

/// A request body panicked.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("kvgauge failed while it read the request's body")]
pub struct Panicked;

/// What `work` comes to, unless it panics. What it worked on must not be used again, but dropped.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

// === impl GuardLayer ===

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner }
    }
}

// === impl Guard ===

impl<S, B, R> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = ProxyError>,
{
    type Response = Response<R>;
    type Error = ProxyError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture {
            inner: caught(|| self.inner.call(request)),
        }
    }
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, ProxyError>>,
{
    type Output = Result<Response<R>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut inner = self.project().inner;
        let polled = match inner.as_mut().as_pin_mut() {
            Some(future) => caught(|| future.poll(cx)),
            None => None,
        };
        polled.unwrap_or_else(|| {
            inner.set(None);
            Poll::Ready(Err(ProxyError::internal()))
        })
    }
}

// === impl Guarded ===

impl<B> Guarded<B> {
    pub(super) fn new(inner: B) -> Guarded<B> {
        Guarded { inner }
    }
}

impl<B> Body for Guarded<B>
where
    B: Body<Error = BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let inner = self.project().inner;
        caught(|| inner.poll_frame(cx)).unwrap_or_else(|| Poll::Ready(Some(Err(Panicked.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
