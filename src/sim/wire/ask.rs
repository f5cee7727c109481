//! What a client asks: the parts of the `OpenAI` and SGLang request bodies that matter here, and the
//! wishes that a test can put into the text.

use crate::sim::engine::{Prefix, Request};
use crate::sim::rng::stable_hash;
use serde::Deserialize;
use serde::de::Error as _;
use std::time::Duration;

/// Which API a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/generate`, SGLang's own.
    Generate,
}

/// A request that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) model: Option<String>,
    pub(crate) request: Request,
    /// Whether the output ends because of `max_tokens`.
    pub(crate) capped: bool,
    pub(crate) include_usage: bool,
    /// Whether there are `stream_options` at all.
    pub(crate) stream_options: bool,
    /// The same for the same prompt: decides the words of the answer.
    pub(crate) seed: u64,
    pub(crate) wishes: Wishes,
}

/// What a test asks of the simulation, as words `sim:name=value` anywhere in a user's message or in
/// the prompt. Routers re-serialise bodies and drop fields (sglang-router 0.3.2: `user` too); text
/// passes everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// `sim:status=503`: answer with this error.
    pub(crate) status: Option<u16>,
    /// `sim:abort=3`: break off after so many content events; 0 or not streamed: before the head.
    pub(crate) abort: Option<u64>,
    /// `sim:delay=200`: wait so many milliseconds before anything.
    pub(crate) delay: Duration,
    /// `sim:prompt=20000`: as if the prompt had so many tokens.
    pub(crate) prompt: Option<u64>,
    /// `sim:output=300`: an output of so many tokens, unless `max_tokens` is less.
    pub(crate) output: Option<u64>,
    /// `sim:prefix=8000`: share the first so many tokens with all who wish the same.
    pub(crate) prefix: Option<u64>,
}

/// Why a body was not understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadAsk {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("max_tokens must be at least 1, got {0}.")]
    MaxTokens(i64),
    #[error("messages must not be empty.")]
    NoMessages,
}

#[derive(Deserialize)]
struct Wire {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    prompt: Option<Prompt>,
    text: Option<Prompt>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    sampling_params: Option<Sampling>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    bootstrap_room: Option<Room>,
    /// Whom a router that knows the data-parallel ranks chose.
    data_parallel_rank: Option<u32>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<i64>),
}

