//! A JSON text that came whole: its members are searched for by name, and what is far from all of them
//! is not looked at otherwise.
//!
//! In a valid text a quote that no backslash stands before is a string's first or last, and behind a last
//! one no name follows. So a name in such quotes is a string of its own, and one with a colon behind it a
//! member's name. It is the outermost object's where no bracket is open between the text's `{` and it,
//! or none between it and the text's `}`: the shorter way tells as much as the longer one.
//!
//! Of every valid text that is read here the result is [`TopLevel`](super::json::TopLevel)'s. One that is
//! broken where it is not looked at (a string that does not end, brackets that do not match, something
//! behind the outermost object that ends with `}`) may give members here that are not found there.

use super::fields::{Read, Value};
use super::json::{Place, to_end_of_value};
use super::plain;
use memchr::memchr;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Names to search for.
pub(super) trait Names<const N: usize> {
    /// Where the first of these names at or behind `from` stands, with its quotes, which of them it is,
    /// and how long it is.
    fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize, usize)>;

    /// The values of the outermost object's members that have these names, those aside that are longer
    /// than the bound. `None` where a name stands twice, is no name, or an inner object's, and where the
    /// text is no object: that is left to the scanner.
    #[inline]
    fn values<'a>(&self, text: &'a [u8], most_bytes: usize) -> Option<[Option<Value<'a>>; N]> {
        let [b'{', inside @ .., b'}'] = text.trim_ascii() else {
            return None;
        };
        let mut values = [const { None }; N];
        let mut seen = [false; N];
        let mut gaps = Gaps { longest: &[] };
        // Behind the last member that was found.
        let mut behind = 0;
        while let Some((at, which, len)) = self.find(inside, behind) {
            let gap = &inside[behind..at];
            if seen[which] || gap.last() == Some(&b'\\') {
                return None;
            }
            seen[which] = true;
            let text = after_colon(&inside[at + len..])?;
            let (value, rest) = read(text)?;
            values[which] = Some(value).filter(|value| value.json.len() <= most_bytes);
            gaps.take(gap)?;
            behind = inside.len() - rest.len();
        }
        if behind > 0 {
            gaps.take(&inside[behind..])?;
        }
        Some(values)
    }
}

