//! One look at what kvgauge has counted since its start, for figures of the last minute.

use super::{buckets, names};
use crate::exposition::{Limits, Page};

/// Our own page is far below these.
const LIMITS: Limits = Limits {
    max_series: 100_000,
    max_label_bytes: 64 * 1024,
    max_families: 1_000,
};

/// Counts since the start; what is not on the page is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Requests in flight.
    pub in_flight: Option<u64>,
    /// Requests ended.
    pub requests: Option<u64>,
    /// Those of them that [`went_wrong`].
    pub failed: Option<u64>,
    /// Tokens of prompts that answers reported.
    pub input_tokens: Option<u64>,
    /// Tokens generated that answers reported.
    pub output_tokens: Option<u64>,
    /// Times to first token.
    pub ttft: Option<Buckets>,
    /// Times per output token.
    pub tpot: Option<Buckets>,
    /// Durations of requests.
    pub duration: Option<Buckets>,
}

/// A histogram's counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Upper bounds in seconds, without the last one, which is infinite.
    bounds: &'static [f64],
    /// How many are at most so large, in order; the last one is all.
    counts: Box<[u64]>,
}

/// Whether a request ended otherwise than it should: one that was not carried to its end, or that the
/// router answered with a status of 5xx.
#[must_use]
pub fn went_wrong(outcome: &str, status: Option<u16>) -> bool {
    !matches!(outcome, "complete" | "upgraded") || status.is_some_and(|status| status >= 500)
}

// === impl Look ===

impl Look {
    /// Reads the page of what was recorded, as [`Telemetry::render`](super::Telemetry::render) makes it.
    #[must_use]
    pub fn read(page: &str) -> Look {
        let Ok(page) = Page::read(page.as_bytes(), &LIMITS) else {
            return Look::default();
        };
        let token = |kind: &str| {
            let mut samples = page.samples(names::TOKENS.name);
            let sample = samples.find(|sample| sample.label("type").as_deref() == Some(kind))?;
            count(sample.value())
        };
        let mut requests = 0;
        let mut failed = 0;
        let mut any = false;
        for sample in page.samples(names::REQUESTS.name) {
            let n = count(sample.value()).unwrap_or_default();
            let code = sample.label("code").unwrap_or_default();
            let outcome = sample.label("outcome").unwrap_or_default();
            any = true;
            requests += n;
            if went_wrong(&outcome, code.starts_with('5').then_some(500)) {
                failed += n;
            }
        }
        let in_flight = page.samples(names::IN_FLIGHT.name).next();
        Look {
            in_flight: in_flight.and_then(|sample| count(sample.value())),
            requests: any.then_some(requests),
            failed: any.then_some(failed),
            input_tokens: token("input"),
            output_tokens: token("output"),
            ttft: Buckets::read(&page, names::TIME_TO_FIRST_TOKEN),
            tpot: Buckets::read(&page, names::TIME_PER_OUTPUT_TOKEN),
            duration: Buckets::read(&page, names::REQUEST_DURATION),
        }
    }
}

/// A number of things; `None` for what is none.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "looked at before"
)]
fn count(value: f64) -> Option<u64> {
    (0.0..9e15).contains(&value).then_some(value as u64)
}

// === impl Buckets ===

impl Buckets {
    fn read(page: &Page<'_>, name: names::Name) -> Option<Buckets> {
        let (_, bounds) = buckets::ALL.iter().find(|(of, _)| of.name == name.name)?;
        let samples = page.samples(&format!("{}_bucket", name.name));
        let counts: Option<Box<[u64]>> = samples.map(|sample| count(sample.value())).collect();
        let counts = counts.filter(|counts| counts.len() == bounds.len() + 1)?;
        Some(Buckets { bounds, counts })
    }

