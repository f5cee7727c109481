//! What belongs to one hop only, both ways (RFC 9110, 7.6.1), and what a proxy says of the client.
//!
//! Headers that `Connection` nominates go first, so that a peer can't nominate away what is added
//! here. No `Via` is added, a deliberate deviation from RFC 9110, 7.6.3: the answers are to be the
//! router's own. What is of one hop but belongs to a switch of protocols is put back (`upgrade.rs`).

use super::client::Client;
use super::error::ProxyError;
use super::framing;
use super::headers::{Held, lists, remove_all, usual};
use super::request_id::REQUEST_ID;
use super::trailer;
use super::upgrade::{Offer, Switch};
use super::worker::Worker;
use crate::net::{Lines, Outbound, belongs_in_head, members};
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tower::{Layer, Service};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What the client speaks.
const PROTO: HeaderValue = HeaderValue::from_static("http");

/// Of one hop by nature.
const OF_ONE_HOP: [HeaderName; 6] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The same, and what announces others.
const HELD_OF_ONE_HOP: Held = Held::CONNECTION
    .or(Held::KEEP_ALIVE)
    .or(Held::PROXY_CONNECTION)
    .or(Held::TE)
    .or(Held::TRANSFER_ENCODING)
    .or(Held::UPGRADE)
    .or(Held::TRAILER);

const HELD_FORWARDED: Held = Held::FORWARDED_FOR
    .or(Held::FORWARDED_PROTO)
    .or(Held::FORWARDED_HOST);

/// Framing, routing and the request's id are not a peer's to nominate away.
const KEPT: [HeaderName; 4] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, REQUEST_ID];

/// Never behind a body, beside what is of one hop or [belongs in a head](belongs_in_head): what a proxy
/// says of the client, what the request is known by, and who the client is.
const NOT_BEHIND: [HeaderName; 8] = [
    FORWARDED,
    FORWARDED_FOR,
    FORWARDED_PROTO,
    FORWARDED_HOST,
    REQUEST_ID,
    COOKIE,
    EXPECT,
    PROXY_AUTHORIZATION,
];

/// See the [module](self) description. One for each connection.
#[derive(Clone)]
pub struct HopLayer {
    worker: Rc<Worker>,
    client: Rc<Client>,
    /// The client's address as it stands in `X-Forwarded-For`.
    forwarded_for: Option<HeaderValue>,
    /// What is said of the client in every request that has not been forwarded before.
    of_client: Rc<Lines>,
    /// The router's authority, for requests without `Host`.
    upstream_host: HeaderValue,
}

/// The service of [`HopLayer`].
#[derive(Clone)]
pub struct Hop<S> {
    inner: S,
    layer: Rc<HopLayer>,
}

pin_project! {
    /// The future of [`Hop`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        layer: Rc<HopLayer>,
    }
}

// === impl HopLayer ===

impl HopLayer {
    /// For one connection.
    #[must_use]
    pub fn new(worker: Rc<Worker>, client: Rc<Client>, upstream_host: HeaderValue) -> HopLayer {
        let forwarded_for = HeaderValue::from_str(&client.addr).ok();
        let mut of_client = Lines::default();
        if let Some(addr) = &forwarded_for {
            of_client.add(&FORWARDED_FOR, addr);
        }
        of_client.add(&FORWARDED_PROTO, &PROTO);
        HopLayer {
            worker,
            client,
            forwarded_for,
            of_client: Rc::new(of_client),
            upstream_host,
        }
    }

    fn rewrite<B: Body>(&self, request: &mut Request<B>) -> Lines {
        let held = Held::of(request.headers());
        let offer = match held.any(Held::UPGRADE) {
            true => Offer::of_client(request),
            false => None,
        };
        let authority = to_origin_form(request.uri_mut());
        *request.version_mut() = Version::HTTP_11;
        let unsized_body =
            !request.body().is_end_stream() && request.body().size_hint().exact().is_none();
        let headers = request.headers_mut();
        let trailers = held.any(Held::TE) && lists(headers, &TE, b"trailers");
        strip(headers, held);
        if held.any(Held::EXPECT) {
            headers.remove(EXPECT);
        }
        if let Some(offer) = offer {
            offer.write(headers);
        }
        if trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            // RFC 9110, 10.1.4: so that no further hop passes it on unread.
            headers.append(CONNECTION, HeaderValue::from_static("te"));
        }
        if unsized_body {
            // Said outright, as without it hyper takes a GET or HEAD to have no body.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let host = match (authority, usual(headers, &HOST)) {
            (None, Some(host)) => host.clone(),
            (authority, _) => {
                let host = authority.unwrap_or_else(|| self.upstream_host.clone());
                headers.insert(HOST, host.clone());
                host
            }
        };
        let said = match held.any(HELD_FORWARDED) {
            true => self.believed(headers),
            false => Held::NOTHING,
        };
        let mut lines = match said.any(HELD_FORWARDED) {
            true => self.forwarded_again(headers, said, &host),
            false => self.forwarded(&host),
        };
        if let Some(id) = self.client.take_request_id() {
            lines.add(&REQUEST_ID, &id);
        }
        lines
    }

    /// What is left of what others say of the client.
    fn believed(&self, headers: &mut HeaderMap) -> Held {
        if !self.client.trusted {
            remove_all(headers, &[FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST]);
        }
        Held::of(headers)
    }

    /// What a request that was not forwarded before is to say of the client.
    fn forwarded(&self, host: &HeaderValue) -> Lines {
        let mut lines = Lines::in_kept_room();
        lines.add_all(&self.of_client);
        lines.add(&FORWARDED_HOST, host);
        lines
    }

    /// What one is to say beside what was said before; the chain of addresses goes on where it stands.
    fn forwarded_again(&self, headers: &mut HeaderMap, said: Held, host: &HeaderValue) -> Lines {
        let mut lines = Lines::in_kept_room();
        if let Some(addr) = &self.forwarded_for {
            match joined(headers, &FORWARDED_FOR) {
                Some(mut chain) => {
                    chain.extend_from_slice(b", ");
                    chain.extend_from_slice(addr.as_bytes());
                    let chain = HeaderValue::from_bytes(&chain).unwrap_or_else(|_| addr.clone());
                    headers.insert(FORWARDED_FOR, chain);
                }
                None => lines.add(&FORWARDED_FOR, addr),
            }
        }
        if !said.any(Held::FORWARDED_PROTO) {
            lines.add(&FORWARDED_PROTO, &PROTO);
        }
        if !said.any(Held::FORWARDED_HOST) {
            lines.add(&FORWARDED_HOST, host);
        }
        lines
    }
}

