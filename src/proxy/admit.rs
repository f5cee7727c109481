//! The limit on requests in flight. A place is held until the last byte has left, not until the head
//! has: a stream that runs for minutes is in flight for minutes.

use super::error::{ProxyError, Retry, Stage, Who};
use super::worker::Worker;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// See the [module](self) description. The place itself is the record's (`record.rs`), which every
/// request has; this layer only refuses.
#[derive(Clone)]
pub struct AdmitLayer(pub Rc<Worker>);

/// The service of [`AdmitLayer`].
#[derive(Clone)]
pub struct Admit<S> {
    inner: S,
    worker: Rc<Worker>,
}

pin_project! {
    /// The future of [`Admit`].
    #[project = FutureProj]
    pub enum ResponseFuture<F> {
        /// Let in.
        Admitted { #[pin] inner: F },
        /// Turned away.
        Refused { limit: usize },
    }
}

// === impl AdmitLayer ===

impl<S> Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        Admit {
            inner,
            worker: Rc::clone(&self.0),
        }
    }
}

// === impl Admit ===

impl<S, B, R> Service<Request<B>> for Admit<S>
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
        match self.worker.settings.limits.in_flight {
            // This request is counted already, so the limit itself is still within.
            Some(limit) if self.worker.requests_everywhere() > limit => {
                ResponseFuture::Refused { limit }
            }
            _ => ResponseFuture::Admitted {
                inner: self.inner.call(request),
            },
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
        match self.project() {
            FutureProj::Admitted { inner } => inner.poll(cx),
            FutureProj::Refused { limit } => Poll::Ready(Err(ProxyError {
                who: Who::Kvgauge,
                stage: Stage::Admission,
                retry: Retry::Safe,
                message: Cow::Owned(format!(
                    "kvgauge has {limit} requests in flight already (limits.in_flight): try again later"
                )),
            })),
        }
    }
}
