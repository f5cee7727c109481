//! A server's data-parallel ranks: engines with a pool of their own each, behind one HTTP server and on
//! one page. Most servers have one rank and no such label.

use super::{Engine, EngineConfig, Event, Loads, Refused, Request, RequestId};
use crate::sim::page::Page;
use crate::sim::rng::Rng;
use std::time::Duration;

/// The ranks of one server. As an [`Engine`], but for `loads`, which each rank has its own of.
#[derive(Debug)]
pub struct DataParallel {
    ranks: Vec<Engine>,
    config: EngineConfig,
    order: Rng,
    /// Whose turn it is.
    next: u64,
}

impl DataParallel {
    /// A server that has just started, at time 0.
    #[must_use]
    pub fn new(config: EngineConfig) -> DataParallel {
        let n = config.dp_ranks.max(1);
        let rank = |dp: u32| {
            let seed = config.seed.wrapping_add(u64::from(dp) << 32);
            let config = EngineConfig {
                seed,
                ..config.clone()
            };
            Engine::of_rank(config, (n > 1).then_some(dp))
        };
        let ranks: Vec<Engine> = (0..n).map(rank).collect();
        DataParallel {
            order: Rng::new(config.seed ^ 0x5eed),
            config: ranks.first().map_or(config, |rank| rank.config().clone()),
            ranks,
            next: 0,
        }
    }

    /// How it is set.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Takes a request in: on the rank that it names, else on each in turn.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit(&mut self, now: Duration, request: Request) -> Result<RequestId, Refused> {
        let n = self.ranks.len() as u64;
        let rank = match request.dp_rank {
            Some(rank) => u64::from(rank),
            None => {
                self.next += 1;
                self.next - 1
            }
        } % n;
        let Some(engine) = self.ranks.get_mut(rank as usize) else {
            return Err(Refused::Down);
        };
        Ok(engine.submit(now, request)? * n + rank)
    }

    /// Drops a request whose client has gone.
    pub fn abort(&mut self, now: Duration, id: RequestId) {
        let n = self.ranks.len() as u64;
        if let Some(engine) = self.ranks.get_mut((id % n) as usize) {
            engine.abort(now, id / n);
        }
    }

    /// The process ends: everything in it is gone.
    pub fn abort_all(&mut self, now: Duration) {
        for engine in &mut self.ranks {
            let mut ids: Vec<RequestId> = engine.jobs.keys().copied().collect();
            ids.sort_unstable();
            for id in ids {
                engine.abort(now, id);
            }
        }
    }

    /// The other side of a room has aborted.
    pub fn abort_room(&mut self, now: Duration, room: u64) {
        self.each(|engine| engine.abort_room(now, room));
    }

    /// Prefill: the decode side has room for the KV of this room's request.
    pub fn peer_ready(&mut self, now: Duration, room: u64) {
        self.each(|engine| engine.peer_ready(now, room));
    }

    /// Decode: the KV of this room's request has come.
    pub fn kv_arrived(&mut self, now: Duration, room: u64) {
        self.each(|engine| engine.kv_arrived(now, room));
    }

    /// The schedulers hang from now on.
    pub fn stall(&mut self, now: Duration) {
        self.each(|engine| engine.stall(now));
    }

    /// The schedulers go on where they were.
    pub fn resume(&mut self, now: Duration) {
        self.each(|engine| engine.resume(now));
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Duration) {
        self.each(|engine| engine.advance(now));
    }

    /// When something happens next without anything coming in.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.ranks.iter().filter_map(Engine::next_wake).min()
    }

    /// What has happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        let n = self.ranks.len() as u64;
        let mut all = Vec::new();
        for (rank, engine) in (0..).zip(&mut self.ranks) {
            let named = |event: Event| event.renamed(|id| id * n + rank);
            all.extend(engine.take_events().into_iter().map(named));
        }
        all
    }

    /// Evicts the prefix caches; false while requests are in a rank.
    pub fn flush_cache(&mut self) -> bool {
        let mut all = true;
        self.each(|engine| all &= engine.flush_cache());
        all
    }

    /// The Prometheus page now.
    #[must_use]
    pub fn render(&mut self) -> String {
        let pages: Vec<&Page> = self.ranks.iter().map(|engine| &engine.page).collect();
        Page::render(&pages, &mut self.order)
    }

    /// The load of each rank now.
    #[must_use]
    pub fn loads(&self) -> Vec<Loads> {
        self.ranks.iter().map(Engine::loads).collect()
    }

    /// Counts a request that the HTTP server has begun.
    pub fn http_started(&mut self, method: &str, endpoint: &str) {
        if let Some(first) = self.ranks.first_mut() {
            first.http_started(method, endpoint);
        }
    }

    /// Counts a request that the HTTP server has ended, with the status if there was an answer.
    pub fn http_ended(&mut self, method: &str, endpoint: &str, status: Option<u16>) {
        if let Some(first) = self.ranks.first_mut() {
            first.http_ended(method, endpoint, status);
        }
    }

    fn each(&mut self, what: impl FnMut(&mut Engine)) {
        self.ranks.iter_mut().for_each(what);
    }
}
