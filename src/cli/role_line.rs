//! What a role says, as `/kv` has it, and in one line. What is not known is said in words.

use crate::kv::{RoleState, Unknown};
use crate::publish::millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The most characters of a text from elsewhere that are shown.
const MOST_SHOWN: usize = 80;

/// A member of `roles` in `/kv`: the same names, units and nulls. Read from there, or made here of the
/// engines' pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RoleSays {
    pub(super) role: String,
    pub(super) model: Option<String>,
    /// 0 to 1.
    pub(super) usage: Option<f64>,
    /// Why there is no usage.
    pub(super) unknown: Option<String>,
    /// The fullest pool's usage, 0 to 1.
    pub(super) max: Option<f64>,
    /// 0 to 1.
    pub(super) fill: Option<f64>,
    /// Tokens.
    pub(super) used: Option<u64>,
    /// Tokens.
    pub(super) capacity: Option<u64>,
    pub(super) pool: String,
    /// Requests.
    pub(super) running: Option<u64>,
    /// Requests.
    pub(super) queued: Option<u64>,
    /// Requests, by the queue's name.
    pub(super) queues: BTreeMap<String, u64>,
    /// 0 to 1.
    pub(super) pending: Option<f64>,
    /// 0 to 1.
    pub(super) hit_rate: Option<f64>,
    /// Requests since the engines' start.
    pub(super) preempted: Option<u64>,
    /// The fullest tier in host memory, 0 to 1.
    pub(super) host: Option<f64>,
    pub(super) age_ms: Option<u64>,
    /// Pools that are in the usage.
    pub(super) pools: u64,
    /// What is not in it.
    pub(super) missing: Option<Missing>,
}

/// Sources and pools that are not in a usage, and the gravest reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Missing {
    pub(super) count: u64,
    pub(super) reason: String,
}

// === impl RoleSays ===

impl From<&RoleState> for RoleSays {
    fn from(state: &RoleState) -> RoleSays {
        let queues = state.queues.iter().into_iter();
        RoleSays {
            role: state.role.as_str().to_owned(),
            model: state.model.as_deref().map(str::to_owned),
            usage: state.usage.ok(),
            unknown: state.usage.err().map(|why| why.as_str().to_owned()),
            max: state.max,
            fill: state.fill,
            used: state.used,
            capacity: state.capacity,
            pool: state.kind.as_str().to_owned(),
            running: state.running,
            queued: state.queued,
            queues: queues
                .filter_map(|(name, n)| Some((name.to_owned(), n?)))
                .collect(),
            pending: state.pending,
            hit_rate: state.hit_rate,
            preempted: state.preempted,
            host: state.host,
            age_ms: state.age.map(millis),
            pools: state.pools as u64,
            missing: state.missing.map(|(count, why)| Missing {
                count: count as u64,
                reason: why.as_str().to_owned(),
            }),
        }
    }
}

impl RoleSays {
    /// The role, with its model where it serves several.
    pub(super) fn title(&self, with_model: bool) -> String {
        match &self.model {
            Some(model) if with_model => format!("{} {}", shown(&self.role), shown(model)),
            _ => shown(&self.role),
        }
    }

    /// `12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  transfer 1`
    pub(super) fn line(&self) -> String {
        let mut line = match self.usage {
            Some(usage) => format!("{}  {}", self.tokens(), percent(usage)),
            None => self.no_usage(),
        };
        if !matches!(&*self.pool, "" | "full") {
            let _ = write!(line, " of the {} pool", shown(&self.pool));
        }
        if let (Some(max), true) = (self.max, self.pools > 1) {
            let _ = write!(
                line,
                " of {} pools, the fullest {}",
                self.pools,
                percent(max)
            );
        }
        line.push_str(" | ");
        let mut counts = Vec::new();
        for (name, n) in [("running", self.running), ("queued", self.queued)] {
            counts.push(match n {
                Some(n) => format!("{name} {}", number(n)),
                None => format!("{name} unknown"),
            });
        }
        // The queue next to the pool first.
        for name in ["transfer", "prealloc", "inflight", "bootstrap"] {
            if let Some(n) = self.queues.get(name) {
                counts.push(format!("{name} {}", number(*n)));
            }
        }
        line.push_str(&counts.join("  "));
        if let (Some(missing), Some(_)) = (&self.missing, self.usage) {
            let _ = write!(
                line,
                " | {} not in it ({})",
                match missing.count {
                    1 => "1 source or pool is".to_owned(),
                    n => format!("{n} sources or pools are"),
                },
                shown(&missing.reason)
            );
        }
        line
    }

    fn tokens(&self) -> String {
        match (self.used, self.capacity) {
            (Some(used), Some(capacity)) => {
                format!("{} / {} tokens", number(used), number(capacity))
            }
            (Some(used), None) => format!("{} tokens of an unknown number", number(used)),
            (None, Some(capacity)) => {
                format!("an unknown part of {} tokens", number(capacity))
            }
            (None, None) => "tokens unknown".to_owned(),
        }
    }

    fn no_usage(&self) -> String {
        let reason = self.unknown.as_deref().unwrap_or("no reason is given");
        let why = match words(reason) {
            Some(words) => format!("{words} ({reason})"),
            None => shown(reason),
        };
        match self.capacity {
            Some(capacity) => format!("usage unknown of {} tokens: {why}", number(capacity)),
            None => format!("usage unknown: {why}"),
        }
    }
}

/// What a reason of `unknown` means.
pub(super) fn words(reason: &str) -> Option<&'static str> {
    let all = [
        (Unknown::NotRead, "no good page has been read yet"),
        (
            Unknown::Unreachable,
            "the server refuses, or can't be reached",
        ),
        (Unknown::Stale, "the last good reading is too old"),
        (Unknown::Absent, "there is no KV usage on its page"),
        (Unknown::Invalid, "a gauge holds what can't be a value"),
        (
            Unknown::Stalled,
            "kvgauge itself has not renewed its values in time",
        ),
    ];
    all.into_iter()
        .find(|(why, _)| why.as_str() == reason)
        .map(|(_, words)| words)
}

/// A share as a person reads it.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// With thousands separated.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A short text from elsewhere, fit for a terminal.
pub(super) fn shown(text: &str) -> String {
    shown_up_to(text, MOST_SHOWN)
}

/// A text from elsewhere, at most so many characters of it, fit for a terminal.
pub(super) fn shown_up_to(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().take(most) {
        // Controls, what nobody sees, and what shows the rest in another order.
        if matches!(c, '"' | '\'' | '\\') {
            out.push(c);
        } else {
            out.extend(c.escape_debug());
        }
    }
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}
