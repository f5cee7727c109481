//! Looking for several headers at once. A message has few headers, and comparing known names costs a
//! byte or two each, where a look-up hashes: one pass is cheaper than a look-up for every name.

use crate::net::members;
use http::{HeaderMap, HeaderName};

/// Whether a token stands in a list header (RFC 9110, 5.6.1), in any of its lines and in any case.
pub(super) fn lists(headers: &HeaderMap, name: &HeaderName, token: &[u8]) -> bool {
    holds_any(headers, std::slice::from_ref(name))
        && members(headers, name).any(|item| item.eq_ignore_ascii_case(token))
}

/// Whether any of these is there.
pub(super) fn holds_any(headers: &HeaderMap, names: &[HeaderName]) -> bool {
    headers.keys().any(|name| names.contains(name))
}

/// Removes whichever of these are there.
pub(super) fn remove_all(headers: &mut HeaderMap, names: &[HeaderName]) {
    while let Some(name) = headers.keys().find(|name| names.contains(name)) {
        let name = name.clone();
        headers.remove(name);
    }
}
