//! The request id: known before anything can fail, the same for router, log and client.
//!
//! The client's first `x-request-id` stands if it is visible ASCII of at most 128 bytes; otherwise a
//! UUIDv7 takes its place. An answer that has an id keeps it (the router's own is logged beside
//! ours); one without gets ours.
//!
//! The request's own lines of that name are taken off: the layers below have the id from the connection's
//! [`Client`], and `hop.rs` says it to the router.

use super::client::Client;
use super::headers::{first, of_its_own};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tower::{Layer, Service};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

/// `x-request-id`.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LONGEST: usize = 128;

/// See the [module](self) description. One for each connection.
#[derive(Clone)]
pub struct RequestIdLayer(pub Rc<Client>);

/// The service of [`RequestIdLayer`].
#[derive(Clone)]
pub struct RequestId<S> {
    inner: S,
    client: Rc<Client>,
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
        RequestId {
            inner,
            client: Rc::clone(&self.0),
        }
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
            None => fresh(),
            Some(given) => {
                let id = match acceptable(given) {
                    true => Some(of_its_own(given)),
                    false => fresh(),
                };
                // Every line of that name.
                request.headers_mut().remove(REQUEST_ID);
                id
            }
        };
        self.client.request_is(id.clone());
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

fn fresh() -> Option<HeaderValue> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let id = made_at(since.unwrap_or_default(), Uuid::new_v4());
    let mut text = [0; Hyphenated::LENGTH];
    id.hyphenated().encode_lower(&mut text);
    // One piece of memory for text and count: it is shared at once.
    HeaderValue::from_maybe_shared(Bytes::from_owner(text)).ok()
}

/// A UUIDv7 with the time within the millisecond before what is random (RFC 9562, 6.2, method 3): ids are
/// in order without a count that all threads would share.
fn made_at(since_epoch: Duration, random: Uuid) -> Uuid {
    let millis = since_epoch.as_secs() * 1000 + u64::from(since_epoch.subsec_millis());
    // In 4096ths, for which there are 12 bits.
    let within = since_epoch.subsec_nanos() % 1_000_000 * 4096 / 1_000_000;
    let [.., high, low] = within.to_be_bytes();
    // The other half of a random UUID is as this one's is to be.
    let [_, _, _, _, _, _, _, _, random @ ..] = random.into_bytes();
    let [a, b, c, d, e, f, g, h] = random;
    Builder::from_unix_timestamp_millis(millis, &[high, low, a, b, c, d, e, f, g, h]).into_uuid()
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
    fn an_id_that_is_made_is_a_uuidv7_that_is_in_order_within_a_millisecond() {
        let second = Duration::from_secs(1_800_000_000);
        let first = made_at(second, Uuid::nil());
        assert_eq!(first.to_string(), "01a3185c-5000-7000-8000-000000000000");
        let mut made: Vec<Uuid> = (0..5000)
            .map(|n| made_at(second + Duration::from_nanos(n * 999), Uuid::new_v4()))
            .collect();
        assert!(made.is_sorted());
        made.dedup();
        assert_eq!(made.len(), 5000);
        for id in made {
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
            let (seconds, _) = id.get_timestamp().unwrap().to_unix();
            assert_eq!(seconds, second.as_secs());
        }
    }

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
