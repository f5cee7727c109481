//! Which fields may stand behind a body: neither hyper nor [`crate::net`] passes on one that the
//! head's `Trailer` does not announce (RFC 9110, 6.6.2), so what must not come is not announced.

use super::headers::holds;
use crate::net::members;
use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Takes the names that are `kept_back`, and what is no name, out of `Trailer`. Where nothing is left
/// the header goes.
pub(super) fn withhold(headers: &mut HeaderMap, kept_back: impl Fn(&HeaderName) -> bool) {
    if !holds(headers, &TRAILER) {
        return;
    }
    let mut left: Vec<u8> = Vec::new();
    let mut same = true;
    for member in members(headers, &TRAILER) {
        match HeaderName::from_bytes(member) {
            Ok(name) if !kept_back(&name) => {
                if !left.is_empty() {
                    left.extend_from_slice(b", ");
                }
                left.extend_from_slice(member);
            }
            _ => same = false,
        }
    }
    if same {
        return;
    }
    headers.remove(TRAILER);
    if let (false, Ok(left)) = (left.is_empty(), HeaderValue::from_bytes(&left)) {
        headers.insert(TRAILER, left);
    }
}
