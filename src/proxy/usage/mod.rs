//! Token usage and model, read from bodies that flow past: nothing is held back, nothing altered.
//!
//! An event stream is read line by line; a JSON body by a scanner that knows the members of the
//! outermost object. Both keep at most `usage.carry_bytes` of what was cut by a frame's end.
//! Of an answer in gzip or deflate a copy is unpacked for that; in another coding nothing is read, and
//! what is not known stays unknown.

mod events;
mod fields;
mod json;
mod packed;

pub(super) use fields::model_of;
pub use json::{Member, TopLevel};

use crate::telemetry::log::Usage;
use events::Events;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use packed::{Coding, Packed};

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
pub struct Reader(Inner);

#[derive(Debug)]
enum Inner {
    Plain(Plain),
    /// Boxed, as a decoder is large and few answers need one.
    Packed(Box<Packed>),
}

/// Reads a body that is not packed, or no longer.
#[derive(Debug)]
enum Plain {
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
    /// Reads nothing.
    pub const BLIND: Reader = Reader(Inner::Plain(Plain::Blind));

    /// The right reader for a response's head.
    #[must_use]
    pub fn for_response(headers: &HeaderMap, carry_bytes: usize) -> Reader {
        let plain = Plain::for_response(headers, carry_bytes);
        if matches!(plain, Plain::Blind) {
            return Reader::BLIND;
        }
        Reader(match Coding::of(headers) {
            Coding::Identity => Inner::Plain(plain),
            Coding::Gzip => Inner::Packed(Box::new(Packed::gzip(plain))),
            Coding::Deflate => Inner::Packed(Box::new(Packed::deflate(plain))),
            Coding::Other => return Reader::BLIND,
        })
    }

    /// Reads a frame. True when it brought content (of an event stream: the first content event;
    /// else: any byte).
    pub fn feed(&mut self, frame: &[u8]) -> bool {
        match &mut self.0 {
            Inner::Plain(plain) => plain.feed(frame),
            Inner::Packed(packed) => packed.feed(frame),
        }
    }

    /// What was found, once the body is over or broken off.
    #[must_use]
    pub fn finish(self) -> Found {
        match self.0 {
            Inner::Plain(plain) => plain.finish(),
            Inner::Packed(packed) => packed.finish().map_or_else(Found::default, Plain::finish),
        }
    }
}

impl Plain {
    fn for_response(headers: &HeaderMap, carry_bytes: usize) -> Plain {
        if is_event_stream(headers) {
            Plain::Events(Events::new(carry_bytes))
        } else if media_type_is(headers, b"application/json") {
            Plain::Json(TopLevel::new(ANSWER, carry_bytes))
        } else {
            Plain::Blind
        }
    }

    fn feed(&mut self, frame: &[u8]) -> bool {
        match self {
            Plain::Blind => !frame.is_empty(),
            Plain::Events(events) => events.feed(frame),
            Plain::Json(members) => {
                members.feed(frame);
                !frame.is_empty()
            }
        }
    }

    fn finish(self) -> Found {
        match self {
            Plain::Blind => Found::default(),
            Plain::Events(events) => events.finish(),
            Plain::Json(members) => {
                let [model, usage, meta] = members.finish();
                fields::from_members(&model, &usage, &meta)
            }
        }
    }
}

/// Whether a body can be read for its members as it comes: JSON that is not packed.
#[must_use]
pub fn is_plain_json(headers: &HeaderMap) -> bool {
    media_type_is(headers, b"application/json") && Coding::of(headers) == Coding::Identity
}

/// Whether a response is an event stream.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type_is(headers, b"text/event-stream")
}

/// Whether the content type is this one, parameters aside.
fn media_type_is(headers: &HeaderMap, media_type: &[u8]) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| {
        let v = v.as_bytes();
        let end = v.iter().position(|b| *b == b';').unwrap_or(v.len());
        v[..end].trim_ascii().eq_ignore_ascii_case(media_type)
    })
}
