//! What all connections of one worker share. A worker is one thread, so nothing here is locked.

use super::error::{ProxyError, Stage, Who};
use super::notes::SpareNotes;
use super::stack::UpstreamPool;
use crate::config::Settings;
use crate::net::{Addresses, Pool, PoolLimits};
use crate::publish::{OwnStamps, Stamps};
use crate::telemetry::Meters;
use crate::telemetry::log::Sink;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How far the process is on its way out. Only ever moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Everything is accepted.
    Serving,
    /// Readiness is off, so that nobody sends new traffic; everything is still accepted, and each
    /// answer is its connection's last.
    Leaving,
    /// The listener is closed; what runs may finish.
    Draining,
    /// What still runs is cut.
    Cutting,
}

/// How busy one worker is; read by the acceptor, and by admission for all workers together.
#[derive(Debug, Default)]
pub struct Load {
    requests: AtomicUsize,
    connections: AtomicUsize,
    /// Grows while the worker's thread goes on.
    beats: AtomicUsize,
}

/// See the [module](self) description.
pub struct Worker {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The current stamp.
    pub stamps: OwnStamps,
    /// Where log lines go.
    pub sink: Sink,
    /// Metric handles.
    pub meters: Meters,
    /// This worker's load.
    pub load: Arc<Load>,
    /// Every worker's load, for the limit on requests in flight.
    pub loads: Arc<[Arc<Load>]>,
    /// Connections to the router.
    pub pool: UpstreamPool,
    /// For the requests to come.
    pub(super) spare_notes: SpareNotes,
    phase: Cell<Phase>,
    complained: Cell<Option<Instant>>,
}

/// Between two complaints of one worker's about the router, or of the acceptor's.
pub(super) const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

impl Worker {
    /// A worker that serves.
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        stamps: &Stamps,
        sink: Sink,
        meters: Meters,
        index: usize,
        loads: Arc<[Arc<Load>]>,
        addresses: Arc<Addresses>,
    ) -> Worker {
        let limits = PoolLimits {
            connect: settings.timeouts.connect,
            idle: settings.upstream_pool.idle,
            max_age: settings.upstream_pool.max_age,
            max_idle: settings.upstream_pool.max_idle,
            header_fields: settings.limits.header_fields,
            header_bytes: settings.limits.header_bytes,
        };
        Worker {
            pool: Pool::following(settings.upstream.clone(), limits, addresses),
            load: loads.get(index).map(Arc::clone).unwrap_or_default(),
            settings,
            stamps: stamps.own(),
            sink,
            meters,
            loads,
            spare_notes: SpareNotes::default(),
            phase: Cell::new(Phase::Serving),
            complained: Cell::new(None),
        }
    }

    /// How far the process is on its way out.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Moves on.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.set(phase.max(self.phase.get()));
    }

    /// Says on standard error what is wrong with the router, or that there is no descriptor for it, now
    /// and then: the log has every case.
    pub fn complain(&self, error: &ProxyError) {
        let now = Instant::now();
        let quiet = self
            .complained
            .get()
            .is_none_or(|last| now.saturating_duration_since(last) >= COMPLAINT_PAUSE);
        let told = error.who == Who::Upstream || error.stage == Stage::Descriptors;
        if told && quiet {
            self.complained.set(Some(now));
            tracing::warn!("{error}");
        }
    }

    /// Requests in flight on all workers.
    #[must_use]
    pub fn requests_everywhere(&self) -> usize {
        self.loads.iter().map(|l| l.requests()).sum()
    }
}

/// A connection that is counted in its worker's load until this is dropped.
#[derive(Debug)]
pub struct Counted(Arc<Load>);

impl Counted {
    /// Counts one more.
    #[must_use]
    pub fn new(load: &Arc<Load>) -> Counted {
        load.connections.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(load))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Load {
    /// Requests whose last byte has not left.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Open client connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The worker's thread goes on.
    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn beats(&self) -> usize {
        self.beats.load(Ordering::Relaxed)
    }

    pub(super) fn request_started(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
