//! What an engine's server answers: JSON bodies and streams of server-sent events, field by field as
//! SGLang writes them.

use super::Body;
use super::ask::{Api, Ask};
use super::body::Broken;
use crate::sim::engine::EngineConfig;
use crate::sim::runner::{End, Progress, Ticket};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write as _;
use std::time::SystemTime;
use tokio::sync::mpsc;

/// One answer in the making.
#[derive(Debug)]
pub(crate) struct Answer {
    ask: Ask,
    id: String,
    created: u64,
    model: String,
    /// Tokens from one event to the next.
    interval: u64,
}

#[derive(Serialize)]
struct Failure<'a> {
    object: &'a str,
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: u16,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
    reasoning_tokens: u64,
}

#[derive(Serialize)]
struct Details {
    cached_tokens: u64,
}

#[derive(Serialize)]
struct Completion<'a, C> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    choices: Vec<C>,
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

#[derive(Serialize)]
struct Metadata {
    weight_version: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: Option<&'a str>,
    content: Option<&'a str>,
    reasoning_content: Option<&'a str>,
    tool_calls: Option<&'a str>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    logprobs: Option<&'a str>,
    finish_reason: Option<&'a str>,
    matched_stop: Option<&'a str>,
}

impl Answer {
    pub(crate) fn new(ask: Ask, config: &EngineConfig) -> Answer {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Answer {
            // A router names the model "unknown" where the client didn't, and the engine repeats it.
            model: ask.model.clone().unwrap_or_else(|| config.model.clone()),
            ask,
            id: uuid::Uuid::now_v7().simple().to_string(),
            created: since_epoch.map_or(0, |time| time.as_secs()),
            interval: config.stream_interval.max(1),
        }
    }

    /// The whole answer, once the request has ended. `None` when it failed.
    pub(crate) async fn whole(self, mut ticket: Ticket) -> Option<String> {
        let progress = ticket.end().await;
        if progress.end == Some(End::Failed) {
            return None;
        }
        let text = words(self.ask.seed, 0, progress.tokens);
        if self.ask.api == Api::Generate {
            return Some(self.generate(&text, progress));
        }
        let mut choice = self.choice(&text, self.finish());
        choice.message = choice.delta.take().map(|delta| Message {
            role: Some("assistant"),
            ..delta
        });
        Some(self.json(
            self.object(false),
            vec![choice],
            Some(self.usage(progress)),
            true,
        ))
    }

