//! Finds members of a JSON text's outermost object while the text flows past in pieces.
//!
//! Strings are skipped with `memchr`, so a prompt of megabytes costs little; only the values asked
//! for are kept, up to a bound. The text is not validated: a wrong text gives no member, or one
//! that does not parse later.

use memchr::memchr2;

/// A member's value as it stood in the text, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Member {
    /// Not seen.
    #[default]
    Absent,
    /// The value's text. Where a name stands twice, the last one.
    Value(Vec<u8>),
    /// Longer than the bound.
    TooLong,
}

/// See the [module](self) description.
#[derive(Debug)]
pub struct TopLevel<const N: usize> {
    names: [&'static str; N],
    found: [Member; N],
    most_bytes: usize,
    place: Place,
    /// Which member's value is being kept.
    keeping: Option<usize>,
    kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Before the outermost `{`.
    Before,
    /// Between members, where a name may begin.
    Between,
    /// Inside a name: its bytes so far, and how many (over-long or escaped names match nothing).
    Name {
        bytes: [u8; LONGEST_NAME],
        len: u8,
        escaped: bool,
    },
    /// After a name, before its colon.
    Colon(Option<u8>),
    /// Inside a value, `depth` brackets deep.
    Value { depth: u32 },
    /// Inside a string inside a value.
    Text { depth: u32, escaped: bool },
    /// Past the outermost `}`, or not an object at all.
    Over,
}

const LONGEST_NAME: usize = 16;

impl<const N: usize> TopLevel<N> {
    /// A scanner for these names (of at most 16 bytes), which keeps at most `most_bytes` of a value.
    #[must_use]
    pub fn new(names: [&'static str; N], most_bytes: usize) -> Self {
        TopLevel {
            names,
            found: std::array::from_fn(|_| Member::Absent),
            most_bytes,
            place: Place::Before,
            keeping: None,
            kept: Vec::new(),
        }
    }

    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        // Where the kept value begins in this piece, if one is being kept.
        let mut from = 0;
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            at = match self.place {
                Place::Over => return,
                Place::Before => {
                    self.place = match byte {
                        b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF => Place::Before,
                        b'{' => Place::Between,
                        _ => Place::Over,
                    };
                    at + 1
                }
                Place::Between => {
                    self.place = match byte {
                        b'"' => Place::Name {
                            bytes: [0; LONGEST_NAME],
                            len: 0,
                            escaped: false,
                        },
                        b'}' => Place::Over,
                        _ => Place::Between,
                    };
                    at + 1
                }
                Place::Name {
                    bytes,
                    len,
                    escaped,
                } => match self.whole_name(&piece[at..], len) {
                    Some(long) => at + long,
                    None => {
                        self.name(byte, bytes, len, escaped);
                        at + 1
                    }
                },
                Place::Colon(which) => {
                    if byte == b':' {
                        self.keeping = which.map(usize::from);
                        self.kept.clear();
                        self.place = Place::Value { depth: 0 };
                        from = at + 1;
                    }
                    at + 1
                }
                Place::Value { depth } => self.value(piece, at, depth, from),
                Place::Text { depth, escaped } => self.text(piece, at, depth, escaped),
            };
        }
        if matches!(self.place, Place::Value { .. } | Place::Text { .. }) {
            self.keep(piece.get(from..).unwrap_or_default());
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> [Member; N] {
        self.found
    }

    /// A name that stands whole in this piece, as nearly every one does, without an escape: how many
    /// bytes it takes, its closing quote included.
    fn whole_name(&mut self, piece: &[u8], len: u8) -> Option<usize> {
        // Looked for once a name, at its beginning: a search at every byte would be quadratic.
        if len > 0 {
            return None;
        }
        let end = memchr2(b'"', b'\\', piece).filter(|end| piece[*end] == b'"')?;
        self.place = Place::Colon(self.which(&piece[..end]));
        Some(end + 1)
    }

    fn which(&self, name: &[u8]) -> Option<u8> {
        let which = self.names.iter().position(|n| n.as_bytes() == name)?;
        u8::try_from(which).ok()
    }

    fn name(&mut self, byte: u8, mut bytes: [u8; LONGEST_NAME], mut len: u8, escaped: bool) {
        // A name with an escape, or a longer one, matches nothing: its length is past the bound.
        const NO_MATCH: u8 = u8::MAX;
        if byte == b'"' && !escaped {
            let name = bytes.get(..usize::from(len));
            self.place = Place::Colon(name.and_then(|name| self.which(name)));
            return;
        }
        if byte == b'\\' || escaped {
            len = NO_MATCH;
        } else if let Some(slot) = bytes.get_mut(usize::from(len)) {
            *slot = byte;
            len += 1;
        } else {
            len = NO_MATCH;
        }
        self.place = Place::Name {
            bytes,
            len,
            escaped: byte == b'\\' && !escaped,
        };
    }

    /// Outside of strings: on to the next string, or to the end of the value, which began at `from`.
    fn value(&mut self, piece: &[u8], at: usize, mut depth: u32, from: usize) -> usize {
        for (i, byte) in piece.iter().enumerate().skip(at) {
            match byte {
                b'"' => {
                    self.place = Place::Text {
                        depth,
                        escaped: false,
                    };
                    return i + 1;
                }
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' if depth > 0 => depth -= 1,
                b'}' | b',' if depth == 0 => {
                    self.keep(&piece[from..i]);
                    self.end_of_value();
                    self.place = if *byte == b',' {
                        Place::Between
                    } else {
                        Place::Over
                    };
                    return i + 1;
                }
                _ => {}
            }
        }
        self.place = Place::Value { depth };
        piece.len()
    }

    /// Inside a string: on to its end.
    fn text(&mut self, piece: &[u8], at: usize, depth: u32, escaped: bool) -> usize {
        let mut next = at + usize::from(escaped);
        while let Some(found) = piece.get(next..).and_then(|p| memchr2(b'"', b'\\', p)) {
            if piece[next + found] == b'"' {
                self.place = Place::Value { depth };
                return next + found + 1;
            }
            next += found + 2;
        }
        // `next` is past the end only when the piece ends behind a backslash.
        self.place = Place::Text {
            depth,
            escaped: next > piece.len(),
        };
        piece.len()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(which) = self.keeping else { return };
        if self.kept.len() + bytes.len() > self.most_bytes {
            self.keeping = None;
            self.kept = Vec::new();
            self.found[which] = Member::TooLong;
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn end_of_value(&mut self) {
        if let Some(which) = self.keeping.take() {
            self.found[which] = Member::Value(std::mem::take(&mut self.kept));
        }
    }
}

impl Member {
    /// The value, if it was kept.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Member::Value(value) => Some(value),
            Member::Absent | Member::TooLong => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(pieces: &[&[u8]]) -> [Member; 2] {
        let mut scanner = TopLevel::new(["model", "usage"], 64);
        for piece in pieces {
            scanner.feed(piece);
        }
        scanner.finish()
    }

    fn values(text: &str) -> [Option<String>; 2] {
        scan(&[text.as_bytes()]).map(|m| {
            m.value()
                .map(|v| String::from_utf8_lossy(v).trim().to_owned())
        })
    }

    fn some(s: &str) -> Option<String> {
        Some(s.to_owned())
    }

    #[test]
    fn finds_members_of_the_outermost_object_only() {
        let table = [
            (r#"{"model":"m"}"#, [some("\"m\""), None]),
            (r#" { "model" : "m" , "x":1}"#, [some("\"m\""), None]),
            (
                r#"{"a":{"model":"no"},"b":["model",{"usage":1}],"usage":{"p":[1,{"q":2}]}}"#,
                [None, some(r#"{"p":[1,{"q":2}]}"#)],
            ),
            (
                r#"{"text":"\"model\":\"no\"","model":"m"}"#,
                [some("\"m\""), None],
            ),
            (r#"{"text":"\\","model":"m"}"#, [some("\"m\""), None]),
            (r#"{"model":"a","model":"b"}"#, [some("\"b\""), None]),
            (r#"{"model\u0000":"a"}"#, [None, None]),
            (
                r#"{"modelmodelmodelmodel":"a","usage":null}"#,
                [None, some("null")],
            ),
            (r#"[{"model":"m"}]"#, [None, None]),
            (r#"{"model":"m"}{"model":"n"}"#, [some("\"m\""), None]),
            (r#"{"model":"cut"#, [None, None]),
            ("", [None, None]),
            ("plain text", [None, None]),
        ];
        for (text, expected) in table {
            assert_eq!(values(text), expected, "{text}");
        }
    }

    #[test]
    fn a_value_over_the_bound_is_not_kept_and_costs_its_neighbours_nothing() {
        let long = format!(r#"{{"model":"{}","usage":{{}}}}"#, "x".repeat(100));
        assert_eq!(
            scan(&[long.as_bytes()]),
            [Member::TooLong, Member::Value(b"{}".to_vec())]
        );
    }

    proptest! {
        #[test]
        fn where_the_text_is_cut_makes_no_difference(
            text in r#"\{("(model|usage|x|\\\\"|\\")*":("[a\\"{}\[\],:]{0,8}"|[0-9]{1,3}|\{"model":\[\]\}|null),?){0,5}\}?"#,
            cuts in proptest::collection::vec(0usize..80, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(scan(&pieces), scan(&[bytes]));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = scan(&[&bytes]);
        }
    }
}
