//! An SGLang engine as a pure state machine: requests go in, time passes, tokens come out, and the
//! KV pool fills and drains as it would. No I/O, no clock: `now` is the time since the start.
//!
//! What is simulated is what can be seen from outside: queues, batches and their durations, the
//! pool, the hand-over from prefill to decode, and when gauges are published. A request is admitted
//! only when the pool has room for its whole output, so there is no retraction.

mod pool;
mod report;
mod schedule;

use super::page::{Labels, Page};
use super::rng::Rng;
use crate::kv::Role;
use pool::Pool;
use schedule::Batch;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

pub use report::Loads;

/// What kind of engine is simulated, and how fast it is.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Prefill, decode, or both.
    pub role: Role,
    /// The name in labels and answers.
    pub model: String,
    /// Tokens that the pool can hold. Default is 2,581,504.
    pub capacity: u64,
    /// Tokens in a page. Default is 64.
    pub page_size: u64,
    /// Tensor-parallel ranks. Default is 4.
    pub ranks: u32,
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

/// A request inside the engine.
#[derive(Debug)]
struct Job {
    request: Request,
    arrived: Duration,
    /// When it entered the stage it is in.
    since: Duration,
    /// Prompt tokens found in the cache.
    hit: u64,
    /// Whether its prefix is locked in the pool.
    locked: bool,
    /// Pages it holds itself.
    pages: u64,
    /// Pages set aside while its KV arrives.
    aside: u64,
    /// Pages it may come to hold, which were promised to it when it was admitted.
    promised: u64,
    /// Prompt tokens whose KV exists, cached ones included.
    prefilled: u64,
    generated: u64,
    first_token: Option<Duration>,
    last_token: Duration,
    /// Prefill: how long the handshake and the wait for space took.
    bootstrapped: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Prefill: the decode side is ready.
    PeerReady(RequestId),
    /// Prefill: the KV is sent.
    Sent(RequestId),
    /// A decode engine alone: the KV arrives.
    Arrived(u64),
}

/// The engine. See the module's head.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    now: Duration,
    page: Page,
    /// Varies durations; the order of the page has a generator of its own, so that reading the
    /// page changes nothing else.
    rng: Rng,
    order: Rng,
    pool: Pool,
    /// Pages promised to admitted requests, cached prefixes in use included.
    promised: u64,
    jobs: HashMap<RequestId, Job>,
    rooms: HashMap<u64, RequestId>,
    next_id: RequestId,
    timers: BTreeMap<(Duration, u64), Timer>,
    next_timer: u64,
    batch: Option<Batch>,
    /// The request whose prompt is prefilled in several batches.
    chunked: Option<RequestId>,
    bootstrap: VecDeque<RequestId>,
    waiting: VecDeque<RequestId>,
    running: Vec<RequestId>,
    inflight: Vec<RequestId>,
    prealloc: VecDeque<RequestId>,
    transfer: Vec<RequestId>,
    /// Rooms that the decode side was ready for before their request came.
    early: VecDeque<u64>,
    events: Vec<Event>,
    steps: u64,
    /// Tokens decoded and time of the last report.
    decoded: u64,
    reported: Duration,
    hit_rate: f64,
    gen_throughput: f64,
    idle_since: Option<Duration>,
    next_idle_report: Duration,
}

/// Rooms remembered for requests that have not come yet.
const MAX_EARLY: usize = 4_096;

impl Engine {
    /// An engine that has just started, at time 0.
    #[must_use]
    pub fn new(config: EngineConfig) -> Engine {
        let page_size = config.page_size.max(1);
        let config = EngineConfig {
            page_size,
            ..config
        };
        let mut page = Page::new(Labels {
            model_name: config.model.clone(),
            engine_type: config.role.as_str(),
            ranks: config.ranks.max(1),
        });
        let pages = config.capacity / page_size;
        for (name, value) in [
            ("max_total_num_tokens", pages * page_size),
            ("page_size", page_size),
            ("num_pages", pages),
            ("context_len", config.context_length),
        ] {
            page.set(name, &[], value as f64);
        }
        let mut engine = Engine {
            rng: Rng::new(config.seed),
            order: Rng::new(config.seed ^ 0x5eed),
            pool: Pool::new(pages),
            next_idle_report: config.idle_interval,
            config,
            page,
            now: Duration::ZERO,
            promised: 0,
            jobs: HashMap::new(),
            rooms: HashMap::new(),
            next_id: 1,
            timers: BTreeMap::new(),
            next_timer: 0,
            batch: None,
            chunked: None,
            bootstrap: VecDeque::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            inflight: Vec::new(),
            prealloc: VecDeque::new(),
            transfer: Vec::new(),
            early: VecDeque::new(),
            events: Vec::new(),
            steps: 0,
            decoded: 0,
            reported: Duration::ZERO,
            hit_rate: 0.0,
            gen_throughput: 0.0,
            idle_since: Some(Duration::ZERO),
        };
        if engine.config.warmup {
            engine.report();
        }
        engine
    }

