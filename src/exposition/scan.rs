//! Finding things in bytes: names, the ends of label values, numbers.

/// Byte classes, so that one table look-up answers "may this stand in a name?".
const NAME: u8 = 1;
const NAME_START: u8 = 2;
const LABEL: u8 = 4;
const LABEL_START: u8 = 8;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        if b.is_ascii_alphabetic() || b == b'_' {
            table[i] = NAME | NAME_START | LABEL | LABEL_START;
        } else if b == b':' {
            table[i] = NAME | NAME_START;
        } else if b.is_ascii_digit() {
            table[i] = NAME | LABEL;
        }
        i += 1;
    }
    table
}

/// The end of the metric name that begins at `at`; `at` itself where there is none.
#[inline]
pub(super) fn metric_name_end(b: &[u8], at: usize) -> usize {
    run(b, at, NAME_START, NAME)
}

/// The end of the label name that begins at `at`; `at` itself where there is none.
#[inline]
pub(super) fn label_name_end(b: &[u8], at: usize) -> usize {
    run(b, at, LABEL_START, LABEL)
}

#[inline]
fn run(b: &[u8], at: usize, first: u8, rest: u8) -> usize {
    match b.get(at) {
        Some(c) if CLASS[usize::from(*c)] & first != 0 => {}
        _ => return at,
    }
    let tail = &b[at + 1..];
    let len = tail.iter().position(|c| CLASS[usize::from(*c)] & rest == 0);
    at + 1 + len.unwrap_or(tail.len())
}

/// Whether classic text 0.0.4 can carry this metric name (`[a-zA-Z_:][a-zA-Z0-9_:]*`).
pub(super) fn is_metric_name(name: &str) -> bool {
    !name.is_empty() && metric_name_end(name.as_bytes(), 0) == name.len()
}

/// Whether classic text 0.0.4 can carry this label name (`[a-zA-Z_][a-zA-Z0-9_]*`).
pub(super) fn is_label_name(name: &str) -> bool {
    !name.is_empty() && label_name_end(name.as_bytes(), 0) == name.len()
}

/// The first position from `at` on that holds no blank.
#[inline]
pub(super) fn skip_blanks(b: &[u8], mut at: usize) -> usize {
    while matches!(b.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    at
}

/// The first position from `at` on that holds a blank, or the end.
#[inline]
pub(super) fn token_end(b: &[u8], at: usize) -> usize {
    memchr::memchr2(b' ', b'\t', &b[at..]).map_or(b.len(), |n| at + n)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Eight times the byte that ends a string, the one that escapes, and the one after a name.
const QUOTES: u64 = ONES * 0x22;
const BACKSLASHES: u64 = ONES * 0x5c;
const EQUALS: u64 = ONES * 0x3d;

/// The top bit of each byte that is zero. Exact up to and including the lowest one.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

/// Eight bytes from `at` on.
#[inline]
fn word(b: &[u8], at: usize) -> Option<u64> {
    let chunk = b.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// The first `"` or `\` from `at` on. Label values are short, so eight bytes at a time in a register
/// beat a call into a vector search, which takes over for long ones.
#[inline]
pub(super) fn quote_or_backslash(b: &[u8], at: usize) -> Option<usize> {
    if let Some(word) = word(b, at) {
        let hits = zero_bytes(word ^ QUOTES) | zero_bytes(word ^ BACKSLASHES);
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
    }
    memchr::memchr2(b'"', b'\\', b.get(at..)?).map(|n| at + n)
}

/// The first `=` from `at` on, or the end.
#[inline]
pub(super) fn equals_sign(b: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(b, at) {
        let hits = zero_bytes(word ^ EQUALS);
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < b.len() && b[at] != b'=' {
        at += 1;
    }
    at
}

/// The closing quote of the string whose first byte is at `at`. Any escape is taken.
#[inline]
pub(super) fn string_end(b: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = quote_or_backslash(b, at)?;
        if b[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// How many bytes `a` and `b` begin with in common.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, b_words) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
    let mut at = 0;
    for (x, y) in a_words.iter().zip(b_words) {
        let differ = u128::from_le_bytes(*x) ^ u128::from_le_bytes(*y);
        if differ != 0 {
            return at + (differ.trailing_zeros() / 8) as usize;
        }
        at += 16;
    }
    let rest = a[at..].iter().zip(&b[at..]);
    at + rest.take_while(|(x, y)| x == y).count()
}

/// A whole text as a number: what Go's `ParseFloat` takes, which is what Prometheus uses. A number
/// too large for 64 bits is none there, and so none here.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let value: f64 = fast_float2::parse(text).ok()?;
    (!overflowed(value, text)).then_some(value)
}

/// Whether `value` is infinite although `text` writes digits.
pub(super) fn overflowed(value: f64, text: &[u8]) -> bool {
    value.is_infinite() && text.iter().any(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_find_what_bytes_find(text in "[a\"=\\\\\u{e9}\u{80}]{0,40}", other in "[a\"=]{0,40}", at in 0usize..44) {
            let b = text.as_bytes();
            let from = |wanted: &[u8]| b.iter().skip(at).position(|c| wanted.contains(c)).map(|n| n + at);
            prop_assert_eq!(quote_or_backslash(b, at), from(b"\"\\"));
            prop_assert_eq!(equals_sign(b, at), from(b"=").unwrap_or(b.len().max(at)));
            let same = b.iter().zip(other.as_bytes()).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(common_prefix(b, other.as_bytes()), same);
        }
    }

    #[test]
    fn numbers_are_those_of_go() {
        for (text, value) in [
            ("1", 1.0),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("1E3", 1000.0),
            ("Inf", f64::INFINITY),
        ] {
            assert_eq!(number(text.as_bytes()), Some(value), "{text}");
        }
        assert!(number(b"NaN").is_some_and(f64::is_nan));
        for text in ["", "x", "1x", "1e400", "-1e400", "0x10", "1_0", " 1", "."] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn names_are_those_of_classic_text() {
        for (name, metric, label) in [
            ("a", true, true),
            ("a:b_9", true, false),
            (":", true, false),
            ("_", true, true),
            ("9a", false, false),
            ("a.b", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                (is_metric_name(name), is_label_name(name)),
                (metric, label),
                "{name}"
            );
        }
    }
}
