//! Finds members of a JSON text's outermost object while the text flows past in pieces.
//!
//! Strings are skipped in words and by `memchr`, so a prompt of megabytes costs little; only the values
//! asked for are kept, up to a bound. The text is not validated: a wrong text gives no member, or one
//! that does not parse later.

use super::text;

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
    /// Brackets around the place, inside a value.
    depth: u32,
    /// Of a name that a piece's end cut, what came before.
    name: CutName,
    /// Whose value is being read, where it is kept.
    keeping: Option<u8>,
    /// Of a value that a piece's end cut, what came before.
    kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Before the outermost `{`.
    Before,
    /// Between members, where a name may begin.
    Between,
    /// Inside a name that began in an earlier piece.
    Name { escaped: bool },
    /// After a name, before its colon.
    Colon,
    /// Inside a value.
    Value,
    /// Inside a value's string that began in an earlier piece.
    Text { escaped: bool },
    /// Past the outermost `}`, or not an object at all.
    Over,
}

/// As much of a name as can match.
#[derive(Debug, Default)]
struct CutName {
    bytes: [u8; LONGEST_NAME],
    /// Of the whole name, so that a longer one matches nothing.
    len: usize,
}

const LONGEST_NAME: usize = 16;

/// What a byte means inside a value, outside of its strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Quote,
    Open,
    CloseObject,
    CloseArray,
    Comma,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    classes[b'"' as usize] = Class::Quote;
    classes[b'{' as usize] = Class::Open;
    classes[b'[' as usize] = Class::Open;
    classes[b'}' as usize] = Class::CloseObject;
    classes[b']' as usize] = Class::CloseArray;
    classes[b',' as usize] = Class::Comma;
    classes
};

