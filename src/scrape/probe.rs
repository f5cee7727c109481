//! One look at one source, for `doctor` and `status`: read as the poller reads it, but once, and without
//! a snapshot.

use super::explain::{Keys, explain};
use super::fetch::{Failed, Fetcher};
use super::read::{LOADS, Reader};
use super::whose::{Whose, other_engine};
use crate::config::{Scrape, Settings, Source, Target};
use crate::engine::{self, Suspect};
use crate::exposition::Page;
use crate::kv::{FailureReason, Reading};
use crate::net::Trusts;
use http::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a server is shown, and by what it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    bearer_file: Option<Arc<Path>>,
    ca_file: Option<Arc<Path>>,
}

/// What a source says.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) whose: Whose,
    pub(crate) reading: Reading,
    /// The engine whose page it is, where the source is set to be read as another.
    pub(crate) other_engine: Option<&'static str>,
    /// Where nobody known wrote the page: names that look like KV usage, with the first sample's value.
    pub(crate) suspects: Vec<(Suspect, Box<str>)>,
    /// Whether the reading is of SGLang's loads.
    pub(crate) from_loads: bool,
    /// Why it is not, where it is to be if it can.
    pub(crate) without_loads: Option<String>,
    /// On the page; `None` where there are the loads alone.
    pub(crate) samples: Option<usize>,
    pub(crate) bytes: usize,
    /// Lines that could not be read: how many, and the first one's number and reason.
    pub(crate) bad_lines: Option<(u64, u64, &'static str)>,
    pub(crate) took: Duration,
    /// The path where it was found, where the one that was asked for redirects there.
    pub(crate) redirected: Option<String>,
}

/// What is on its page.
struct Seen {
    whose: Whose,
    other_engine: Option<&'static str>,
    suspects: Vec<(Suspect, Box<str>)>,
    samples: usize,
    bad_lines: Option<(u64, u64, &'static str)>,
}

/// Why there is no page, in words.
#[derive(Clone, Debug)]
pub(crate) struct Missed {
    pub(crate) reason: FailureReason,
    /// Who failed, what was seen, what to do.
    pub(crate) message: String,
    /// The status, where it is that which was wrong: somebody is there, then.
    pub(crate) status: Option<StatusCode>,
}

// === impl Access ===

impl Access {
    /// As a source's settings say.
    pub(crate) fn of(source: &Source) -> Access {
        Access {
            bearer_file: source.bearer_file.clone(),
            ca_file: source.ca_file.clone(),
        }
    }

    pub(super) fn fetcher(&self, url: &Target, scrape: &Scrape) -> Fetcher {
        Fetcher::new(url, scrape)
            .with_token(self.bearer_file.as_ref())
            .with_trust(Trusts::default().of(self.ca_file.as_ref()))
    }
}

/// Reads a source once, as the poller does. Call it within a tokio `LocalRuntime` or `LocalSet`.
pub(crate) async fn look_at_source(
    source: &Source,
    settings: &Arc<Settings>,
) -> Result<Look, Missed> {
    let asked = Instant::now();
    let mut reader = Reader::new(source, settings, &Trusts::default());
    let read = reader.read(asked, |_, page, reading| seen(page, source, reading));
    let read = read.await;
    let read = read.map_err(|failed| missed(&failed, reader.explain(&failed)))?;
    let took = asked.elapsed();
    let page = read.page;
    let samples = page.as_ref().map(|page| page.samples);
    // Nobody else has loads.
    let page = page.unwrap_or(Seen {
        whose: Whose::Engine,
        other_engine: None,
        suspects: Vec::new(),
        samples: 0,
        bad_lines: None,
    });
    Ok(Look {
        whose: page.whose,
        other_engine: page.other_engine,
        reading: read.reading,
        suspects: page.suspects,
        from_loads: read.from == LOADS,
        without_loads: reader.without_loads().map(str::to_owned),
        samples,
        bytes: read.bytes,
        bad_lines: page.bad_lines,
        took,
        redirected: reader.redirected().map(str::to_owned),
    })
}

fn seen(page: &Page<'_>, source: &Source, reading: &Reading) -> Seen {
    let whose = Whose::of(page, reading);
    let bad = page.dropped();
    Seen {
        whose,
        suspects: if whose == Whose::Other {
            suspects(page)
        } else {
            Vec::new()
        },
        other_engine: other_engine(page, source, reading),
        samples: page.sample_count(),
        bad_lines: bad.iter().min_by_key(|dropped| dropped.line).map(|first| {
            let count = bad.iter().map(|dropped| dropped.count).sum();
            (count, first.line, first.reason)
        }),
    }
}

/// The bytes that are there, whatever they are; `name` is what the server is called in words. Call it
/// within a tokio `LocalRuntime` or `LocalSet`.
pub(crate) async fn get(
    name: &str,
    url: &Target,
    scrape: &Scrape,
    access: &Access,
) -> Result<Vec<u8>, Missed> {
    let answer = access.fetcher(url, scrape).fetch().await;
    answer.map_err(|failed| missed(&failed, explain(name, url, &failed, &Keys::SOURCE)))
}

pub(super) fn missed(failed: &Failed, message: String) -> Missed {
    Missed {
        reason: failed.reason(),
        message,
        status: failed.status(),
    }
}

fn suspects(page: &Page<'_>) -> Vec<(Suspect, Box<str>)> {
    let first = |suspect: &Suspect| {
        let family = page.family(&suspect.metric)?;
        let sample = page.family_samples(family).next()?;
        Some(sample.value_text().into())
    };
    engine::suspects(page)
        .into_iter()
        .map(|suspect| {
            let value = first(&suspect).unwrap_or_default();
            (suspect, value)
        })
        .collect()
}
