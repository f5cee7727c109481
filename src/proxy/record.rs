//! One log line and one set of counts for every request, however it ends: with its last byte, with a
//! client that left, a router that broke off, or a future that was dropped. Of a request that opens a
//! tunnel the record is handed over with it.

use super::client::Client;
use super::error::{BodyError, BoxError};
use super::notes::InflowSeen;
use super::ticket::Ticket;
use super::tunnel::{Handover, Opening};
use super::worker::Worker;
use crate::net::{Switched, caused_by};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tower::{Layer, Service};

/// See the [module](self) description. One for each connection.
#[derive(Clone)]
pub struct RecordLayer {
    worker: Rc<Worker>,
    client: Rc<Client>,
    handover: Handover,
}

/// The service of [`RecordLayer`].
#[derive(Clone)]
pub struct Record<S> {
    inner: S,
    layer: RecordLayer,
}

pin_project! {
    /// The future of [`Record`].
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        ticket: Option<Ticket>,
        handover: Handover,
    }
}

pin_project! {
    /// A request body that is counted, and searched for the model it asks for.
    pub struct Inflow<B> {
        #[pin]
        inner: B,
        seen: Rc<InflowSeen>,
        client: Rc<Client>,
    }
}

pin_project! {
    /// A response body that is counted, read for its usage, and recorded when it ends.
    pub struct Outflow<B> {
        #[pin]
        inner: B,
        ticket: Option<Ticket>,
    }
}

// === impl RecordLayer ===

impl RecordLayer {
    /// For one connection.
    #[must_use]
    pub fn new(worker: Rc<Worker>, client: Rc<Client>, handover: Handover) -> RecordLayer {
        RecordLayer {
            worker,
            client,
            handover,
        }
    }
}

impl<S> Layer<S> for RecordLayer {
    type Service = Record<S>;

    fn layer(&self, inner: S) -> Record<S> {
        Record {
            inner,
            layer: self.clone(),
        }
    }
}

// === impl Record ===

impl<S, B, R> Service<Request<B>> for Record<S>
where
    S: Service<Request<Inflow<B>>, Response = Response<R>, Error = Infallible>,
    B: Body,
    R: Body,
{
    type Response = Response<Outflow<R>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let ticket = Ticket::new(
            Rc::clone(&self.layer.worker),
            Rc::clone(&self.layer.client),
            &request,
        );
        let seen = ticket.inflow();
        let client = Rc::clone(&self.layer.client);
        let request = request.map(|inner| Inflow {
            inner,
            seen,
            client,
        });
        ResponseFuture {
            inner: self.inner.call(request),
            ticket: Some(ticket),
            handover: self.layer.handover.clone(),
        }
    }
}

// === impl ResponseFuture ===

impl<F, R> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: Body,
{
    type Output = Result<Response<Outflow<R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.inner.poll(cx));
        let mut ticket = this.ticket.take();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(router) = response.extensions_mut().remove::<Switched>()
            && let Some(mut ticket) = ticket.take()
        {
            ticket.answered(&mut response);
            ticket.opens_tunnel();
            this.handover.give(Opening { ticket, router });
        }
        if let Some(ticket) = &mut ticket {
            ticket.answered(&mut response);
        }
        // Nobody will poll a body that is empty, or that an answer to HEAD must not have.
        if let Some(ticket) =
            ticket.take_if(|ticket| response.body().is_end_stream() || ticket.is_for_a_head())
        {
            ticket.completed();
        }
        Poll::Ready(Ok(response.map(|inner| Outflow { inner, ticket })))
    }
}

// === impl Inflow ===

impl<B> Body for Inflow<B>
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
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        let (last, whole) = match &frame {
            // After trailers nobody polls again.
            Some(Ok(frame)) => (frame.data_ref(), frame.is_trailers()),
            Some(Err(_)) => (None, false),
            None => (None, true),
        };
        let is_last = whole || this.inner.is_end_stream();
        if is_last {
            this.client.body_came_whole(last.map(|data| &data[..]));
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.client.body_taken();
            this.seen
                .bytes
                .set(this.seen.bytes.get() + data.len() as u64);
            if let Some(model) = this.seen.model.borrow_mut().as_mut() {
                model.feed(data, is_last);
            }
        }
        Poll::Ready(frame.map(|frame| {
            frame.map_err(Into::into).inspect_err(|error: &BoxError| {
                this.seen.left.set(!is_malformed(&**error));
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whether a body ended since what came is no body, and not since nothing came any more.
fn is_malformed(error: &(dyn Error + 'static)) -> bool {
    caused_by(error, &[ErrorKind::InvalidInput, ErrorKind::InvalidData])
}

// === impl Outflow ===

impl<B> Body for Outflow<B>
where
    B: Body<Data = Bytes, Error = BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        let Some(ticket) = this.ticket.as_mut() else {
            return Poll::Ready(frame);
        };
        let whole = match &frame {
            Some(Ok(frame)) => {
                // After trailers, and after the last frame of a known length, nobody polls again.
                let is_last = frame.is_trailers() || this.inner.is_end_stream();
                if let Some(data) = frame.data_ref() {
                    ticket.flowed(data, is_last);
                }
                is_last
            }
            Some(Err(error)) => {
                ticket.end(error.outcome(), Some(error.code()));
                false
            }
            None => true,
        };
        if let Some(ticket) = this.ticket.take_if(|_| whole) {
            ticket.completed();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
