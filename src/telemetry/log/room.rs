//! Room for a line, looked for once: what is written into it makes no call to find more, and pieces of a
//! known length are copied without one. A line has some sixty pieces, most of them a few bytes.

/// The most that a text may take of a line for each of its bytes: a control character becomes `\u0001`.
pub(super) const MOST_ESCAPED: usize = 6;

/// What is left of the room. What there is no room for is left out, so there must be enough.
pub(super) struct Room<'a>(&'a mut [u8]);

impl<'a> Room<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Room<'a> {
        Room(bytes)
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    /// Copies as they are. Inlined, so that no call is made for what has a known length.
    #[inline(always)]
    pub(super) fn put(&mut self, piece: &[u8]) {
        if let Some(place) = self.0.split_off_mut(..piece.len()) {
            place.copy_from_slice(piece);
        }
    }

    /// A JSON string. What needs no escaping, nearly everything, is copied as it is.
    #[inline(always)]
    pub(super) fn put_text(&mut self, text: &str) {
        if is_plain(text.as_bytes()) {
            self.put(b"\"");
            self.put(text.as_bytes());
            self.put(b"\"");
        } else {
            *self = escaped(Room(std::mem::take(&mut self.0)), text);
        }
    }

    /// A number in decimal.
    #[inline(always)]
    pub(super) fn put_number(&mut self, number: u64) {
        match u16::try_from(number) {
            // All four places are written, those in front shifted out. What is then behind is written over.
            Ok(number @ ..10_000) => {
                let digits = four_digits(number);
                let zeros = (digits.trailing_zeros() / 8).min(3);
                if let Some(place) = self.0.first_chunk_mut() {
                    *place = ((digits | ZEROS) >> (8 * zeros)).to_le_bytes();
                    let _ = self.0.split_off_mut(..4 - zeros as usize);
                }
            }
            _ => self.put(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    /// Thousandths in decimal, as such: `1.234`.
    #[inline(always)]
    pub(super) fn put_thousandths(&mut self, number: u64) {
        self.put_number(number / 1000);
        let [_, a, b, c] = four_places((number % 1000) as u16);
        self.put(&[b'.', a, b, c]);
    }
}

/// Not inlined, and given the room rather than lent it: so the rest need not keep it in memory.
#[cold]
fn escaped<'a>(mut room: Room<'a>, text: &str) -> Room<'a> {
    if serde_json::to_writer(&mut room.0, text).is_err() {
        room.put(b"null");
    }
    room
}

/// The digit zero, four times.
const ZEROS: u32 = u32::from_le_bytes(*b"0000");

/// A number below 10,000 as four digits, the first in the lowest byte.
fn four_digits(number: u16) -> u32 {
    let (hundreds, rest) = (u32::from(number / 100), u32::from(number % 100));
    // Both halves at once, of sixteen bits each: 103 / 1024 is near enough to a tenth below 100.
    let halves = hundreds | (rest << 16);
    let tens = ((halves * 103) >> 10) & 0x000F_000F;
    tens | ((halves - tens * 10) << 8)
}

/// A number below 10,000 as it is written, zeros in front.
pub(super) fn four_places(number: u16) -> [u8; 4] {
    (four_digits(number) | ZEROS).to_le_bytes()
}

/// Whether nothing of a text has to be escaped in JSON. Eight bytes are looked at at once; the last ones
/// overlap with those before.
fn is_plain(text: &[u8]) -> bool {
    let (words, _) = text.as_chunks::<8>();
    let mut found = to_escape(last_word(text));
    for word in words {
        found |= to_escape(u64::from_ne_bytes(*word));
    }
    found & HIGH_BITS == 0
}

/// The end of a text, filled up where it is shorter.
fn last_word(text: &[u8]) -> u64 {
    if let Some(last) = text.last_chunk() {
        return u64::from_ne_bytes(*last);
    }
    let spaces = ONES * u64::from(b' ');
    text.iter()
        .fold(spaces, |word, byte| (word << 8) | u64::from(*byte))
}

/// Bytes of one.
const ONES: u64 = u64::MAX / 0xFF;

/// Each byte's high bit.
const HIGH_BITS: u64 = ONES << 7;

/// Sets a high bit if one of the bytes is a quote, a backslash or a control character.
#[inline(always)]
fn to_escape(word: u64) -> u64 {
    // A byte that is smaller than what is taken from it borrows, which its high bit shows. What is
    // borrowed may show in the next one too, but only where one was found.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit));
    let equals = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, b' ') | equals(b'"') | equals(b'\\')) & !word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Room<'_>)) -> String {
        let mut bytes = [b'#'; 100];
        let mut room = Room::new(&mut bytes);
        write(&mut room);
        let used = 100 - room.left();
        String::from_utf8(bytes[..used].to_vec()).unwrap()
    }

    #[test]
    fn numbers_are_written_as_they_are_everywhere() {
        let around = |n: u64| [n.saturating_sub(1), n, n.saturating_add(1)];
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        for n in powers.chain([0, 200, 65_536, u64::MAX]).flat_map(around) {
            assert_eq!(written(|room| room.put_number(n)), n.to_string());
            let thousandths = format!("{}.{:03}", n / 1000, n % 1000);
            assert_eq!(written(|room| room.put_thousandths(n)), thousandths);
        }
    }

    #[test]
    fn small_numbers_are_written_right_all_of_them() {
        for n in 0..10_000 {
            assert_eq!(four_places(n), format!("{n:04}").as_bytes());
            assert_eq!(written(|room| room.put_number(n.into())), n.to_string());
        }
    }

    #[test]
    fn what_has_to_be_escaped_is_found_wherever_it_stands() {
        for length in 0..70 {
            let plain = vec![b'~'; length];
            assert!(is_plain(&plain), "{length}");
            for place in 0..length {
                for (byte, is_found) in [
                    (b'"', true),
                    (b'\\', true),
                    (0, true),
                    (0x1F, true),
                    (b' ', false),
                    (0x7F, false),
                    (0x80, false),
                    (0xA2, false),
                    (0xFF, false),
                ] {
                    let mut text = plain.clone();
                    text[place] = byte;
                    assert_eq!(is_plain(&text), !is_found, "{byte} at {place} of {length}");
                }
            }
        }
    }

    #[test]
    fn text_is_what_serde_makes_of_it() {
        for text in [
            "",
            "a",
            "a\"b",
            "\u{1}\\\n\u{7f}é\u{2028}",
            "seventeen letters",
        ] {
            let expected = serde_json::to_string(text).unwrap();
            assert_eq!(written(|room| room.put_text(text)), expected);
        }
    }
}
