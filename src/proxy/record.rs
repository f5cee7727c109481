//! One log line and one set of counts for every request, however it ends: with its last byte, with a
//! client that left, a router that broke off, or a future that was dropped.

use super::client::Client;
use super::error::{BodyError, BoxError, Outcome};
use super::request_id::REQUEST_ID;
use super::respond::Failed;
use super::usage::{self, Found, Reader, TopLevel};
use super::worker::{Phase, Worker};
use crate::net::Sent;
use crate::publish::Stamp;
use crate::telemetry::log::Record as Line;
use crate::telemetry::{Finished, method_label, route_label};
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tower::{Layer, Service};

/// See the [module](self) description. One for each connection.
#[derive(Clone)]
pub struct RecordLayer {
    worker: Rc<Worker>,
    client: Rc<Client>,
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
        ticket: Option<Box<Ticket>>,
    }
}

pin_project! {
    /// A request body that is counted, and searched for the model it asks for.
    pub struct Inflow<B> {
        #[pin]
        inner: B,
        seen: Rc<InflowSeen>,
    }
}

pin_project! {
    /// A response body that is counted, read for its usage, and recorded when it ends.
    pub struct Outflow<B> {
        #[pin]
        inner: B,
        ticket: Option<Box<Ticket>>,
    }
}

#[derive(Default)]
struct InflowSeen {
    bytes: Cell<u64>,
    broken: Cell<bool>,
    model: RefCell<Option<TopLevel<1>>>,
}

/// One request, from its head to its last byte. Dropped without an end, it records that.
struct Ticket {
    layer: RecordLayer,
    start: Instant,
    kv_start: Arc<Stamp>,
    method: Method,
    uri: Uri,
    version: Version,
    request_id: Option<HeaderValue>,
    trace_id: Option<[u8; 32]>,
    inflow: Rc<InflowSeen>,
    answer: Answer,
    ended: bool,
}

/// What is known of the answer.
struct Answer {
    status: Option<StatusCode>,
    failed: Option<Failed>,
    upstream_id: Option<HeaderValue>,
    stream: Option<bool>,
    overhead: Option<Duration>,
    first_content: Option<Duration>,
    bytes_out: u64,
    reader: Reader,
}

// === impl RecordLayer ===

