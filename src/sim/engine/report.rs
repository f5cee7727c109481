//! When and how an engine publishes: gauges on prefill batches, every so many decode steps and when
//! idle; `/v1/loads` at any time.

use super::{Engine, Role};
use serde::Serialize;

/// The label of the scheduler's process, as the table of families has it.
const PID: &str = "2101";

/// What `/v1/loads` says: the state of now, not that of the last report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loads {
    /// Requests running.
    pub num_running_reqs: u64,
    /// Requests in the waiting queue.
    pub num_waiting_reqs: u64,
    /// Tokens held by requests.
    pub num_used_tokens: u64,
    /// The same and what waiting requests will need.
    pub num_total_tokens: u64,
    /// Tokens that the pool can hold.
    pub max_total_num_tokens: u64,
    /// Share of the pool in use, four decimals.
    pub token_usage: f64,
    /// Tokens generated per second, as of the last report.
    pub gen_throughput: f64,
    /// Prefix cache hit rate of the last prefill batch.
    pub cache_hit_rate: f64,
    /// Requests that may run at a time.
    pub max_running_requests: u64,
    /// Prefill: requests waiting for the decode side.
    pub prefill_bootstrap_queue_reqs: u64,
    /// Prefill: requests whose KV is being sent.
    pub prefill_inflight_queue_reqs: u64,
    /// Decode: requests waiting for KV space.
    pub decode_prealloc_queue_reqs: u64,
    /// Decode: requests whose KV is arriving.
    pub decode_transfer_queue_reqs: u64,
    /// Decode: requests that lost their KV space and wait for new one.
    pub decode_retracted_queue_reqs: u64,
}

impl Loads {
    /// Of several data-parallel ranks, as one: sums, and the plain mean of the hit rates.
    pub(crate) fn together(ranks: &[Loads]) -> Loads {
        let sum = |of: fn(&Loads) -> u64| ranks.iter().map(of).sum::<u64>();
        let (used, capacity) = (
            sum(|rank| rank.num_used_tokens),
            sum(|rank| rank.max_total_num_tokens),
        );
        let mean = ranks.iter().map(|rank| rank.cache_hit_rate).sum::<f64>();
        Loads {
            num_running_reqs: sum(|rank| rank.num_running_reqs),
            num_waiting_reqs: sum(|rank| rank.num_waiting_reqs),
            num_used_tokens: used,
            num_total_tokens: sum(|rank| rank.num_total_tokens),
            max_total_num_tokens: capacity,
            token_usage: round(used as f64 / (capacity as f64).max(1.0), 4),
            gen_throughput: ranks.iter().map(|rank| rank.gen_throughput).sum(),
            cache_hit_rate: mean / (ranks.len() as f64).max(1.0),
            max_running_requests: sum(|rank| rank.max_running_requests),
            prefill_bootstrap_queue_reqs: sum(|rank| rank.prefill_bootstrap_queue_reqs),
            prefill_inflight_queue_reqs: sum(|rank| rank.prefill_inflight_queue_reqs),
            decode_prealloc_queue_reqs: sum(|rank| rank.decode_prealloc_queue_reqs),
            decode_transfer_queue_reqs: sum(|rank| rank.decode_transfer_queue_reqs),
            decode_retracted_queue_reqs: sum(|rank| rank.decode_retracted_queue_reqs),
        }
    }
}

impl Engine {
    /// The load now.
    #[must_use]
    pub fn loads(&self) -> Loads {
        let used = self.pool.held() * self.config.page_size;
        let capacity = self.pool.capacity() * self.config.page_size;
        let waiting = self.tokens_of(self.waiting.iter());
        Loads {
            num_running_reqs: self.running.len() as u64,
            num_waiting_reqs: self.waiting.len() as u64,
            num_used_tokens: used,
            num_total_tokens: used + waiting,
            max_total_num_tokens: capacity,
            token_usage: round(used as f64 / (capacity as f64).max(1.0), 4),
            gen_throughput: round(self.gen_throughput, 2),
            cache_hit_rate: round(self.hit_rate, 4),
            max_running_requests: self.config.max_running as u64,
            prefill_bootstrap_queue_reqs: self.bootstrap.len() as u64,
            prefill_inflight_queue_reqs: self.inflight.len() as u64,
            decode_prealloc_queue_reqs: self.prealloc.len() as u64,
            decode_transfer_queue_reqs: self.transfer.len() as u64,
            decode_retracted_queue_reqs: self.retracted.len() as u64,
        }
    }

