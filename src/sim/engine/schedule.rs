//! What the engine does next: admission, batches, tokens, the end of requests.

use super::{Engine, Event, Job, RequestId, Role, Timer};
use std::time::Duration;

/// A forward pass that is under way.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) start: Duration,
    pub(super) end: Duration,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// Requests and how many of their prompt tokens.
    Prefill(Vec<(RequestId, u64)>),
    /// One token for every running request.
    Decode,
}

impl Engine {
    /// Does the one thing that is due now.
    pub(super) fn step(&mut self) {
        let due = self.batch.as_ref().is_some_and(|b| b.end <= self.now);
        if let Some(batch) = self.batch.take_if(|_| due) {
            self.end_batch(batch);
        } else if let Some(entry) = self.timers.first_entry().filter(|e| e.key().0 <= self.now) {
            match entry.remove() {
                Timer::PeerReady(id) => self.bootstrapped(id),
                Timer::Sent(id) => self.sent(id),
                Timer::Arrived(room) => self.arrived(room),
            }
        } else if self.idle_since.is_some() && self.next_idle_report <= self.now {
            self.report();
            self.next_idle_report = self.now + self.config.idle_interval;
        }
        self.kick();
    }

    /// Begins what can begin.
    pub(super) fn kick(&mut self) {
        if self.stalled {
            return;
        }
        self.preallocate();
        if self.batch.is_none() {
            self.batch = self.next_batch();
        }
        // Going idle is reported at once; an engine that was idle is left to its interval.
        if self.jobs.is_empty() && self.batch.is_none() && self.idle_since.is_none() {
            self.idle_since = Some(self.now);
            self.gen_throughput = 0.0;
            self.report();
            self.next_idle_report = self.now + self.config.idle_interval;
        }
    }

    fn next_batch(&mut self) -> Option<Batch> {
        if self.config.role == Role::Decode {
            self.resume_retracted();
            self.join_arrived();
            self.retract_for_a_step();
        } else if let Some(batch) = self.prefill_batch() {
            return Some(batch);
        }
        if self.running.is_empty() {
            return None;
        }
        let step = self.config.decode_step.mul_f64(0.9 + 0.2 * self.rng.unit())
            + Duration::from_micros(20) * u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        Some(self.batch(Work::Decode, step))
    }

    fn batch(&self, work: Work, duration: Duration) -> Batch {
        Batch {
            start: self.now,
            end: self.now + duration,
            work,
        }
    }

    fn prefill_batch(&mut self) -> Option<Batch> {
        let mut budget = self.config.prefill_chunk.max(1);
        let mut items = Vec::new();
        let (mut tokens, mut hits) = (0, 0);
        if let Some(id) = self.chunked.take() {
            self.prefill_part(id, &mut budget, &mut items);
        }
        while budget > 0 && self.running.len() + items.len() < self.config.max_running {
            let Some(id) = self.waiting.front().copied() else {
                break;
            };
            if !self.admit(id) {
                break;
            }
            self.waiting.pop_front();
            if let Some(job) = self.jobs.get_mut(&id) {
                let waited = self.now.saturating_sub(job.since).as_secs_f64();
                hits += job.hit;
                job.since = self.now;
                self.page.observe("queue_time_seconds", &[], waited);
            }
            self.prefill_part(id, &mut budget, &mut items);
        }
        tokens += items.iter().map(|(_, part)| part).sum::<u64>();
        if items.is_empty() {
            return None;
        }
        self.report_prefill(tokens, hits);
        let rate = self.config.prefill_rate.max(1) as f64;
        let duration = Duration::from_secs_f64(tokens as f64 / rate + 0.002);
        Some(self.batch(Work::Prefill(items), duration))
    }

    /// Puts as much of a prompt into the batch as its budget allows.
    fn prefill_part(&mut self, id: RequestId, budget: &mut u64, items: &mut Vec<(RequestId, u64)>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let rest = job.request.prompt.saturating_sub(job.prefilled);
        let part = rest.min(*budget);
        let after = job.own_tokens() + part;
        let more = after
            .div_ceil(self.config.page_size)
            .saturating_sub(job.pages);
        if self.pool.hold(more) {
            job.pages += more;
        }
        *budget -= part;
        items.push((id, part));
        if part < rest {
            self.chunked = Some(id);
        }
        self.count_evictions();
    }

