//! The members that carry usage, model and content, in the spellings of the APIs behind routers:
//! OpenAI chat, completions and responses, Anthropic messages, SGLang `/generate`.

use super::name::Name;
use super::plain;
use super::{Found, text};
use crate::telemetry::log::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Each count by each of its names, kept raw, so that one that is no count spoils no other.
#[derive(Deserialize)]
struct Tokens<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    input_tokens: Option<&'a RawValue>,
    completion_tokens: Option<&'a RawValue>,
    output_tokens: Option<&'a RawValue>,
    prompt_tokens_details: Option<&'a RawValue>,
    input_tokens_details: Option<&'a RawValue>,
    cached_tokens: Option<&'a RawValue>,
    cache_read_input_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
}

/// More tokens than this are no count.
const MOST_TOKENS: u64 = 1 << 40;

/// Members are kept raw and read one by one, so that one of an unexpected type spoils no other.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    meta_info: Option<&'a RawValue>,
    choices: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    #[serde(rename = "type")]
    kind: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
}

/// `response` of the responses API, `message` of Anthropic's.
#[derive(Deserialize)]
struct Nested<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    text: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    reasoning_content: Option<&'a RawValue>,
    reasoning: Option<&'a RawValue>,
    tool_calls: Option<&'a RawValue>,
    function_call: Option<&'a RawValue>,
    refusal: Option<&'a RawValue>,
}

/// The value of a member that is asked for.
#[derive(Debug)]
pub(super) struct Value<'a> {
    /// As it stands in the text.
    pub(super) json: &'a [u8],
    read: Read<'a>,
}

/// What was read of a value on the way to its end.
#[derive(Debug)]
pub(super) enum Read<'a> {
    /// Nothing.
    Not,
    /// A string's text, which is ASCII.
    Text(&'a [u8]),
    /// What an object says as a usage.
    Usage(Usage),
}

impl<'a> Read<'a> {
    /// Reads a string or an object that the text begins with, in plain JSON, and gives what stands behind
    /// it: cheaper than to look for its end first.
    pub(super) fn at_front(text: &'a [u8]) -> Option<(Read<'a>, &'a [u8])> {
        let text = plain::without_blanks(text);
        match text.first()? {
            b'"' => plain::string(text).map(|(text, behind)| (Read::Text(text), behind)),
            b'{' => Counts::at_front(text).map(|(c, behind)| (Read::Usage(c.usage()), behind)),
            _ => None,
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn new(json: &'a [u8], read: Read<'a>) -> Value<'a> {
        Value { json, read }
    }

    /// One of which only the end is known.
    pub(super) fn unread(json: &'a [u8]) -> Value<'a> {
        Value::new(json, Read::Not)
    }

    /// A model's name.
    pub(super) fn name(self) -> Option<Name> {
        match self.read {
            Read::Not => name_of(self.json),
            Read::Text(text) => Name::of_ascii(text),
            Read::Usage(_) => None,
        }
    }

    fn usage(self) -> Usage {
        match self.read {
            Read::Not => usage_of(self.json),
            Read::Text(_) => Usage::default(),
            Read::Usage(usage) => usage,
        }
    }
}

/// What the members of a JSON answer say: model, usage, and what SGLang's own `/generate` has for it.
pub(super) fn from_members([model, usage, meta]: [Option<Value<'_>>; 3]) -> Found {
    let mut found = Found {
        model: model.and_then(Value::name),
        usage: usage.map_or_else(Usage::default, Value::usage),
    };
    if let Some(meta) = meta {
        replace(&mut found.usage, meta.usage());
    }
    found
}

/// Takes in what an event says; true when it carries content.
pub(super) fn from_event(data: &[u8], found: &mut Found) -> bool {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
        // Not a shape known here, so content as far as anyone can tell.
        return true;
    };
    let nested: Option<Nested<'_>> = [event.response, event.message]
        .into_iter()
        .flatten()
        .find_map(|nested| serde_json::from_str(nested.get()).ok());
    let nested = nested.as_ref();
    if found.model.is_none() {
        let model = event.model.or_else(|| nested.and_then(|n| n.model));
        found.model = model.and_then(|m| name_of(m.get().as_bytes()));
    }
    for usage in [nested.and_then(|n| n.usage), event.usage, event.meta_info]
        .into_iter()
        .flatten()
    {
        replace(&mut found.usage, usage_of(usage.get().as_bytes()));
    }
    has_content(&event)
}

fn has_content(event: &Event<'_>) -> bool {
    if let Some(choices) = event.choices {
        return serde_json::from_str::<Vec<Choice<'_>>>(choices.get()).map_or(true, |choices| {
            choices.iter().any(|choice| {
                filled(choice.text) || choice.delta.as_ref().is_some_and(delta_has_content)
            })
        });
    }
    if event.error.is_some() {
        return false;
    }
    if event.kind.is_some() {
        // Typed events (responses API, Anthropic): those with a delta bring content.
        return filled(event.delta);
    }
    match event.text {
        Some(text) => filled(Some(text)),
        None => true,
    }
}

