//! An SGLang engine as a pure state machine: requests go in, time passes, tokens come out, and the
//! KV pool fills and drains as it would. No I/O, no clock: `now` is the time since the start.
//!
//! What is simulated is what can be seen from outside: queues, batches and their durations, the
//! pool, the hand-over from prefill to decode, retraction where the pool is promised too often, and
//! when gauges are published.

mod handover;
mod parallel;
mod pool;
mod report;
mod retract;
mod schedule;
mod types;

use super::page::{Labels, Page};
use super::rng::Rng;
use crate::kv::Role;
use pool::Pool;
use schedule::Batch;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

pub use parallel::DataParallel;
pub use report::Loads;
pub use types::{EngineConfig, Event, Prefix, Refused, Request, RequestId};

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
    /// Decode: requests that lost their room to others and wait for new one.
    retracted: VecDeque<RequestId>,
    /// The scheduler hangs: time passes, and nothing happens.
    stalled: bool,
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
        Engine::of_rank(config, None)
    }

    /// The same, as one of several data-parallel ranks.
    fn of_rank(config: EngineConfig, dp_rank: Option<u32>) -> Engine {
        let page_size = config.page_size.max(1);
        let config = EngineConfig {
            page_size,
            ..config
        };
        let mut page = Page::new(Labels {
            model_name: config.model.clone(),
            engine_type: config.role.as_str(),
            ranks: dp_rank.map_or(config.ranks.max(1), |_| 1),
            dp_rank,
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
            retracted: VecDeque::new(),
            stalled: false,
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
        if self.stalled {
            // It is noticed when there is somebody to notice it.
            self.timer(Duration::ZERO, Timer::Arrived(room));
            return;
        }
        self.arrived(room);
        self.kick();
    }

    /// The scheduler hangs from now on: requests are taken in, and nothing happens with them; the page
    /// stands still.
    pub fn stall(&mut self, now: Duration) {
        self.advance(now);
        self.stalled = true;
    }

    /// The scheduler goes on where it was.
    pub fn resume(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.stalled = false;
        self.kick();
        self.advance(now);
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
        if self.stalled {
            return None;
        }
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
        Page::render(&[&self.page], &mut self.order)
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