impl<const N: usize> TopLevel<N> {
    /// A scanner for these names (of at most 16 bytes), which keeps at most `most_bytes` of a value.
    #[must_use]
    pub fn new(names: [&'static str; N], most_bytes: usize) -> Self {
        TopLevel {
            names,
            found: [const { Member::Absent }; N],
            most_bytes,
            place: Place::Before,
            depth: 0,
            name: CutName::default(),
            keeping: None,
            kept: Vec::new(),
        }
    }

    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        let mut rest = self.resume(piece);
        while let Some(members) = rest {
            rest = self.member(members);
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> [Member; N] {
        self.found
    }

    // Each of the following reads on from where its name says, and gives what stands behind the member;
    // nothing where the piece or the object ends first, and then the place is known.

    #[inline(never)]
    fn resume<'a>(&mut self, piece: &'a [u8]) -> Option<&'a [u8]> {
        match self.place {
            Place::Over => None,
            Place::Before => {
                let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF);
                let at = piece.iter().position(|b| !blank(b))?;
                self.place = Place::Over;
                (piece[at] == b'{').then(|| &piece[at + 1..])
            }
            Place::Between => Some(piece),
            Place::Name { escaped } => {
                let inside = &piece[usize::from(escaped)..];
                let behind = text::far_behind(inside);
                let ends = behind.map_or(piece.len(), |behind| piece.len() - behind.len() - 1);
                self.name.push(&piece[..ends]);
                let Some(behind) = behind else {
                    self.place = Place::Name {
                        escaped: text::is_cut_in_escape(inside),
                    };
                    return None;
                };
                self.keeping = self.name.whole().and_then(|name| self.which(name));
                self.colon(behind)
            }
            Place::Colon => self.colon(piece),
            Place::Value => self.value(piece, piece),
            Place::Text { escaped } => {
                let inside = &piece[usize::from(escaped)..];
                if let Some(behind) = text::far_behind(inside) {
                    return self.value(piece, behind);
                }
                self.place = Place::Text {
                    escaped: text::is_cut_in_escape(inside),
                };
                self.keep(piece);
                None
            }
        }
    }

    fn member<'a>(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        self.place = Place::Between;
        let at = rest.iter().position(|b| matches!(b, b'"' | b'}'))?;
        if rest[at] == b'}' {
            self.place = Place::Over;
            return None;
        }
        let inside = &rest[at + 1..];
        let Some(behind) = text::behind(inside) else {
            self.name = CutName::default();
            self.name.push(inside);
            self.place = Place::Name {
                escaped: text::is_cut_in_escape(inside),
            };
            return None;
        };
        // A name with an escape matches nothing.
        self.keeping = self.which(&inside[..inside.len() - behind.len() - 1]);
        self.colon(behind)
    }

    fn which(&self, name: &[u8]) -> Option<u8> {
        let which = self.names.iter().position(|n| n.as_bytes() == name)?;
        u8::try_from(which).ok()
    }

    #[inline(always)]
    fn colon<'a>(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let Some(at) = rest.iter().position(|b| *b == b':') else {
            self.place = Place::Colon;
            return None;
        };
        self.depth = 0;
        let value = &rest[at + 1..];
        self.value(value, value)
    }

    /// `value` is what there is of it, read to where `rest` begins.
    #[inline(always)]
    fn value<'a>(&mut self, value: &'a [u8], rest: &'a [u8]) -> Option<&'a [u8]> {
        let stop = to_end_of_value(rest, self.depth);
        self.place = stop.place;
        self.depth = stop.depth;
        if matches!(stop.place, Place::Between | Place::Over) {
            self.take(&value[..value.len() - stop.rest.len() - 1]);
        } else {
            self.keep(value);
        }
        matches!(stop.place, Place::Between).then_some(stop.rest)
    }

    /// A value is whole: `rest` of it, and what was kept before.
    #[inline(always)]
    fn take(&mut self, rest: &[u8]) {
        if self.keeping.is_none() {
            return;
        }
        self.keep(rest);
        // Gone, where the value was too long.
        if let Some(which) = self.keeping.take() {
            self.found[usize::from(which)] = Member::Value(std::mem::take(&mut self.kept));
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(which) = self.keeping else { return };
        if self.kept.len() + bytes.len() > self.most_bytes {
            self.keeping = None;
            self.kept = Vec::new();
            self.found[usize::from(which)] = Member::TooLong;
        } else if self.kept.is_empty() {
            self.kept = bytes.to_vec();
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }
}

/// How far a value goes in a piece.
pub(super) struct Stop<'a> {
    /// Behind what ends the value.
    pub(super) rest: &'a [u8],
    pub(super) place: Place,
    pub(super) depth: u32,
}

/// Inside a value, `depth` brackets deep: on to its end, or to the piece's. On its own, so that what a
/// byte needs stays in registers.
#[inline(never)]
pub(super) fn to_end_of_value(mut rest: &[u8], mut depth: u32) -> Stop<'_> {
    while let Some(at) = rest
        .iter()
        .position(|b| CLASSES[usize::from(*b)] != Class::Other)
    {
        let class = CLASSES[usize::from(rest[at])];
        rest = &rest[at + 1..];
        if class == Class::Quote {
            loop {
                let Some(behind) = text::behind(rest) else {
                    let escaped = text::is_cut_in_escape(rest);
                    let place = Place::Text { escaped };
                    return Stop { rest, place, depth };
                };
                // Most strings have the next one right behind them.
                match behind {
                    [b':' | b',', b'"', next @ ..] if depth > 0 => rest = next,
                    _ => {
                        rest = behind;
                        break;
                    }
                }
            }
        } else if class == Class::Open {
            depth = depth.saturating_add(1);
        } else if depth > 0 {
            depth -= u32::from(class != Class::Comma);
        } else if class != Class::CloseArray {
            let place = match class {
                Class::Comma => Place::Between,
                _ => Place::Over,
            };
            return Stop { rest, place, depth };
        }
    }
    Stop {
        rest: &[],
        place: Place::Value,
        depth,
    }
}

impl CutName {
    fn push(&mut self, piece: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..) {
            let fits = room.len().min(piece.len());
            room[..fits].copy_from_slice(&piece[..fits]);
        }
        self.len = self.len.saturating_add(piece.len());
    }

    fn whole(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
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
