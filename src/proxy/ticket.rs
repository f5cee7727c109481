//! What is known of one request, from its head to its last byte; the line and the counts are made from
//! it once, however the request ends.

use super::client::{Asked, Client};
use super::error::Outcome;
use super::headers::{first, of_its_own};
use super::notes::{InflowSeen, Notes};
use super::request_id::REQUEST_ID;
use super::respond::Failed;
use super::usage::{AskedModel, Found, Kind, Reader};
use super::worker::{Phase, Worker};
use crate::publish::LoadStamp;
use crate::telemetry::log::Record as Line;
use crate::telemetry::{Finished, method_label, route_label};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use std::rc::Rc;
use std::time::{Duration, Instant};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// One request, from its head to its last byte. Dropped without an end, it records that.
pub(super) struct Ticket {
    worker: Rc<Worker>,
    client: Rc<Client>,
    /// Until it has ended.
    notes: Option<Box<Notes>>,
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new<B: Body>(
        worker: Rc<Worker>,
        client: Rc<Client>,
        request: &Request<B>,
    ) -> Ticket {
        let start = Instant::now();
        let headers = request.headers();
        client.request_began(start, !request.body().is_end_stream());
        worker.load.request_started();
        worker.meters.started();
        let mut notes = worker.spare_notes.take(start);
        notes.kv_start = Some(worker.stamps.load(start));
        notes.method = request.method().clone();
        notes.path.push_str(request.uri().path());
        notes.version = request.version();
        notes.request_id.clone_from(&client.request_id());
        notes.trace_id = trace_id(headers);
        let asked_model = AskedModel::for_request(headers, worker.settings.usage_carry_bytes);
        notes.inflow.model.replace(asked_model);
        Ticket {
            worker,
            client,
            notes: Some(notes),
        }
    }

    /// What is to be told of the request's body.
    pub(super) fn inflow(&self) -> Rc<InflowSeen> {
        let inflow = self.notes.as_ref().map(|notes| Rc::clone(&notes.inflow));
        inflow.unwrap_or_default()
    }

    pub(super) fn is_for_a_head(&self) -> bool {
        let notes = self.notes.as_ref();
        notes.is_some_and(|notes| notes.method == Method::HEAD)
    }

    pub(super) fn answered<R>(&mut self, response: &mut Response<R>) {
        let Some(notes) = &mut self.notes else {
            return;
        };
        let now = Instant::now();
        let carry = self.worker.settings.usage_carry_bytes;
        let failed = response.extensions_mut().remove::<Failed>();
        let sent = self.worker.pool.take_answered();
        let headers = response.headers();
        let answer = &mut notes.answer;
        answer.status = Some(response.status());
        answer.overhead = sent.filter(|_| failed.is_none()).map(|sent| {
            sent.sent.saturating_duration_since(notes.start)
                + now.saturating_duration_since(sent.answered)
        });
        answer.sent_before = self.client.sent();
        answer.failed = failed;
        if failed.is_some() {
            return;
        }
        let kind = Kind::of(headers);
        answer.stream = Some(kind == Kind::Events);
        answer.reader = Reader::for_response(kind, headers, carry);
        answer.upstream_id = first(headers, &REQUEST_ID)
            .filter(|id| Some(*id) != notes.request_id.as_ref())
            .map(of_its_own);
    }

    pub(super) fn flowed(&mut self, data: &[u8], is_last: bool) {
        let Some(notes) = &mut self.notes else {
            return;
        };
        let answer = &mut notes.answer;
        answer.bytes_out += data.len() as u64;
        if answer.reader.feed(data, is_last)
            && answer.first_content.is_none()
            && answer.failed.is_none()
        {
            answer.first_content = Some(notes.start.elapsed());
        }
    }

    /// From here on bytes are the tunnel's, which tells them.
    pub(super) fn opens_tunnel(&mut self) {
        if let Some(notes) = &mut self.notes {
            notes.is_tunnel = true;
            notes.answer.stream = None;
            self.worker.meters.tunnel_began();
        }
    }

    /// Bytes that the tunnel has carried, from the client and to it.
    pub(super) fn carried(&mut self, inward: u64, outward: u64) {
        if let Some(notes) = &mut self.notes {
            notes.inflow.bytes.set(inward);
            notes.answer.bytes_out = outward;
        }
    }

