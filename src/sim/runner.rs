//! Runs an engine in real time: tokio's clock moves it, requests wait on it, and prefill and decode
//! engines that were paired hand over to each other.

use super::engine::{DataParallel, EngineConfig, Event, Loads, Refused, Request, RequestId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A running engine. Clones are handles to the same engine; it stops when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Runner {
    shared: Arc<Shared>,
    _task: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Something came in, so the driver must look again when to wake.
    wake: Notify,
    condition: watch::Sender<Condition>,
}

#[derive(Debug)]
struct Inner {
    engine: DataParallel,
    /// When the engine's process began.
    began: Instant,
    /// How often it has begun anew.
    life: u64,
    condition: Condition,
    watchers: HashMap<RequestId, watch::Sender<Progress>>,
    peers: Vec<Weak<Shared>>,
}

/// What state an engine's process is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It does its work.
    #[default]
    Serving,
    /// Its scheduler hangs. The HTTP server beside it answers, as in SGLang: the page stands still,
    /// requests are taken and wait.
    Hung,
    /// There is no such process: connections are refused.
    Down,
    /// A new process has begun; routers don't send it anything yet.
    Starting,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tokens generated so far.
    pub tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached: u64,
    /// How it ended, when it has.
    pub end: Option<End>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With all its tokens.
    Finished,
    /// Its other half is gone.
    Failed,
}

/// A request in an engine. Dropping it before its end aborts the request, as a client that leaves
/// does.
#[derive(Debug)]
pub struct Ticket {
    runner: Runner,
    id: RequestId,
    progress: watch::Receiver<Progress>,
}

impl Runner {
    /// Starts an engine on the current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(config: EngineConfig) -> Runner {
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner {
                engine: DataParallel::new(config),
                began: Instant::now(),
                life: 0,
                condition: Condition::default(),
                watchers: HashMap::new(),
                peers: Vec::new(),
            }),
            wake: Notify::new(),
            condition: watch::Sender::default(),
        });
        let task = tokio::spawn(drive(Arc::clone(&shared)));
        Runner {
            shared,
            _task: Arc::new(AbortOnDrop(task)),
        }
    }

    /// Lets a prefill and a decode engine hand over to each other.
    pub fn pair(&self, other: &Runner) {
        self.shared.lock().peers.push(Arc::downgrade(&other.shared));
        other.shared.lock().peers.push(Arc::downgrade(&self.shared));
    }

    /// Gives the engine a request.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit(&self, request: Request) -> Result<Ticket, Refused> {
        let (sender, progress) = watch::channel(Progress::default());
        let id = {
            let mut inner = self.shared.lock();
            match inner.condition {
                Condition::Serving | Condition::Hung => {}
                Condition::Down => return Err(Refused::Down),
                Condition::Starting => return Err(Refused::Starting),
            }
            let now = inner.now();
            let id = inner.engine.submit(now, request)?;
            inner.watchers.insert(id, sender);
            id
        };
        pump(&self.shared);
        Ok(Ticket {
            runner: self.clone(),
            id,
            progress,
        })
    }

    /// The Prometheus page now.
    #[must_use]
    pub fn page(&self) -> String {
        pump(&self.shared);
        self.shared.lock().engine.render()
    }

    /// What `/v1/loads` says now of each data-parallel rank.
    #[must_use]
    pub fn loads_of_ranks(&self) -> Vec<Loads> {
        pump(&self.shared);
        self.shared.lock().engine.loads()
    }

    /// The same of all ranks together.
    #[must_use]
    pub fn loads(&self) -> Loads {
        Loads::together(&self.loads_of_ranks())
    }

    /// What becomes of the engine's process now. One that goes down takes everything in it with it.
    pub fn set(&self, condition: Condition) {
        let old = self.shared.lock().condition;
        if old == condition {
            return;
        }
        if condition == Condition::Down {
            {
                let mut inner = self.shared.lock();
                let now = inner.now();
                inner.engine.abort_all(now);
            }
            // The engines that it worked with hear of it.
            pump(&self.shared);
        }
        self.shared.lock().turn(condition);
        self.shared.condition.send_replace(condition);
        pump(&self.shared);
    }

    /// What state the engine's process is in, and how to wait for another one.
    #[must_use]
    pub fn condition(&self) -> watch::Receiver<Condition> {
        self.shared.condition.subscribe()
    }

    /// How the engine is set.
    #[must_use]
    pub fn config(&self) -> EngineConfig {
        self.shared.lock().engine.config().clone()
    }

    /// Evicts the prefix cache; false while requests are in the engine.
    pub fn flush_cache(&self) -> bool {
        pump(&self.shared);
        self.shared.lock().engine.flush_cache()
    }

    /// The life of the process that counts it; [`Runner::http_ended`] wants it back.
    pub(crate) fn http_started(&self, method: &str, endpoint: &str) -> u64 {
        let mut inner = self.shared.lock();
        inner.engine.http_started(method, endpoint);
        inner.life
    }

    pub(crate) fn http_ended(&self, life: u64, method: &str, endpoint: &str, status: Option<u16>) {
        let mut inner = self.shared.lock();
        if inner.life == life {
            inner.engine.http_ended(method, endpoint, status);
        }
    }
}

