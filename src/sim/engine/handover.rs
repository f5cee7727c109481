//! The hand-over from prefill to decode: room is set aside, the KV is sent, the request joins.

use super::{Engine, Event, RequestId, Timer};
use std::time::Duration;

impl Engine {
    /// Decode: sets room aside for requests, in order, as long as there is some.
    pub(super) fn preallocate(&mut self) {
        // Who has lost its room comes first.
        if !self.retracted.is_empty() {
            return;
        }
        while let Some(id) = self.prealloc.front().copied() {
            if !self.admit(id) {
                return;
            }
            self.prealloc.pop_front();
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            let aside = (job.request.prompt - job.hit).div_ceil(self.config.page_size);
            if self.pool.set_aside(aside) {
                job.aside = aside;
            }
            let waited = self.now.saturating_sub(job.arrived);
            let (room, prompt) = (job.request.room, job.request.prompt);
            job.since = self.now;
            self.transfer.push(id);
            self.stage("decode_prepare", waited);
            if let Some(room) = room {
                self.events.push(Event::Preallocated { room });
            }
            match room {
                Some(room) if self.config.alone => {
                    let prefill = prompt as f64 / self.config.prefill_rate.max(1) as f64;
                    let after = self.transfer_time(prompt) + Duration::from_secs_f64(prefill);
                    self.timer(after, Timer::Arrived(room));
                }
                Some(_) => {}
                None => self.received(id),
            }
            self.count_evictions();
        }
    }

    /// Decode: the KV of a room's request is here.
    pub(super) fn arrived(&mut self, room: u64) {
        if let Some(id) = self.rooms.get(&room).copied() {
            self.received(id);
        }
    }

    fn received(&mut self, id: RequestId) {
        let Some(index) = self.transfer.iter().position(|other| *other == id) else {
            return;
        };
        self.transfer.remove(index);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let took = self.now.saturating_sub(job.since);
        self.pool.arrived(job.aside);
        job.pages += job.aside;
        job.aside = 0;
        job.prefilled = job.request.prompt;
        job.since = self.now;
        self.waiting.push_back(id);
        self.stage("decode_bootstrap", took.min(self.config.handshake));
        self.stage("decode_transferred", took);
    }

    /// Decode: what has arrived joins the running batch, with the token that prefill made.
    pub(super) fn join_arrived(&mut self) {
        while self.running.len() < self.config.max_running {
            let Some(id) = self.waiting.pop_front() else {
                return;
            };
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            let waited = self.now.saturating_sub(job.since);
            job.since = self.now;
            self.page
                .observe("queue_time_seconds", &[], waited.as_secs_f64());
            self.stage("decode_waiting", waited);
            self.running.push(id);
            self.token(id);
        }
    }

    /// Prefill: the decode side is ready for the request.
    pub(super) fn bootstrapped(&mut self, id: RequestId) {
        let Some(index) = self.bootstrap.iter().position(|other| *other == id) else {
            return;
        };
        self.bootstrap.remove(index);
        if let Some(job) = self.jobs.get_mut(&id) {
            let took = self.now.saturating_sub(job.arrived);
            job.bootstrapped = took;
            job.since = self.now;
            self.waiting.push_back(id);
            self.stage("prefill_bootstrap", took);
        }
    }

    /// Prefill: the KV is with the decode side.
    pub(super) fn sent(&mut self, id: RequestId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let took = self.now.saturating_sub(job.since);
        let bytes = (job.request.prompt * self.config.kv_bytes_per_token) as f64;
        let seconds = took.as_secs_f64().max(1e-9);
        let (room, waited) = (job.request.room, job.bootstrapped);
        for (name, value) in [
            ("kv_transfer_latency_ms", seconds * 1e3),
            ("kv_transfer_total_mb", bytes / 1e6),
            ("kv_transfer_speed_gb_s", bytes / 1e9 / seconds),
            (
                "kv_transfer_bootstrap_ms",
                self.config.handshake.as_secs_f64() * 1e3,
            ),
            ("kv_transfer_alloc_ms", waited.as_secs_f64() * 1e3),
        ] {
            self.page.observe(name, &[], value);
        }
        self.stage("prefill_transfer_kv_cache", took);
        if let Some(room) = room {
            self.events.push(Event::KvSent { room });
        }
        self.token(id);
    }

    pub(super) fn transfer_time(&self, tokens: u64) -> Duration {
        let bytes = tokens.saturating_mul(self.config.kv_bytes_per_token) as f64;
        Duration::from_secs_f64(bytes / self.config.transfer_rate.max(1) as f64)
    }
}
