//! A request's way, from the client's connection to the router's: read it from top to bottom; an
//! answer comes back from bottom to top. One line a layer, one file a layer. The only place that
//! names hyper's body types.

use super::admit::AdmitLayer;
use super::break_off::{BreakOffLayer, Flushed};
use super::client::Client;
use super::deadline::{DeadlineLayer, Heard, Timed};
use super::error::BoxError;
use super::forward::{Forward, FromUpstream, HeadLimits};
use super::guard::{GuardLayer, Guarded};
use super::hop::HopLayer;
use super::record::{Inflow, Outflow, RecordLayer};
use super::request_id::RequestIdLayer;
use super::respond::{Answer, RespondLayer};
use super::screen::{Limited, ScreenLayer};
use super::stamp::{StampLayer, StampNames};
use super::tunnel::Handover;
use super::worker::Worker;
use crate::net::{Outbound, Pool, PoolError, PooledBody};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use tower::{Service, ServiceBuilder};

/// What is sent to the router.
pub type RequestBody = Guarded<Heard<Limited<Inflow<Incoming>>>>;

/// What is sent to the client of the router's body `B`.
pub type ResponseBody<B = PooledBody<RequestBody>> =
    Outflow<Answer<Flushed<Timed<FromUpstream<B>>>>>;

/// A worker's connections to the router.
pub type UpstreamPool = Pool<RequestBody>;

/// Who answers requests: the pool of connections to the router. Tests put others in its place.
pub trait Router<B>:
    Service<Outbound<RequestBody>, Response = Response<B>, Error = PoolError> + Clone + 'static
{
}

impl<P, B> Router<B> for P where
    P: Service<Outbound<RequestBody>, Response = Response<B>, Error = PoolError> + Clone + 'static
{
}

/// What a worker's stacks have in common, made once.
pub struct StackParts {
    worker: Rc<Worker>,
    names: Arc<StampNames>,
    upstream_host: HeaderValue,
}

impl StackParts {
    /// From the worker's settings.
    #[must_use]
    pub fn new(worker: Rc<Worker>) -> StackParts {
        let headers = &worker.settings.headers;
        let authority = worker.settings.upstream.authority();
        StackParts {
            names: Arc::new(StampNames::new(
                headers.usage.clone(),
                headers.pools.clone(),
            )),
            upstream_host: HeaderValue::from_str(&authority)
                .unwrap_or(HeaderValue::from_static("localhost")),
            worker,
        }
    }

    /// The worker.
    #[must_use]
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// The stack for one client connection; a tunnel that a request opens is handed over.
    pub fn stack<P, B>(
        &self,
        client: &Rc<Client>,
        handover: &Handover,
        router: P,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<ResponseBody<B>>,
        Error = Infallible,
        Future: 'static,
    > + Clone
    + 'static
    where
        P: Router<B>,
        P::Future: 'static,
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        let worker = &self.worker;
        let limits = HeadLimits {
            fields: worker.settings.limits.header_fields,
            bytes: worker.settings.limits.header_bytes,
        };
        ServiceBuilder::new()
            // The id is there before anything can fail, so that everything can be found by it.
            .layer(RequestIdLayer(Rc::clone(client)))
            // One log line, whatever happens below.
            .layer(RecordLayer::new(
                Rc::clone(worker),
                Rc::clone(client),
                handover.clone(),
            ))
            // Every answer below is stamped, kvgauge's own included.
            .layer(StampLayer::new(
                worker.stamps.clone(),
                Arc::clone(&self.names),
                client.sees_kv,
            ))
            // Errors below become answers here.
            .layer(RespondLayer(Rc::clone(worker)))
            // A panic below becomes an error here.
            .layer(GuardLayer)
            // No room: turned away before any work is done.
            .layer(AdmitLayer(Rc::clone(worker)))
            // What can't be forwarded, or is too large, is refused before it is sent.
            .layer(ScreenLayer(Rc::clone(worker)))
            // A broken answer ends broken; by the version that the client spoke, so above `hop`.
            .layer(BreakOffLayer(Rc::clone(client)))
            // What belongs to the client's hop is taken off, what the router should know is put on.
            .layer(HopLayer::new(
                Rc::clone(worker),
                Rc::clone(client),
                self.upstream_host.clone(),
            ))
            // The clocks run from here, over the connection as well.
            .layer(DeadlineLayer(Rc::clone(worker)))
            .service(Forward::new(router, limits))
    }
}
