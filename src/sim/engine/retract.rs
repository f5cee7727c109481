//! Decode: the pool was promised to more than it can hold. Requests lose their room, wait, and go on
//! later with what they had.

use super::{Engine, Job, RequestId};
use std::cmp::Reverse;

impl Engine {
    /// Output tokens that there must be room for when a request is admitted.
    pub(super) fn reserve(&self, output: u64) -> u64 {
        output.min(self.config.reserved_output.unwrap_or(u64::MAX))
    }

    /// Takes room from running requests until those that are left have some for one more token. Whose
    /// output is the shortest goes first, as in SGLang; of several, whose prompt is the longest.
    pub(super) fn retract_for_a_step(&mut self) {
        while self.running.len() > 1 && self.wanted() > self.pool.free() + self.pool.evictable() {
            let order = |id: &RequestId| {
                let job = self.jobs.get(id)?;
                Some((job.generated, Reverse(job.request.prompt), Reverse(*id)))
            };
            let Some(id) = self.running.iter().copied().min_by_key(order) else {
                return;
            };
            self.running.retain(|other| *other != id);
            self.retract(id);
        }
    }

    /// Gives room to those that lost it, in order, as long as there is some.
    pub(super) fn resume_retracted(&mut self) {
        while let Some(id) = self.retracted.front().copied() {
            let Some(job) = self.jobs.get(&id) else {
                self.retracted.pop_front();
                continue;
            };
            let rest = job.request.output.saturating_sub(job.generated);
            let own = self.pages(job.own_tokens());
            let promise = self.pages(job.own_tokens() + self.reserve(rest));
            if self.promised + promise > self.pool.capacity() || !self.pool.hold(own) {
                return;
            }
            self.promised += promise;
            if let Some(job) = self.jobs.get_mut(&id) {
                job.pages = own;
                job.promised = promise;
            }
            self.retracted.pop_front();
            self.running.push(id);
        }
    }

    fn retract(&mut self, id: RequestId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        self.pool.release(std::mem::take(&mut job.pages));
        self.promised -= std::mem::take(&mut job.promised).min(self.promised);
        let (prompt, generated) = (job.request.prompt as f64, job.generated as f64);
        self.retracted.push_back(id);
        for (name, n) in [
            ("num_retracted_requests_total", 1.0),
            ("num_retracted_input_tokens_total", prompt),
            ("num_retracted_output_tokens_total", generated),
        ] {
            self.page.add(name, &[], n);
        }
    }

    /// Pages that the running requests take with their next token.
    fn wanted(&self) -> u64 {
        let more = |job: &Job| self.pages(job.own_tokens() + 1).saturating_sub(job.pages);
        let jobs = self.running.iter().filter_map(|id| self.jobs.get(id));
        jobs.map(more).sum()
    }
}