impl Ticket {
    /// Waits until there are more than `seen` tokens, or the request has ended.
    pub async fn after(&mut self, seen: u64) -> Progress {
        let waited = self
            .progress
            .wait_for(|p| p.tokens > seen || p.end.is_some())
            .await
            .map(|progress| *progress);
        let last = *self.progress.borrow();
        // An error: the engine is gone.
        waited.unwrap_or(Progress {
            end: Some(End::Failed),
            ..last
        })
    }

    /// Waits until the request has ended.
    pub async fn end(&mut self) -> Progress {
        self.after(u64::MAX).await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.progress.borrow().end.is_none() {
            let shared = &self.runner.shared;
            {
                let mut inner = shared.lock();
                let now = inner.now();
                inner.watchers.remove(&self.id);
                inner.engine.abort(now, self.id);
            }
            pump(shared);
        }
    }
}

impl Shared {
    /// A panic elsewhere is no reason to stop a simulation.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the engine catch up with the clock, tells who waits, and passes on what concerns its peers,
/// until nothing is left to pass on. Holds one engine's lock at a time.
fn pump(start: &Arc<Shared>) {
    start.wake.notify_one();
    catch_up(start);
}

fn catch_up(start: &Arc<Shared>) {
    let mut todo = vec![Arc::clone(start)];
    while let Some(shared) = todo.pop() {
        let mut messages = Vec::new();
        let peers = {
            let mut inner = shared.lock();
            let now = inner.now();
            inner.engine.advance(now);
            for event in inner.engine.take_events() {
                inner.tell(event);
                if matches!(
                    event,
                    Event::Preallocated { .. } | Event::KvSent { .. } | Event::Aborted { .. }
                ) {
                    messages.push(event);
                }
            }
            inner.peers.clone()
        };
        if messages.is_empty() {
            continue;
        }
        for peer in peers.iter().filter_map(Weak::upgrade) {
            let mut inner = peer.lock();
            let now = inner.now();
            for message in &messages {
                match *message {
                    Event::Preallocated { room } => inner.engine.peer_ready(now, room),
                    Event::KvSent { room } => inner.engine.kv_arrived(now, room),
                    Event::Aborted { room } => inner.engine.abort_room(now, room),
                    _ => {}
                }
            }
            drop(inner);
            peer.wake.notify_one();
            todo.push(peer);
        }
    }
}

impl Inner {
    /// Since the process began; its clock stands while there is none.
    fn now(&self) -> Duration {
        match self.condition {
            Condition::Down => Duration::ZERO,
            _ => Instant::now().saturating_duration_since(self.began),
        }
    }

    fn turn(&mut self, condition: Condition) {
        let (old, now) = (self.condition, self.now());
        match condition {
            Condition::Hung => self.engine.stall(now),
            Condition::Down => {
                self.engine = DataParallel::new(self.engine.config().clone());
                self.life += 1;
                for (_, watcher) in self.watchers.drain() {
                    watcher.send_modify(|p| p.end = Some(End::Failed));
                }
            }
            Condition::Starting | Condition::Serving => {}
        }
        match old {
            Condition::Hung if condition != Condition::Down => self.engine.resume(now),
            Condition::Down => self.began = Instant::now(),
            _ => {}
        }
        self.condition = condition;
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Tokens { id, total, cached } => {
                if let Some(watcher) = self.watchers.get(&id) {
                    watcher.send_modify(|p| {
                        p.tokens = total;
                        p.cached = cached;
                    });
                }
            }
            Event::Finished { id } => self.end(id, End::Finished),
            Event::Failed { id } => self.end(id, End::Failed),
            _ => {}
        }
    }

    fn end(&mut self, id: RequestId, end: End) {
        if let Some(watcher) = self.watchers.remove(&id) {
            watcher.send_modify(|p| p.end = Some(end));
        }
    }
}

/// Nothing is to be done; something that comes in will wake the driver.
const FAR: Duration = Duration::from_secs(3_600);

async fn drive(shared: Arc<Shared>) {
    loop {
        catch_up(&shared);
        let notified = shared.wake.notified();
        let at = {
            let inner = shared.lock();
            let down = inner.condition == Condition::Down;
            let next = inner.engine.next_wake().filter(|_| !down);
            next.map_or_else(|| Instant::now() + FAR, |next| inner.began + next)
        };
        if at <= Instant::now() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            () = notified => {}
        }
    }
}

