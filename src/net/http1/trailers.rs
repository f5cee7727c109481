//! Fields behind a chunked body (RFC 9110, 6.5).

use super::Broken;
use crate::net::members;
use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    HOST, HeaderName, HeaderValue, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use httparse::{EMPTY_HEADER, Status};

/// Bytes and fields of all trailers.
const MOST: (usize, usize) = (16 << 10, 100);

/// What frames, routes or controls a message belongs in its head (RFC 9110, 6.5.1).
const NEVER: [HeaderName; 12] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    MAX_FORWARDS,
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
];

/// Whether a field frames, routes or controls a message, and so never stands behind its body.
#[must_use]
pub fn belongs_in_head(name: &HeaderName) -> bool {
    NEVER.contains(name)
}

/// The names that a head announces.
pub(super) fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    members(headers, &TRAILER)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| !belongs_in_head(name))
        .collect()
}

pub(super) fn push(lines: &mut Vec<u8>, byte: u8) -> Result<(), Broken> {
    if lines.len() >= MOST.0 {
        return Err(Broken::NotHttp("trailers over 16 KiB"));
    }
    lines.push(byte);
    Ok(())
}

/// The fields of these lines, each with its end.
pub(super) fn read(lines: &[u8]) -> Result<Option<HeaderMap>, Broken> {
    let wrong = || Broken::NotHttp("invalid trailers");
    if lines.is_empty() {
        return Ok(None);
    }
    let mut fields = [EMPTY_HEADER; MOST.1];
    let text = [lines, b"\r\n"].concat();
    let Ok(Status::Complete((_, fields))) = httparse::parse_headers(&text, &mut fields) else {
        return Err(wrong());
    };
    let mut found = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(wrong());
        };
        found.append(name, value);
    }
    Ok(Some(found))
}