impl<S> Layer<S> for HopLayer {
    type Service = Hop<S>;

    fn layer(&self, inner: S) -> Hop<S> {
        Hop {
            inner,
            layer: Rc::new(self.clone()),
        }
    }
}

/// All lines of a name, as one list.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(name).iter();
    let mut list = lines.next()?.as_bytes().to_vec();
    for line in lines {
        list.extend_from_slice(b", ");
        list.extend_from_slice(line.as_bytes());
    }
    Some(list)
}

/// Absolute form becomes origin form; its authority, which wins over `Host` (RFC 9112, 3.2.2), is
/// given back.
fn to_origin_form(uri: &mut Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = HeaderValue::from_str(host).ok();
    *uri = match uri.path_and_query() {
        Some(path) => Uri::from(path.clone()),
        None => Uri::from(PathAndQuery::from_static("/")),
    };
    host
}

/// Removes what `Connection` nominates, then what is of one hop by nature. `Trailer` is not, but does
/// not announce what would be taken off a head.
fn strip(headers: &mut HeaderMap, held: Held) {
    if !held.any(HELD_OF_ONE_HOP) {
        return;
    }
    if held.any(Held::CONNECTION) {
        let nominated: Vec<HeaderName> = members(headers, &CONNECTION)
            .filter_map(|name| HeaderName::from_bytes(name).ok())
            .filter(|name| !KEPT.contains(name))
            .collect();
        for name in nominated {
            headers.remove(name);
        }
    }
    remove_all(headers, &OF_ONE_HOP);
    trailer::withhold(headers, |name| {
        OF_ONE_HOP.contains(name) || NOT_BEHIND.contains(name) || belongs_in_head(name)
    });
}

// === impl Hop ===

impl<S, B, R> Service<Request<B>> for Hop<S>
where
    S: Service<Outbound<B>, Response = Response<R>, Error = ProxyError>,
    B: Body,
{
    type Response = Response<R>;
    type Error = ProxyError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let lines = self.layer.rewrite(&mut request);
        ResponseFuture {
            inner: self.inner.call(Outbound { request, lines }),
            layer: Rc::clone(&self.layer),
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
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        // The version is of one hop too: the client gets the framing of its own.
        *response.version_mut() = Version::HTTP_11;
        let switch = Switch::of(&response);
        let headers = response.headers_mut();
        let held = Held::of(headers);
        if held.any(Held::TRANSFER_ENCODING) {
            // The body was read by the coding (RFC 9112, 6.3), so a length beside it is a lie.
            if headers.remove(CONTENT_LENGTH).is_some() {
                this.layer.worker.meters.odd_answer("length_beside_chunked");
            }
        } else if framing::say_length_once(headers) {
            this.layer.worker.meters.odd_answer("repeated_length");
        }
        strip(headers, held);
        if let Some(switch) = switch {
            switch.put_back(headers);
        }
        Poll::Ready(Ok(response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn nominated_headers_go_but_framing_and_host_stay() {
        let mut map = headers(&[
            ("connection", "close, x-hop, Host, content-length"),
            ("x-hop", "1"),
            ("host", "h"),
            ("content-length", "2"),
            ("trailer", "x-sum"),
            ("te", "trailers"),
            ("x-end", "1"),
        ]);
        let held = Held::of(&map);
        strip(&mut map, held);
        let mut left: Vec<&str> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "trailer", "x-end"]);
    }

    #[test]
    fn absolute_form_becomes_origin_form_and_its_authority_the_host() {
        for (target, origin, host) in [
            ("http://k.test:8080/v1?x=1", "/v1?x=1", Some("k.test:8080")),
            ("http://user:pw@k.test/", "/", Some("k.test")),
            ("/v1?x=1", "/v1?x=1", None),
            ("*", "*", None),
        ] {
            let mut uri: Uri = target.parse().unwrap();
            let got = to_origin_form(&mut uri);
            assert_eq!(got.as_ref().map(|h| h.to_str().unwrap()), host, "{target}");
            assert_eq!(uri.to_string(), origin);
        }
    }
}