    /// How it is set.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Takes a request in.
    ///
    /// # Errors
    /// When it can never fit, or when too many wait.
    pub fn submit(&mut self, now: Duration, request: Request) -> Result<RequestId, Refused> {
        self.advance(now);
        let request = Request {
            prompt: request.prompt.max(1),
            output: self.output(&request),
            ..request
        };
        let limit = self
            .config
            .context_length
            .min(self.pool.capacity() * self.config.page_size);
        let asked = request.prompt.saturating_add(request.output);
        if asked > limit {
            return Err(Refused::TooLong { asked, limit });
        }
        let queued = self.bootstrap.len() + self.waiting.len() + self.prealloc.len();
        if queued >= self.config.max_queued {
            return Err(Refused::QueueFull);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.jobs.insert(id, Job::new(request, self.now));
        if let Some(room) = request.room {
            self.rooms.insert(room, id);
        }
        self.idle_since = None;
        match self.config.role {
            Role::Unified => self.waiting.push_back(id),
            Role::Decode => self.prealloc.push_back(id),
            Role::Prefill => {
                self.bootstrap.push_back(id);
                let early = request
                    .room
                    .and_then(|room| self.early.iter().position(|early| *early == room));
                if let Some(early) = early {
                    self.early.remove(early);
                }
                if early.is_some() || self.config.alone || request.room.is_none() {
                    self.timer(self.config.handshake, Timer::PeerReady(id));
                }
            }
        }
        self.kick();
        Ok(id)
    }

    /// Drops a request whose client has gone. Without effect for one that is gone already.
    pub fn abort(&mut self, now: Duration, id: RequestId) {
        self.advance(now);
        if let Some(room) = self.remove(id, false) {
            self.events.push(Event::Aborted { room });
        }
        self.kick();
    }

    /// The other side of a room has aborted; what is left of it here fails.
    pub fn abort_room(&mut self, now: Duration, room: u64) {
        self.advance(now);
        self.early.retain(|early| *early != room);
        if let Some(id) = self.rooms.get(&room).copied() {
            self.remove(id, false);
            self.events.push(Event::Failed { id });
        }
        self.kick();
    }

    /// Prefill: the decode side has room for the KV of this room's request.
    pub fn peer_ready(&mut self, now: Duration, room: u64) {
        self.advance(now);
        match self.rooms.get(&room).copied() {
            Some(id) => self.timer(self.config.handshake, Timer::PeerReady(id)),
            None => {
                if self.early.len() >= MAX_EARLY {
                    self.early.pop_front();
                }
                self.early.push_back(room);
            }
        }
    }

    /// Decode: the KV of this room's request has come.
    pub fn kv_arrived(&mut self, now: Duration, room: u64) {
        self.advance(now);
        self.arrived(room);
        self.kick();
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Duration) {
        while let Some(at) = self.next_wake().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = self.now.max(now);
    }

    /// When something happens next without anything coming in.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let batch = self.batch.as_ref().map(|batch| batch.end);
        let timer = self.timers.keys().next().map(|(at, _)| *at);
        let idle = self.idle_since.map(|_| self.next_idle_report);
        [batch, timer, idle].into_iter().flatten().min()
    }

    /// What has happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Evicts the prefix cache, as `/flush_cache` does; false while requests are in the engine.
    pub fn flush_cache(&mut self) -> bool {
        let idle = self.jobs.is_empty();
        if idle {
            self.pool.flush();
        }
        idle
    }

    /// The Prometheus page now.
    #[must_use]
    pub fn render(&mut self) -> String {
        self.page.render(&mut self.order)
    }

    /// Counts a request that the HTTP server has begun.
    pub fn http_started(&mut self, method: &str, endpoint: &str) {
        self.page
            .add("http_requests_total", &[endpoint, method], 1.0);
        self.page
            .add("http_requests_active", &[endpoint, method], 1.0);
    }

    /// Counts a request that the HTTP server has ended, with the status if there was an answer.
    pub fn http_ended(&mut self, method: &str, endpoint: &str, status: Option<u16>) {
        self.page
            .add("http_requests_active", &[endpoint, method], -1.0);
        if let Some(status) = status {
            let status = status.to_string();
            self.page
                .add("http_responses_total", &[endpoint, method, &status], 1.0);
        }
    }

    fn output(&self, request: &Request) -> u64 {
        match self.config.role {
            Role::Prefill => 1,
            _ => request.output.max(1),
        }
    }

    fn timer(&mut self, after: Duration, timer: Timer) {
        self.next_timer += 1;
        self.timers
            .insert((self.now + after, self.next_timer), timer);
    }

    fn pages(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.config.page_size)
    }
}

impl Job {
    fn new(request: Request, now: Duration) -> Job {
        Job {
            request,
            arrived: now,
            since: now,
            hit: 0,
            locked: false,
            pages: 0,
            aside: 0,
            promised: 0,
            prefilled: 0,
            generated: 0,
            first_token: None,
            last_token: now,
            bootstrapped: Duration::ZERO,
        }
    }

    /// Tokens whose KV it holds itself.
    fn own_tokens(&self) -> u64 {
        self.prefilled.saturating_sub(self.hit) + self.generated
    }
}

#[cfg(test)]
mod tests;
