//! JSON as engines nearly always write it: objects of numbers, strings of printable ASCII without an
//! escape, `true`, `false`, `null`, and such objects. Read here it costs a fraction of what serde takes,
//! which reads all other JSON: `None` means no more than that.

use super::text;

/// A member's value, as far as anyone asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A whole number without a sign, that fits.
    Count(u64),
    /// An object.
    Object,
    /// `null`.
    Null,
    /// Anything else.
    Other,
}

impl Value {
    pub(super) fn count(self) -> Option<u64> {
        match self {
            Value::Count(count) => Some(count),
            _ => None,
        }
    }
}

/// Reads the members of the object that the text begins with, and gives what stands behind it. `name`
/// reads a name from behind its first quote to behind its last one; `member` is told that name, the
/// value, and of an object the members and what comes then: it gives what stands behind the value.
#[inline(always)]
pub(super) fn members<'a, N>(
    text: &'a [u8],
    name: impl Fn(&'a [u8]) -> Option<(N, &'a [u8])>,
    mut member: impl FnMut(N, Value, &'a [u8]) -> Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    let mut rest = behind(b'{', text)?;
    if let Some(rest) = behind(b'}', rest) {
        return Some(rest);
    }
    loop {
        let (name, after) = name(behind(b'"', rest)?)?;
        let (value, after) = read(behind(b':', after)?)?;
        let after = member(name, value, after)?;
        match behind(b',', after) {
            Some(next) => rest = next,
            None => return behind(b'}', after),
        }
    }
}

/// What stands behind the object that the text begins with.
pub(super) fn behind_object(text: &[u8]) -> Option<&[u8]> {
    // Of objects in objects only so many, as each takes its part of the stack.
    fn at(text: &[u8], depth: u8) -> Option<&[u8]> {
        let name = |inside| Some(((), text::plain(inside)?.1));
        members(text, name, |(), value, rest| match value {
            Value::Object => at(rest, depth.checked_sub(1)?),
            _ => Some(rest),
        })
    }
    at(text, MOST_DEPTH)
}

const MOST_DEPTH: u8 = 16;

/// The text of a string, all of it ASCII, and what stands behind it.
#[inline]
pub(super) fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    text::plain(behind(b'"', text)?)
}

/// A value, and what stands behind it; an object as it stands.
#[inline(always)]
fn read(text: &[u8]) -> Option<(Value, &[u8])> {
    match text {
        [b'0'..=b'9', ..] => number(text),
        [b'{', ..] => Some((Value::Object, text)),
        [b'"', rest @ ..] => Some((Value::Other, text::plain(rest)?.1)),
        _ => rare(text),
    }
}

fn rare(text: &[u8]) -> Option<(Value, &[u8])> {
    match text {
        [b'n', b'u', b'l', b'l', rest @ ..] => Some((Value::Null, rest)),
        [b't', b'r', b'u', b'e', rest @ ..] => Some((Value::Other, rest)),
        [b'f', b'a', b'l', b's', b'e', rest @ ..] => Some((Value::Other, rest)),
        [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] => {
            let rest = without_blanks(rest);
            (!rest.is_empty()).then(|| read(rest)).flatten()
        }
        _ => None,
    }
}

/// A number without a sign or an exponent.
#[inline(always)]
fn number(text: &[u8]) -> Option<(Value, &[u8])> {
    let mut count: u64 = 0;
    let mut len = 0;
    while let Some(digit @ b'0'..=b'9') = text.get(len) {
        count = count.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        len += 1;
    }
    // More digits may not fit, and a leading zero is none of JSON's.
    if len > 19 || (len > 1 && text[0] == b'0') {
        return None;
    }
    let rest = &text[len..];
    match rest {
        [b',' | b'}', ..] => Some((Value::Count(count), rest)),
        _ => number_ends(count, rest),
    }
}

/// A number whose whole part is read.
fn number_ends(count: u64, rest: &[u8]) -> Option<(Value, &[u8])> {
    match rest {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit());
            let (digits, rest) = fraction.split_at(digits.count());
            let ends = !digits.is_empty() && !matches!(rest, [b'e' | b'E', ..]);
            ends.then_some((Value::Other, rest))
        }
        [b'e' | b'E', ..] => None,
        _ => Some((Value::Count(count), rest)),
    }
}

/// What stands behind this byte, which blanks may stand before.
#[inline(always)]
fn behind(byte: u8, text: &[u8]) -> Option<&[u8]> {
    match text {
        [first, rest @ ..] if *first == byte => Some(rest),
        [0..=b' ', ..] => without_blanks(text).strip_prefix(&[byte]),
        _ => None,
    }
}

#[inline]
pub(super) fn without_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = text {
        text = rest;
    }
    text
}