    /// What has come since an earlier look.
    #[must_use]
    pub(super) fn since(&self, earlier: &Buckets) -> Buckets {
        let pairs = self.counts.iter().zip(&earlier.counts);
        Buckets {
            bounds: self.bounds,
            counts: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// A quantile in seconds, as Prometheus' `histogram_quantile` has it: evenly spread inside the bucket
    /// into which it falls; of the last bucket, which has no end, its beginning. `None` where there is
    /// nothing.
    #[must_use]
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        let all = as_float(*self.counts.last()?);
        if all == 0.0 {
            return None;
        }
        let rank = quantile * all;
        let at = self.counts.iter().position(|n| as_float(*n) >= rank)?;
        let Some(end) = self.bounds.get(at) else {
            return self.bounds.last().copied();
        };
        let (start, below) = match at.checked_sub(1) {
            Some(before) => (self.bounds[before], as_float(self.counts[before])),
            None => (0.0, 0.0),
        };
        let inside = as_float(self.counts[at]) - below;
        if inside <= 0.0 {
            return Some(*end);
        }
        Some(start + (end - start) * ((rank - below) / inside))
    }
}

/// Counts stay far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "far below")]
fn as_float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::log::Usage;
    use crate::telemetry::{Finished, Meters, Telemetry};
    use std::time::Duration;

    fn buckets(counts: &[u64]) -> Buckets {
        Buckets {
            bounds: &[1.0, 2.0, 4.0],
            counts: counts.into(),
        }
    }

    /// Worked out by hand as `histogram_quantile` does.
    #[test]
    fn quantiles_are_those_of_prometheus() {
        let spread = buckets(&[10, 20, 40, 40]);
        for (quantile, expected) in [
            (0.0, 0.0),
            (0.125, 0.5),
            (0.5, 2.0),
            (0.75, 3.0),
            (1.0, 4.0),
        ] {
            assert_eq!(spread.quantile(quantile), Some(expected), "{quantile}");
        }
        assert_eq!(buckets(&[0, 0, 0, 8]).quantile(0.5), Some(4.0), "no end");
        assert_eq!(buckets(&[0, 0, 0, 0]).quantile(0.5), None, "nothing");
        let later = buckets(&[10, 21, 42, 42]);
        assert_eq!(later.since(&spread), buckets(&[0, 1, 2, 2]));
    }

    #[test]
    fn a_look_sees_what_was_recorded() {
        let telemetry = Telemetry::new();
        let meters = Meters::new(&telemetry);
        let look = |telemetry: &Telemetry| Look::read(&telemetry.render());
        let before = look(&telemetry);
        assert_eq!((before.requests, before.failed), (Some(0), Some(0)));
        assert_eq!(before.ttft.as_ref().unwrap().quantile(0.5), None);
        let finished = Finished {
            method: "POST",
            route: "/v1/chat/completions",
            status: Some(200),
            outcome: "complete",
            duration: Duration::from_secs(1),
            is_tunnel: false,
            ttft: Some(Duration::from_millis(90)),
            tpot: None,
            overhead: None,
            usage: Usage {
                input: Some(7),
                output: Some(5),
                cached: None,
            },
        };
        for n in 0..5 {
            meters.started();
            if n == 4 {
                break;
            }
            meters.finished(&Finished {
                status: [Some(200), Some(503), None, Some(404)][n],
                outcome: ["complete", "complete", "client_gone", "complete"][n],
                ..finished
            });
        }
        let after = look(&telemetry);
        assert_eq!(after.in_flight, Some(1));
        assert_eq!((after.requests, after.failed), (Some(4), Some(2)));
        assert_eq!(
            (after.input_tokens, after.output_tokens),
            (Some(28), Some(20))
        );
        // All in the bucket from 80 to 100 ms.
        let ttft = after.ttft.unwrap().since(&before.ttft.unwrap());
        assert!((ttft.quantile(0.5).unwrap() - 0.09).abs() < 1e-9);
        assert_eq!(after.tpot.unwrap().quantile(0.5), None);
    }
}
