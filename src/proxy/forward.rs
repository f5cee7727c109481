//! The innermost service: a request to the router, its answer back. Names its failures.

use super::error::{BodyError, BoxError, ProxyError, Retry, Stage, Who};
use super::framing;
use super::guard::{Guarded, Panicked};
use super::upgrade::Offer;
use crate::config::written_size;
use crate::net::{Broken, DialError, Outbound, PoolError};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower::Service;

/// Sends requests through a connection pool.
#[derive(Clone)]
pub struct Forward<P> {
    pool: P,
    limits: HeadLimits,
}

/// The limits on an answer's head, to be named where one is passed.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// `limits.header_fields`
    pub fields: usize,
    /// `limits.header_bytes`
    pub bytes: usize,
}

pin_project! {
    /// The future of [`Forward`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        offer: Option<Offer>,
        limits: HeadLimits,
    }
}

pin_project! {
    /// The router's body; its errors are the router's.
    pub struct FromUpstream<B> {
        #[pin]
        inner: B,
    }
}

// === impl Forward ===

impl<P> Forward<P> {
    /// Requests go to what `pool` leads to, which holds answers to `limits`.
    #[must_use]
    pub fn new(pool: P, limits: HeadLimits) -> Forward<P> {
        Forward { pool, limits }
    }
}

impl<P, B, R> Service<Outbound<B>> for Forward<P>
where
    P: Service<Outbound<Guarded<B>>, Response = Response<R>, Error = PoolError>,
    B: Body,
{
    type Response = Response<FromUpstream<R>>;
    type Error = ProxyError;
    type Future = ResponseFuture<P::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.pool
            .poll_ready(cx)
            .map_err(|error| explain(error, self.limits))
    }

    fn call(&mut self, outbound: Outbound<B>) -> Self::Future {
        ResponseFuture {
            offer: Offer::of_sent(&outbound.request),
            inner: self.pool.call(outbound.map(Guarded::new)),
            limits: self.limits,
        }
    }
}

pub(super) fn explain(error: PoolError, limits: HeadLimits) -> ProxyError {
    match error {
        PoolError::Dial(error) if error.is_out_of_descriptors() => ProxyError {
            who: Who::Kvgauge,
            stage: Stage::Descriptors,
            retry: Retry::Safe,
            message: Cow::Owned(format!(
                "kvgauge has no file descriptor left for a connection to the router ({error}): raise its limit of open files (ulimit -n), or lower limits.connections"
            )),
        },
        PoolError::Dial(error) => {
            let stage = match error {
                DialError::Timeout { .. } | DialError::Unresolved { .. } => Stage::ConnectTimeout,
                DialError::Resolve { .. } | DialError::Connect { .. } => Stage::Connect,
            };
            let message = format!(
                "kvgauge can't reach the router: {error}: check that it runs and that `upstream` is its address"
            );
            ProxyError::upstream(stage, Retry::Safe, message)
        }
        PoolError::Broken(Broken::RequestBody(error)) if error.is::<Panicked>() => {
            ProxyError::internal()
        }
        PoolError::Broken(Broken::RequestBody(error)) => ProxyError::refused(
            Stage::RequestBody,
            format!(
                "the request's body is malformed or broke off ({}): see how the client frames it",
                root_cause(&*error)
            ),
        ),
        PoolError::Broken(Broken::HeadTooLarge) => {
            let message = format!(
                "the router's answer has a head over limits.header_fields ({}) or limits.header_bytes ({}): raise them if it is right",
                limits.fields,
                written_size(limits.bytes as u64)
            );
            ProxyError::upstream(Stage::ResponseHead, Retry::Unsafe, message)
        }
        PoolError::Broken(Broken::NotHttp(seen)) => {
            let message = format!(
                "the router sent what is no HTTP/1.1 answer ({seen}): see that `upstream` is the router's API in plain HTTP/1.1, and not another port, TLS or HTTP/2, and who stands before it"
            );
            ProxyError::upstream(Stage::ResponseHead, Retry::Unsafe, message)
        }
        PoolError::Broken(error) => {
            let message = format!(
                "the router broke off before it had answered ({error}): see the router's own log"
            );
            ProxyError::upstream(Stage::ResponseHead, Retry::Unsafe, message)
        }
    }
}

fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, PoolError>>,
{
    type Output = Result<Response<FromUpstream<R>>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let limits = *this.limits;
        let response = ready!(this.inner.poll(cx)).map_err(|error| explain(error, limits))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(message) = not_asked(this.offer.as_ref(), response.headers())
        {
            let (stage, retry) = (Stage::ResponseHead, Retry::Unsafe);
            let error = ProxyError::upstream(stage, retry, message);
            return Poll::Ready(Err(error));
        }
        if !framing::is_clear(response.headers()) {
            return Poll::Ready(Err(ProxyError::upstream(
                Stage::ResponseHead,
                Retry::Unsafe,
                "the router's answer does not say clearly where it ends (Content-Length, or a Transfer-Encoding other than chunked): see who stands before the router",
            )));
        }
        Poll::Ready(Ok(response.map(|inner| FromUpstream { inner })))
    }
}

/// What is wrong with a 101, if anything.
fn not_asked(offer: Option<&Offer>, answer: &HeaderMap) -> Option<&'static str> {
    match offer {
        None => Some(
            "the router switched protocols (101) without having been asked to: see that `upstream` is the router's API, and who stands before it",
        ),
        Some(offer) if !offer.is_answered_by(answer) => Some(
            "the router switched (101) to another protocol than it was asked for, or named none: see its own log for this path, and who stands before it",
        ),
        Some(_) => None,
    }
}

// === impl FromUpstream ===

impl<B> Body for FromUpstream<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BodyError>>> {
        self.project()
            .inner
            .poll_frame(cx)
            .map_err(|error| BodyError::Upstream(error.into()))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
