//! Values that are names, choices or address ranges.

use super::settings::{Audience, Expose, Headline, SourceKind};
use super::value::{Format, OffOr, entries};
use crate::kv::Role;
use http::HeaderName;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// A source's name.
#[derive(Clone, Debug)]
pub(super) struct SourceName(pub(super) Arc<str>);

/// The name of a header that kvgauge writes; `None` is off.
#[derive(Clone, Debug)]
pub(super) struct HeaderField(pub(super) Option<HeaderName>);

/// A Prometheus label name.
#[derive(Clone, Debug)]
pub(super) struct LabelName(pub(super) Arc<str>);

/// Address ranges.
#[derive(Clone, Debug)]
pub(super) struct Ranges(pub(super) Vec<IpNet>);

/// Headers that mean something to clients, caches or connections (RFC 9110, RFC 9111, RFC 9112,
/// RFC 6265): a value of ours in one of them would break the answer that it stands in.
const RESERVED_HEADERS: [&str; 43] = [
    "age",
    "allow",
    "alt-svc",
    "authorization",
    "cache-control",
    "clear-site-data",
    "connection",
    "cookie",
    "date",
    "endpoint-load-metrics",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "origin",
    "pragma",
    "range",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-accel-buffering",
    "x-content-type-options",
    "x-frame-options",
    "x-powered-by",
    "x-request-id",
];

/// Whole families of such headers.
const RESERVED_HEADER_STARTS: [&str; 7] = [
    "accept",
    "access-control-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "x-forwarded-",
];

/// Labels that Prometheus sets or that the text format gives a meaning, and those of kvgauge's own
/// families: the same name twice in one series is no valid series.
const RESERVED_LABELS: [&str; 14] = [
    "code", "instance", "job", "le", "method", "model", "outcome", "quantile", "queue", "reason",
    "role", "route", "type", "version",
];

/// The engines that a page can be read as; `engine::names` has the same, and a test compares them.
pub const ENGINES: &[&str] = &[
    "sglang", "vllm", "trtllm", "triton", "tgi", "llamacpp", "lmdeploy", "nim", "mindie", "dynamo",
];

/// What a source's page is read as: one of [`ENGINES`], or a mapping's name.
#[derive(Clone, Debug)]
pub(super) struct EngineName(pub(super) Arc<str>);

/// A file's path.
#[derive(Clone, Debug)]
pub(super) struct FilePath(pub(super) Arc<Path>);

/// The most bytes of a path.
const MAX_PATH: usize = 4096;

/// The most bytes of a name.
const MAX_NAME: usize = 128;

/// The role that a name says: `decode`, or `decode` with a number (`decode1`, `decode-1`).
pub(super) fn role_in(name: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| {
        name.strip_prefix(role.as_str()).is_some_and(|rest| {
            let digits = rest.strip_prefix(['-', '_', '.', ':']).unwrap_or(rest);
            rest.is_empty() || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        })
    })
}

// === impl Format ===

impl Format for SourceName {
    const ALLOWED: &'static str = "1 to 128 of the characters a-z A-Z 0-9 _ . : -";

    fn read(text: &str) -> Result<Self, String> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
        if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(fine) {
            return Err("is no name of a source".to_owned());
        }
        if text == "kvgauge" {
            return Err("is what kvgauge's own series are called".to_owned());
        }
        Ok(SourceName(Arc::from(text)))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

impl Format for EngineName {
    const ALLOWED: &'static str =
        "the name of an engine, or of a mapping [engine.NAME]: 1 to 128 of a-z A-Z 0-9 _ -";

    fn read(text: &str) -> Result<Self, String> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(fine) {
            return Err("is no name of an engine".to_owned());
        }
        Ok(EngineName(Arc::from(text)))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

impl OffOr for EngineName {
    const OFF_OR: &'static str = "\"off\", or the name of an engine, or of a mapping [engine.NAME]: 1 to 128 of a-z A-Z 0-9 _ -";
}

impl OffOr for FilePath {
    const OFF_OR: &'static str = "\"off\", or the path of a file";
}

impl Format for SourceKind {
    const ALLOWED: &'static str = "\"metrics\", \"sglang-loads\" or \"auto\"";

    fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "metrics" => Ok(SourceKind::Metrics),
            "sglang-loads" => Ok(SourceKind::SglangLoads),
            "auto" => Ok(SourceKind::Auto),
            _ => Err("is nothing that can be read of a source".to_owned()),
        }
    }

    fn write(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Format for FilePath {
    const ALLOWED: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, String> {
        let bad = |c: char| c.is_control();
        if text.is_empty() || text.len() > MAX_PATH || text.contains(bad) {
            return Err("is no path of a file".to_owned());
        }
        Ok(FilePath(Arc::from(Path::new(text))))
    }

    fn write(&self) -> String {
        self.0.display().to_string()
    }
}

impl Format for Role {
    const ALLOWED: &'static str =
        "\"decode\", \"prefill\" or \"unified\" (a router has none: leave it out)";

    fn read(text: &str) -> Result<Self, String> {
        text.to_ascii_lowercase()
            .parse()
            .map_err(|()| "is no role".to_owned())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Format for HeaderField {
    const ALLOWED: &'static str =
        "a header name of your own such as \"x-kv-usage\", or \"\" for off";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(HeaderField(None));
        }
        let name = match HeaderName::try_from(text) {
            Ok(name) if text.len() <= MAX_NAME => name,
            _ => return Err("is no name of a header".to_owned()),
        };
        let start = |s: &&str| name.as_str().starts_with(s);
        if RESERVED_HEADERS.contains(&name.as_str()) || RESERVED_HEADER_STARTS.iter().any(start) {
            return Err("means something to clients or caches already".to_owned());
        }
        Ok(HeaderField(Some(name)))
    }

    fn write(&self) -> String {
        self.0.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

impl Format for LabelName {
    const ALLOWED: &'static str =
        "a label name such as \"source\" (a letter or _, then letters, digits and _)";

    fn read(text: &str) -> Result<Self, String> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let digit = text.starts_with(|c: char| c.is_ascii_digit());
        if text.is_empty() || text.len() > MAX_NAME || digit || !text.bytes().all(fine) {
            return Err("is no label name".to_owned());
        }
        if text.starts_with("__") || text.starts_with("exported_") {
            return Err("starts as the labels do that Prometheus makes itself".to_owned());
        }
        if RESERVED_LABELS.contains(&text) {
            return Err("has a meaning of its own in Prometheus or in kvgauge's series".to_owned());
        }
        Ok(LabelName(Arc::from(text)))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

/// One range, or one address as the range that holds it alone. A range of IPv4 that is written in IPv6
/// (`::ffff:10.0.0.0/104`, RFC 4291, 2.5.5.2) is meant as one of IPv4, as clients' addresses are.
fn range(text: &str) -> Option<IpNet> {
    let range = text.parse().ok();
    let range = range.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    let mapped = match range {
        IpNet::V6(range) => range.addr().to_ipv4_mapped(),
        IpNet::V4(_) => None,
    };
    let prefix = range.prefix_len().checked_sub(96);
    let plain = mapped.zip(prefix);
    let plain = plain.and_then(|(addr, prefix)| IpNet::new(addr.into(), prefix).ok());
    Some(plain.unwrap_or(range))
}

fn ranges(text: &str) -> Result<Vec<IpNet>, String> {
    let read = |entry| range(entry).ok_or_else(|| "is no list of address ranges".to_owned());
    entries(text).map(read).collect()
}

fn list(ranges: &[IpNet]) -> String {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

impl Format for Ranges {
    const ALLOWED: &'static str = "address ranges such as \"10.0.0.0/8, ::1\", or \"\" for none";
    const LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        ranges(text).map(Ranges)
    }

    fn write(&self) -> String {
        list(&self.0)
    }
}

impl Format for Audience {
    const ALLOWED: &'static str = "\"all\", or address ranges such as \"10.0.0.0/8, ::1\"";
    const LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("all") {
            return Ok(Audience::All);
        }
        match ranges(text)? {
            none if none.is_empty() => Err(
                "is nobody (to write no headers at all, set headers.usage and headers.pools to \"\")"
                    .to_owned(),
            ),
            some => Ok(Audience::Ranges(some)),
        }
    }

    fn write(&self) -> String {
        match self {
            Audience::All => "all".to_owned(),
            Audience::Ranges(ranges) => list(ranges),
        }
    }
}

impl Format for Headline {
    const ALLOWED: &'static str = "\"auto\", \"decode\", \"prefill\", \"unified\" or \"fullest\"";

    fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Headline::Auto),
            "fullest" => Ok(Headline::Fullest),
            role => match role.parse() {
                Ok(role) => Ok(Headline::Role(role)),
                Err(()) => Err("is no role".to_owned()),
            },
        }
    }

    fn write(&self) -> String {
        match self {
            Headline::Auto => "auto".to_owned(),
            Headline::Fullest => "fullest".to_owned(),
            Headline::Role(role) => role.to_string(),
        }
    }
}

impl Format for Expose {
    const ALLOWED: &'static str = "\"all\", \"kv\" or \"none\"";

    fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "all" => Ok(Expose::All),
            "kv" => Ok(Expose::Kv),
            "none" => Ok(Expose::None),
            _ => Err("is nothing that can be exposed".to_owned()),
        }
    }

    fn write(&self) -> String {
        match self {
            Expose::All => "all".to_owned(),
            Expose::Kv => "kv".to_owned(),
            Expose::None => "none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ipv4_is_one_however_it_is_written() {
        for (text, meant) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3", Some("10.1.2.3/32")),
            // Wider than all of IPv4.
            ("::ffff:10.0.0.0/90", Some("::ffff:10.0.0.0/90")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("here", None),
        ] {
            let range = range(text).map(|range| range.to_string());
            assert_eq!(range.as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn a_name_that_is_a_role_or_a_numbered_one_says_its_role() {
        for (name, role) in [
            ("decode", Some(Role::Decode)),
            ("decode1", Some(Role::Decode)),
            ("prefill-12", Some(Role::Prefill)),
            ("unified_0", Some(Role::Unified)),
            ("router", None),
            ("decode-", None),
            ("decode-router", None),
            ("decoder", None),
            ("my-decode", None),
            ("Decode", None),
        ] {
            assert_eq!(role_in(name), role, "{name}");
        }
    }

    #[test]
    fn headers_that_mean_something_are_refused() {
        for name in RESERVED_HEADERS.into_iter().chain([
            "Content-Length",
            "Access-Control-Allow-Origin",
            "X-Forwarded-For",
            "proxy-connection",
        ]) {
            let error = HeaderField::read(name).unwrap_err();
            assert_eq!(
                error, "means something to clients or caches already",
                "{name}"
            );
        }
        for name in ["x kv", "x:", "ü", "x\r\ny"] {
            assert_eq!(
                HeaderField::read(name).unwrap_err(),
                "is no name of a header"
            );
        }
        assert_eq!(HeaderField::read("").unwrap().0, None);
        assert_eq!(HeaderField::read("X-My-KV").unwrap().write(), "x-my-kv");
    }

    #[test]
    fn labels_that_mean_something_are_refused() {
        for (name, why) in [
            ("", "is no label name"),
            ("9a", "is no label name"),
            ("a-b", "is no label name"),
            ("a:b", "is no label name"),
            (
                "__name__",
                "starts as the labels do that Prometheus makes itself",
            ),
            (
                "exported_source",
                "starts as the labels do that Prometheus makes itself",
            ),
            (
                "le",
                "has a meaning of its own in Prometheus or in kvgauge's series",
            ),
            (
                "job",
                "has a meaning of its own in Prometheus or in kvgauge's series",
            ),
        ] {
            assert_eq!(LabelName::read(name).unwrap_err(), why, "{name}");
        }
        assert_eq!(&*LabelName::read("origin_1").unwrap().0, "origin_1");
    }

    #[test]
    fn an_address_is_a_range_of_one() {
        let seen = Ranges::read("10.0.0.0/8, ::1,127.0.0.1").unwrap();
        assert_eq!(seen.write(), "10.0.0.0/8, ::1/128, 127.0.0.1/32");
        assert!(Ranges::read("").unwrap().0.is_empty());
        assert!(Ranges::read("10.0.0.0/8,,::1").is_err());
        assert!(Ranges::read("10.0.0.0/33").is_err());
        assert!(Audience::read("").is_err());
        assert_eq!(Audience::read("ALL"), Ok(Audience::All));
    }
}
