//! How an engine is set, what it is given, and what it says.

use crate::kv::Role;
use std::time::Duration;

/// What kind of engine is simulated, and how fast it is.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Prefill, decode, or both.
    pub role: Role,
    /// The name in labels and answers.
    pub model: String,
    /// Tokens that the pool can hold; with several data-parallel ranks, that the pool of each can.
    /// Default is 2,581,504.
    pub capacity: u64,
    /// Tokens in a page. Default is 64.
    pub page_size: u64,
    /// Tensor-parallel ranks. Default is 4.
    pub ranks: u32,
    /// Data-parallel ranks, each with a pool of its own (DP attention: every one of them is one
    /// tensor-parallel rank, whatever `ranks` says). Default is 1: no such ranks.
    pub dp_ranks: u32,
    /// Decode: output tokens that there must be room for when a request is admitted, as SGLang's
    /// `--num-reserved-decode-tokens`. Where longer outputs then fill the pool, requests are
    /// retracted: they lose their room and wait for new one. Default is none: the whole output, so
    /// that nothing is ever retracted.
    pub reserved_output: Option<u64>,
    /// The longest request in tokens, output included. Default is 163,840.
    pub context_length: u64,
    /// Requests that run at a time. Default is 2,048.
    pub max_running: usize,
    /// Requests that may wait; more are refused. Default is 4,096.
    pub max_queued: usize,
    /// Prompt tokens of one prefill batch. Default is 16,384.
    pub prefill_chunk: u64,
    /// Prompt tokens a second. Default is 250,000.
    pub prefill_rate: u64,
    /// One decode step, up to a tenth shorter or longer. Default is 25 ms.
    pub decode_step: Duration,
    /// Decode steps between two reports. Default is 40.
    pub log_interval: u64,
    /// Between two reports of an idle engine. Default is 30 s.
    pub idle_interval: Duration,
    /// Whether finished requests stay as an evictable prefix cache. Default is true, but on
    /// decode engines false.
    pub prefix_cache: bool,
    /// Size of one token's KV in bytes. Default is 327,680 (80 layers, 8 heads of 128, 16 bits).
    pub kv_bytes_per_token: u64,
    /// Speed of KV transfers in bytes a second. Default is 50 GB/s.
    pub transfer_rate: u64,
    /// How long prefill and decode take to find each other. Default is 4 ms.
    pub handshake: Duration,
    /// A prefill or decode engine without the other one: transfers are made up, as with SGLang's
    /// fake transfer backend. Default is false.
    pub alone: bool,
    /// Tokens from one event of a streamed answer to the next. Default is 1.
    pub stream_interval: u64,
    /// Whether there is a page at `/metrics` (`--enable-metrics`). Default is true.
    pub metrics: bool,
    /// Whether a warm-up at start has published the gauges. Default is false.
    pub warmup: bool,
    /// The same seed and requests give the same run.
    pub seed: u64,
}

impl EngineConfig {
    /// An engine of the given role with the defaults.
    #[must_use]
    pub fn new(role: Role, model: &str) -> EngineConfig {
        EngineConfig {
            role,
            model: model.to_owned(),
            capacity: 2_581_504,
            page_size: 64,
            ranks: 4,
            dp_ranks: 1,
            reserved_output: None,
            context_length: 163_840,
            max_running: 2_048,
            max_queued: 4_096,
            prefill_chunk: 16_384,
            prefill_rate: 250_000,
            decode_step: Duration::from_millis(25),
            log_interval: 40,
            idle_interval: Duration::from_secs(30),
            prefix_cache: role != Role::Decode,
            kv_bytes_per_token: 327_680,
            transfer_rate: 50_000_000_000,
            handshake: Duration::from_millis(4),
            alone: false,
            stream_interval: 1,
            metrics: true,
            warmup: false,
            seed: 1,
        }
    }
}

/// A part of the prompt that other requests share: the first `tokens` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Equal for equal prefixes.
    pub key: u64,
    /// Its length in tokens.
    pub tokens: u64,
}

/// One request, as far as an engine cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Prompt tokens, at least 1.
    pub prompt: u64,
    /// Tokens to generate, at least 1.
    pub output: u64,
    /// What it shares with others.
    pub prefix: Option<Prefix>,
    /// Whether it is streamed; only a label.
    pub stream: bool,
    /// What prefill and decode recognise each other's half of the request by.
    pub room: Option<u64>,
    /// The data-parallel rank that it is for, as a router that knows them says. None: any.
    pub dp_rank: Option<u32>,
}

/// Names a request within its engine.
pub type RequestId = u64;

/// Why an engine does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It could never fit.
    #[error(
        "The request has {asked} tokens with its output, and the longest context is {limit} tokens."
    )]
    TooLong {
        /// Prompt and output in tokens.
        asked: u64,
        /// What fits, in tokens.
        limit: u64,
    },
    /// Too many are waiting.
    #[error("The request queue is full.")]
    QueueFull,
    /// The process is not there.
    #[error("Connection refused.")]
    Down,
    /// It has just started, and no router sends it anything yet.
    #[error("No available workers.")]
    Starting,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request has so many output tokens now.
    Tokens {
        /// Which request.
        id: RequestId,
        /// Generated so far.
        total: u64,
        /// Prompt tokens that were found in the prefix cache.
        cached: u64,
    },
    /// The request has all its tokens and is gone from the engine.
    Finished {
        /// Which request.
        id: RequestId,
    },
    /// The request's other half is gone, so this one is too.
    Failed {
        /// Which request.
        id: RequestId,
    },
    /// Decode: there is room for the KV of this room's request.
    Preallocated {
        /// The room.
        room: u64,
    },
    /// Prefill: the KV of this room's request has been sent.
    KvSent {
        /// The room.
        room: u64,
    },
    /// The request of this room was aborted.
    Aborted {
        /// The room.
        room: u64,
    },
}

impl Event {
    /// With another name for the request that it is about.
    pub(super) fn renamed(self, name: impl FnOnce(RequestId) -> RequestId) -> Event {
        match self {
            Event::Tokens { id, total, cached } => Event::Tokens {
                id: name(id),
                total,
                cached,
            },
            Event::Finished { id } => Event::Finished { id: name(id) },
            Event::Failed { id } => Event::Failed { id: name(id) },
            other => other,
        }
    }
}
