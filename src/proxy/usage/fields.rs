//! The members that carry usage, model and content, in the spellings of the APIs behind routers:
//! OpenAI chat, completions and responses, Anthropic messages, SGLang `/generate`.

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
    let Ok(tokens) = serde_json::from_slice::<Tokens<'_>>(text) else {
        return;
    };
    let details = [tokens.prompt_tokens_details, tokens.input_tokens_details]
        .into_iter()
        .flatten()
        .find_map(|d| {
            serde_json::from_str::<Details<'_>>(d.get())
                .ok()?
                .cached_tokens
        });
    let first = |names: &[Option<&RawValue>]| names.iter().flatten().find_map(|raw| count(raw));
    let input = first(&[tokens.prompt_tokens, tokens.input_tokens]);
    let output = first(&[tokens.completion_tokens, tokens.output_tokens]);
    let cached = first(&[
        details,
        tokens.cached_tokens,
        tokens.cache_read_input_tokens,
    ]);
    usage.input = input.or(usage.input);
    usage.output = output.or(usage.output);
    usage.cached = cached.or(usage.cached);
}

/// A whole number that can be a number of tokens.
fn count(raw: &RawValue) -> Option<u64> {
    raw.get().parse().ok().filter(|n| *n <= MOST_TOKENS)
}

fn text_of(json: &[u8]) -> Option<Box<str>> {
    // Without an escape, as nearly always, the text is borrowed.
    let text = match serde_json::from_slice::<&str>(json) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(serde_json::from_slice::<String>(json).ok()?),
    };
    (text.len() <= LONGEST_MODEL).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

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
