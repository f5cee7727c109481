//! The request id: known before anything can fail, the same for router, log and client.
//!
//! The client's first `x-request-id` stands if it is visible ASCII of at most 128 bytes; otherwise a
//! UUIDv7 takes its place. An answer that has an id keeps it (the router's own is logged beside
//! ours); one without gets ours.

use super::headers::{first, of_its_own};
use http::{HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};
use tower::{Layer, Service};
use uuid::{NoContext, Timestamp, Uuid};

/// `x-request-id`.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LONGEST: usize = 128;

/// See the [module](self) description.
#[derive(Clone, Copy, Debug)]
pub struct RequestIdLayer;

/// The service of [`RequestIdLayer`].
#[derive(Clone, Debug)]
pub struct RequestId<S> {
    inner: S,
}

pin_project! {
    /// The future of [`RequestId`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        id: Option<HeaderValue>,
    }
}

// === impl RequestIdLayer ===

impl<S> Layer<S> for RequestIdLayer {
    type Service = RequestId<S>;

    fn layer(&self, inner: S) -> RequestId<S> {
        RequestId { inner }
    }
}

// === impl RequestId ===

impl<S, B, R> Service<Request<B>> for RequestId<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let id = match first(request.headers(), &REQUEST_ID) {
            Some(id) if acceptable(id) => Some(of_its_own(id)),
            _ => fresh(),
        };
        if let Some(id) = &id {
            // Replaces every line of that name.
            request.headers_mut().insert(REQUEST_ID, id.clone());
        }
        ResponseFuture {
            inner: self.inner.call(request),
            id,
        }
    }
}

fn acceptable(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    !id.is_empty() && id.len() <= LONGEST && id.iter().all(|b| (0x21..=0x7E).contains(b))
}

/// What is beside the milliseconds is random throughout. `Uuid::now_v7` counts within a millisecond, under
/// a lock that all workers share.
fn fresh() -> Option<HeaderValue> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let id = Uuid::new_v7(Timestamp::from_unix(
        NoContext,
        now.as_secs(),
        now.subsec_nanos(),
    ));
    let mut text = Uuid::encode_buffer();
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).ok()
}

// === impl ResponseFuture ===

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        if let Some(id) = this.id.take() {
            response.headers_mut().entry(REQUEST_ID).or_insert(id);
        }
        Poll::Ready(Ok(response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_visible_ascii_is_taken_from_a_client() {
        for (id, good) in [
            (&b"abc-123"[..], true),
            (b"", false),
            (b"a b", false),
            (b"caf\xe9", false),
            (&[b'x'; 128], true),
            (&[b'x'; 129], false),
        ] {
            assert_eq!(acceptable(&HeaderValue::from_bytes(id).unwrap()), good);
        }
    }
}
