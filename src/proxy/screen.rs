//! What is refused before anything of it is forwarded: CONNECT, what is not clearly one request, a
//! body over its limit.

use super::error::{BoxError, ProxyError, Stage};
use super::framing;
use super::worker::Worker;
use crate::config::written_size;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tower::{Layer, Service};

/// See the [module](self) description.
#[derive(Clone)]
pub struct ScreenLayer(pub Rc<Worker>);

/// The service of [`ScreenLayer`].
#[derive(Clone)]
pub struct Screen<S> {
    inner: S,
    worker: Rc<Worker>,
}

pin_project! {
    /// The future of [`Screen`].
    #[project = FutureProj]
    pub enum ResponseFuture<F> {
        /// Passed on.
        Passed { #[pin] inner: F, limit: Option<Rc<Limit>> },
        /// Refused.
        Refused { error: Option<ProxyError> },
    }
}

/// The limit on a body whose length is not known beforehand.
#[derive(Debug)]
pub struct Limit {
    most: u64,
    left: Cell<u64>,
    passed: Cell<bool>,
}

pin_project! {
    /// A request body that fails when it passes its limit.
    pub struct Limited<B> {
        #[pin]
        inner: B,
        limit: Option<Rc<Limit>>,
    }
}

/// The body is longer than `limits.request_body`.
#[derive(Debug, thiserror::Error)]
#[error("the request body is longer than limits.request_body allows")]
pub struct TooLarge;

// === impl ScreenLayer ===

impl<S> Layer<S> for ScreenLayer {
    type Service = Screen<S>;

    fn layer(&self, inner: S) -> Screen<S> {
        Screen {
            inner,
            worker: Rc::clone(&self.0),
        }
    }
}

// === impl Screen ===

impl<S, B, R> Service<Request<B>> for Screen<S>
where
    S: Service<Request<Limited<B>>, Response = Response<R>, Error = ProxyError>,
    B: Body,
{
    type Response = Response<R>;
    type Error = ProxyError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let most = self.worker.settings.limits.request_body;
        if let Err(error) = screen(&request, most) {
            return ResponseFuture::Refused { error: Some(error) };
        }
        let limit = most
            .filter(|_| request.body().size_hint().exact().is_none())
            .map(|most| {
                Rc::new(Limit {
                    most,
                    left: Cell::new(most),
                    passed: Cell::new(false),
                })
            });
        let request = request.map(|inner| Limited {
            inner,
            limit: limit.clone(),
        });
        ResponseFuture::Passed {
            inner: self.inner.call(request),
            limit,
        }
    }
}

fn screen<B>(request: &Request<B>, most_body: Option<u64>) -> Result<(), ProxyError> {
    if request.method() == Method::CONNECT {
        return Err(ProxyError::refused(
            Stage::Unsupported,
            "the request's method is CONNECT, and kvgauge is a reverse proxy for one router, not a tunnel to others: send requests to it directly",
        ));
    }
    framing::check(request)?;
    let Some(most) = most_body else {
        return Ok(());
    };
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if length > most => Err(too_large(most, Some(length))),
        _ => Ok(()),
    }
}

fn too_large(most: u64, length: Option<u64>) -> ProxyError {
    let seen = length.map_or_else(String::new, |length| format!(", {length} bytes,"));
    ProxyError::refused(
        Stage::RequestTooLarge,
        format!(
            "the request's body{seen} is longer than limits.request_body ({}): send less, or raise the limit",
            written_size(most)
        ),
    )
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, ProxyError>>,
{
    type Output = Result<Response<R>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            FutureProj::Passed { inner, limit } => {
                let result = ready!(inner.poll(cx));
                // The router's connection broke since we broke it.
                Poll::Ready(result.map_err(|error| match limit {
                    Some(limit) if limit.passed.get() => too_large(limit.most, None),
                    _ => error,
                }))
            }
            FutureProj::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
}

// === impl Limited ===

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let frame = match ready!(this.inner.poll_frame(cx)) {
            Some(frame) => frame.map_err(Into::into)?,
            None => return Poll::Ready(None),
        };
        if let (Some(limit), Some(data)) = (this.limit, frame.data_ref()) {
            match limit.left.get().checked_sub(data.len() as u64) {
                Some(left) => limit.left.set(left),
                None => {
                    limit.passed.set(true);
                    return Poll::Ready(Some(Err(TooLarge.into())));
                }
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
