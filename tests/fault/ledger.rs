//! What the clients have seen, held against what kvgauge's log says.

use crate::support::Response;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a request ended for the one who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The connection ended without an answer.
    Nothing,
    /// 200, and every byte of the answer.
    Whole,
    /// An error of kvgauge's own: its status and `code`.
    Refused(u16, String),
    /// 200, then a broken end.
    Broken,
    /// It left by itself in the middle of the answer.
    Left,
    /// It left by itself without waiting for an answer.
    LeftEarly,
    /// It left by itself in the middle of its own body.
    LeftUploading,
    /// What came is not what was asked for.
    Mixed(String),
}

/// One request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) seen: Seen,
    /// Bytes of the answer's body that came.
    pub(crate) received: usize,
    /// Bytes that it has as a whole.
    pub(crate) length: usize,
    /// Whether its answer, if there was one, had `X-KV-Pools`.
    pub(crate) stamped: bool,
    /// Whether it sends a body that may meet an early answer.
    pub(crate) uploads: bool,
}

#[derive(Default)]
pub(crate) struct Ledger {
    entries: Mutex<Vec<Entry>>,
    half_heads: AtomicUsize,
}

/// What is looked at of a log line; there are many of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    #[serde(rename = "request.id")]
    id: Option<String>,
    pub(crate) outcome: String,
    #[serde(rename = "error.type")]
    error: Option<String>,
    #[serde(rename = "http.response.status_code")]
    status: Option<u16>,
    bytes_out: usize,
}

/// How many of which kind there were, and what the log says of them.
pub(crate) type Table = BTreeMap<(String, String), usize>;

impl Entry {
    pub(crate) fn new(id: String, length: usize) -> Self {
        Self {
            id,
            seen: Seen::Nothing,
            received: 0,
            length,
            stamped: false,
            uploads: false,
        }
    }

    pub(crate) fn saw(mut self, seen: Seen) -> Self {
        self.seen = seen;
        self
    }

    pub(crate) fn saw_error(self, answer: &Response) -> Self {
        let code = answer.json()["error"]["code"].as_str().unwrap().to_owned();
        self.saw(Seen::Refused(answer.status(), code))
    }

    /// Whether this is how the log may tell it.
    fn fits(&self, line: &Line) -> bool {
        let (outcome, error) = (line.outcome.as_str(), line.error.as_deref());
        let (status, sent) = (line.status, line.bytes_out);
        let broke_off = matches!(
            (outcome, error),
            ("upstream_aborted", Some("upstream_aborted")) | ("timeout", Some("stream_silence"))
        );
        // Both sides may have gone at about the same time.
        let left = (outcome, error) == ("client_gone", Some("client_gone"));
        let failed = matches!(
            outcome,
            "upstream_aborted" | "upstream_unreachable" | "timeout" | "overloaded"
        );
        // Without a head there is no body.
        if status.is_none() && sent > 0 {
            return false;
        }
        match &self.seen {
            Seen::Whole => {
                outcome == "complete"
                    && error.is_none()
                    && status == Some(200)
                    && sent == self.received
            }
            Seen::Refused(seen, code) => {
                let meant = match code.as_str() {
                    "upstream_unreachable" | "upstream_connect_timeout" => "upstream_unreachable",
                    "upstream_aborted" => "upstream_aborted",
                    "upstream_timeout" => "timeout",
                    "out_of_descriptors" => "overloaded",
                    _ => return false,
                };
                outcome == meant && error == Some(code) && status == Some(*seen)
            }
            Seen::Broken => broke_off && status == Some(200) && sent == self.received,
            Seen::Left => {
                // All of it may have been on its way already.
                let had_left = outcome == "complete" && sent == self.length;
                (left || broke_off || had_left) && status == Some(200) && sent >= self.received
            }
            // The head, and what follows, may have been handed to the kernel just before.
            Seen::LeftEarly => failed || (left && matches!(status, None | Some(200))),
            // So may the answer that says that the body broke off, and one that came before that.
            Seen::LeftUploading => {
                failed || (left && matches!((status, sent), (None, 0) | (Some(400 | 502), 1..)))
            }
            // An answer that comes while the body is still on its way may be lost to a reset.
            Seen::Nothing => self.uploads && failed,
            Seen::Mixed(_) => false,
        }
    }

    fn word(&self) -> String {
        match &self.seen {
            Seen::Nothing => "connection lost in an upload".to_owned(),
            Seen::Whole => "whole answer".to_owned(),
            Seen::Refused(status, code) => format!("{status} {code}"),
            Seen::Broken => "broken off".to_owned(),
            Seen::Left => "left in the answer".to_owned(),
            Seen::LeftEarly => "left before the answer".to_owned(),
            Seen::LeftUploading => "left in its upload".to_owned(),
            Seen::Mixed(_) => "mixed up".to_owned(),
        }
    }
}

impl Ledger {
    pub(crate) fn enter(&self, entry: Entry) {
        self.entries.lock().unwrap().push(entry);
    }

    pub(crate) fn half_a_head(&self) {
        self.half_heads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn half_heads(&self) -> usize {
        self.half_heads.load(Ordering::Relaxed)
    }

    /// Requests so far.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap().len()
    }

    /// Holds every request against the one line it must have, and every line against its request.
    pub(crate) fn hold_against(&self, lines: &[Line]) -> Table {
        let entries = self.entries.lock().unwrap();
        let mut of_id: HashMap<&str, &Line> = HashMap::new();
        let mut malformed = 0;
        for line in lines {
            let Some(id) = line.id.as_deref() else {
                assert_eq!(line.outcome, "malformed", "{line:?}");
                assert_eq!(line.error.as_deref(), Some("incomplete_head"), "{line:?}");
                malformed += 1;
                continue;
            };
            let twice = of_id.insert(id, line);
            assert!(twice.is_none(), "two lines of {id}: {twice:?} {line:?}");
        }
        assert_eq!(malformed, self.half_heads(), "heads that broke off");
        let mut table = Table::new();
        let mut wrong = Vec::new();
        for entry in entries.iter() {
            let Some(line) = of_id.remove(entry.id.as_str()) else {
                wrong.push(format!("no line of {entry:?}"));
                continue;
            };
            let answered = matches!(entry.seen, Seen::Whole | Seen::Refused(..) | Seen::Broken);
            if !entry.fits(line) || (answered && !entry.stamped) {
                wrong.push(format!("{entry:?}\n    {line:?}"));
            }
            let outcome = &line.outcome;
            let logged = match &line.error {
                Some(error) if error != outcome => format!("{outcome} ({error})"),
                _ => outcome.clone(),
            };
            *table.entry((entry.word(), logged)).or_default() += 1;
        }
        assert!(
            wrong.is_empty(),
            "{} requests that the log tells otherwise; the first:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(20)].join("\n")
        );
        assert!(of_id.is_empty(), "lines of nobody's requests: {of_id:?}");
        if malformed > 0 {
            let row = (
                "left in its head".to_owned(),
                "malformed (incomplete_head)".to_owned(),
            );
            table.insert(row, malformed);
        }
        table
    }
}
