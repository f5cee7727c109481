//! JSON as engines nearly always write it: objects of numbers, strings of printable ASCII without an
//! escape, `true`, `false`, `null`, and such objects. Read here it costs a fraction of what serde takes,
//! which reads all other JSON: `None` means no more than that.

use super::text;

/// A member's value, as far as anyone asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A whole number without a sign, that fits.
    Count(u64),
    /// An object, whose members come next.
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

/// Calls `member` for each member of the object that the text is, and of those inside it, until it gives
/// `None`: how deep the member lies, its name, its value. `name` reads a name from behind its first quote
/// to behind its last one.
#[inline]
pub(super) fn members<'a, N>(
    text: &'a [u8],
    name: impl Fn(&'a [u8]) -> Option<(N, &'a [u8])>,
    mut member: impl FnMut(u32, N, Value) -> Option<()>,
) -> Option<()> {
    let mut depth = 0;
    let mut rest = behind(b'{', text)?;
    let mut is_empty = behind(b'}', rest).is_some();
    loop {
        if !is_empty {
            let (name, after) = name(behind(b'"', rest)?)?;
            let value;
            (value, rest) = read(without_blanks(behind(b':', after)?))?;
            member(depth, name, value)?;
            if value == Value::Object {
                depth += 1;
                is_empty = behind(b'}', rest).is_some();
                continue;
            }
        }
        is_empty = false;
        // Behind a value: on to the next name.
        loop {
            if let Some(next) = behind(b',', rest) {
                rest = next;
                break;
            }
            rest = behind(b'}', rest)?;
            let Some(outside) = depth.checked_sub(1) else {
                return without_blanks(rest).is_empty().then_some(());
            };
            depth = outside;
        }
    }
}

/// The text of a string.
pub(super) fn string(text: &[u8]) -> Option<&str> {
    let (string, rest) = text::plain(behind(b'"', text)?)?;
    let string = str::from_utf8(string).ok()?;
    without_blanks(rest).is_empty().then_some(string)
}

/// A value, and what stands behind it; of an object, behind its opening brace.
#[inline]
fn read(text: &[u8]) -> Option<(Value, &[u8])> {
    match text {
        [b'0'..=b'9', ..] => number(text),
        [b'{', rest @ ..] => Some((Value::Object, rest)),
        [b'"', rest @ ..] => Some((Value::Other, text::plain(rest)?.1)),
        [b'n', b'u', b'l', b'l', rest @ ..] => Some((Value::Null, rest)),
        [b't', b'r', b'u', b'e', rest @ ..] => Some((Value::Other, rest)),
        [b'f', b'a', b'l', b's', b'e', rest @ ..] => Some((Value::Other, rest)),
        _ => None,
    }
}

/// A number without a sign or an exponent.
#[inline]
fn number(text: &[u8]) -> Option<(Value, &[u8])> {
    let mut count: u64 = 0;
    let mut rest = text;
    while let [digit @ b'0'..=b'9', more @ ..] = rest {
        count = count.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        rest = more;
    }
    let digits = text.len() - rest.len();
    // More digits may not fit, and a leading zero is none of JSON's.
    if digits > 19 || (digits > 1 && text[0] == b'0') {
        return None;
    }
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
#[inline]
fn behind(byte: u8, text: &[u8]) -> Option<&[u8]> {
    match text {
        [first, rest @ ..] if *first == byte => Some(rest),
        [b' ' | b'\t' | b'\r' | b'\n', ..] => without_blanks(text).strip_prefix(&[byte]),
        _ => None,
    }
}

#[inline]
fn without_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = text {
        text = rest;
    }
    text
}
