//! Token usage and model, read from bodies that flow past: nothing is held back, nothing altered.
//!
//! An event stream is read line by line; a JSON body by a scanner that knows the members of the
//! outermost object, or by a search for their names where it comes in one frame. Both keep at most
//! `usage.carry_bytes` of what was cut by a frame's end, or of one value. Of an answer in gzip or deflate
//! a copy is unpacked for that; in another coding nothing is read, and what is not known stays unknown.

mod events;
mod fields;
mod json;
mod packed;
mod plain;
mod text;
mod whole;

use crate::telemetry::log::Usage;
use events::Events;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use json::{Member, TopLevel};
use packed::{Coding, Packed};
use whole::Names;

/// What an answer says of itself.
#[derive(Debug, Default)]
pub struct Found {
    /// Token counts; the last ones win.
    pub usage: Usage,
    /// The model that answered.
    pub model: Option<Box<str>>,
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
    /// A JSON body.
    Json(TopLevel<3>),
    /// One that came whole.
    Read(Found),
}

/// Members of a JSON answer that are read: OpenAI's, and SGLang's own `/generate`.
const ANSWER: [&str; 3] = ["model", "usage", "meta_info"];
const WHOLE_ANSWER: Names<3, 6, b'"', b'i'> = Names(["\"model\"", "\"usage\"", "\"meta_info\""]);

/// And of a request.
const REQUEST: [&str; 1] = ["model"];
const WHOLE_REQUEST: Names<1, 3, b'd', b'd'> = Names(["\"model\""]);

/// Reads the model that a request's body asks for.
#[derive(Debug)]
pub struct AskedModel(InnerAsked);

#[derive(Debug)]
enum InnerAsked {
    Json(TopLevel<1>),
    /// The body came whole.
    Read(Option<Box<str>>),
}

impl Reader {
    /// Reads nothing.
    pub const BLIND: Reader = Reader(Inner::Plain(Plain::Blind));

    /// The right reader for a response's head, which says that its body is of this kind.
    #[must_use]
    pub fn for_response(kind: Kind, headers: &HeaderMap, carry_bytes: usize) -> Reader {
        let plain = match kind {
            Kind::Events => Plain::Events(Events::new(carry_bytes)),
            Kind::Json => Plain::Json(TopLevel::new(ANSWER, carry_bytes)),
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
    fn feed(&mut self, frame: &[u8], is_last: bool) -> bool {
        match self {
            Plain::Blind | Plain::Read(_) => {}
            Plain::Events(events) => return events.feed(frame),
            Plain::Json(members) => {
                let whole = is_last.then(|| members.whole(&WHOLE_ANSWER, frame));
                match whole.flatten() {
                    Some(values) => *self = Plain::Read(fields::from_members(values)),
                    None => members.feed(frame),
                }
            }
        }
        !frame.is_empty()
    }

    fn finish(self) -> Found {
        match self {
            Plain::Blind => Found::default(),
            Plain::Events(events) => events.finish(),
            Plain::Json(members) => {
                let members = members.finish();
                fields::from_members(members.each_ref().map(Member::value))
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
        is_plain.then(|| AskedModel(InnerAsked::Json(TopLevel::new(REQUEST, carry_bytes))))
    }

    /// Reads a frame, and the body's last one as such where that is known.
    pub fn feed(&mut self, frame: &[u8], is_last: bool) {
        if let InnerAsked::Json(members) = &mut self.0 {
            let whole = is_last.then(|| members.whole(&WHOLE_REQUEST, frame));
            match whole.flatten() {
                Some([model]) => self.0 = InnerAsked::Read(model.and_then(fields::text_of)),
                None => members.feed(frame),
            }
        }
    }

    /// The model, once the body is over or broken off.
    #[must_use]
    pub fn finish(self) -> Option<Box<str>> {
        match self.0 {
            InnerAsked::Json(members) => {
                let [model] = members.finish();
                model.value().and_then(fields::text_of)
            }
            InnerAsked::Read(model) => model,
        }
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
        match media_type {
            b"text/event-stream" => Some(Kind::Events),
            b"application/json" => Some(Kind::Json),
            _ => None,
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
