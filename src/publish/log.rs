//! The log's `kv.start.…` and `kv.end.…` members: the headline, and every role in short.

use super::{millis, usage};
use crate::kv::RoleState;

/// Members under `prefix`, without braces. Unknown is null.
pub(super) fn render(prefix: &str, headline: Option<&RoleState>) -> Vec<u8> {
    let mut out = Vec::with_capacity(200);
    let usage = usage::render(headline);
    member(&mut out, prefix, "usage", usage.as_deref());
    let number = |n: Option<u64>| n.map(|n| n.to_string());
    for (name, value) in [
        ("used", headline.and_then(|h| h.used)),
        ("capacity", headline.and_then(|h| h.capacity)),
        ("running", headline.and_then(|h| h.running)),
        ("queued", headline.and_then(|h| h.queued)),
        ("age_ms", headline.and_then(|h| h.age).map(millis)),
    ] {
        member(&mut out, prefix, name, number(value).as_deref());
    }
    out
}

/// Appends `kv.start.pools`.
pub(super) fn append_pools(out: &mut Vec<u8>, pools: Option<&str>) {
    out.extend_from_slice(b",\"kv.start.pools\":");
    if serde_json::to_writer(&mut *out, &pools).is_err() {
        out.extend_from_slice(b"null");
    }
}

fn member(out: &mut Vec<u8>, prefix: &str, name: &str, value: Option<&str>) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value.unwrap_or("null").as_bytes());
}
