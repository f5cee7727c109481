//! One look at one page, for `doctor` and `status`: read as the poller reads it, but once, and without
//! a snapshot.

use super::explain::{Keys, explain};
use super::fetch::{Failed, Fetcher};
use super::loads::{self, Loads};
use super::ours::is_ours;
use crate::config::{Scrape, Settings, Source, SourceKind, Target};
use crate::engine::{self, Suspect};
use crate::exposition::{Limits, Page};
use crate::kv::{FailureReason, Reading};
use crate::net::Trusts;
use http::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the names begin that only routers publish: sglang-router (its name of now, and the one before),
/// vLLM's router.
const ROUTERS: [&str; 3] = ["smg_", "sgl_router_", "vllm_router_"];

/// Whose page it is, going by the names on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// That of an engine which is known here.
    Engine,
    /// A router's, and no engine's.
    Router,
    /// The one that kvgauge itself serves.
    Kvgauge,
    /// Somebody else's.
    Other,
}

/// What a server is shown, and by what it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    bearer_file: Option<Arc<Path>>,
    ca_file: Option<Arc<Path>>,
}

/// What is looked at, as it is called in words, and the keys that a cure names.
#[derive(Clone, Copy)]
struct At<'a> {
    name: &'a str,
    url: &'a Target,
    keys: &'static Keys,
}

/// What is on a page.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) whose: Whose,
    pub(crate) reading: Reading,
    /// Where nobody known wrote the page: names that look like KV usage, with the first sample's value.
    pub(crate) suspects: Vec<(Suspect, Box<str>)>,
    pub(crate) samples: usize,
    pub(crate) bytes: usize,
    /// Lines that could not be read: how many, and the first one's number and reason.
    pub(crate) bad_lines: Option<(u64, u64, &'static str)>,
    pub(crate) took: Duration,
    /// The path where it was found, where the one that was asked for redirects there.
    pub(crate) redirected: Option<String>,
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

    fn fetcher(&self, url: &Target, scrape: &Scrape) -> Fetcher {
        Fetcher::new(url, scrape)
            .with_token(self.bearer_file.as_ref())
            .with_trust(Trusts::default().of(self.ca_file.as_ref()))
    }
}

/// Reads the page of a source of settings once, as the poller would. Call it within a tokio
/// `LocalRuntime` or `LocalSet`.
pub(crate) async fn look_at_source(source: &Source, settings: &Settings) -> Result<Look, Missed> {
    let at = At {
        name: &source.name,
        url: &source.url,
        keys: Keys::of(source, settings),
    };
    let mut fetcher = Access::of(source).fetcher(&source.url, &settings.scrape);
    if source.kind == SourceKind::SglangLoads {
        return look_at_loads(at, fetcher).await;
    }
    let read = |page: &Page<'_>| engine::read_source(page, source, settings);
    look_with(at, &mut fetcher, &settings.scrape, &read).await
}

/// The same of a source that is SGLang's loads instead of a page.
async fn look_at_loads(at: At<'_>, mut fetcher: Fetcher) -> Result<Look, Missed> {
    let asked = Instant::now();
    let loads = Loads::new(at.url);
    let answer = fetcher.fetch_json(&loads.path).await;
    let text = answer.map_err(|failed| at.missed(&failed))?;
    let reading = loads::understand(&text).map_err(|failed| at.missed(&failed))?;
    Ok(Look {
        whose: Whose::Engine,
        reading,
        suspects: Vec::new(),
        samples: 0,
        bytes: text.len(),
        bad_lines: None,
        took: asked.elapsed(),
        redirected: fetcher.redirected().map(str::to_owned),
    })
}

/// Reads a page once; `name` is what the source is called in words. Call it within a tokio
/// `LocalRuntime` or `LocalSet`.
pub(crate) async fn look(
    name: &str,
    url: &Target,
    scrape: &Scrape,
    access: &Access,
) -> Result<Look, Missed> {
    let at = At {
        name,
        url,
        keys: &Keys::SOURCE,
    };
    look_with(at, &mut access.fetcher(url, scrape), scrape, &engine::read).await
}

async fn look_with(
    at: At<'_>,
    fetcher: &mut Fetcher,
    scrape: &Scrape,
    read: &dyn Fn(&Page<'_>) -> Reading,
) -> Result<Look, Missed> {
    let asked = Instant::now();
    let answer = fetcher.fetch().await;
    let text = answer.map_err(|failed| at.missed(&failed))?;
    let took = asked.elapsed();
    let limits = Limits {
        max_series: scrape.max_series,
        max_label_bytes: scrape.max_label_bytes,
        max_families: scrape.max_families,
    };
    let page = Page::read(&text, &limits).map_err(|error| at.missed(&Failed::from(error)))?;
    let reading = read(&page);
    let whose = whose(&page, &reading);
    let bad = page.dropped();
    Ok(Look {
        whose,
        suspects: if whose == Whose::Other {
            suspects(&page)
        } else {
            Vec::new()
        },
        reading,
        samples: page.sample_count(),
        bytes: text.len(),
        bad_lines: bad.iter().min_by_key(|dropped| dropped.line).map(|first| {
            let count = bad.iter().map(|dropped| dropped.count).sum();
            (count, first.line, first.reason)
        }),
        took,
        redirected: fetcher.redirected().map(str::to_owned),
    })
}

/// The bytes that are there, whatever they are.
pub(crate) async fn get(
    name: &str,
    url: &Target,
    scrape: &Scrape,
    access: &Access,
) -> Result<Vec<u8>, Missed> {
    let at = At {
        name,
        url,
        keys: &Keys::SOURCE,
    };
    let answer = access.fetcher(url, scrape).fetch().await;
    answer.map_err(|failed| at.missed(&failed))
}

impl At<'_> {
    fn missed(&self, failed: &Failed) -> Missed {
        Missed {
            reason: failed.reason(),
            message: explain(self.name, self.url, failed, self.keys),
            status: failed.status(),
        }
    }
}

fn whose(page: &Page<'_>, reading: &Reading) -> Whose {
    let mut names = page.families().iter().map(crate::exposition::Family::name);
    if is_ours(page) {
        Whose::Kvgauge
    } else if reading.engine.is_some() {
        Whose::Engine
    } else if names.any(|name| ROUTERS.iter().any(|router| name.starts_with(router))) {
        Whose::Router
    } else {
        Whose::Other
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