#[derive(Deserialize)]
struct Sampling {
    max_new_tokens: Option<i64>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Room {
    One(u64),
    Several(Vec<u64>),
}

/// Tokens that a chat template adds.
const TEMPLATE: u64 = 8;

impl Ask {
    /// Reads a body.
    pub(crate) fn read(api: Api, body: &[u8]) -> Result<Ask, BadAsk> {
        let wire: Wire = serde_json::from_slice(body)?;
        let (system, text) = match api {
            Api::Chat => {
                let messages = wire.messages.ok_or(BadAsk::Json(missing("messages")))?;
                chat(&messages)?
            }
            Api::Completions => {
                let prompt = wire.prompt.ok_or(BadAsk::Json(missing("prompt")))?;
                (String::new(), prompt.text())
            }
            Api::Generate => {
                let prompt = wire.text.ok_or(BadAsk::Json(missing("text")))?;
                (String::new(), prompt.text())
            }
        };
        let mut wishes = Wishes::default();
        wishes.read(&text);
        let sampled = wire.sampling_params.and_then(|s| s.max_new_tokens);
        let limit = wire.max_completion_tokens.or(wire.max_tokens).or(sampled);
        let limit = match limit {
            Some(n) => Some(
                u64::try_from(n)
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or(BadAsk::MaxTokens(n))?,
            ),
            None => None,
        };
        let seed = stable_hash(text.as_bytes());
        // Answers have a length of their own, so that not all of them end at `max_tokens`.
        let natural = wishes.output.unwrap_or(40 + seed % 160).max(1);
        let output = natural.min(limit.unwrap_or(u64::MAX));
        let prompt = tokens(&system) + tokens(&text) + TEMPLATE;
        let prompt = wishes.prompt.unwrap_or(prompt).max(1);
        let prefix = match wishes.prefix {
            Some(tokens) => Some(Prefix {
                key: tokens,
                tokens,
            }),
            None if system.is_empty() => None,
            None => Some(Prefix {
                key: stable_hash(system.as_bytes()),
                tokens: tokens(&system),
            }),
        };
        Ok(Ask {
            api,
            model: wire.model.filter(|model| !model.is_empty()),
            request: Request {
                prompt,
                output,
                prefix,
                stream: wire.stream.unwrap_or(false),
                room: wire.bootstrap_room.and_then(|room| match room {
                    Room::One(room) => Some(room),
                    Room::Several(rooms) => rooms.first().copied(),
                }),
                dp_rank: wire.data_parallel_rank,
            },
            capped: output < natural,
            stream_options: wire.stream_options.is_some(),
            include_usage: wire
                .stream_options
                .and_then(|options| options.include_usage)
                .unwrap_or(false),
            seed,
            wishes,
        })
    }
}

impl Wishes {
    fn read(&mut self, text: &str) {
        let words = text
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter_map(|word| word.strip_prefix("sim:")?.split_once('='));
        for (name, value) in words {
            let number: Option<u64> = value.parse().ok();
            match name {
                "status" => self.status = value.parse().ok().filter(|s| (400..600).contains(s)),
                "abort" => self.abort = number,
                "delay" => self.delay = Duration::from_millis(number.unwrap_or(0)),
                "prompt" => self.prompt = number,
                "output" => self.output = number,
                "prefix" => self.prefix = number,
                _ => {}
            }
        }
    }
}

/// The system part and all the rest of a conversation.
fn chat(messages: &[Message]) -> Result<(String, String), BadAsk> {
    if messages.is_empty() {
        return Err(BadAsk::NoMessages);
    }
    let (mut system, mut rest) = (String::new(), String::new());
    for message in messages {
        let to = match message.role.as_str() {
            "system" | "developer" => &mut system,
            _ => &mut rest,
        };
        match &message.content {
            Some(Content::Text(text)) => to.push_str(text),
            Some(Content::Parts(parts)) => parts
                .iter()
                .filter_map(|part| part.text.as_deref())
                .for_each(|text| to.push_str(text)),
            None => {}
        }
        to.push('\n');
    }
    Ok((system, rest))
}

impl Prompt {
    fn text(self) -> String {
        match self {
            Prompt::Text(text) => text,
            Prompt::Texts(texts) => texts.join("\n"),
            // Four bytes a token, as `tokens` counts.
            Prompt::Tokens(tokens) => tokens.iter().map(|t| format!("{t:4}")).collect(),
        }
    }
}

/// About four bytes a token, as in English text.
fn tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

fn missing(field: &str) -> serde_json::Error {
    serde_json::Error::custom(format!("missing field `{field}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Result<Ask, BadAsk> {
        Ask::read(Api::Chat, body.as_bytes())
    }

    #[test]
    fn reads_what_a_router_sends() {
        let ask = chat(
            r#"{"model":"m","messages":[{"role":"system","content":"12345678"},
            {"role":"user","content":[{"type":"text","text":"hello"}]}],
            "max_completion_tokens":3,"stream":true,"stream_options":{"include_usage":true},
            "bootstrap_host":"127.0.0.1","bootstrap_port":8998,"bootstrap_room":42,
            "data_parallel_rank":2}"#,
        )
        .unwrap();
        assert_eq!(ask.model.as_deref(), Some("m"));
        assert_eq!((ask.request.output, ask.capped), (3, true));
        assert_eq!(ask.request.room, Some(42));
        assert_eq!(ask.request.dp_rank, Some(2));
        assert_eq!(ask.request.prefix.unwrap().tokens, 3);
        assert_eq!(ask.request.prompt, 3 + 2 + TEMPLATE);
        assert!(ask.request.stream && ask.include_usage);
    }

    #[test]
    fn wishes_stand_in_the_text() {
        let ask = chat(
            r#"{"messages":[{"role":"user","content":"x sim:prompt=900 sim:output=7,sim:abort=2"},
            {"role":"user","content":"sim:status=429 sim:delay=5 sim:unknown=1 sim:status"}]}"#,
        )
        .unwrap();
        assert_eq!((ask.request.prompt, ask.request.output), (900, 7));
        assert_eq!(ask.wishes.abort, Some(2));
        assert_eq!(ask.wishes.status, Some(429));
        assert_eq!(ask.wishes.delay, Duration::from_millis(5));
        assert!(!ask.capped);
    }

    #[test]
    fn refuses_what_is_no_request() {
        for body in [
            "{bad",
            "[]",
            "{}",
            r#"{"messages":[]}"#,
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":0}"#,
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":-9223372036854775808}"#,
        ] {
            assert!(chat(body).is_err(), "{body}");
        }
        assert!(Ask::read(Api::Completions, br#"{"model":"m"}"#).is_err());
        let ask = Ask::read(Api::Completions, br#"{"prompt":[1,2,3]}"#).unwrap();
        assert_eq!(ask.request.prompt, 3 + TEMPLATE);
        let ask = Ask::read(
            Api::Generate,
            br#"{"text":"hi","sampling_params":{"max_new_tokens":2}}"#,
        );
        assert_eq!(ask.unwrap().request.output, 2);
    }
}
