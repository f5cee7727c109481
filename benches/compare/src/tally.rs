//! What came of a load: how many answers were right, why others were not, and how long things took.

use std::collections::BTreeMap;
use std::fmt::Write;

/// So many reasons are told apart.
const REASONS: usize = 8;

/// A count of answers.
#[derive(Debug, Default)]
pub struct Tally {
    /// Answers that were right in every byte.
    pub right: u64,
    /// Those that were not, and those that never came.
    pub wrong: u64,
    /// Events of the right streams.
    pub events: u64,
    /// Nanoseconds: an answer's, or an event's way from the upstream to here.
    pub times: Vec<u64>,
    reasons: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts an answer.
    pub fn count(&mut self, outcome: Result<(), String>) {
        let Err(reason) = outcome else {
            self.right += 1;
            return;
        };
        self.wrong += 1;
        if self.reasons.len() < REASONS || self.reasons.contains_key(&reason) {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// Takes another one in.
    pub fn add(&mut self, other: Self) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.events += other.events;
        self.times.extend(other.times);
        for (reason, count) in other.reasons {
            if self.reasons.len() < REASONS || self.reasons.contains_key(&reason) {
                *self.reasons.entry(reason).or_default() += count;
            }
        }
    }

    /// Why answers were wrong, in a line.
    pub fn why(&self) -> String {
        let reasons: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| format!("{count} times: {reason}"))
            .collect();
        reasons.join("; ")
    }

    /// A line of JSON; times as median and 99th percentile in microseconds, `null` where there are
    /// none.
    pub fn json(&mut self) -> String {
        self.times.sort_unstable();
        let mut line = format!(
            r#"{{"right":{},"wrong":{},"events":{}"#,
            self.right, self.wrong, self.events
        );
        for (name, percent) in [("p50_us", 50), ("p99_us", 99)] {
            let _ = match rank(&self.times, percent) {
                Some(time) => write!(line, r#","{name}":{}.{:03}"#, time / 1000, time % 1000),
                None => write!(line, r#","{name}":null"#),
            };
        }
        let why: String = self
            .why()
            .chars()
            .map(|c| {
                if matches!(c, ' '..='~') && c != '"' && c != '\\' {
                    c
                } else {
                    '\''
                }
            })
            .collect();
        let _ = write!(line, r#","why":"{why}"}}"#);
        line
    }
}

/// The nearest rank of sorted times.
fn rank(times: &[u64], percent: usize) -> Option<u64> {
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_seen() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!(rank(&times, 50), Some(100));
        assert_eq!(rank(&times, 99), Some(198));
        assert_eq!(rank(&[7], 99), Some(7));
        assert_eq!(rank(&[], 50), None);
    }

    #[test]
    fn a_tally_says_why_in_json() {
        let mut tally = Tally::default();
        tally.count(Ok(()));
        tally.count(Err("status \"502\"".into()));
        assert_eq!(
            tally.json(),
            r#"{"right":1,"wrong":1,"events":0,"p50_us":null,"p99_us":null,"why":"1 times: status '502'"}"#
        );
    }
}
