//! The members that carry usage, model and content, in the spellings of the APIs behind routers:
//! OpenAI chat, completions and responses, Anthropic messages, SGLang `/generate`.

use super::plain::{self, Value};
use super::{Found, Member};
use crate::telemetry::log::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Model names longer than this are not kept.
const LONGEST_MODEL: usize = 256;

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
    #[serde(alias = "message")]
    response: Option<&'a RawValue>,
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

/// What the members of a JSON answer say.
pub(super) fn from_members(model: &Member, usage: &Member, meta: &Member) -> Found {
    let mut found = Found::default();
    if let Some(text) = model.value() {
        found.model = text_of(text);
    }
    for member in [usage, meta] {
        if let Some(text) = member.value() {
            take_usage(text, &mut found.usage);
        }
    }
    found
}

/// The model a request's body names.
pub(crate) fn model_of(member: &Member) -> Option<Box<str>> {
    text_of(member.value()?)
}

/// Takes in what an event says; true when it carries content.
pub(super) fn from_event(data: &[u8], found: &mut Found) -> bool {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
        // Not a shape known here, so content as far as anyone can tell.
        return true;
    };
    let nested: Option<Nested<'_>> = event
        .response
        .and_then(|r| serde_json::from_str(r.get()).ok());
    let nested = nested.as_ref();
    if found.model.is_none() {
        let model = event.model.or_else(|| nested.and_then(|n| n.model));
        found.model = model.and_then(|m| text_of(m.get().as_bytes()));
    }
    for usage in [nested.and_then(|n| n.usage), event.usage, event.meta_info]
        .into_iter()
        .flatten()
    {
        take_usage(usage.get().as_bytes(), &mut found.usage);
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
fn take_usage(text: &[u8], usage: &mut Usage) {
    let Some(counts) = Counts::read(text).or_else(|| Counts::read_any(text)) else {
        return;
    };
    let [prompt, completion, cached] = [counts.prompt, counts.completion, counts.cached];
    let [details, more_details] = counts.details;
    let cached = details.or(more_details).flatten().or(first(cached));
    usage.input = first(prompt).or(usage.input);
    usage.output = first(completion).or(usage.output);
    usage.cached = cached.or(usage.cached);
}

fn first([one, other]: [Option<u64>; 2]) -> Option<u64> {
    one.or(other)
}

/// A usage, each count by its two names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    prompt: [Option<u64>; 2],
    completion: [Option<u64>; 2],
    cached: [Option<u64>; 2],
    /// Of the prompt's details, `cached_tokens`, if there is one, and if that is a count.
    details: [Option<Option<u64>>; 2],
}

impl Counts {
    /// Of a usage in plain JSON, as nearly every one is; of another, nothing.
    fn read(text: &[u8]) -> Option<Counts> {
        let mut counts = Counts::default();
        // A name that stands twice makes it no usage: that is left to serde.
        let mut seen = 0_u16;
        let mut once = |name: usize| {
            let before = seen;
            seen |= 1 << name;
            (before != seen).then_some(())
        };
        // Whose details are being read.
        let mut inside = None;
        plain::members(text, |depth, name, value| {
            if depth > 0 {
                let details = inside.filter(|_| depth == 1 && name == b"cached_tokens");
                let Some(which) = details else {
                    return Some(());
                };
                counts.details[which] = (value != Value::Null).then(|| as_count(value));
                return once(6 + which);
            }
            inside = None;
            let (at, count) = match name {
                b"prompt_tokens" => (0, &mut counts.prompt[0]),
                b"input_tokens" => (1, &mut counts.prompt[1]),
                b"completion_tokens" => (2, &mut counts.completion[0]),
                b"output_tokens" => (3, &mut counts.completion[1]),
                b"cached_tokens" => (4, &mut counts.cached[0]),
                b"cache_read_input_tokens" => (5, &mut counts.cached[1]),
                b"prompt_tokens_details" | b"input_tokens_details" => {
                    let which = usize::from(name[0] == b'i');
                    inside = Some(which);
                    return once(8 + which);
                }
                _ => return Some(()),
            };
            *count = as_count(value);
            once(at)
        })?;
        Some(counts)
    }

    /// Of any usage.
    fn read_any(text: &[u8]) -> Option<Counts> {
        let tokens: Tokens<'_> = serde_json::from_slice(text).ok()?;
        let cached = |details: Option<&RawValue>| {
            let details: Details<'_> = serde_json::from_str(details?.get()).ok()?;
            details.cached_tokens.map(count)
        };
        let count = |raw: Option<&RawValue>| raw.and_then(count);
        Some(Counts {
            prompt: [tokens.prompt_tokens, tokens.input_tokens].map(count),
            completion: [tokens.completion_tokens, tokens.output_tokens].map(count),
            cached: [tokens.cached_tokens, tokens.cache_read_input_tokens].map(count),
            details: [tokens.prompt_tokens_details, tokens.input_tokens_details].map(cached),
        })
    }
}

fn as_count(value: Value) -> Option<u64> {
    match value {
        Value::Count(count) if count <= MOST_TOKENS => Some(count),
        _ => None,
    }
}

/// A whole number that can be a number of tokens.
fn count(raw: &RawValue) -> Option<u64> {
    raw.get().parse().ok().filter(|n| *n <= MOST_TOKENS)
}

fn text_of(json: &[u8]) -> Option<Box<str>> {
    // Without an escape, as nearly always, the text is borrowed.
    let text = match plain::string(json) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(serde_json::from_slice::<String>(json).ok()?),
    };
    (text.len() <= LONGEST_MODEL).then(|| text.into())
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
            let model = text_of(text.as_bytes());
            prop_assert_eq!(model.as_deref(), expected.as_deref());
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            take_usage(&bytes, &mut Usage::default());
        }
    }

    #[test]
    fn a_name_that_stands_twice_makes_no_usage() {
        for text in [
            r#"{"prompt_tokens":1,"prompt_tokens":2}"#,
            r#"{"prompt_tokens":1,"prompt_tokens_details":null,"prompt_tokens_details":{}}"#,
        ] {
            let mut usage = Usage::default();
            take_usage(text.as_bytes(), &mut usage);
            assert_eq!(usage, Usage::default(), "{text}");
        }
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
            let mut usage = Usage::default();
            take_usage(text.as_bytes(), &mut usage);
            assert_eq!(
                (usage.input, usage.output, usage.cached),
                (input, output, cached),
                "{text}"
            );
        }
    }
}