fn delta_has_content(delta: &Delta<'_>) -> bool {
    [
        delta.content,
        delta.reasoning_content,
        delta.reasoning,
        delta.tool_calls,
        delta.function_call,
        delta.refusal,
    ]
    .into_iter()
    .any(filled)
}

fn filled(value: Option<&RawValue>) -> bool {
    value.is_some_and(|v| !matches!(v.get(), "" | "\"\"" | "null" | "[]" | "{}"))
}

/// Later counts replace earlier ones; a count that is not reported keeps what was known.
fn replace(known: &mut Usage, later: Usage) {
    known.input = later.input.or(known.input);
    known.output = later.output.or(known.output);
    known.cached = later.cached.or(known.cached);
}

/// What a JSON text says as a usage.
fn usage_of(text: &[u8]) -> Usage {
    Counts::read(text)
        .or_else(|| Counts::read_any(text))
        .map_or_else(Usage::default, |counts| counts.usage())
}

/// A usage: each count by its two names, at these places.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    counts: [u64; 8],
    /// A bit for each place that has a value other than null, and for each where that is a count.
    has: u8,
    known: u8,
}

const PROMPT: [u8; 2] = [0, 1];
const COMPLETION: [u8; 2] = [2, 3];
const CACHED: [u8; 2] = [CACHED_TOKENS, 5];
const CACHED_TOKENS: u8 = 4;
/// `cached_tokens` of the prompt's details, and of the input's.
const DETAILS: [u8; 2] = [6, 7];

impl Counts {
    fn has(&self, place: u8) -> bool {
        self.has & (1 << place) != 0
    }

    fn get(&self, place: u8) -> Option<u64> {
        let is_known = self.known & (1 << place) != 0;
        is_known.then(|| self.counts[usize::from(place & 7)])
    }

    fn either(&self, [one, other]: [u8; 2]) -> Option<u64> {
        self.get(one).or_else(|| self.get(other))
    }

    /// What is no place of a count is passed by.
    #[inline(always)]
    fn set(&mut self, place: u8, count: Option<u64>) {
        if place >= IN_DETAILS {
            return;
        }
        self.has |= 1 << place;
        if let Some(count) = count.filter(|count| *count <= MOST_TOKENS) {
            self.known |= 1 << place;
            self.counts[usize::from(place & 7)] = count;
        }
    }

    fn usage(&self) -> Usage {
        // The first details that have a number at all are the ones that count.
        let details = DETAILS.into_iter().find(|name| self.has(*name));
        let cached = details.and_then(|name| self.get(name));
        Usage {
            input: self.either(PROMPT),
            output: self.either(COMPLETION),
            cached: cached.or(self.either(CACHED)),
        }
    }

    /// Of a usage in plain JSON, as nearly every one is; of another, nothing.
    fn read(text: &[u8]) -> Option<Counts> {
        let (counts, behind) = Counts::at_front(text)?;
        plain::without_blanks(behind).is_empty().then_some(counts)
    }

    /// The same of a usage that the text begins with, and what stands behind it.
    fn at_front(text: &[u8]) -> Option<(Counts, &[u8])> {
        let mut counts = Counts::default();
        // A name that stands twice makes it no usage: that is left to serde.
        let mut seen = 0_u32;
        let name = |inside| name(inside);
        let behind = plain::members(text, name, |place, value, rest| {
            let before = seen;
            seen |= (1 << place) & PLACES;
            if before == seen && place != ELSE {
                return None;
            }
            match value {
                plain::Value::Object if place >= IN_DETAILS && place != ELSE => {
                    counts.details(place - IN_DETAILS, rest)
                }
                plain::Value::Object => {
                    counts.set(place, None);
                    plain::behind_object(rest)
                }
                plain::Value::Null => Some(rest),
                value => {
                    counts.set(place, value.count());
                    Some(rest)
                }
            }
        })?;
        Some((counts, behind))
    }

