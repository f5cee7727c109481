//! The head of an answer, and what it says of its body (RFC 9112, 6.3).

use super::{Broken, Decoder};
use crate::net::members;
use bytes::{Bytes, BytesMut};
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

/// The longest body, in bytes. hyper can't pass on one of 2^64 less one or two, and elsewhere a length
/// has a sign.
const LONGEST: u64 = u64::MAX >> 1;

/// A head, and what follows it.
pub(in super::super) struct Head {
    pub(in super::super) parts: response::Parts,
    /// Reads what follows.
    pub(in super::super) decoder: Decoder,
    /// Whether the connection is good for another exchange when the body has ended.
    pub(in super::super) keeps_alive: bool,
}

pub(super) enum Parsed {
    Head(Box<Head>),
    /// A head that another one follows.
    Interim,
    Partial,
}

/// Takes a head from what came, if it is there whole.
pub(super) fn parse(
    came: &mut BytesMut,
    method: &Method,
    limits: &Limits,
) -> Result<Parsed, Broken> {
    if came.is_empty() {
        return Ok(Parsed::Partial);
    }
    let block = came.split().freeze();
    let mut usual = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
    let parsed = match usual.get_mut(..limits.fields) {
        Some(room) => parse_block(&block, room, method, limits),
        None => {
            let mut room = vec![MaybeUninit::uninit(); limits.fields];
            parse_block(&block, &mut room, method, limits)
        }
    };
    let left = match &parsed {
        Ok((length, _)) => block.slice(*length..),
        Err(_) => Bytes::new(),
    };
    let parsed = parsed.map(|(_, parsed)| parsed);
    if matches!(parsed, Ok(Parsed::Partial)) {
        drop(left);
        *came = block
            .try_into_mut()
            .unwrap_or_else(|block| BytesMut::from(&block[..]));
    } else {
        came.extend_from_slice(&left);
    }
    parsed
}

/// How long the head is, and what it is.
fn parse_block<'a>(
    block: &'a Bytes,
    room: &mut [MaybeUninit<Header<'a>>],
    method: &Method,
    limits: &Limits,
) -> Result<(usize, Parsed), Broken> {
    let mut read = httparse::Response::new(&mut []);
    let parser = ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut read, block, room) {
        Ok(Status::Complete(length)) if length <= limits.head_bytes => length,
        Ok(Status::Complete(_)) | Err(ParseError::TooManyHeaders) => {
            return Err(Broken::HeadTooLarge);
        }
        Ok(Status::Partial) => return Ok((0, Parsed::Partial)),
        Err(error) => return Err(Broken::NotHttp(wrong(error))),
    };
    let status = read.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Broken::NotHttp("invalid HTTP status-code parsed"))?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok((length, Parsed::Interim));
    }
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.version = match read.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    parts.headers = fields(block, read.headers)?;
    let reason = read.reason.unwrap_or_default();
    if Some(reason) != status.canonical_reason()
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        parts.extensions.insert(reason);
    }
    let decoder = decoder(&parts, method)?;
    let head = Head {
        keeps_alive: keeps_alive(&parts) && !decoder.ends_with_the_connection(),
        parts,
        decoder,
    };
    Ok((length, Parsed::Head(Box::new(head))))
}

/// Values are parts of the block, which is as long as the head and what came with it.
fn fields(block: &Bytes, read: &[Header<'_>]) -> Result<HeaderMap, Broken> {
    let mut fields = HeaderMap::with_capacity(read.len());
    for field in read {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(block.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Broken::NotHttp("invalid HTTP header parsed"));
        };
        fields.append(name, value);
    }
    Ok(fields)
}

fn decoder(parts: &response::Parts, method: &Method) -> Result<Decoder, Broken> {
    let (status, headers) = (parts.status, &parts.headers);
    let bodiless = matches!(
        status,
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    if bodiless || *method == Method::HEAD {
        return Ok(Decoder::empty());
    }
    if headers.contains_key(TRANSFER_ENCODING) {
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
    if headers.contains_key(CONTENT_LENGTH) {
        let Some(length) = length(headers) else {
            return Err(Broken::NotHttp("its Content-Length is not one number"));
        };
        if length > LONGEST {
            return Err(Broken::NotHttp("its Content-Length is over 2^63 - 1"));
        }
        return Ok(Decoder::length(length));
    }
    Ok(Decoder::until_the_end())
}

/// RFC 9110, 8.6: digits; several that say the same are one.
fn length(headers: &HeaderMap) -> Option<u64> {
    let mut found = None;
    for member in members(headers, &CONTENT_LENGTH) {
        if member.is_empty() || !member.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let length: u64 = std::str::from_utf8(member).ok()?.parse().ok()?;
        if found.is_some_and(|found| found != length) {
            return None;
        }
        found = Some(length);
    }
    found
}

/// RFC 9112, 9.3.
fn keeps_alive(parts: &response::Parts) -> bool {
    let says =
        |word: &[u8]| members(&parts.headers, &CONNECTION).any(|m| m.eq_ignore_ascii_case(word));
    match parts.version {
        Version::HTTP_10 => says(b"keep-alive") && !says(b"close"),
        _ => !says(b"close"),
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
