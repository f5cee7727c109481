//! Looking for several headers at once. A message has few headers, and comparing known names costs a
//! byte or two each, where a look-up hashes: one pass is cheaper than a look-up for every name.

use crate::net::members;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Which of the fields that a hop looks for are in a head: what is not there, as most are not, need not be
/// looked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held(u32);

macro_rules! held {
    ($($bit:ident = $at:literal, $name:literal;)*) => {
        impl Held {
            $(
                #[doc = concat!("`", $name, "`")]
                pub(super) const $bit: Held = Held(1 << $at);
            )*

            fn one(name: &HeaderName) -> Held {
                $(
                    if *name == const { HeaderName::from_static($name) } {
                        return Held::$bit;
                    }
                )*
                Held::NOTHING
            }
        }
    };
}

held! {
    CONNECTION = 0, "connection";
    KEEP_ALIVE = 1, "keep-alive";
    PROXY_CONNECTION = 2, "proxy-connection";
    TE = 3, "te";
    TRANSFER_ENCODING = 4, "transfer-encoding";
    UPGRADE = 5, "upgrade";
    TRAILER = 6, "trailer";
    EXPECT = 7, "expect";
    FORWARDED_FOR = 8, "x-forwarded-for";
    FORWARDED_PROTO = 9, "x-forwarded-proto";
    FORWARDED_HOST = 10, "x-forwarded-host";
}

impl Held {
    pub(super) const NOTHING: Held = Held(0);

    /// Of a head.
    pub(super) fn of(headers: &HeaderMap) -> Held {
        headers
            .keys()
            .fold(Held::NOTHING, |held, name| held.or(Held::one(name)))
    }

    pub(super) const fn or(self, other: Held) -> Held {
        Held(self.0 | other.0)
    }

    /// Whether one of these is there.
    pub(super) const fn any(self, of: Held) -> bool {
        self.0 & of.0 != 0
    }
}

/// The first line of a field that is rarely there.
#[inline]
pub(super) fn first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    holds(headers, name).then(|| headers.get(name)).flatten()
}

/// The first line of a field that is usually there, and not far behind.
#[inline]
pub(super) fn usual<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = headers.iter();
    lines.find(|(held, _)| *held == name).map(|(_, line)| line)
}

/// Whether a field that is there has more than one line.
#[inline]
pub(super) fn repeats(headers: &HeaderMap, name: &HeaderName) -> bool {
    // Most heads repeat no name at all.
    headers.len() > headers.keys_len() && headers.get_all(name).iter().nth(1).is_some()
}

/// A copy: a value that was read from a socket is a part of what its head came in, hyper's 8 KiB or a whole
/// head, and would hold that for as long as the stream runs.
pub(super) fn of_its_own(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone())
}

/// Whether a token stands in a list header (RFC 9110, 5.6.1), in any of its lines and in any case.
pub(super) fn lists(headers: &HeaderMap, name: &HeaderName, token: &[u8]) -> bool {
    holds(headers, name) && members(headers, name).any(|item| item.eq_ignore_ascii_case(token))
}

/// Whether a field is there.
#[inline]
pub(super) fn holds(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|held| held == name)
}

/// Removes whichever of these are there.
pub(super) fn remove_all(headers: &mut HeaderMap, names: &[HeaderName]) {
    while let Some(name) = headers.keys().find(|name| names.contains(name)) {
        let name = name.clone();
        headers.remove(name);
    }
}