    /// At the begin of a prefill batch: `tokens` will be computed, `hits` were found.
    pub(super) fn report_prefill(&mut self, tokens: u64, hits: u64) {
        self.hit_rate = hits as f64 / ((tokens + hits) as f64).max(1.0);
        for (mode, effective, n) in [
            ("prefill_compute", "input", tokens),
            ("prefill_cache", "device_hit", hits),
        ] {
            let n = n as f64;
            self.page.add("realtime_tokens_total", &[mode], n);
            self.page
                .add("prefill_effective_tokens_total", &[effective], n);
        }
        self.report();
    }

    /// After the 40th, 80th, … decode step.
    pub(super) fn report_decode(&mut self) {
        let seconds = self.now.saturating_sub(self.reported).as_secs_f64();
        let decoded = std::mem::take(&mut self.decoded) as f64;
        self.gen_throughput = decoded / seconds.max(1e-3);
        self.reported = self.now;
        self.page.add("realtime_tokens_total", &["decode"], decoded);
        self.page.add(
            "cuda_graph_passes_total",
            &["decode_cuda_graph"],
            self.config.log_interval as f64,
        );
        self.report();
    }

    /// Publishes the gauges, all of them from the first time on.
    pub(super) fn report(&mut self) {
        self.page.begin_batches();
        if let Some(since) = self.idle_since {
            let idle = self.now.saturating_sub(since).as_secs_f64();
            self.idle_since = Some(self.now);
            self.reported = self.now;
            self.page.add("scheduler_idle_seconds_total", &[], idle);
            self.page
                .add("scheduler_stage_seconds_total", &["idle", "none"], idle);
        }
        let page = self.config.page_size;
        let tokens = |pages: u64| (pages * page) as f64;
        let capacity = tokens(self.pool.capacity()).max(1.0);
        let used = tokens(self.pool.held());
        let lengths: u64 = self
            .running
            .iter()
            .filter_map(|id| self.jobs.get(id))
            .map(|job| job.request.prompt + job.generated)
            .sum();
        let pending = self.tokens_of(self.prealloc.iter()) as f64;
        let decodes = self.config.role != Role::Prefill;
        for (name, value) in [
            ("num_running_reqs", self.running.len() as f64),
            ("num_queue_reqs", self.waiting.len() as f64),
            ("gen_throughput", self.gen_throughput),
            ("cache_hit_rate", self.hit_rate),
            ("decode_sum_seq_lens", lengths as f64),
            ("token_usage", round(used / capacity, 2)),
            ("full_token_usage", used / capacity),
            ("num_used_tokens", used),
            ("kv_used_tokens", used),
            ("kv_available_tokens", tokens(self.pool.free())),
            ("kv_evictable_tokens", tokens(self.pool.evictable())),
            (
                "num_prefill_bootstrap_queue_reqs",
                self.bootstrap.len() as f64,
            ),
            (
                "num_prefill_inflight_queue_reqs",
                self.inflight.len() as f64,
            ),
            ("num_decode_prealloc_queue_reqs", self.prealloc.len() as f64),
            ("num_decode_transfer_queue_reqs", self.transfer.len() as f64),
            ("pending_prealloc_token_usage", pending / capacity),
            (
                "prealloc_full_token_usage",
                tokens(self.pool.arriving()) / capacity,
            ),
            ("utilization", if decodes { 0.0 } else { -1.0 }),
            ("new_token_ratio", if decodes { 1.0 } else { 0.0 }),
            (
                "is_cuda_graph",
                f64::from(u8::from(decodes && !self.running.is_empty())),
            ),
        ] {
            self.page.set(name, &[], value);
        }
        let retracted = self.retracted.len() as f64;
        self.page.set("num_retracted_reqs", &[PID], retracted);
    }

    fn tokens_of<'a>(&self, ids: impl Iterator<Item = &'a u64>) -> u64 {
        ids.filter_map(|id| self.jobs.get(id))
            .map(|job| job.request.prompt)
            .sum()
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
