//! The head of an answer, and what it says of its body (RFC 9112, 6.3).

use super::{Broken, Decoder, familiar, scratch};
use crate::net::members;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Response, StatusCode, Version, response};
use httparse::{Error as ParseError, Header, ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use std::mem::MaybeUninit;

/// What bounds a head.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Limits {
    /// Fields.
    pub(in super::super) fields: usize,
    /// Bytes.
    pub(in super::super) head_bytes: usize,
}

/// Fields for which there is room on the stack.
const USUAL_FIELDS: usize = 100;

/// Fields that a proxy adds, for which there is room in the map from the start.
pub(super) const STAMPED_FIELDS: usize = 4;

/// A length from which on a body is too long, in bytes. hyper can't pass on one of 2^64 less one or two, and
/// elsewhere a length has a sign.
const LONGER: u64 = 1 << 63;

/// What a head says of what follows it.
#[derive(Default)]
pub(in super::super) struct Said {
    /// Reads that.
    pub(in super::super) decoder: Decoder,
    /// Whether the connection is good for another exchange when the body has ended.
    pub(in super::super) keeps_alive: bool,
}

/// What stands at the beginning of what came.
pub(super) enum Parsed {
    /// Nothing that is there whole.
    Partial,
    /// A head of so many bytes that another one follows (RFC 9110, 15.2).
    Interim(usize),
    /// A head of so many bytes; what it says has been put in its place.
    Head(usize, response::Parts),
}

/// Reads a head from the beginning of what came. `fields` is room for its fields, which a head uses up.
pub(super) fn parse(
    came: &[u8],
    method: &Method,
    limits: &Limits,
    fields: &mut HeaderMap,
    said: &mut Said,
) -> Result<Parsed, Broken> {
    if came.is_empty() {
        return Ok(Parsed::Partial);
    }
    if let Some(head) = familiar::read(came, limits, fields) {
        return head.say(method, said);
    }
    let mut usual = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
    match usual.get_mut(..limits.fields) {
        Some(room) => parse_in(room, came, method, limits, fields, said),
        None => {
            let mut room = vec![MaybeUninit::uninit(); limits.fields];
            parse_in(&mut room, came, method, limits, fields, said)
        }
    }
}

fn parse_in<'a>(
    room: &mut [MaybeUninit<Header<'a>>],
    came: &'a [u8],
    method: &Method,
    limits: &Limits,
    fields: &mut HeaderMap,
    said: &mut Said,
) -> Result<Parsed, Broken> {
    let mut read = httparse::Response::new(&mut []);
    let parser = ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut read, came, room) {
        Ok(Status::Complete(length)) if length <= limits.head_bytes => length,
        Ok(Status::Complete(_)) | Err(ParseError::TooManyHeaders) => {
            return Err(Broken::HeadTooLarge);
        }
        Ok(Status::Partial) => return Ok(Parsed::Partial),
        Err(error) => return Err(Broken::NotHttp(wrong(error))),
    };
    let status = read.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Broken::NotHttp("invalid HTTP status-code parsed"))?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Parsed::Interim(length));
    }
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.version = match read.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    parts.headers = std::mem::take(fields);
    let block = came.get(..length).unwrap_or_default();
    let says = take_fields(block, read.headers, &mut parts.headers)?;
    let reason = read.reason.unwrap_or_default();
    if Some(reason) == status.canonical_reason() {
        familiar::learn(block, read.headers, &parts);
    } else if let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes()) {
        parts.extensions.insert(reason);
    }
    let head = Head {
        length,
        parts,
        says,
    };
    head.say(method, said)
}

/// A head that is no interim one.
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) parts: response::Parts,
    pub(super) says: Says,
}

// === impl Head ===

impl Head {
    /// Puts what it says of its body in its place.
    fn say(self, method: &Method, said: &mut Said) -> Result<Parsed, Broken> {
        let Head {
            length,
            parts,
            says,
        } = self;
        said.decoder = decoder(&parts, says, method)?;
        said.keeps_alive = keeps_alive(&parts, says) && !said.decoder.ends_with_the_connection();
        Ok(Parsed::Head(length, parts))
    }
}

/// What the fields say that frame an answer.
#[derive(Clone, Copy, Default)]
pub(super) struct Says {
    coding: bool,
    length: Length,
    connection: bool,
}