/// Ends a task when dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Role;

    fn request(prompt: u64, output: u64, room: Option<u64>) -> Request {
        Request {
            prompt,
            output,
            prefix: None,
            stream: true,
            room,
            dp_rank: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_runs_a_request_to_its_end() {
        let runner = Runner::start(EngineConfig::new(Role::Unified, "m"));
        let began = Instant::now();
        let mut ticket = runner.submit(request(1_000, 40, None)).unwrap();
        assert_eq!(ticket.after(0).await.tokens, 1);
        let end = ticket.end().await;
        assert_eq!((end.tokens, end.end), (40, Some(End::Finished)));
        let took = began.elapsed();
        assert!((0.9..1.3).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn paired_engines_hand_over_and_count_each_others_requests() {
        let prefill = Runner::start(EngineConfig::new(Role::Prefill, "m"));
        let decode = Runner::start(EngineConfig::new(Role::Decode, "m"));
        prefill.pair(&decode);
        let mut first = prefill.submit(request(30_000, 20, Some(9))).unwrap();
        let mut second = decode.submit(request(30_000, 20, Some(9))).unwrap();
        assert_eq!(first.end().await.tokens, 1);
        let end = second.end().await;
        assert_eq!((end.tokens, end.end), (20, Some(End::Finished)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_goes_down_takes_its_requests_along_and_begins_anew() {
        let prefill = Runner::start(EngineConfig::new(Role::Prefill, "m"));
        let decode = Runner::start(EngineConfig::new(Role::Decode, "m"));
        prefill.pair(&decode);
        let _first = prefill.submit(request(30_000, 2_000, Some(9))).unwrap();
        let mut second = decode.submit(request(30_000, 2_000, Some(9))).unwrap();
        second.after(100).await;
        assert!(decode.page().contains("sglang:kv_used_tokens{"));
        // One more is on its way when it happens.
        let mut third = prefill.submit(request(60_000, 20, Some(10))).unwrap();
        let mut fourth = decode.submit(request(60_000, 20, Some(10))).unwrap();
        decode.set(Condition::Down);
        assert_eq!(second.end().await.end, Some(End::Failed));
        assert_eq!(fourth.end().await.end, Some(End::Failed));
        assert_eq!(third.end().await.end, Some(End::Failed));
        let again = decode.submit(request(10, 10, Some(11)));
        assert_eq!(again.unwrap_err(), Refused::Down);
        tokio::time::sleep(Duration::from_secs(300)).await;
        decode.set(Condition::Starting);
        assert!(!decode.page().contains("sglang:kv_used_tokens{"));
        let again = decode.submit(request(10, 10, Some(11)));
        assert_eq!(again.unwrap_err(), Refused::Starting);
        decode.set(Condition::Serving);
        let _fifth = prefill.submit(request(1_000, 100, Some(12))).unwrap();
        let mut sixth = decode.submit(request(1_000, 100, Some(12))).unwrap();
        assert_eq!(sixth.end().await.end, Some(End::Finished));
        let page = decode.page();
        let finished = page
            .lines()
            .find(|line| line.starts_with("sglang:num_requests_total{"));
        assert!(finished.unwrap().ends_with(" 1.0"), "{finished:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hung_scheduler_stands_still_and_goes_on_where_it_was() {
        let runner = Runner::start(EngineConfig::new(Role::Unified, "m"));
        let mut ticket = runner.submit(request(30_000, 400, None)).unwrap();
        let seen = ticket.after(100).await.tokens;
        runner.set(Condition::Hung);
        let gauges = |page: String| {
            let gauge = |line: &&str| line.starts_with("sglang:num_") || line.contains("_used_");
            page.lines()
                .filter(gauge)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut before = gauges(runner.page());
        let mut late = runner.submit(request(1_000, 10, None)).unwrap();
        let waited = tokio::time::timeout(Duration::from_secs(30), ticket.after(seen)).await;
        assert!(waited.is_err(), "no token comes of a hung scheduler");
        let mut after = gauges(runner.page());
        before.sort();
        after.sort();
        assert_eq!(before, after);
        runner.set(Condition::Serving);
        for ticket in [&mut ticket, &mut late] {
            assert_eq!(ticket.end().await.end, Some(End::Finished));
        }
        assert_eq!(runner.loads().num_used_tokens, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_ticket_frees_both_sides() {
        let prefill = Runner::start(EngineConfig::new(Role::Prefill, "m"));
        let decode = Runner::start(EngineConfig::new(Role::Decode, "m"));
        prefill.pair(&decode);
        let mut first = prefill.submit(request(100_000, 20, Some(9))).unwrap();
        let second = decode.submit(request(100_000, 20, Some(9))).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(prefill.loads().num_used_tokens > 0);
        drop(second);
        assert_eq!(first.end().await.end, Some(End::Failed));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(prefill.loads().num_used_tokens, 0);
        assert_eq!(decode.loads().decode_transfer_queue_reqs, 0);
    }
}
