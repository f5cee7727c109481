//! The KV headers on every response that passes: streamed or not, the router's and kvgauge's own.
//!
//! The stamp is taken when the response's head is there, so it is as fresh as it can be. Same-named
//! headers of the router are replaced, those of a client dropped. Where a request has an `Origin` and
//! its response speaks CORS, the names join `Access-Control-Expose-Headers`, unless that is `*` without
//! credentials, so that a page's script can read them. Without an `Origin` nothing of CORS is touched.

use super::headers::{holds, lists};
use super::trailer;
use crate::publish::{LoadStamp, Stamps};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    ORIGIN, TRAILER,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tower::{Layer, Service};

/// The names under which the stamp is shown; `None` is off.
#[derive(Clone, Debug)]
pub struct StampNames {
    usage: Option<HeaderName>,
    pools: Option<HeaderName>,
    /// Both, for `Access-Control-Expose-Headers`.
    exposed: Option<HeaderValue>,
}

/// Stamps responses with the newest KV state. Works in any tower stack over `http` types.
///
/// Put it outside of what makes error responses, so that those are stamped too.
#[derive(Clone, Debug)]
pub struct StampLayer<T = Stamps> {
    stamps: T,
    names: Arc<StampNames>,
    visible: bool,
}

/// The service of [`StampLayer`].
#[derive(Clone, Debug)]
pub struct Stamp<S, T = Stamps> {
    inner: S,
    layer: Arc<StampLayer<T>>,
}

pin_project! {
    /// The future of [`Stamp`].
    pub struct ResponseFuture<F, T> {
        #[pin]
        inner: F,
        layer: Arc<StampLayer<T>>,
        // The request is of a page in a browser.
        has_origin: bool,
    }
}

// === impl StampNames ===

impl StampNames {
    /// The names as set.
    #[must_use]
    pub fn new(usage: Option<HeaderName>, pools: Option<HeaderName>) -> StampNames {
        let both = [&usage, &pools].into_iter().flatten();
        let list: Vec<&str> = both.map(HeaderName::as_str).collect();
        let exposed = (!list.is_empty())
            .then(|| HeaderValue::from_str(&list.join(", ")).ok())
            .flatten();
        StampNames {
            usage,
            pools,
            exposed,
        }
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.usage.as_ref() == Some(name) || self.pools.as_ref() == Some(name)
    }

    fn remove_from(&self, headers: &mut HeaderMap) {
        if !headers.keys().any(|n| *n == TRAILER || self.has(n)) {
            return;
        }
        for name in [&self.usage, &self.pools].into_iter().flatten() {
            headers.remove(name);
        }
        trailer::withhold(headers, |name| self.has(name));
    }
}

// === impl StampLayer ===

impl<T: LoadStamp> StampLayer<T> {
    /// `visible` is whether this client may see the KV state (`headers.audience`).
    #[must_use]
    pub fn new(stamps: T, names: Arc<StampNames>, visible: bool) -> StampLayer<T> {
        StampLayer {
            stamps,
            names,
            visible,
        }
    }

    fn apply(&self, headers: &mut HeaderMap, has_origin: bool) {
        let names = &self.names;
        names.remove_from(headers);
        if !self.visible {
            return;
        }
        let stamp = self.stamps.load(Instant::now());
        if let (Some(name), Some(value)) = (&names.usage, &stamp.usage) {
            headers.insert(name, value.clone());
        }
        if let (Some(name), Some(value)) = (&names.pools, &stamp.pools) {
            headers.insert(name, value.clone());
        }
        if has_origin
            && let Some(exposed) = &names.exposed
            && holds(headers, &ACCESS_CONTROL_ALLOW_ORIGIN)
            && !exposes_all(headers)
        {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
        }
    }
}

/// `*` is a wildcard only where no credentials are allowed (Fetch, 3.3.4).
fn exposes_all(headers: &HeaderMap) -> bool {
    let credentials = headers
        .get(ACCESS_CONTROL_ALLOW_CREDENTIALS)
        .is_some_and(|v| v == "true");
    !credentials && lists(headers, &ACCESS_CONTROL_EXPOSE_HEADERS, b"*")
}

impl<S, T: Clone> Layer<S> for StampLayer<T> {
    type Service = Stamp<S, T>;

    fn layer(&self, inner: S) -> Stamp<S, T> {
        Stamp {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

// === impl Stamp ===

impl<S, T, B, R> Service<Request<B>> for Stamp<S, T>
where
    T: LoadStamp,
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, T>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        self.layer.names.remove_from(request.headers_mut());
        let has_origin = holds(request.headers(), &ORIGIN);
        ResponseFuture {
            inner: self.inner.call(request),
            layer: Arc::clone(&self.layer),
            has_origin,
        }
    }
}

// === impl ResponseFuture ===

impl<F, T, R, E> Future for ResponseFuture<F, T>
where
    T: LoadStamp,
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        this.layer.apply(response.headers_mut(), *this.has_origin);
        Poll::Ready(Ok(response))
    }
}