    /// Promises a request the room for its whole output, and finds its prefix in the cache.
    pub(super) fn admit(&mut self, id: RequestId) -> bool {
        let Some(request) = self.jobs.get(&id).map(|job| job.request) else {
            return true;
        };
        let page = self.config.page_size;
        let (mut hit, mut lock) = (0, 0);
        if let Some(prefix) = request.prefix.filter(|_| self.config.prefix_cache) {
            let (pages, unlocked) = self.pool.cached(prefix.key);
            // The last prompt token is always computed: its output is the first new token.
            hit = (pages * page).min(prefix.tokens).min(request.prompt - 1) / page * page;
            lock = if hit > 0 { unlocked } else { 0 };
        }
        let own = self.pages(request.prompt - hit + self.reserve(request.output));
        if self.promised + own + lock > self.pool.capacity() {
            return false;
        }
        self.promised += own + lock;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.promised = own;
            job.hit = hit;
            job.prefilled = hit;
            job.locked = hit > 0;
        }
        if let Some(prefix) = request.prefix.filter(|_| hit > 0) {
            self.pool.lock(prefix.key);
        }
        true
    }

    fn end_batch(&mut self, batch: Batch) {
        let took = batch.end.saturating_sub(batch.start).as_secs_f64();
        self.page.add(
            "scheduler_stage_seconds_total",
            &["run_batch", "none"],
            took,
        );
        self.page
            .add("scheduler_process_cpu_seconds_total", &[], took);
        match batch.work {
            Work::Prefill(items) => {
                self.page
                    .add("forward_execution_seconds_total", &["extend"], took);
                for (id, part) in items {
                    self.prefilled(id, part);
                }
            }
            Work::Decode => {
                self.page
                    .add("forward_execution_seconds_total", &["decode"], took);
                // Aborted meanwhile: nobody runs, and the pass was for nothing.
                for id in self.running.clone() {
                    self.token(id);
                    self.decoded += 1;
                }
                self.steps += 1;
                if self.steps.is_multiple_of(self.config.log_interval.max(1)) {
                    self.report_decode();
                }
            }
        }
    }

    fn prefilled(&mut self, id: RequestId, part: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.prefilled += part;
        if job.prefilled < job.request.prompt {
            return;
        }
        let took = self.now.saturating_sub(job.since);
        let prompt = job.request.prompt;
        job.since = self.now;
        self.stage("prefill_forward", took);
        if self.config.role == Role::Prefill {
            self.inflight.push(id);
            self.timer(self.transfer_time(prompt), Timer::Sent(id));
        } else {
            self.stage("request_process", self.config.handshake);
            self.running.push(id);
            self.token(id);
        }
    }

    /// One more token; the last one finishes the request.
    pub(super) fn token(&mut self, id: RequestId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.generated += 1;
        let more = job
            .own_tokens()
            .div_ceil(self.config.page_size)
            .saturating_sub(job.pages);
        if more > 0 && self.pool.hold(more) {
            job.pages += more;
            // Beyond what it was admitted with.
            let beyond = job.pages.saturating_sub(job.promised);
            job.promised += beyond;
            self.promised += beyond;
        }
        let (total, cached, output) = (job.generated, job.hit, job.request.output);
        if job.first_token.is_none() {
            job.first_token = Some(self.now);
            let took = self.now.saturating_sub(job.arrived).as_secs_f64();
            let stream = streaming(job);
            self.page
                .observe("time_to_first_token_seconds", &[stream], took);
        } else {
            let took = self.now.saturating_sub(job.last_token).as_secs_f64();
            self.page.observe("inter_token_latency_seconds", &[], took);
        }
        job.last_token = self.now;
        self.events.push(Event::Tokens { id, total, cached });
        if more > 0 {
            self.count_evictions();
        }
        if total >= output {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: RequestId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let stream = streaming(job);
        let (prompt, generated) = (job.request.prompt as f64, job.generated as f64);
        let (hit, whole) = (job.hit as f64, self.now.saturating_sub(job.arrived));
        let decoding = self.now.saturating_sub(job.first_token.unwrap_or(self.now));
        let page = &mut self.page;
        page.observe(
            "e2e_request_latency_seconds",
            &[stream],
            whole.as_secs_f64(),
        );
        if generated > 1.0 {
            page.observe(
                "request_time_per_output_token_seconds",
                &[stream],
                decoding.as_secs_f64() / (generated - 1.0),
            );
        }
        page.observe("prompt_tokens_histogram", &[], prompt);
        page.observe("uncached_prompt_tokens_histogram", &[], prompt - hit);
        page.observe("generation_tokens_histogram", &[], generated);
        page.add("prompt_tokens_total", &[stream], prompt);
        page.add("generation_tokens_total", &[stream], generated);
        if hit > 0.0 {
            page.add("cached_tokens_total", &["device"], hit);
        }
        page.add("num_requests_total", &[stream], 1.0);
        self.remove(id, true);
        self.events.push(Event::Finished { id });
    }

    /// Takes a request out of everything it is in. `keep`: its KV stays as a prefix cache.
    /// The room it was in, if any.
    pub(super) fn remove(&mut self, id: RequestId, keep: bool) -> Option<u64> {
        let job = self.jobs.remove(&id)?;
        for queue in [
            &mut self.bootstrap,
            &mut self.waiting,
            &mut self.prealloc,
            &mut self.retracted,
        ] {
            queue.retain(|other| *other != id);
        }
        for list in [&mut self.running, &mut self.inflight, &mut self.transfer] {
            list.retain(|other| *other != id);
        }
        if self.chunked == Some(id) {
            self.chunked = None;
        }
        self.pool.cancel(job.aside);
        let prefix = job.request.prefix;
        if keep && self.config.prefix_cache {
            let shared = match prefix {
                Some(prefix) if !job.locked => prefix.tokens.min(job.request.prompt),
                _ => 0,
            };
            let shared = (shared / self.config.page_size).min(job.pages);
            self.pool.keep(shared, prefix.map(|prefix| prefix.key));
            self.pool.keep(job.pages - shared, None);
        } else {
            self.pool.release(job.pages);
        }
        if let Some(prefix) = prefix.filter(|_| job.locked) {
            self.promised -= self.pool.unlock(prefix.key).min(self.promised);
        }
        self.promised -= job.promised.min(self.promised);
        let room = job.request.room?;
        if self.rooms.get(&room) == Some(&id) {
            self.rooms.remove(&room);
        }
        Some(room)
    }

    pub(super) fn stage(&mut self, stage: &str, took: Duration) {
        self.page.observe(
            "per_stage_req_latency_seconds",
            &[stage],
            took.as_secs_f64(),
        );
    }

    pub(super) fn count_evictions(&mut self) {
        let evicted = self.pool.take_evicted();
        if evicted > 0 {
            let tokens = (evicted * self.config.page_size) as f64;
            self.page.add("evicted_tokens_total", &[], tokens);
            self.page
                .observe("eviction_duration_seconds", &[], tokens * 2e-8);
        }
    }
}

fn streaming(job: &Job) -> &'static str {
    if job.request.stream { "true" } else { "false" }
}
