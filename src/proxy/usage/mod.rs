//! Token usage and model, read from bodies that flow past: nothing is held back, nothing altered.
//!
//! An event stream is read line by line; a JSON body by a scanner that knows the members of the
//! outermost object, or by a search for their names where it comes in one frame. Both keep at most
//! `usage.carry_bytes` of what was cut by a frame's end, or of one value. Of an answer in gzip or deflate
//! a copy is unpacked for that; in another coding nothing is read, and what is not known stays unknown.

mod events;
mod fields;
mod json;
mod name;
mod packed;
mod plain;
mod text;
mod whole;

use crate::telemetry::log::Usage;
use events::Events;
use fields::Value;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use json::TopLevel;
use memchr::memmem::Finder;
use name::Name;
use packed::{Coding, Packed};
use whole::{Names as _, One, Several};

/// What an answer says of itself.
#[derive(Debug, Default)]
pub struct Found {
    /// Token counts; the last ones win.
    pub usage: Usage,
    /// The model that answered.
    pub model: Option<Name>,
}

/// What kind of body a head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An event stream.
    Events,
    /// JSON.
    Json,
    /// One that is not read.
    Other,
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
    /// A JSON body of which nothing has come, and how much of a value is kept.
    Awaited(usize),
    /// A JSON body that comes in pieces. Boxed, as a scanner is large and few bodies need one.
    Json(Box<TopLevel<3>>),
    /// One that came whole.
    Read(Found),
}

/// Members of a JSON answer that are read: OpenAI's, and SGLang's own `/generate`.
const ANSWER: [&str; 3] = ["model", "usage", "meta_info"];
const WHOLE_ANSWER: Several<3, 6, b'"', b'i'> =
    Several(["\"model\"", "\"usage\"", "\"meta_info\""]);

/// And of a request.
const REQUEST: [&str; 1] = ["model"];
static WHOLE_REQUEST: One = One::new(|| Finder::new(b"\"model\""));

/// Reads the model that a request's body asks for.
#[derive(Debug)]
pub struct AskedModel(InnerAsked);

#[derive(Debug)]
enum InnerAsked {
    /// Nothing has come; how much of a value is kept.
    Awaited(usize),
    /// The body comes in pieces.
    Json(Box<TopLevel<1>>),
    /// The body came whole.
    Read(Option<Name>),
}

impl Reader {
    /// Reads nothing.
    pub const BLIND: Reader = Reader(Inner::Plain(Plain::Blind));

    /// The right reader for a response's head, which says that its body is of this kind.
    #[must_use]
    pub fn for_response(kind: Kind, headers: &HeaderMap, carry_bytes: usize) -> Reader {
        let plain = match kind {
            Kind::Events => Plain::Events(Events::new(carry_bytes)),
            Kind::Json => Plain::Awaited(carry_bytes),
            Kind::Other => return Reader::BLIND,
        };
        Reader(match Coding::of(headers) {
            Coding::Identity => Inner::Plain(plain),
            Coding::Gzip => Inner::Packed(Box::new(Packed::gzip(plain))),
            Coding::Deflate => Inner::Packed(Box::new(Packed::deflate(plain))),
            Coding::Other => return Reader::BLIND,
        })
    }

