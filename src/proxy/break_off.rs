//! An answer that breaks off: what was read before leaves first, then the client's connection ends
//! abnormally, never cleanly.
//!
//! hyper drops what it has not yet written when a body fails. So the failure is held back until
//! everything before it has been handed to the kernel, or the client has taken nothing of it for
//! `timeouts.client_idle`. A body that ends with its connection (to a HTTP/1.0 client, without a length)
//! would look whole after an orderly end: until it is, its connection ends by a reset, whoever ends it
//! (`client.rs`). Any other body is short of its framing then.

use super::client::Client;
use super::error::{BodyError, ProxyError};
use super::guard::caught;
use http::header::CONTENT_LENGTH;
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tower::{Layer, Service};

/// See the [module](self) description. One for each connection.
#[derive(Clone)]
pub struct BreakOffLayer(pub Rc<Client>);

/// The service of [`BreakOffLayer`].
#[derive(Clone)]
pub struct BreakOff<S> {
    inner: S,
    client: Rc<Client>,
}

pin_project! {
    /// The future of [`BreakOff`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        client: Rc<Client>,
        http_10: bool,
    }
}

pin_project! {
    /// A body whose failure waits until what came before it has left.
    pub struct Flushed<B> {
        #[pin]
        inner: B,
        client: Rc<Client>,
        failure: Option<(BodyError, u64)>,
    }
}

// === impl BreakOffLayer ===

impl<S> Layer<S> for BreakOffLayer {
    type Service = BreakOff<S>;

    fn layer(&self, inner: S) -> BreakOff<S> {
        BreakOff {
            inner,
            client: Rc::clone(&self.0),
        }
    }
}

// === impl BreakOff ===

impl<S, B, R> Service<Request<B>> for BreakOff<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = ProxyError>,
{
    type Response = Response<Flushed<R>>;
    type Error = ProxyError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture {
            http_10: request.version() < Version::HTTP_11,
            inner: self.inner.call(request),
            client: Rc::clone(&self.client),
        }
    }
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, ProxyError>>,
{
    type Output = Result<Response<Flushed<R>>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        if *this.http_10 && !response.headers().contains_key(CONTENT_LENGTH) {
            this.client.answers_until_close();
            // An answer of this version tells hyper not to promise `keep-alive` (RFC 9112, 9.3).
            *response.version_mut() = Version::HTTP_10;
        }
        Poll::Ready(Ok(response.map(|inner| Flushed {
            inner,
            client: Rc::clone(this.client),
            failure: None,
        })))
    }
}

// === impl Flushed ===

impl<B: Body<Error = BodyError>> Body for Flushed<B> {
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BodyError>>> {
        let this = self.project();
        if this.failure.is_none() {
            let polled = caught(|| this.inner.poll_frame(cx));
            match ready!(polled.unwrap_or(Poll::Ready(Some(Err(BodyError::Internal))))) {
                Some(Err(error)) => *this.failure = Some((error, this.client.flushes())),
                frame => return Poll::Ready(frame),
            }
        }
        if let Some((_, since)) = this.failure {
            ready!(this.client.poll_flushed(*since));
        }
        Poll::Ready(this.failure.take().map(|(error, _)| Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