    /// Of the details that the text begins with.
    fn details<'a>(&mut self, place: u8, text: &'a [u8]) -> Option<&'a [u8]> {
        let mut seen = false;
        let name = |inside: &'a [u8]| match inside.strip_prefix(b"cached_tokens\"") {
            Some(behind) => Some((true, behind)),
            None => Some((false, text::plain(inside)?.1)),
        };
        plain::members(text, name, |is_it, value, rest| {
            if is_it && std::mem::replace(&mut seen, true) {
                return None;
            }
            if is_it && value != plain::Value::Null {
                self.set(place, value.count());
            }
            match value {
                plain::Value::Object => plain::behind_object(rest),
                _ => Some(rest),
            }
        })
    }

    /// Of any usage.
    fn read_any(text: &[u8]) -> Option<Counts> {
        let tokens: Tokens<'_> = serde_json::from_slice(text).ok()?;
        let cached = |details: Option<&'_ RawValue>| {
            let details: Details<'_> = serde_json::from_str(details?.get()).ok()?;
            details.cached_tokens.map(count)
        };
        let places = [
            tokens.prompt_tokens.map(count),
            tokens.input_tokens.map(count),
            tokens.completion_tokens.map(count),
            tokens.output_tokens.map(count),
            tokens.cached_tokens.map(count),
            tokens.cache_read_input_tokens.map(count),
            cached(tokens.prompt_tokens_details),
            cached(tokens.input_tokens_details),
        ];
        let mut counts = Counts::default();
        for (place, count) in (0..).zip(places) {
            if let Some(count) = count {
                counts.set(place, count);
            }
        }
        Some(counts)
    }
}

/// Added to a place of [`DETAILS`]: the details themselves.
const IN_DETAILS: u8 = 8;

/// In place of a place: any other name.
const ELSE: u8 = 16;

/// A bit for each place.
const PLACES: u32 = (1 << ELSE) - 1;

/// A name, as the place of a count or of details if it is one's, and what stands behind its last quote.
/// The known ones are compared in words, which costs less than to look for the end first.
#[inline(always)]
fn name(inside: &[u8]) -> Option<(u8, &[u8])> {
    known_name(inside).or_else(|| Some((ELSE, text::plain(inside)?.1)))
}

#[inline(always)]
fn known_name(inside: &[u8]) -> Option<(u8, &[u8])> {
    const fn word(text: &[u8; 8]) -> u64 {
        u64::from_le_bytes(*text)
    }
    const PROMPT_TOKENS: u64 = word(b"prompt_t");
    const INPUT_TOKENS: u64 = word(b"input_to");
    const COMPLETION_TOKENS: u64 = word(b"completi");
    const OUTPUT_TOKENS: u64 = word(b"output_t");
    const CACHED_TOKENS: u64 = word(b"cached_t");
    const CACHE_READ: u64 = word(b"cache_re");
    const TOTAL_TOKENS: u64 = word(b"total_to");
    let (start, rest) = inside.split_first_chunk()?;
    Some(match u64::from_le_bytes(*start) {
        PROMPT_TOKENS => match rest.strip_prefix(b"okens\"") {
            Some(behind) => (0, behind),
            None => (6 + IN_DETAILS, rest.strip_prefix(b"okens_details\"")?),
        },
        INPUT_TOKENS => match rest.strip_prefix(b"kens\"") {
            Some(behind) => (1, behind),
            None => (7 + IN_DETAILS, rest.strip_prefix(b"kens_details\"")?),
        },
        COMPLETION_TOKENS => (2, rest.strip_prefix(b"on_tokens\"")?),
        OUTPUT_TOKENS => (3, rest.strip_prefix(b"okens\"")?),
        CACHED_TOKENS => (self::CACHED_TOKENS, rest.strip_prefix(b"okens\"")?),
        CACHE_READ => (5, rest.strip_prefix(b"ad_input_tokens\"")?),
        TOTAL_TOKENS => (ELSE, rest.strip_prefix(b"kens\"")?),
        _ => return None,
    })
}

/// A whole number.
fn count(raw: &RawValue) -> Option<u64> {
    raw.get().parse().ok()
}