/// One name.
pub(super) struct One(LazyLock<Finder<'static>>);

/// Several, in their quotes. Of each the byte at `AT` is one of the two: such as few other strings have
/// there.
#[derive(Debug)]
pub(super) struct Several<const N: usize, const AT: usize, const ONE: u8, const OTHER: u8>(
    pub(super) [&'static str; N],
);

impl One {
    /// A name, to be found by this. Made once: making a finder costs more than a search.
    pub(super) const fn new(finder: fn() -> Finder<'static>) -> One {
        One(LazyLock::new(finder))
    }
}

impl Names<1> for One {
    #[inline]
    fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize, usize)> {
        let at = self.0.find(text.get(from..)?)?;
        Some((from + at, 0, self.0.needle().len()))
    }
}

impl<const N: usize, const AT: usize, const ONE: u8, const OTHER: u8> Names<N>
    for Several<N, AT, ONE, OTHER>
{
    #[inline]
    fn find(&self, text: &[u8], mut from: usize) -> Option<(usize, usize, usize)> {
        loop {
            let at = candidate::<AT, ONE, OTHER>(text, from)?;
            let rest = &text[at..];
            let is_it = |name: &&str| {
                rest.get(name.len() - 1) == Some(&b'"') && rest.starts_with(name.as_bytes())
            };
            if let Some(which) = self.0.iter().position(is_it) {
                return Some((at, which, self.0[which].len()));
            }
            from = at + 1;
        }
    }
}

/// The value that the text begins with, and what stands behind it and its comma. `None` where it has no
/// end, or the object has it.
fn read(text: &[u8]) -> Option<(Value<'_>, &[u8])> {
    if let Some((read, behind)) = Read::at_front(text) {
        match plain::without_blanks(behind) {
            [b',', rest @ ..] => {
                let len = text.len() - rest.len() - 1;
                return Some((Value::new(&text[..len], read), rest));
            }
            [] => return Some((Value::new(text, read), &[])),
            _ => {}
        }
    }
    let stop = to_end_of_value(text, 0);
    let len = match stop.place {
        Place::Between => text.len() - stop.rest.len() - 1,
        Place::Value if stop.depth == 0 => text.len(),
        _ => return None,
    };
    Some((Value::unread(&text[..len]), stop.rest))
}

/// Where the first quote at or behind `from` stands that one of the two bytes follows at `AT`.
fn candidate<const AT: usize, const ONE: u8, const OTHER: u8>(
    text: &[u8],
    mut from: usize,
) -> Option<usize> {
    loop {
        let rest = text.get(from..)?;
        let seen = match rest.first_chunk() {
            Some(block) => in_block::<AT, ONE, OTHER>(block),
            None if rest.is_empty() => return None,
            None => {
                let mut block = [0; BLOCK + BEYOND];
                block[..rest.len()].copy_from_slice(rest);
                in_block::<AT, ONE, OTHER>(&block)
            }
        };
        if seen >= CANDIDATE {
            return Some(from + BLOCK - 1 - usize::from(seen & BEHIND));
        }
        from += BLOCK;
        if seen == 0 {
            // Inside of what is long, as most that has no quote is.
            from += memchr(b'"', text.get(from..)?)?;
        }
    }
}

const BLOCK: usize = 64;

/// More than any `AT`.
const BEYOND: usize = 8;

/// What is seen in a block: a quote, a candidate, and how many bytes stand behind that.
const QUOTE: u8 = 0x40;
const CANDIDATE: u8 = 0x80;
const BEHIND: u8 = 0x3F;

/// The first candidate that is seen in the block, of which a little more is looked at, else a quote, else
/// nothing. Without a branch, so that the compiler takes many bytes at once.
#[inline]
fn in_block<const AT: usize, const ONE: u8, const OTHER: u8>(block: &[u8; BLOCK + BEYOND]) -> u8 {
    const PLACES: [u8; BLOCK] = {
        let mut all = [0; BLOCK];
        let mut i = 0;
        while i < BLOCK {
            all[i] = CANDIDATE | (BLOCK - 1 - i) as u8;
            i += 1;
        }
        all
    };
    let all_if = |is_it: bool| u8::from(is_it).wrapping_neg();
    let mut most = 0;
    for i in 0..BLOCK {
        let letter = block[i + AT];
        let place = all_if((letter == ONE) | (letter == OTHER)) & PLACES[i];
        most = most.max(all_if(block[i] == b'"') & (place | QUOTE));
    }
    most
}

fn after_colon(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b':', value @ ..] => Some(value),
        _ => text.trim_ascii_start().strip_prefix(b":"),
    }
}

/// What stands between members that were found, and at both ends. No bracket may be left open or be closed
/// there. The longest of these gaps need not be looked at: members before it hang on the text's beginning,
/// those behind it on its end.
struct Gaps<'a> {
    longest: &'a [u8],
}

impl<'a> Gaps<'a> {
    fn take(&mut self, gap: &'a [u8]) -> Option<()> {
        let shorter = if gap.len() > self.longest.len() {
            std::mem::replace(&mut self.longest, gap)
        } else {
            gap
        };
        is_level(shorter).then_some(())
    }
}

/// Whether no bracket is left open in a text, or closed once too often.
fn is_level(mut text: &[u8]) -> bool {
    // Most have none, not even in a string.
    if text.is_empty() || !has_bracket(text) {
        return true;
    }
    while !text.is_empty() {
        let stop = to_end_of_value(text, 0);
        match stop.place {
            Place::Between => text = stop.rest,
            Place::Value => return stop.depth == 0,
            _ => return false,
        }
    }
    true
}

