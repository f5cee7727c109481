//! Processor time of a process by thread, and waiting.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Nanoseconds that each thread of a process has run, by its name.
#[derive(Clone, Debug)]
pub(crate) struct Ran(BTreeMap<String, u64>);

impl Ran {
    /// So far. From `schedstat`, which counts what the scheduler gave; `stat` counts ticks of 10 ms.
    pub(crate) fn now(pid: u32) -> Ran {
        let mut ran = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let task = task.unwrap().path();
            // A thread may end between the two.
            let (Ok(name), Ok(text)) = (
                fs::read_to_string(task.join("comm")),
                fs::read_to_string(task.join("schedstat")),
            ) else {
                continue;
            };
            let time = text.split_whitespace().next().map(str::parse::<u64>);
            let time = time.expect("a kernel with schedstat").unwrap();
            *ran.entry(name.trim().to_owned()).or_default() += time;
        }
        Ran(ran)
    }

    /// What came on top since `before`.
    pub(crate) fn since(&self, before: &Ran) -> Ran {
        let earlier = |name| before.0.get(name).copied().unwrap_or(0);
        let each = self.0.iter();
        Ran(each
            .map(|(name, ns)| (name.clone(), ns.saturating_sub(earlier(name))))
            .collect())
    }

    /// All threads, in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.0.values().sum::<u64>() as f64 / 1e3
    }

    /// The threads of this name, in microseconds.
    pub(crate) fn micros_of(&self, name: &str) -> f64 {
        // The kernel keeps 15 bytes of a name.
        let kept = &name[..name.len().min(15)];
        self.0.get(kept).copied().unwrap_or(0) as f64 / 1e3
    }
}

/// Watches a process for so long: what it ran meanwhile.
pub(crate) fn watch(pid: u32, time: Duration) -> Ran {
    let before = Ran::now(pid);
    pause(time);
    Ran::now(pid).since(&before)
}

/// Nothing here is awaited that could be: it is the time itself that is measured.
#[allow(
    clippy::disallowed_methods,
    reason = "a bench on a thread of its own, which measures a stretch of time"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Of a list of numbers the one that so much of it is not above.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (sorted.len() as f64 * share) as usize;
    sorted[at.min(sorted.len() - 1)]
}