impl RecordLayer {
    /// For one connection.
    #[must_use]
    pub fn new(worker: Rc<Worker>, client: Rc<Client>) -> RecordLayer {
        RecordLayer { worker, client }
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
    R: Body,
{
    type Response = Response<Outflow<R>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let ticket = Ticket::new(self.layer.clone(), &request);
        let seen = Rc::clone(&ticket.inflow);
        ResponseFuture {
            inner: self.inner.call(request.map(|inner| Inflow { inner, seen })),
            ticket: Some(Box::new(ticket)),
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
        if let Some(ticket) = &mut ticket {
            ticket.answered(&mut response);
            // Nobody will poll a body that is empty, or that an answer to HEAD must not have.
            if response.body().is_end_stream() || ticket.method == Method::HEAD {
                ticket.completed();
            }
        }
        Poll::Ready(Ok(response.map(|inner| Outflow { inner, ticket })))
    }
}

// === impl Ticket ===

impl Ticket {
    fn new<B>(layer: RecordLayer, request: &Request<B>) -> Ticket {
        let start = Instant::now();
        let headers = request.headers();
        layer.client.request_began();
        layer.worker.load.request_started();
        layer.worker.meters.started();
        let scanner = reads_json(headers)
            .then(|| TopLevel::new(["model"], layer.worker.settings.usage_carry_bytes));
        Ticket {
            start,
            kv_start: layer.worker.stamps.load(start),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            request_id: headers.get(REQUEST_ID).cloned(),
            trace_id: trace_id(headers),
            inflow: Rc::new(InflowSeen {
                model: RefCell::new(scanner),
                ..InflowSeen::default()
            }),
            answer: Answer {
                status: None,
                failed: None,
                upstream_id: None,
                stream: None,
                overhead: None,
                first_content: None,
                bytes_out: 0,
                reader: Reader::Blind,
            },
            layer,
            ended: false,
        }
    }

    fn answered<R>(&mut self, response: &mut Response<R>) {
        let now = Instant::now();
        let carry = self.layer.worker.settings.usage_carry_bytes;
        let extensions = response.extensions_mut();
        let failed = extensions.remove::<Failed>();
        let sent = extensions.remove::<Sent>();
        let headers = response.headers();
        self.answer = Answer {
            status: Some(response.status()),
            upstream_id: headers
                .get(REQUEST_ID)
                .filter(|id| failed.is_none() && Some(*id) != self.request_id.as_ref())
                .cloned(),
            stream: failed.is_none().then(|| usage::is_event_stream(headers)),
            overhead: sent.map(|sent| {
                sent.sent.saturating_duration_since(self.start)
                    + now.saturating_duration_since(sent.answered)
            }),
            first_content: None,
            bytes_out: 0,
            reader: match failed {
                Some(_) => Reader::Blind,
                None => Reader::for_response(headers, carry),
            },
            failed,
        };
    }

    fn flowed(&mut self, data: &[u8]) {
        self.answer.bytes_out += data.len() as u64;
        if self.answer.reader.feed(data) && self.answer.first_content.is_none() {
            self.answer.first_content = Some(self.start.elapsed());
        }
    }

    /// The last byte is on its way.
    fn completed(&mut self) {
        match self.answer.failed {
            Some(failed) => self.end(failed.outcome, Some(failed.code)),
            None => self.end(Outcome::Complete, None),
        }
    }

    /// Nobody asks for the rest any more.
    fn abandoned(&mut self) {
        if std::thread::panicking() {
            self.end(Outcome::Internal, Some("panic"));
        } else if self.layer.worker.phase() == Phase::Cutting {
            self.end(Outcome::Drained, Some("drained"));
        } else {
            self.end(Outcome::ClientGone, Some("client_gone"));
        }
    }

    fn end(&mut self, outcome: Outcome, error: Option<&'static str>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let now = Instant::now();
        let duration = now.saturating_duration_since(self.start);
        let (worker, client) = (&self.layer.worker, &self.layer.client);
        // An upload that broke off makes the router's connection fail as well: the client came first.
        let (outcome, error) = match outcome {
            Outcome::UpstreamAborted if self.inflow.broken.get() => {
                (Outcome::ClientGone, Some("client_gone"))
            }
            other => (other, error),
        };
        let reader = std::mem::replace(&mut self.answer.reader, Reader::Blind);
        let Found { usage, model } = reader.finish();
        let asked_model = self.inflow.model.borrow_mut().take().and_then(|scanner| {
            let [model] = scanner.finish();
            usage::model_of(&model)
        });
        let answer = &self.answer;
        let stream = answer.stream == Some(true);
        let tpot = time_per_token(
            duration,
            answer
                .first_content
                .filter(|_| stream && outcome == Outcome::Complete),
            usage.output,
        );
        worker.load.request_ended();
        client.request_ended(now);
        worker.meters.finished(&Finished {
            method: method_label(&self.method),
            route: route_label(self.uri.path()),
            status: answer.status.map(|s| s.as_u16()),
            outcome: outcome.as_str(),
            duration,
            ttft: answer
                .first_content
                .filter(|_| stream && answer.status == Some(StatusCode::OK)),
            tpot,
            overhead: answer.overhead,
            usage,
        });
        let kv_end = worker.stamps.load(now);
        worker.sink.write(&Line {
            method: Some(self.method.as_str()),
            path: Some(self.uri.path()),
            status: answer.status.map(|s| s.as_u16()),
            version: Some(version_text(self.version)),
            client: &client.addr,
            error_type: error,
            request_model: asked_model.as_deref(),
            response_model: model.as_deref(),
            usage,
            trace_id: self
                .trace_id
                .as_ref()
                .and_then(|id| str::from_utf8(id).ok()),
            request_id: text(self.request_id.as_ref()),
            upstream_request_id: text(answer.upstream_id.as_ref()),
            outcome: outcome.as_str(),
            duration,
            ttft: answer.first_content,
            tpot,
            stream: answer.stream,
            bytes_in: self.inflow.bytes.get(),
            bytes_out: answer.bytes_out,
            kv_start: &self.kv_start.log_start,
            kv_end: &kv_end.log_end,
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.abandoned();
    }
}

/// TPOT = (duration - TTFT) / (output tokens - 1), where there is more than one token.
fn time_per_token(
    duration: Duration,
    ttft: Option<Duration>,
    output: Option<u64>,
) -> Option<Duration> {
    let further = u32::try_from(output?.checked_sub(1)?).ok()?;
    duration.checked_sub(ttft?)?.checked_div(further)
}

fn reads_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_ENCODING) && usage::media_type_is(headers, b"application/json")
}

/// The trace id of a W3C `traceparent` (version-traceid-parentid-flags, lower-case hex).
fn trace_id(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut parts = headers.get("traceparent")?.as_bytes().split(|b| *b == b'-');
    let (version, id) = (parts.next()?, parts.next()?);
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let good = version.len() == 2
        && hex(version)
        && version != b"ff"
        && hex(id)
        && id.iter().any(|b| *b != b'0');
    id.try_into().ok().filter(|_| good)
}

/// Ids that the layer above let through are ASCII; a router's may be anything.
fn text(id: Option<&HeaderValue>) -> Option<&str> {
    id.and_then(|v| v.to_str().ok())
}

fn version_text(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
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
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.seen
                        .bytes
                        .set(this.seen.bytes.get() + data.len() as u64);
                    if let Some(scanner) = this.seen.model.borrow_mut().as_mut() {
                        scanner.feed(data);
                    }
                }
            }
            Some(Err(_)) => this.seen.broken.set(true),
            None => {}
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
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
        if let Some(ticket) = this.ticket {
            match &frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        ticket.flowed(data);
                    }
                    // After the last frame of a known length nobody polls again.
                    if this.inner.is_end_stream() {
                        ticket.completed();
                    }
                }
                Some(Err(error)) => ticket.end(error.outcome(), Some(error.code())),
                None => ticket.completed(),
            }
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