/// RFC 9110, 8.6: digits; several that say the same are one.
#[derive(Clone, Copy, Default)]
enum Length {
    #[default]
    Unsaid,
    Is(u64),
    Unclear,
}

// === impl Says ===

impl Says {
    /// Whether it takes note of a field.
    pub(super) fn heeds(name: &HeaderName) -> bool {
        [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name)
    }

    /// Takes note of one field.
    pub(super) fn take(&mut self, name: &HeaderName, value: &[u8]) {
        if *name == CONTENT_LENGTH {
            self.length = self.length.and(value);
        } else if *name == TRANSFER_ENCODING {
            self.coding = true;
        } else if *name == CONNECTION {
            self.connection = true;
        }
    }
}

// === impl Length ===

impl Length {
    fn and(self, line: &[u8]) -> Length {
        let members = line.split(|b| *b == b',').map(<[u8]>::trim_ascii);
        members.fold(self, |said, member| match (said, number(member)) {
            (Length::Unsaid, Some(length)) => Length::Is(length),
            (Length::Is(said), Some(length)) if said == length => Length::Is(said),
            _ => Length::Unclear,
        })
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let (first, rest) = digits.split_first()?;
    rest.iter().try_fold(digit(*first)?, |number, byte| {
        number.checked_mul(10)?.checked_add(digit(*byte)?)
    })
}

fn digit(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

/// Values are parts of one copy of the head.
fn take_fields(block: &[u8], read: &[Header<'_>], fields: &mut HeaderMap) -> Result<Says, Broken> {
    let mut says = Says::default();
    let copy = scratch::passing(block).freeze();
    fields.clear();
    fields.reserve(read.len() + STAMPED_FIELDS);
    for field in read {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(same_part(&copy, block, field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Broken::NotHttp("invalid HTTP header parsed"));
        };
        says.take(&name, value.as_bytes());
        fields.append(name, value);
    }
    Ok(says)
}

/// What a part of a block is in a copy of it.
fn same_part(copy: &Bytes, block: &[u8], part: &[u8]) -> Bytes {
    let from = part.as_ptr().addr().checked_sub(block.as_ptr().addr());
    match from {
        Some(from) if from + part.len() <= copy.len() => copy.slice(from..from + part.len()),
        // Nothing is a part of any block.
        _ => Bytes::copy_from_slice(part),
    }
}

fn decoder(parts: &response::Parts, says: Says, method: &Method) -> Result<Decoder, Broken> {
    let (status, headers) = (parts.status, &parts.headers);
    let bodiless = matches!(
        status,
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    if bodiless || *method == Method::HEAD {
        return Ok(Decoder::empty());
    }
    if says.coding {
        if parts.version == Version::HTTP_10 {
            return Err(Broken::NotHttp("Transfer-Encoding in HTTP/1.0"));
        }
        let chunked = last_member(headers, &TRANSFER_ENCODING)
            .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
        return Ok(if chunked {
            Decoder::chunked()
        } else {
            Decoder::until_the_end()
        });
    }
    match says.length {
        Length::Unsaid => Ok(Decoder::until_the_end()),
        Length::Unclear => Err(Broken::NotHttp("its Content-Length is not one number")),
        Length::Is(LONGER..) => Err(Broken::NotHttp("its Content-Length is over 2^63 - 1")),
        Length::Is(length) => Ok(Decoder::length(length)),
    }
}

/// RFC 9112, 9.3.
fn keeps_alive(parts: &response::Parts, says: Says) -> bool {
    let lists = |word: &[u8]| {
        says.connection
            && members(&parts.headers, &CONNECTION).any(|m| m.eq_ignore_ascii_case(word))
    };
    match parts.version {
        Version::HTTP_10 => lists(b"keep-alive") && !lists(b"close"),
        _ => !lists(b"close"),
    }
}

fn last_member<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    members(headers, name).last()
}

fn wrong(error: ParseError) -> &'static str {
    match error {
        ParseError::HeaderName | ParseError::HeaderValue => "invalid HTTP header parsed",
        ParseError::Status => "invalid HTTP status-code parsed",
        ParseError::Version => "invalid HTTP version parsed",
        ParseError::Token | ParseError::NewLine | ParseError::TooManyHeaders => {
            "invalid HTTP head parsed"
        }
    }
}
