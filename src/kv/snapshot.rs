//! The newest readings of all sources, immutable and swapped as a whole.

use super::{Reading, Roles};
use arc_swap::ArcSwap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why the last attempt to read a source failed, as a bounded label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// Name not resolved.
    Resolve,
    /// Connection refused, reset, or no route.
    Connect,
    /// TLS can't be spoken with it, or its certificate is not trusted.
    Tls,
    /// No complete answer within `scrape.timeout`.
    Timeout,
    /// A status other than 200.
    Status,
    /// The body broke off, or its length was wrong.
    Body,
    /// The answer is not a Prometheus page (HTML, JSON), or is compressed.
    Content,
    /// A limit was passed (bytes, series, families, label length).
    TooLarge,
}

impl FailureReason {
    /// Every reason, for labels that exist from the start.
    pub const ALL: [FailureReason; 8] = [
        FailureReason::Resolve,
        FailureReason::Connect,
        FailureReason::Tls,
        FailureReason::Timeout,
        FailureReason::Status,
        FailureReason::Body,
        FailureReason::Content,
        FailureReason::TooLarge,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureReason::Resolve => "resolve",
            FailureReason::Connect => "connect",
            FailureReason::Tls => "tls",
            FailureReason::Timeout => "timeout",
            FailureReason::Status => "status",
            FailureReason::Body => "body",
            FailureReason::Content => "content",
            FailureReason::TooLarge => "too_large",
        }
    }

    /// Whether the source itself is gone (who can't show that it is the source is not), so that its last reading may not be used any longer.
    /// After the others it holds until `scrape.max_age`.
    #[must_use]
    pub const fn ends_reading(self) -> bool {
        matches!(
            self,
            FailureReason::Resolve | FailureReason::Connect | FailureReason::Tls
        )
    }
}

/// The last failure of a source.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The bounded reason.
    pub reason: FailureReason,
    /// Who failed, what was seen, what to do.
    pub message: Arc<str>,
    /// When.
    pub at: Instant,
}

/// What is wrong with a page that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What was seen.
    pub cause: Arc<str>,
    /// What to do.
    pub next: Arc<str>,
}

/// Lines or samples of one page that are left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The bounded reason, as in `kvgauge_source_dropped_samples_total`.
    pub reason: &'static str,
    /// Lines, or samples.
    pub count: u64,
    /// The first one's line, counted from 1. `None` where it is not a matter of a line by itself.
    pub line: Option<u64>,
    /// The beginning of that line, fit for a terminal.
    pub excerpt: Option<Arc<str>>,
}

/// One source: how it is set, and what was last seen of it.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// The name in labels.
    pub name: Arc<str>,
    /// The address read, without credentials.
    pub url: Arc<str>,
    /// What is read there: `metrics`, `sglang-loads` or `auto`.
    pub kind: &'static str,
    /// The file with the token that goes with each request. The token itself is nowhere.
    pub bearer_file: Option<Arc<Path>>,
    /// The role from settings, otherwise those that its page names, or named last. A router has none.
    pub roles: Roles,
    /// `None` until the first attempt has ended; then whether the last attempt was good.
    pub up: Option<bool>,
    /// The last good reading, if any. Whether it may still be used depends on `taken` and `failure`.
    pub reading: Option<Arc<Reading>>,
    /// What gave it: `page` or `loads`.
    pub reads: Option<&'static str>,
    /// Where the loads are to give the readings if they can: why they do not at present.
    pub without_loads: Option<Arc<str>>,
    /// When the last good page was asked for.
    pub taken: Option<Instant>,
    /// Since when no gauge that is read has changed; where none is, since when nothing on the page has.
    pub unchanged_since: Option<Instant>,
    /// From the last attempt to the next: as set, longer where the page is slow, and longer still while
    /// it fails.
    pub interval: Option<Duration>,
    /// The last attempt's duration in seconds.
    pub duration: Option<f64>,
    /// Samples on the last good page.
    pub samples: Option<u64>,
    /// Bytes of the last good page.
    pub bytes: Option<u64>,
    /// The path where the last good page was found, where the one in `url` redirects there.
    pub redirected: Option<Arc<str>>,
    /// Samples of the last good page that are shown again.
    pub exposed: Option<u64>,
    /// What is left out of the last good page; empty for a page without fault.
    pub left_out: Vec<LeftOut>,
    /// What is wrong with the last good page, while there is a reading of it; a handful at most.
    pub problems: Vec<Problem>,
    /// Where nobody known wrote the page and names on it look like KV usage: a mapping to put into
    /// settings, in TOML.
    pub mapping: Option<Arc<str>>,
    /// The last failure, kept for display after the source is well again.
    pub failure: Option<Failure>,
    /// Failed attempts so far, in the order of [`FailureReason::ALL`].
    pub failures: [u64; FailureReason::ALL.len()],
    /// Lines and samples not passed on so far, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Values out of range so far, by reason.
    pub odd: Vec<(&'static str, u64)>,
}

/// The newest readings of all sources.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Those of the settings first, in their order. Sources may come and go, so a place says nothing of
    /// the next snapshot's.
    pub sources: Vec<Arc<SourceState>>,
}

/// Shared handle to the current snapshot: written by the scraper, read by everyone, without a lock.
#[derive(Clone, Debug, Default)]
pub struct Handle(Arc<ArcSwap<Snapshot>>);

impl Handle {
    /// The current snapshot.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    /// Puts a new snapshot in place.
    pub fn store(&self, snapshot: impl Into<Arc<Snapshot>>) {
        self.0.store(snapshot.into());
    }
}