    /// Reads a frame, and the body's last one as such where that is known. True when it brought content
    /// (of an event stream: the first content event; else: any byte).
    #[inline]
    pub fn feed(&mut self, frame: &[u8], is_last: bool) -> bool {
        match &mut self.0 {
            Inner::Plain(plain) => plain.feed(frame, is_last),
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
    #[inline]
    fn feed(&mut self, frame: &[u8], is_last: bool) -> bool {
        match self {
            Plain::Events(events) => return events.feed(frame),
            Plain::Awaited(_) if frame.is_empty() => {}
            Plain::Awaited(most_bytes) => *self = Plain::begun(frame, is_last, *most_bytes),
            Plain::Json(members) => members.feed(frame),
            Plain::Blind | Plain::Read(_) => {}
        }
        !frame.is_empty()
    }

    /// A JSON body that begins with this frame. On its own, as the frames of event streams are many.
    #[inline(never)]
    fn begun(frame: &[u8], is_last: bool, most_bytes: usize) -> Plain {
        let whole = is_last.then(|| WHOLE_ANSWER.values(frame, most_bytes));
        if let Some(values) = whole.flatten() {
            return Plain::Read(fields::from_members(values));
        }
        let mut members = Box::new(TopLevel::new(ANSWER, most_bytes));
        members.feed(frame);
        Plain::Json(members)
    }

    fn finish(self) -> Found {
        match self {
            Plain::Blind | Plain::Awaited(_) => Found::default(),
            Plain::Events(events) => events.finish(),
            Plain::Json(members) => {
                let members = members.finish();
                fields::from_members(members.each_ref().map(|m| m.value().map(Value::unread)))
            }
            Plain::Read(found) => found,
        }
    }
}

impl AskedModel {
    /// For a body that can be read as it comes: JSON that is not packed.
    #[must_use]
    pub fn for_request(headers: &HeaderMap, carry_bytes: usize) -> Option<AskedModel> {
        let is_plain = Kind::of(headers) == Kind::Json && Coding::of(headers) == Coding::Identity;
        is_plain.then_some(AskedModel(InnerAsked::Awaited(carry_bytes)))
    }

    /// Reads a frame, and the body's last one as such where that is known.
    pub fn feed(&mut self, frame: &[u8], is_last: bool) {
        match &mut self.0 {
            InnerAsked::Awaited(_) if frame.is_empty() => {}
            InnerAsked::Awaited(most_bytes) => {
                self.0 = InnerAsked::begun(frame, is_last, *most_bytes);
            }
            InnerAsked::Json(members) => members.feed(frame),
            InnerAsked::Read(_) => {}
        }
    }

    /// The model, once the body is over or broken off.
    #[must_use]
    pub fn finish(self) -> Option<Name> {
        match self.0 {
            InnerAsked::Awaited(_) => None,
            InnerAsked::Json(members) => {
                let [model] = members.finish();
                model.value().and_then(fields::name_of)
            }
            InnerAsked::Read(model) => model,
        }
    }
}

impl InnerAsked {
    /// A body that begins with this frame.
    fn begun(frame: &[u8], is_last: bool, most_bytes: usize) -> InnerAsked {
        let whole = is_last.then(|| WHOLE_REQUEST.values(frame, most_bytes));
        if let Some([model]) = whole.flatten() {
            return InnerAsked::Read(model.and_then(Value::name));
        }
        let mut members = Box::new(TopLevel::new(REQUEST, most_bytes));
        members.feed(frame);
        InnerAsked::Json(members)
    }
}

impl Kind {
    /// What the head says, parameters aside.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Kind {
        let Some(value) = headers.get(CONTENT_TYPE) else {
            return Kind::Other;
        };
        let value = value.as_bytes();
        Kind::named(value).unwrap_or_else(|| {
            let end = value.iter().position(|b| *b == b';');
            let name = value[..end.unwrap_or(value.len())].trim_ascii();
            Kind::named(name)
                .or_else(|| Kind::named(&name.to_ascii_lowercase()))
                .unwrap_or(Kind::Other)
        })
    }

    fn named(media_type: &[u8]) -> Option<Kind> {
        // Not by a `match`, which compares byte by byte.
        if media_type == b"application/json" {
            Some(Kind::Json)
        } else if media_type == b"text/event-stream" {
            Some(Kind::Events)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_kind_is_a_media_type_in_any_case_and_with_any_parameters() {
        for (value, expected) in [
            ("application/json", Kind::Json),
            ("Application/JSON; charset=utf-8", Kind::Json),
            ("text/event-stream", Kind::Events),
            ("text/event-stream ;charset=utf-8", Kind::Events),
            ("text/event-streams", Kind::Other),
            ("application/json+x", Kind::Other),
            (";application/json", Kind::Other),
            ("", Kind::Other),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(Kind::of(&headers), expected, "{value}");
        }
        assert_eq!(Kind::of(&HeaderMap::new()), Kind::Other);
    }
}
