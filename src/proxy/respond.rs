//! Turns a [`ProxyError`] into a response of kvgauge's own, in OpenAI's shape.

use super::error::{ProxyError, Stage};
use super::worker::Worker;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;
use tower::{Layer, Service};

/// See the [module](self) description.
#[derive(Clone)]
pub struct RespondLayer(pub Rc<Worker>);

/// The service of [`RespondLayer`].
#[derive(Clone)]
pub struct Respond<S> {
    inner: S,
    worker: Rc<Worker>,
}

pin_project! {
    /// The future of [`Respond`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        worker: Rc<Worker>,
    }
}

pin_project! {
    /// The router's body, or one of kvgauge's own.
    #[project = AnswerProj]
    pub enum Answer<B> {
        /// As the router sent it.
        Router { #[pin] body: B },
        /// kvgauge's.
        Own { body: Option<Bytes> },
    }
}

/// Stands in the extensions of a response of kvgauge's own: what went wrong.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// How the request ended.
    pub outcome: super::error::Outcome,
    /// `error.type` of the log.
    pub code: &'static str,
}

/// Seconds a client is told to wait when there is no room.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

// === impl RespondLayer ===

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, inner: S) -> Respond<S> {
        Respond {
            inner,
            worker: Rc::clone(&self.0),
        }
    }
}

// === impl Respond ===

impl<S, B, R> Service<Request<B>> for Respond<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = ProxyError>,
{
    type Response = Response<Answer<R>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    /// An inner service that is not ready says so when it is called.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture {
            inner: self.inner.call(request),
            worker: Rc::clone(&self.worker),
        }
    }
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, ProxyError>>,
{
    type Output = Result<Response<Answer<R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(Ok(match ready!(this.inner.poll(cx)) {
            Ok(response) => response.map(|body| Answer::Router { body }),
            Err(error) => {
                this.worker.complain(&error);
                own_response(&error)
            }
        }))
    }
}

fn own_response<R>(error: &ProxyError) -> Response<Answer<R>> {
    let text = serde_json::json!({
        "error": {
            "message": error.message,
            "type": error.kind(),
            "param": null,
            "code": error.code(),
        }
    })
    .to_string();
    let mut response = Response::new(Answer::Own {
        body: Some(Bytes::from(text)),
    });
    *response.status_mut() = error.status();
    response.extensions_mut().insert(Failed {
        outcome: error.outcome(),
        code: error.code(),
    });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now())) {
        headers.insert(DATE, date);
    }
    if error.ends_the_connection() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if matches!(error.stage, Stage::Admission | Stage::Descriptors) {
        headers.insert(RETRY_AFTER, RETRY_SECONDS);
    }
    response
}

// === impl Answer ===

impl<B: Body<Data = Bytes>> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project() {
            AnswerProj::Router { body } => body.poll_frame(cx),
            AnswerProj::Own { body } => Poll::Ready(body.take().map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Router { body } => body.is_end_stream(),
            Answer::Own { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Router { body } => body.size_hint(),
            Answer::Own { body } => {
                SizeHint::with_exact(body.as_ref().map_or(0, |b| b.len() as u64))
            }
        }
    }
}
