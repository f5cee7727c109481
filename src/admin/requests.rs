//! The last requests, and the last that went wrong, from what the log's writer keeps. Lines are parsed only
//! when someone looks, and only where there are new ones.

use super::short;
use crate::telemetry::log::{Failure, Recent};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// The last requests as they are shown.
#[derive(Default)]
pub(super) struct Requests {
    changes: u64,
    /// The newest first.
    pub(super) shown: Vec<Value>,
    /// Those that went wrong last, whether or not they are among these; the newest first.
    pub(super) errors: Vec<Wrong>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Unix milliseconds.
    pub(super) at: i64,
    /// How often; `None` where that is not counted.
    pub(super) count: Option<u64>,
    pub(super) who: String,
    pub(super) message: String,
}

/// A line of the log, as far as it is shown.
#[derive(Deserialize)]
struct Line {
    timestamp: String,
    #[serde(rename = "request.id")]
    id: Option<String>,
    #[serde(rename = "http.request.method")]
    method: Option<String>,
    #[serde(rename = "url.path")]
    path: Option<String>,
    #[serde(rename = "http.response.status_code")]
    status: Option<u16>,
    outcome: String,
    #[serde(rename = "gen_ai.request.model")]
    asked_model: Option<String>,
    #[serde(rename = "gen_ai.response.model")]
    model: Option<String>,
    stream: Option<bool>,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    duration_ms: Option<f64>,
    #[serde(rename = "gen_ai.usage.input_tokens")]
    input_tokens: Option<u64>,
    #[serde(rename = "gen_ai.usage.output_tokens")]
    output_tokens: Option<u64>,
    #[serde(rename = "kv.start.usage")]
    kv_start_usage: Option<f64>,
    #[serde(rename = "kv.end.usage")]
    kv_end_usage: Option<f64>,
}

// === impl Requests ===

impl Requests {
    /// Takes in what is new.
    pub(super) fn renew(&mut self, recent: &Recent) {
        if recent.changes() == self.changes {
            return;
        }
        let (text, changes) = recent.lines();
        self.changes = changes;
        let lines = text.rsplit(|byte| *byte == b'\n');
        let mut lines: Vec<Line> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        // Each worker hands its lines over by itself. All times are written alike, so their letters tell.
        lines.sort_by(|a, b| b.timestamp.cmp(&a.timestamp));
        self.errors = recent
            .failures()
            .iter()
            .rev()
            .filter_map(Wrong::of)
            .collect();
        self.shown = lines.iter().map(Line::shown).collect();
    }
}

// === impl Line ===

impl Line {
    fn shown(&self) -> Value {
        json!({
            "timestamp": self.timestamp,
            "id": self.id.as_deref().map(short::text),
            "method": self.method.as_deref().map(short::text),
            "path": self.path.as_deref().map(short::text),
            "status": self.status,
            "outcome": self.outcome,
            "model": self.asked_model.as_deref().or(self.model.as_deref()).map(short::name),
            "stream": self.stream,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "duration_ms": self.duration_ms,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "kv_start_usage": self.kv_start_usage,
            "kv_end_usage": self.kv_end_usage,
        })
    }
}

// === impl Wrong ===

impl Wrong {
    fn of(failure: &Failure) -> Option<Wrong> {
        let at: Timestamp = failure.last.parse().ok()?;
        let who: Vec<&str> = [&failure.method, &failure.path]
            .into_iter()
            .filter_map(Option::as_deref)
            .collect();
        let mut message = match &*failure.outcome {
            "complete" => "the router's answer".to_owned(),
            outcome => outcome.to_owned(),
        };
        if let Some(error) = failure
            .error
            .as_ref()
            .filter(|error| **error != failure.outcome)
        {
            message.push_str(&format!(" ({error})"));
        }
        match failure.status {
            Some(status) => message.push_str(&format!(", status {status}")),
            None => message.push_str(", no answer was sent"),
        }
        Some(Wrong {
            at: at.as_millisecond(),
            count: Some(failure.count),
            who: if who.is_empty() {
                "a client".to_owned()
            } else {
                who.join(" ")
            },
            message,
        })
    }
}
