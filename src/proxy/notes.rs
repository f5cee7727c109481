//! What a ticket knows of its request, in memory that one request leaves to the next.

use super::respond::Failed;
use super::usage::{AskedModel, Reader};
use crate::publish::Stamp;
use http::{HeaderValue, Method, StatusCode, Version};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Notes that a worker keeps: what comes in one go while as many requests end takes no new memory.
const MOST_SPARE: usize = 64;

/// Room for a path that is kept, in bytes.
const USUAL_PATH: usize = 256;

/// What has been seen of a request's body.
#[derive(Default)]
pub(super) struct InflowSeen {
    pub(super) bytes: Cell<u64>,
    pub(super) left: Cell<bool>,
    pub(super) model: RefCell<Option<AskedModel>>,
}

/// What is known of one request.
pub(super) struct Notes {
    pub(super) start: Instant,
    pub(super) kv_start: Option<Rc<Stamp>>,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) version: Version,
    pub(super) request_id: Option<HeaderValue>,
    pub(super) trace_id: Option<[u8; 32]>,
    pub(super) inflow: Rc<InflowSeen>,
    pub(super) answer: Answer,
    pub(super) is_tunnel: bool,
}

/// What is known of its answer.
pub(super) struct Answer {
    pub(super) status: Option<StatusCode>,
    pub(super) failed: Option<Failed>,
    pub(super) upstream_id: Option<HeaderValue>,
    pub(super) stream: Option<bool>,
    pub(super) overhead: Option<Duration>,
    pub(super) first_content: Option<Duration>,
    pub(super) bytes_out: u64,
    /// What the kernel had taken on this connection before.
    pub(super) sent_before: u64,
    pub(super) reader: Reader,
}

/// Blank notes, for the requests to come.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "each goes in and out as it is, unmoved")]
pub(super) struct SpareNotes(RefCell<Vec<Box<Notes>>>);

// === impl Notes ===

impl Notes {
    fn blank(start: Instant) -> Notes {
        Notes {
            start,
            kv_start: None,
            method: Method::GET,
            path: String::new(),
            version: Version::HTTP_11,
            request_id: None,
            trace_id: None,
            inflow: Rc::default(),
            answer: Answer::none(),
            is_tunnel: false,
        }
    }

    /// Makes them blank again, unless the request's body is still looked at.
    fn clear(&mut self) -> bool {
        let Some(inflow) = Rc::get_mut(&mut self.inflow) else {
            return false;
        };
        *inflow = InflowSeen::default();
        self.kv_start = None;
        self.method = Method::GET;
        self.path.clear();
        self.request_id = None;
        self.trace_id = None;
        self.answer = Answer::none();
        self.is_tunnel = false;
        true
    }
}

impl Answer {
    fn none() -> Answer {
        Answer {
            status: None,
            failed: None,
            upstream_id: None,
            stream: None,
            overhead: None,
            first_content: None,
            bytes_out: 0,
            sent_before: 0,
            reader: Reader::BLIND,
        }
    }
}

// === impl SpareNotes ===

impl SpareNotes {
    /// Notes of a request that began then, and of which nothing else is known.
    pub(super) fn take(&self, start: Instant) -> Box<Notes> {
        match self.0.borrow_mut().pop() {
            Some(mut notes) => {
                notes.start = start;
                notes
            }
            None => Box::new(Notes::blank(start)),
        }
    }

    /// Of a request that has been recorded.
    pub(super) fn give_back(&self, mut notes: Box<Notes>) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < MOST_SPARE && notes.path.capacity() <= USUAL_PATH && notes.clear() {
            spare.push(notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_are_given_back_are_blank() {
        let spare = SpareNotes::default();
        let mut notes = spare.take(Instant::now());
        notes.path.push_str("/v1/models");
        notes.method = Method::POST;
        notes.request_id = Some(HeaderValue::from_static("a"));
        notes.trace_id = Some([b'1'; 32]);
        notes.inflow.bytes.set(7);
        notes.inflow.left.set(true);
        notes.answer.status = Some(StatusCode::OK);
        notes.answer.bytes_out = 3;
        notes.is_tunnel = true;
        let room = notes.path.as_ptr();
        spare.give_back(notes);
        let start = Instant::now();
        let notes = spare.take(start);
        assert_eq!(notes.path.as_ptr(), room, "they are the same ones");
        assert!(notes.path.is_empty());
        assert_eq!((notes.start, &notes.method), (start, &Method::GET));
        assert_eq!((&notes.request_id, notes.trace_id), (&None, None));
        assert_eq!(notes.inflow.bytes.get(), 0);
        assert!(!notes.inflow.left.get() && !notes.is_tunnel);
        assert_eq!((notes.answer.status, notes.answer.bytes_out), (None, 0));
    }

    #[test]
    fn few_are_kept_and_none_that_is_large_or_in_use() {
        let spare = SpareNotes::default();
        let kept = || spare.0.borrow().len();
        let notes = spare.take(Instant::now());
        let body = Rc::clone(&notes.inflow);
        spare.give_back(notes);
        assert_eq!(kept(), 0);
        body.bytes.set(1);
        let mut notes = spare.take(Instant::now());
        notes.path.push_str(&"x".repeat(USUAL_PATH + 1));
        spare.give_back(notes);
        assert_eq!(kept(), 0);
        let many: Vec<_> = (0..=MOST_SPARE)
            .map(|_| spare.take(Instant::now()))
            .collect();
        many.into_iter().for_each(|notes| spare.give_back(notes));
        assert_eq!(kept(), MOST_SPARE);
    }
}