    /// The answer as it is made. `guard` is dropped when it has ended, however.
    pub(crate) fn stream(self, mut ticket: Ticket, guard: impl Send + 'static) -> Body {
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            let _guard = guard;
            // A client that leaves ends the work: the ticket is dropped.
            tokio::select! {
                _ = self.send(&sender, &mut ticket) => {}
                () = sender.closed() => {}
            }
        });
        Body::Stream(receiver)
    }

    async fn send(
        &self,
        to: &mpsc::Sender<Result<Bytes, Broken>>,
        ticket: &mut Ticket,
    ) -> Result<(), mpsc::error::SendError<Result<Bytes, Broken>>> {
        let mut seen = 0;
        let mut events = 0;
        loop {
            let progress = ticket.after(seen + self.interval - 1).await;
            if progress.end == Some(End::Failed) || self.ask.wishes.abort == Some(events) {
                return to.send(Err(Broken)).await;
            }
            let mut out = String::new();
            if seen == 0 && self.ask.api == Api::Chat {
                let mut choice = self.choice("", None);
                if let Some(delta) = &mut choice.delta {
                    delta.role = Some("assistant");
                }
                self.event(&mut out, vec![choice], None);
            }
            if progress.tokens > seen {
                let text = words(self.ask.seed, seen, progress.tokens);
                if self.ask.api == Api::Generate {
                    // SGLang's own API repeats the whole text in each event.
                    let text = words(self.ask.seed, 0, progress.tokens);
                    let _ = write!(out, "data: {}\n\n", self.generate(&text, progress));
                } else {
                    self.event(&mut out, vec![self.choice(&text, None)], None);
                }
                seen = progress.tokens;
                events += 1;
            }
            if progress.end.is_some() {
                self.close(&mut out, progress);
                return to.send(Ok(out.into())).await;
            }
            to.send(Ok(out.into())).await?;
        }
    }

    fn close(&self, out: &mut String, progress: Progress) {
        if self.ask.api != Api::Generate {
            let mut choice = self.choice("", self.finish());
            choice.delta = choice.delta.map(|delta| Message {
                content: None,
                ..delta
            });
            self.event(out, vec![choice], None);
            if self.ask.include_usage {
                self.event(out, Vec::new(), Some(self.usage(progress)));
            }
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn event(&self, out: &mut String, choices: Vec<Choice<'_>>, usage: Option<Usage>) {
        let json = self.json(self.object(true), choices, usage, false);
        let _ = write!(out, "data: {json}\n\n");
    }

    fn json(
        &self,
        object: &str,
        choices: Vec<Choice<'_>>,
        usage: Option<Usage>,
        last: bool,
    ) -> String {
        serde_json::to_string(&Completion {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage,
            metadata: last.then_some(Metadata {
                weight_version: "default",
            }),
        })
        .unwrap_or_default()
    }

    fn choice<'a>(&self, text: &'a str, finish_reason: Option<&'a str>) -> Choice<'a> {
        let chat = self.ask.api == Api::Chat;
        Choice {
            index: 0,
            message: None,
            delta: chat.then_some(Message {
                role: None,
                content: Some(text),
                reasoning_content: None,
                tool_calls: None,
            }),
            text: (!chat).then_some(text),
            logprobs: None,
            finish_reason,
            matched_stop: None,
        }
    }

    fn generate(&self, text: &str, progress: Progress) -> String {
        let finish = progress.end.and_then(|_| self.finish());
        let finish = finish.map(|kind| json!({"type": kind, "length": progress.tokens}));
        json!({
            "text": text,
            "meta_info": {
                "id": self.id,
                "finish_reason": finish,
                "prompt_tokens": self.ask.request.prompt,
                "completion_tokens": progress.tokens,
                "cached_tokens": progress.cached,
                "weight_version": "default",
            },
        })
        .to_string()
    }

    fn usage(&self, progress: Progress) -> Usage {
        Usage {
            prompt_tokens: self.ask.request.prompt,
            total_tokens: self.ask.request.prompt + progress.tokens,
            completion_tokens: progress.tokens,
            prompt_tokens_details: (progress.cached > 0).then_some(Details {
                cached_tokens: progress.cached,
            }),
            reasoning_tokens: 0,
        }
    }

    fn finish(&self) -> Option<&'static str> {
        Some(if self.ask.capped { "length" } else { "stop" })
    }

    fn object(&self, stream: bool) -> &'static str {
        match (self.ask.api, stream) {
            (Api::Chat, true) => "chat.completion.chunk",
            (Api::Chat, false) => "chat.completion",
            _ => "text_completion",
        }
    }
}

/// An answer with a JSON body, as a worker sends it.
pub(crate) fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    response(status, "application/json", Body::Whole(body.into()))
}

/// An answer of any type.
pub(crate) fn response(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An error as SGLang words it.
pub(crate) fn error_body(status: StatusCode, message: &str) -> String {
    let kind = match status.as_u16() {
        400 => "BadRequestError",
        404 => "NotFoundError",
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    };
    serde_json::to_string(&Failure {
        object: "error",
        message,
        kind,
        param: None,
        code: status.as_u16(),
    })
    .unwrap_or_default()
}

/// The words of tokens `from` to `to`: always the same for the same seed.
fn words(seed: u64, from: u64, to: u64) -> String {
    const WORDS: [&str; 24] = [
        "the ", "cache ", "holds ", "keys ", "and ", "values ", "of ", "every ", "token ", "that ",
        "a ", "request ", "has ", "seen; ", "when ", "it ", "ends, ", "its ", "pages ", "are ",
        "free ", "for ", "others ", "again. ",
    ];
    let start = seed % WORDS.len() as u64;
    (from..to)
        .map(|i| WORDS[((start + i) % WORDS.len() as u64) as usize])
        .collect()
}
