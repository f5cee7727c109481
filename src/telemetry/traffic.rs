//! What the traffic was like in the last minute: differences between looks at counts that only grow.

use super::look::{Buckets, Look};
use std::collections::VecDeque;
use std::time::Duration;

/// What the figures speak of.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Looks come every so often, and never quite on time.
const SLACK: Duration = Duration::from_secs(1);

/// Figures of less time than this would jump about.
const LEAST: Duration = Duration::from_secs(1);

/// Looks that are kept; one comes every two seconds.
const MOST_LOOKS: usize = 64;

/// The looks of the last minute. Times are of a clock that never goes back and that runs on while the
/// machine sleeps.
#[derive(Debug, Default)]
pub struct Window {
    looks: VecDeque<(Duration, Look)>,
}

/// Rates and quantiles of the last minute. `None` is unknown: too early to say, or nothing ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests in flight now.
    pub in_flight: Option<u64>,
    /// Requests ended, a second.
    pub requests: Option<f64>,
    /// Those of them that went wrong, a second.
    pub failed: Option<f64>,
    /// Tokens of prompts, a second.
    pub input_tokens: Option<f64>,
    /// Tokens generated, a second.
    pub output_tokens: Option<f64>,
    /// To the first token.
    pub ttft: Quantiles,
    /// For each further token.
    pub tpot: Quantiles,
    /// From a request's head to the last byte of its answer.
    pub duration: Quantiles,
}

/// In seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Half took less.
    pub p50: Option<f64>,
    /// Nine in ten took less.
    pub p90: Option<f64>,
    /// 99 in a hundred took less.
    pub p99: Option<f64>,
}

// === impl Window ===

impl Window {
    /// Keeps a look, and drops those that are too old by now.
    pub fn keep(&mut self, at: Duration, look: Look) {
        while let Some((then, _)) = self.looks.front()
            && (at.saturating_sub(*then) > WINDOW + SLACK || self.looks.len() >= MOST_LOOKS)
        {
            self.looks.pop_front();
        }
        self.looks.push_back((at, look));
    }

    /// What has happened from the oldest look of the last minute to this one.
    #[must_use]
    pub fn traffic(&self, at: Duration, now: &Look) -> Traffic {
        let young = |then: &Duration| at.saturating_sub(*then) <= WINDOW + SLACK;
        let oldest = self.looks.iter().find(|(then, _)| young(then));
        let oldest = oldest.filter(|(then, _)| at.saturating_sub(*then) >= LEAST);
        let Some((then, first)) = oldest else {
            return Traffic {
                in_flight: now.in_flight,
                ..Traffic::default()
            };
        };
        let seconds = at.saturating_sub(*then).as_secs_f64();
        let rate = |now: Option<u64>, then: Option<u64>| {
            let n = now?.saturating_sub(then?);
            #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
            Some(n as f64 / seconds)
        };
        Traffic {
            in_flight: now.in_flight,
            requests: rate(now.requests, first.requests),
            failed: rate(now.failed, first.failed),
            input_tokens: rate(now.input_tokens, first.input_tokens),
            output_tokens: rate(now.output_tokens, first.output_tokens),
            ttft: Quantiles::between(first.ttft.as_ref(), now.ttft.as_ref()),
            tpot: Quantiles::between(first.tpot.as_ref(), now.tpot.as_ref()),
            duration: Quantiles::between(first.duration.as_ref(), now.duration.as_ref()),
        }
    }
}

// === impl Quantiles ===

impl Quantiles {
    fn between(then: Option<&Buckets>, now: Option<&Buckets>) -> Quantiles {
        let (Some(then), Some(now)) = (then, now) else {
            return Quantiles::default();
        };
        let come = now.since(then);
        Quantiles {
            p50: come.quantile(0.5),
            p90: come.quantile(0.9),
            p99: come.quantile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(requests: u64) -> Look {
        Look {
            in_flight: Some(3),
            requests: Some(requests),
            failed: Some(0),
            ..Look::default()
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn rates_are_unknown_until_there_are_two_looks() {
        let mut window = Window::default();
        let first = window.traffic(seconds(100), &look(10));
        assert_eq!((first.in_flight, first.requests), (Some(3), None));
        window.keep(seconds(100), look(10));
        assert_eq!(window.traffic(seconds(100), &look(10)).requests, None);
        let second = window.traffic(seconds(102), &look(14));
        assert_eq!((second.requests, second.failed), (Some(2.0), Some(0.0)));
        assert_eq!(second.input_tokens, None, "nobody counted any");
    }

    #[test]
    fn what_is_older_than_a_minute_does_not_count() {
        let mut window = Window::default();
        for n in 0..100 {
            // A burst in the first second, then two a step.
            window.keep(seconds(2 * n), look(if n == 0 { 0 } else { 1_000 + 2 * n }));
        }
        assert!(window.looks.len() <= 31, "{}", window.looks.len());
        let traffic = window.traffic(seconds(200), &look(1_200));
        assert_eq!(traffic.requests, Some(1.0));
        // After a sleep of the machine there is nothing to compare with, until there is.
        assert_eq!(window.traffic(seconds(5_000), &look(9_000)).requests, None);
        window.keep(seconds(5_000), look(9_000));
        let after = window.traffic(seconds(5_002), &look(9_002));
        assert_eq!(after.requests, Some(1.0));
    }
}