    pub(super) fn start(&self) -> Instant {
        let start = self.notes.as_ref().map(|notes| notes.start);
        start.unwrap_or_else(Instant::now)
    }

    /// The answer is whole, and hyper has the last of it or is about to: the request ends when the
    /// kernel has it too.
    pub(super) fn completed(self) {
        let client = Rc::clone(&self.client);
        client.answer_is_whole(self);
    }

    /// The last byte has been handed to the kernel.
    pub(super) fn left(mut self) {
        match self.notes.as_ref().and_then(|notes| notes.answer.failed) {
            Some(failed) => self.end(failed.outcome, Some(failed.code)),
            None => self.end(Outcome::Complete, None),
        }
    }

    /// Nobody asks for the rest any more.
    fn abandoned(&mut self) {
        if std::thread::panicking() || self.client.asked() == Asked::Panicked {
            self.end(Outcome::Internal, Some("internal"));
        } else if self.client.asked() == Asked::Overdue {
            self.end(Outcome::Timeout, Some("request_timeout"));
        } else if self.worker.phase() == Phase::Cutting {
            self.end(Outcome::Drained, Some("drained"));
        } else {
            self.end(Outcome::ClientGone, Some("client_gone"));
        }
    }

    pub(super) fn end(&mut self, outcome: Outcome, error: Option<&'static str>) {
        if let Some(mut notes) = self.notes.take() {
            self.record(&mut notes, outcome, error);
            self.worker.spare_notes.give_back(notes);
        }
    }

    fn record(&self, notes: &mut Notes, outcome: Outcome, error: Option<&'static str>) {
        let now = Instant::now();
        let duration = now.saturating_duration_since(notes.start);
        let (worker, client) = (&self.worker, &self.client);
        // What only hyper was given is known to nobody.
        if client.sent() == notes.answer.sent_before {
            notes.answer.status = None;
            notes.answer.first_content = None;
            notes.answer.bytes_out = 0;
        }
        // A client that left in the middle of its body ends the router's connection too: it came first.
        let (outcome, error) = if notes.inflow.left.get()
            && matches!(outcome, Outcome::UpstreamAborted | Outcome::Rejected)
        {
            (Outcome::ClientGone, Some("client_gone"))
        } else {
            (outcome, error)
        };
        let reader = std::mem::replace(&mut notes.answer.reader, Reader::BLIND);
        let Found { usage, model } = reader.finish();
        let asked_model = notes.inflow.model.take().and_then(AskedModel::finish);
        let answer = &notes.answer;
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
            method: method_label(&notes.method),
            route: route_label(&notes.path),
            status: answer.status.map(|s| s.as_u16()),
            outcome: outcome.as_str(),
            duration,
            is_tunnel: notes.is_tunnel,
            ttft: answer
                .first_content
                .filter(|_| stream && answer.status == Some(StatusCode::OK)),
            tpot,
            overhead: answer.overhead,
            usage,
        });
        let kv_start = notes.kv_start.as_deref();
        let kv_end = worker.stamps.load(now);
        worker.sink.write(&Line {
            method: Some(notes.method.as_str()),
            path: Some(&notes.path),
            status: answer.status.map(|s| s.as_u16()),
            version: Some(version_text(notes.version)),
            client: &client.addr,
            error_type: error,
            request_model: asked_model.as_deref(),
            response_model: model.as_deref(),
            usage,
            trace_id: notes
                .trace_id
                .as_ref()
                .and_then(|id| str::from_utf8(id).ok()),
            request_id: text(notes.request_id.as_ref()),
            upstream_request_id: text(answer.upstream_id.as_ref()),
            outcome: outcome.as_str(),
            duration,
            ttft: answer.first_content,
            tpot,
            stream: answer.stream,
            bytes_in: notes.inflow.bytes.get(),
            bytes_out: answer.bytes_out,
            kv_start: kv_start.map_or(b"", |stamp| &stamp.log_start),
            kv_end: &kv_end.log_end,
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.notes.is_some() {
            self.abandoned();
        }
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

/// The trace id of a W3C `traceparent` (version-traceid-parentid-flags, lower-case hex).
fn trace_id(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut parts = first(headers, &TRACEPARENT)?
        .as_bytes()
        .split(|b| *b == b'-');
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
