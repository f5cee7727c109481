//! `/kv/stream`: what there is to see, at once and then each second, as server-sent events.
//!
//! A moment is rendered once for all who listen, and not at all where nobody does. A listener that is
//! slow gets the newest when it takes something again, so nothing piles up for it. Before each event it is
//! asked whether the token that opened the stream is still the one, and where not the stream ends.

use super::body::Body;
use super::gate::Era;
use super::requests::Requests;
use super::{Answer, Gate, Shared, moment};
use crate::net::again;
use crate::proxy::Phase;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;
use std::cell::RefCell;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Streams at a time.
const MOST_STREAMS: usize = 32;

/// When who finds no place may try again, in seconds.
const RETRY: HeaderValue = HeaderValue::from_static("10");

/// Between two events.
const PERIOD: Duration = Duration::from_secs(1);

/// After so long without an event, which happens only where rendering fails, a comment says that the
/// stream still lives.
const SILENCE: Duration = Duration::from_secs(10);

const COMMENT: Bytes = Bytes::from_static(b": nothing new\n\n");

/// After a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Asks nginx, where one stands before us, not to hold events back.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Who listens, and what they are told.
pub struct Live {
    /// `None` while nobody listens.
    moments: watch::Sender<Option<Moment>>,
    /// Someone listens.
    wanted: Notify,
    places: Arc<Semaphore>,
    /// The last requests as they were last shown.
    requests: RefCell<Requests>,
}

/// One event.
#[derive(Clone)]
struct Moment {
    text: Bytes,
    stage: Stage,
}

/// How far the process is on its way out. A stream ends when that changes, after the event that says so.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    Draining,
    Ending,
}

/// The body of one stream.
pub(super) struct Events(Option<Coming>);

type Coming = Pin<Box<dyn Future<Output = Option<(Bytes, Option<Listener>)>> + Send>>;

/// One who listens; holds a place.
struct Listener {
    moments: watch::Receiver<Option<Moment>>,
    began: Option<Stage>,
    gate: Gate,
    /// In which it was let in.
    era: Era,
    _place: OwnedSemaphorePermit,
}

// === impl Live ===

impl Default for Live {
    fn default() -> Live {
        Live {
            moments: watch::Sender::new(None),
            wanted: Notify::new(),
            places: Arc::new(Semaphore::new(MOST_STREAMS)),
            requests: RefCell::default(),
        }
    }
}

impl Live {
    /// Tells listeners until it is dropped.
    pub(super) async fn run(shared: Rc<Shared>) {
        again(AFTER_PANIC, || shared.live.tell(&shared)).await;
    }

    async fn tell(&self, shared: &Shared) {
        let mut phase = shared.phase.clone();
        loop {
            while self.moments.receiver_count() == 0 {
                self.moments.send_replace(None);
                self.wanted.notified().await;
            }
            phase.mark_unchanged();
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while self.moments.receiver_count() > 0 {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = changed(&mut phase) => {}
                }
                // Nobody else may come for whom the token is read again.
                shared.gate.look(Instant::now());
                self.moments.send_replace(Some(self.moment(shared)));
            }
        }
    }

    fn moment(&self, shared: &Shared) -> Moment {
        let stage = Stage::of(*shared.phase.borrow());
        let (unix, json) = moment::render(shared, &mut self.requests.borrow_mut());
        let text = format!("event: moment\nid: {unix}\ndata: {json}\n\n");
        let text = text.into();
        Moment { text, stage }
    }

    fn listen(&self, gate: &Gate, era: Era) -> Option<Listener> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut moments = self.moments.subscribe();
        // The newest is new to who has just come.
        moments.mark_changed();
        self.wanted.notify_one();
        Some(Listener {
            moments,
            began: None,
            gate: gate.clone(),
            era,
            _place: place,
        })
    }
}

/// Waits for the next phase.
async fn changed(phase: &mut watch::Receiver<Phase>) {
    if phase.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Answers with the stream, or that there is no place.
pub(super) fn stream(shared: &Shared, headers: &HeaderMap) -> Answer {
    let era = shared.gate.era();
    // Once more, as a reload may have come in between: the token is to be one of this era.
    if let Some(refusal) = shared.gate.refusal(headers, Instant::now()) {
        return refusal;
    }
    let Some(listener) = shared.live.listen(&shared.gate, era) else {
        return full();
    };
    let mut answer = Response::new(Body::Events(Events(Some(Box::pin(listener.next())))));
    let headers = answer.headers_mut();
    // The layer that packs leaves this type alone: it would hold events back.
    let events = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, events);
    headers.insert(UNBUFFERED, HeaderValue::from_static("no"));
    answer
}

fn full() -> Answer {
    let message = format!(
        "{MOST_STREAMS} streams are open, and there are no more: close one that nobody looks at, or ask \
         for /kv each second instead"
    );
    let mut answer = super::json(&json!({
        "error": {
            "message": message,
            "type": "overloaded",
            "param": null,
            "code": "too_many_streams",
        }
    }));
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(RETRY_AFTER, RETRY);
    answer
}

// === impl Stage ===

impl Stage {
    fn of(phase: Phase) -> Stage {
        match phase {
            Phase::Serving => Stage::Serving,
            Phase::Leaving | Phase::Draining => Stage::Draining,
            Phase::Cutting => Stage::Ending,
        }
    }
}

// === impl Listener ===

impl Listener {
    /// What to send next, and who listens on. `None` at the end.
    async fn next(mut self) -> Option<(Bytes, Option<Listener>)> {
        loop {
            let come = timeout(SILENCE, self.moments.changed()).await;
            if self.gate.era() != self.era {
                return None;
            }
            match come {
                Err(_) => return Some((COMMENT, Some(self))),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {}
            }
            let newest = self.moments.borrow_and_update().clone();
            if let Some(Moment { text, stage }) = newest {
                let goes_on = *self.began.get_or_insert(stage) == stage;
                return Some((text, goes_on.then_some(self)));
            }
        }
    }
}

// === impl Events ===

impl Events {
    /// What to send next; `None` at the end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(coming) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let come = ready!(coming.as_mut().poll(cx));
        self.0 = None;
        let Some((text, listener)) = come else {
            return Poll::Ready(None);
        };
        self.0 = listener.map(|listener| Box::pin(listener.next()) as Coming);
        Poll::Ready(Some(text))
    }
}
