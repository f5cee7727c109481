//! Strings of a JSON text.

use memchr::memchr2;

/// What stands behind the string that `inside` begins in; `None` where its end is not there.
#[inline(always)]
pub(super) fn behind(inside: &[u8]) -> Option<&[u8]> {
    let mut rest = inside;
    // `memchr` costs more than most strings are long.
    for _ in 0..SHORT_WORDS {
        let Some(word) = rest.first_chunk() else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        let hits = quotes_and_backslashes(word);
        if hits != 0 {
            let bit = hits.trailing_zeros() & !7;
            if (word >> bit) & 0xFF != u64::from(b'"') {
                break;
            }
            return rest.get(bit as usize / 8 + 1..);
        }
        rest = &rest[8..];
    }
    behind_long(rest)
}

/// [`behind`], not inlined.
#[inline(never)]
pub(super) fn far_behind(inside: &[u8]) -> Option<&[u8]> {
    behind(inside)
}

/// As [`behind`], for what is long or escaped, or where the piece ends soon.
#[inline(never)]
fn behind_long(mut inside: &[u8]) -> Option<&[u8]> {
    loop {
        let at = memchr2(b'"', b'\\', inside)?;
        if inside[at] == b'"' {
            return inside.get(at + 1..);
        }
        inside = inside.get(at + 2..)?;
    }
}

/// Of a string whose end is not there: whether what is there ends behind a backslash that takes the next
/// byte with it.
pub(super) fn is_cut_in_escape(inside: &[u8]) -> bool {
    inside.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// A string without an escape, of printable ASCII, and what stands behind it; `None` for any other.
pub(super) fn plain(inside: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0;
    loop {
        let rest = inside.get(len..)?;
        let word = match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            // Zeros, which are not printable, stand for what is missing.
            None => {
                let mut word = [0; 8];
                word[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(word)
            }
        };
        let hits = quotes_and_backslashes(word);
        let before_hit = (hits & hits.wrapping_neg()).wrapping_sub(1);
        let unprintable = (word | word.wrapping_sub(ONES * u64::from(b' '))) & HIGH;
        if unprintable & before_hit != 0 {
            return None;
        }
        if hits != 0 {
            len += hits.trailing_zeros() as usize / 8;
            let (text, behind) = inside.split_at_checked(len)?;
            return Some((text, behind.strip_prefix(b"\"")?));
        }
        len += 8;
    }
}

const SHORT_WORDS: usize = 3;
const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGH: u64 = ONES << 7;

/// The highest bit of the first byte that is one of both, of eight looked at in one go: taking one from a
/// byte borrows where it is zero. What a borrow spoils lies behind the first.
#[inline]
fn quotes_and_backslashes(word: u64) -> u64 {
    let zero = |other: u64| other.wrapping_sub(ONES) & !other & HIGH;
    zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_string_ends_at_its_first_quote_that_is_not_escaped() {
        for (inside, expected) in [
            (&b"abc\" \""[..], Some(&b" \""[..])),
            (b"\"", Some(b"")),
            (b"a\\\"b\\\\\",", Some(b",")),
            (b"", None),
            (b"abc", None),
            (b"abc\\\"", None),
        ] {
            assert_eq!(behind(inside), expected, "{inside:?}");
        }
        for (inside, expected) in [
            (&b""[..], false),
            (b"abc", false),
            (b"abc\\", true),
            (b"abc\\\\", false),
        ] {
            assert_eq!(is_cut_in_escape(inside), expected, "{inside:?}");
        }
    }

    proptest! {
        #[test]
        fn an_end_is_found_wherever_it_stands(
            inside in proptest::collection::vec(
                prop_oneof![
                    9 => any::<u8>(),
                    1 => Just(b'"'),
                    1 => Just(b'\\'),
                    // Neighbours of both, which a borrow could be taken for.
                    3 => prop_oneof![Just(b'!'), Just(b'#'), Just(b'['), Just(b']')],
                ],
                0..60,
            ),
        ) {
            let mut at = 0;
            while let Some(byte) = inside.get(at).filter(|b| **b != b'"') {
                at += if *byte == b'\\' { 2 } else { 1 };
            }
            prop_assert_eq!(behind(&inside), inside.get(at + 1..));
            if at >= inside.len() {
                prop_assert_eq!(is_cut_in_escape(&inside), at > inside.len());
            }
        }

        #[test]
        fn a_plain_string_is_printable_ascii(
            text in "[ -~]{0,30}",
            odd in proptest::option::of((0usize..30, any::<u8>())),
        ) {
            let mut inside = text.into_bytes();
            inside.extend(b"\" and on");
            if let Some((at, byte)) = odd {
                let at = at.min(inside.len() - 1);
                inside[at] = byte;
            }
            let end = inside.iter().position(|b| *b == b'"');
            let expected = end
                .map(|end| (&inside[..end], &inside[end + 1..]))
                .filter(|(text, _)| text.iter().all(|b| matches!(b, b' '..=0x7F) && *b != b'\\'));
            prop_assert_eq!(plain(&inside), expected);
        }
    }
}