/// A model's name, as a JSON text.
pub(super) fn name_of(json: &[u8]) -> Option<Name> {
    match plain::string(json) {
        Some((text, behind)) if plain::without_blanks(behind).is_empty() => Name::of_ascii(text),
        _ => Name::of(&serde_json::from_slice::<String>(json).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// JSON values, and some that are none.
    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            6 => (0_u64..5000).prop_map(|n| n.to_string()),
            3 => select(vec![
                "0", "-0", "-1", "007", "1.5", "0.50", "1.", "1e3", "1.5E-2", "1099511627776", "1099511627777",
                "9999999999999999999", "18446744073709551615", "18446744073709551616", "99999999999999999999",
                "null", "true", "false", "nul", "[]", "[1,{}]", "",
            ]).prop_map(str::to_owned),
            1 => select(vec![
                r#""""#, r#""12""#, r#""default""#, r#""a\"b""#, r#""\u0041""#, r#""\x""#, r#""你好""#, "\"tab\there\"",
                r#""a text longer than a word, with {braces}, [brackets]""#, r#""open"#,
            ]).prop_map(str::to_owned),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| object(inner).boxed())
    }

    fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        let name = select(vec![
            "prompt_tokens",
            "input_tokens",
            "completion_tokens",
            "output_tokens",
            "cached_tokens",
            "cache_read_input_tokens",
            "prompt_tokens_details",
            "input_tokens_details",
            "total_tokens",
            r"prompt\u005ftokens",
            "é",
            "",
        ]);
        let member = (name, select(vec![":", ":", ":", " : "]), value)
            .prop_map(|(name, colon, value)| format!("\"{name}\"{colon}{value}"));
        let between = select(vec![",", ",", ",", ",", " ,\n\t", ",,"]);
        let ends = select(vec![
            ("{", "}"),
            ("{", "}"),
            ("{", "}"),
            (" { ", " } "),
            ("{", ""),
        ]);
        (proptest::collection::vec(member, 0..6), between, ends).prop_map(
            |(members, between, (start, end))| format!("{start}{}{end}", members.join(between)),
        )
    }

    proptest! {
        #[test]
        fn plain_json_says_what_serde_says(text in prop_oneof![9 => object(value()), 1 => value()]) {
            if let Some(counts) = Counts::read(text.as_bytes()) {
                prop_assert_eq!(Some(counts), Counts::read_any(text.as_bytes()));
            }
        }

        #[test]
        fn usages_of_whole_numbers_are_plain(
            counts in proptest::collection::btree_map("[a-z_]{1,20}", 0_u64..1 << 62, 0..8),
            pretty: bool,
        ) {
            let text = if pretty {
                serde_json::to_string_pretty(&serde_json::json!({ "x": counts, "total": 1.25 }))
            } else {
                serde_json::to_string(&counts)
            };
            prop_assert!(Counts::read(text.unwrap().as_bytes()).is_some());
        }

        #[test]
        fn a_model_is_what_serde_reads(text in prop_oneof![
            r#"[ \n]?"([ -~é\t]|\\"|\\n){0,40}"[ \n]?"#,
            value(),
        ]) {
            let expected = serde_json::from_str::<String>(&text).ok();
            let model = name_of(text.as_bytes());
            prop_assert_eq!(model.as_deref(), expected.as_deref());
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            usage_of(&bytes);
            let _ = Read::at_front(&bytes);
        }
    }

    #[test]
    fn a_name_that_stands_twice_makes_no_usage() {
        for text in [
            r#"{"prompt_tokens":1,"prompt_tokens":2}"#,
            r#"{"prompt_tokens":1,"prompt_tokens_details":null,"prompt_tokens_details":{}}"#,
        ] {
            let usage = usage_of(text.as_bytes());
            assert_eq!(usage, Usage::default(), "{text}");
        }
    }

    #[test]
    fn a_message_beside_a_response_spoils_neither() {
        let mut found = Found::default();
        let event = r#"{"message":null,"response":{"model":"m","usage":{"input_tokens":7}}}"#;
        from_event(event.as_bytes(), &mut found);
        assert_eq!(found.model.as_deref(), Some("m"));
        assert_eq!(found.usage.input, Some(7));
    }

    #[test]
    fn a_count_that_is_none_spoils_no_other() {
        for (text, input, output, cached) in [
            (
                r#"{"prompt_tokens":12,"completion_tokens":34}"#,
                Some(12),
                Some(34),
                None,
            ),
            (
                r#"{"input_tokens":12,"output_tokens":34}"#,
                Some(12),
                Some(34),
                None,
            ),
            (
                r#"{"prompt_tokens":12,"input_tokens":13}"#,
                Some(12),
                None,
                None,
            ),
            (
                r#"{"prompt_tokens":12.5,"completion_tokens":34}"#,
                None,
                Some(34),
                None,
            ),
            (
                r#"{"prompt_tokens":-1,"completion_tokens":"34"}"#,
                None,
                None,
                None,
            ),
            (
                r#"{"prompt_tokens":18446744073709551615,"completion_tokens":1}"#,
                None,
                Some(1),
                None,
            ),
            (
                r#"{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":7}}"#,
                Some(9),
                None,
                Some(7),
            ),
            (
                r#"{"prompt_tokens":9,"prompt_tokens_details":7}"#,
                Some(9),
                None,
                None,
            ),
            ("null", None, None, None),
        ] {
            let usage = usage_of(text.as_bytes());
            assert_eq!(
                (usage.input, usage.output, usage.cached),
                (input, output, cached),
                "{text}"
            );
        }
    }
}