/// Without a branch for each byte, as in [`in_block`].
fn has_bracket(text: &[u8]) -> bool {
    let is_bracket = |byte: &u8| {
        // `[` and `]` are these without the bit.
        let brace = byte | 0x20;
        (brace == b'{') | (brace == b'}')
    };
    let any = |bytes: &[u8]| bytes.iter().fold(false, |any, b| any | is_bracket(b));
    match text.last_chunk::<16>() {
        // What is left of the last whole one is looked at with some of that once more.
        Some(last) => any(text.as_chunks::<16>().0.as_flattened()) | any(last),
        None => any(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::{Member, TopLevel};
    use super::super::{ANSWER, REQUEST, WHOLE_ANSWER, WHOLE_REQUEST, fields};
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn some(text: &str) -> Option<Option<&str>> {
        Some(Some(text))
    }

    /// The values of a text that is read whole.
    fn whole(text: &str) -> Option<[Option<&str>; 3]> {
        let values = WHOLE_ANSWER.values(text.as_bytes(), usize::MAX)?;
        Some(values.map(|value| value.map(|v| str::from_utf8(v.json).unwrap().trim())))
    }

    #[test]
    fn members_of_the_outermost_object_are_found_wherever_they_stand() {
        let long = "a [b] {c} \\\"d\\\", ".repeat(20);
        for (text, model) in [
            (r#"{"model":"m"}"#.to_owned(), some("\"m\"")),
            (" {\n \"model\" :\t\"m\" } \r\n".to_owned(), some("\"m\"")),
            (
                format!(r#"{{"a":1,"model":"m","b":["{long}"]}}"#),
                some("\"m\""),
            ),
            (
                format!(r#"{{"b":[{{"x":"{long}"}}],"model":null}}"#),
                some("null"),
            ),
            (
                format!(r#"{{"a":[1,{{"x":"]"}}],"model":{{"y":[2]}},"b":"{long}"}}"#),
                some(r#"{"y":[2]}"#),
            ),
            (
                format!(r#"{{"b":"{long}","model":1,"c":[[],{{}}]}}"#),
                some("1"),
            ),
            (
                r#"{"model":{"model":"inner"}}"#.to_owned(),
                some(r#"{"model":"inner"}"#),
            ),
            (r#"{"mod\u0065l":"m"}"#.to_owned(), Some(None)),
            (
                r#"{"models":"m","Model":"m","":"model "}"#.to_owned(),
                Some(None),
            ),
            (r#"{"x":"a \"model\": \"b\""}"#.to_owned(), Some(None)),
            ("{}".to_owned(), Some(None)),
        ] {
            assert_eq!(whole(&text).map(|values| values[0]), model, "{text}");
        }
    }

    #[test]
    fn what_a_search_cannot_tell_is_left_to_the_scanner() {
        let long = "x".repeat(300);
        for text in [
            // No object, or more than one thing.
            "",
            " ",
            "{",
            "}",
            "null",
            r#"[{"model":"m"}]"#,
            r#"{"model":"m"} x"#,
            "\u{feff}{\"model\":\"m\"}",
            // Twice.
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","x":{"model":"b"}}"#,
            // No member's name.
            r#"{"object":"model","model":"m"}"#,
            r#"{"x":"a \"model","model":"m"}"#,
            // An inner object's.
            r#"{"x":{"model":"m"}}"#,
            &format!(r#"{{"x":[{{"model":"m"}}],"y":"{long}"}}"#),
            &format!(r#"{{"y":"{long}","x":[{{"model":"m"}}]}}"#),
            &format!(r#"{{"y":"{long}","x":{{"z":1,"model":"m","u":2}},"v":3}}"#),
            r#"{"usage":{"x":1},"y":{"model":"m"}}"#,
            // Broken where it is looked at.
            r#"{"model":"m}"#,
            r#"{"model":[1}"#,
            r#"{"model""m"}"#,
            r#"{"model":"m"}}"#,
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    fn json() -> impl Strategy<Value = String> {
        let text = select(vec![
            "",
            "m",
            "model",
            "usage",
            "meta_info",
            r#"a \"model\":"#,
            r#"\\"#,
            r#"\\\"usage\""#,
            "{",
            "]}",
            "你好",
            "a text that is a good deal longer than a word or two, so that it is the longest by far in here",
        ]);
        let leaf = prop_oneof![
            text.prop_map(|text| format!("\"{text}\"")),
            select(vec!["0", "-1.5e3", "null", "true", "[]", "{}"]).prop_map(str::to_owned),
            select(vec![
                r#"{"prompt_tokens":1,"completion_tokens": 2}"#,
                r#"{"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}} "#,
                r#"{"output_tokens":5,"output_tokens":6}"#,
                r#"{"input_tokens":7,"x":[8]}"#,
            ])
            .prop_map(str::to_owned),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let items = proptest::collection::vec(inner.clone(), 0..4);
            prop_oneof![
                items.prop_map(|items| format!("[{}]", items.join(", "))),
                object(inner),
            ]
        })
    }

    fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        let name = prop_oneof![
            1 => select(vec!["model", "usage", "meta_info"]),
            3 => select(vec!["index", "x", "", "mod\\u0065l", "a\\\"", "matrix", "choices", "models", "message"]),
        ];
        let colon = select(vec![":", ":", " :\n"]);
        let member =
            (name, colon, value).prop_map(|(name, colon, v)| format!("\"{name}\"{colon}{v}"));
        let comma = select(vec![",", ",", "\t, "]);
        let ends = select(vec![("{", "}"), ("{", "}"), (" { ", " }\n")]);
        (proptest::collection::vec(member, 0..7), comma, ends).prop_map(
            |(members, comma, (start, end))| format!("{start}{}{end}", members.join(comma)),
        )
    }

    fn scanned<const N: usize>(
        names: [&'static str; N],
        text: &[u8],
        most_bytes: usize,
    ) -> [Member; N] {
        let mut scanner = TopLevel::new(names, most_bytes);
        text.chunks(1).for_each(|byte| scanner.feed(byte));
        scanner.finish()
    }

    proptest! {
        #[test]
        fn a_valid_text_is_read_as_byte_by_byte(text in object(json()), most_bytes in select(vec![20, 1000])) {
            prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok());
            let bytes = text.as_bytes();
            if let Some(values) = WHOLE_ANSWER.values(bytes, most_bytes) {
                let members = scanned(ANSWER, bytes, most_bytes);
                let scanned = members.each_ref().map(Member::value);
                prop_assert_eq!(values.each_ref().map(|value| value.as_ref().map(|v| v.json)), scanned);
                let [found, expected] = [values, scanned.map(|value| value.map(Value::unread))]
                    .map(fields::from_members);
                prop_assert_eq!(found.usage, expected.usage);
                prop_assert_eq!(found.model, expected.model);
            }
            if let Some([value]) = WHOLE_REQUEST.values(bytes, most_bytes) {
                let [member] = scanned(REQUEST, bytes, most_bytes);
                prop_assert_eq!(value.as_ref().map(|v| v.json), member.value());
                let expected = member.value().and_then(fields::name_of);
                prop_assert_eq!(value.and_then(Value::name), expected);
            }
        }

        #[test]
        fn what_stands_once_in_the_outermost_object_is_found(
            before in proptest::collection::vec("[a-z]{0,9}", 0..9),
            behind in proptest::collection::vec("[a-z]{0,9}", 0..9),
            long in 0_usize..300,
        ) {
            let others = |names: Vec<String>| -> Vec<String> {
                names.iter().map(|name| format!("\"_{name}\":[{{\"_\":\"{}\"}}]", "x".repeat(long))).collect()
            };
            let [before, behind] = [before, behind].map(others);
            let usage = [r#""usage":{"a":{"b":1}}"#.to_owned()];
            let text = format!("{{{}}}", [&before[..], &usage[..], &behind[..]].concat().join(","));
            prop_assert_eq!(whole(&text), Some([None, Some(r#"{"a":{"b":1}}"#), None]));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(
            prop_oneof![select(br#"{}[]":,\ model"#.to_vec()), any::<u8>()], 0..200,
        )) {
            let inside = [b"{\"model\":", &bytes[..], b"}"].concat();
            for text in [&bytes, &inside] {
                let _ = WHOLE_ANSWER.values(text, usize::MAX);
                let _ = WHOLE_REQUEST.values(text, usize::MAX);
            }
        }
    }
}
