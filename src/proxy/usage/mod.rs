//! Token usage and model, read from bodies that flow past: nothing is held back, nothing altered.
//!
//! An event stream is read line by line; a JSON body by a scanner that knows the members of the
//! outermost object. Both keep at most `usage.carry_bytes` of what was cut by a frame's end.
//! Compressed bodies are not read: what is not known stays unknown.

mod events;
mod fields;
mod json;

pub(super) use fields::model_of;
pub use json::{Member, TopLevel};

use crate::telemetry::log::Usage;
use events::Events;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

/// What an answer says of itself.
#[derive(Debug, Default)]
pub struct Found {
    /// Token counts; the last ones win.
    pub usage: Usage,
    /// The model that answered.
    pub model: Option<Box<str>>,
}

/// Reads one response body.
#[derive(Debug)]
pub enum Reader {
    /// Nothing can be read.
    Blind,
    /// An event stream.
    Events(Events),
    /// A JSON body.
    Json(TopLevel<3>),
}

/// Members of a JSON answer that are read: OpenAI's, and SGLang's own `/generate`.
const ANSWER: [&str; 3] = ["model", "usage", "meta_info"];

impl Reader {
    /// The right reader for a response's head.
    #[must_use]
    pub fn for_response(headers: &HeaderMap, carry_bytes: usize) -> Reader {
        let plain = headers
            .get(CONTENT_ENCODING)
            .is_none_or(|v| v.as_bytes().eq_ignore_ascii_case(b"identity"));
        if !plain {
            return Reader::Blind;
        }
        if is_event_stream(headers) {
            Reader::Events(Events::new(carry_bytes))
        } else if media_type_is(headers, b"application/json") {
            Reader::Json(TopLevel::new(ANSWER, carry_bytes))
        } else {
            Reader::Blind
        }
    }

    /// Reads a frame. True when it brought content (of an event stream: the first content event;
    /// else: any byte).
    pub fn feed(&mut self, frame: &[u8]) -> bool {
        match self {
            Reader::Blind => !frame.is_empty(),
            Reader::Events(events) => events.feed(frame),
            Reader::Json(members) => {
                members.feed(frame);
                !frame.is_empty()
            }
        }
    }

    /// What was found, once the body is over or broken off.
    #[must_use]
    pub fn finish(self) -> Found {
        match self {
            Reader::Blind => Found::default(),
            Reader::Events(events) => events.finish(),
            Reader::Json(members) => {
                let [model, usage, meta] = members.finish();
                fields::from_members(&model, &usage, &meta)
            }
        }
    }
}

/// Whether a response is an event stream.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type_is(headers, b"text/event-stream")
}

/// Whether the content type is this one, parameters aside.
#[must_use]
pub fn media_type_is(headers: &HeaderMap, media_type: &[u8]) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| {
        let v = v.as_bytes();
        let end = v.iter().position(|b| *b == b';').unwrap_or(v.len());
        v[..end].trim_ascii().eq_ignore_ascii_case(media_type)
    })
}
