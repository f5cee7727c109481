//! What is refused before anything of it is forwarded: CONNECT, a missing or doubled `Host`, a body
//! over its limit.

use super::error::{BoxError, ProxyError, Stage};
use super::worker::Worker;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, Version};
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
            "CONNECT is not supported: kvgauge is a reverse proxy for one router, not a tunnel",
        ));
    }
    let uri = request.uri();
    if uri.authority().is_some() && uri.scheme().is_none() {
        return Err(ProxyError::refused(
            Stage::RequestHead,
            "the request's target is an authority, which is for CONNECT only",
        ));
    }
    host(request)?;
    let Some(most) = most_body else {
        return Ok(());
    };
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    Ok(())
}

/// RFC 9112, 3.2: exactly one `Host` in HTTP/1.1; none is well in HTTP/1.0. One that contradicts the
/// authority of an absolute-form target is refused, as two servers could take it for two requests.
fn host<B>(request: &Request<B>) -> Result<(), ProxyError> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Err(ProxyError::refused(
            Stage::RequestHead,
            "the request has more than one Host header",
        )),
        (None, _)
            if request.version() >= Version::HTTP_11 && request.uri().authority().is_none() =>
        {
            Err(ProxyError::refused(
                Stage::RequestHead,
                "the request has no Host header, which HTTP/1.1 requires",
            ))
        }
        (Some(host), None) if !request.uri().authority().is_none_or(|a| same_host(a, host)) => {
            Err(ProxyError::refused(
                Stage::RequestHead,
                "the request's target and its Host header name different hosts",
            ))
        }
        _ => Ok(()),
    }
}

fn same_host(authority: &Authority, host: &HeaderValue) -> bool {
    let Ok(host) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let port = |a: &Authority| a.port_u16().unwrap_or(80);
    authority.host().eq_ignore_ascii_case(host.host()) && port(authority) == port(&host)
}

fn too_large() -> ProxyError {
    ProxyError::refused(
        Stage::RequestTooLarge,
        "the request body is longer than limits.request_body allows",
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
                let passed = limit.as_ref().is_some_and(|l| l.passed.get());
                // The router's connection broke since we broke it.
                Poll::Ready(result.map_err(|error| if passed { too_large() } else { error }))
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
