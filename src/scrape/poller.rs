//! The task of one source: read, understand, report, wait.

use super::allowance::{Allowance, Allowed};
use super::board::{Entry, Id};
use super::explain::explain;
use super::fetch::{Failed, Fetcher};
use super::filter::Filter;
use super::left_out::{Told, left_out};
use super::pace::{self, Pace};
use super::scraper::Reports;
use crate::config::{Settings, Source};
use crate::engine;
use crate::exposition::{self, Page, PageError, Prepared};
use crate::kv::{Failure, FailureReason, Reading, SourceState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One source and what is kept of it between two reads.
pub(super) struct Poller {
    id: Id,
    source: Source,
    settings: Arc<Settings>,
    fetcher: Fetcher,
    state: SourceState,
    page: Option<Arc<Prepared>>,
    content: Option<u64>,
    filter: Filter,
    told: Told,
    allowance: Allowance,
    pace: Pace,
    /// Attempts that have failed since the last good one.
    failed: u32,
}

/// What is made of a page.
struct Understood {
    prepared: Prepared,
    reading: Reading,
    /// Of the gauges that the reading is made of; of all that is on the page, shown again or not,
    /// where there is no such gauge.
    content: u64,
}

/// A source that has not been read.
pub(super) fn initial(source: &Source) -> SourceState {
    SourceState {
        name: Arc::clone(&source.name),
        url: source.url.to_string().into(),
        role: source.role,
        up: None,
        reading: None,
        taken: None,
        unchanged_since: None,
        duration: None,
        samples: None,
        bytes: None,
        exposed: None,
        left_out: Vec::new(),
        failure: None,
        failures: [0; FailureReason::ALL.len()],
        dropped: Vec::new(),
        odd: Vec::new(),
    }
}

// === impl Poller ===

impl Poller {
    /// `started` is the same for all sources: their reads are spread from there.
    pub(super) fn new(
        id: Id,
        source: Source,
        settings: &Arc<Settings>,
        started: Instant,
    ) -> Poller {
        Poller {
            id,
            fetcher: Fetcher::new(&source.url, &settings.scrape),
            state: initial(&source),
            page: None,
            content: None,
            filter: Filter::new(settings.metrics.expose, &source),
            told: Told::default(),
            allowance: Allowance::new(Instant::now()),
            pace: Pace::new(&source.name, started),
            failed: 0,
            source,
            settings: Arc::clone(settings),
        }
    }

    /// Reads until it is dropped.
    pub(super) async fn run(mut self, reports: Rc<Reports>) {
        loop {
            let asked = Instant::now();
            let result = match self.fetcher.fetch().await {
                Ok(text) => self.understand(&text),
                Err(failed) => Err(failed),
            };
            let took = asked.elapsed();
            self.state.duration = Some(took.as_secs_f64());
            match result {
                Ok(page) => {
                    self.failed = 0;
                    self.compare(asked, page.content);
                    self.page = Some(Arc::new(page.prepared));
                    self.good(asked, page.reading);
                }
                Err(failed) => {
                    self.failed = self.failed.saturating_add(1);
                    if failed.reason().ends_reading() {
                        self.page = None;
                    }
                    self.bad(asked, &failed);
                }
            }
            reports.report(Entry {
                id: self.id,
                state: Arc::new(self.state.clone()),
                page: self.page.clone(),
            });
            sleep(self.pause(asked)).await;
        }
    }

    /// From now to the next read.
    fn pause(&self, asked: Instant) -> Duration {
        let scrape = &self.settings.scrape;
        let set = self.source.interval.unwrap_or(scrape.interval);
        if self.failed > 0 {
            return pace::back_off(set, self.failed, scrape.max_age)
                .saturating_sub(asked.elapsed());
        }
        let took = Duration::try_from_secs_f64(self.state.duration.unwrap_or_default());
        let every = pace::stretched(set, took.unwrap_or_default(), scrape.max_age);
        self.pace.pause(asked, Instant::now(), every)
    }

    fn understand(&mut self, text: &[u8]) -> Result<Understood, Failed> {
        let scrape = &self.settings.scrape;
        let limits = exposition::Limits {
            max_series: scrape.max_series,
            max_label_bytes: scrape.max_label_bytes,
            max_families: scrape.max_families,
        };
        let page = Page::read(text, &limits).map_err(refused)?;
        let label = (&*self.settings.metrics.source_label, &*self.source.name);
        let passes = |family: &str| self.filter.passes(family);
        let prepared = Prepared::filtered(&page, Some(label), &passes);
        let left_out = left_out(text, page.dropped(), &prepared);
        for found in &left_out {
            add(&mut self.state.dropped, found.reason, found.count);
        }
        let (name, url) = (&self.source.name, &self.state.url);
        self.told.tell(name, url, &left_out, Instant::now());
        self.state.left_out = left_out;
        self.state.samples = Some(page.sample_count() as u64);
        self.state.exposed = Some(prepared.sample_count() as u64);
        self.state.bytes = Some(text.len() as u64);
        let reading = engine::read(&page);
        Ok(Understood {
            prepared,
            // Of a whole page something moves each time: it counts our own reads, for one.
            content: reading.fingerprint.unwrap_or_else(|| page.content_hash()),
            reading,
        })
    }

    /// Since when nothing that counts has moved.
    fn compare(&mut self, asked: Instant, content: u64) {
        if self.content != Some(content) {
            self.content = Some(content);
            self.state.unchanged_since = Some(asked);
        }
    }

    fn good(&mut self, asked: Instant, reading: Reading) {
        self.announce(&reading);
        for (reason, count) in &reading.odd {
            add(&mut self.state.odd, reason, *count);
        }
        // An engine that has just started again may not name its role yet.
        self.state.role = self.source.role.or(reading.role).or(self.state.role);
        self.state.up = Some(true);
        self.state.taken = Some(asked);
        self.state.reading = Some(Arc::new(reading));
    }

    /// Says what is read and from which metric, at the start and whenever that changes.
    fn announce(&mut self, reading: &Reading) {
        let usage_from = |r: &Reading| r.chosen.iter().find(|(v, _)| *v == "usage").map(|c| c.1);
        let (engine, metric) = (reading.engine, usage_from(reading));
        let before = self.state.reading.as_deref();
        let same = before.is_some_and(|b| b.engine == engine && usage_from(b) == metric);
        if (same && self.state.up == Some(true)) || !self.may_tell() {
            return;
        }
        let (source, url) = (&self.source.name, &self.state.url);
        match (engine, metric) {
            (Some(engine), Some(metric)) => {
                tracing::info!("{source}: reading {engine} at {url}, usage from {metric}");
            }
            (Some(engine), None) => {
                tracing::info!(
                    "{source}: reading {engine} at {url}; it has no KV usage yet (gauges come with the first request)"
                );
            }
            (None, _) if self.source.role.is_some() => {
                tracing::warn!(
                    "{source}: {url} answers, but no engine known here has KV gauges on it, so its usage stays unknown"
                );
            }
            (None, _) => tracing::info!("{source}: reading {url}, which has no KV gauges"),
        }
    }

    /// Whether the diagnostics take another line of this source.
    fn may_tell(&mut self) -> bool {
        let allowed = self.allowance.take(Instant::now());
        if allowed == Allowed::Last {
            let source = &self.source.name;
            tracing::warn!(
                "{source}: changes so often that what follows is told now and then only; /sources has it all"
            );
        }
        allowed != Allowed::No
    }

    fn bad(&mut self, at: Instant, failed: &Failed) {
        let reason = failed.reason();
        let message: Arc<str> = explain(&self.source.name, &self.source.url, failed).into();
        let was = self.state.failure.as_ref().map(|f| &f.message);
        // Said once for each change, not at every attempt.
        let news = self.state.up != Some(false) || was != Some(&message);
        if news && self.may_tell() {
            tracing::warn!(source = %self.source.name, reason = reason.as_str(), "{message}");
        }
        if reason.ends_reading() {
            self.state.reading = None;
        }
        if let Some(count) = FailureReason::ALL
            .iter()
            .position(|r| *r == reason)
            .and_then(|i| self.state.failures.get_mut(i))
        {
            *count += 1;
        }
        self.state.up = Some(false);
        self.state.failure = Some(Failure {
            reason,
            message,
            at,
        });
    }
}

/// Why a text is not taken as a page.
fn refused(error: PageError) -> Failed {
    let (seen, key) = match error {
        PageError::NotMetrics { looks_like } => return Failed::NotMetrics(looks_like),
        PageError::NotText => return Failed::NotMetrics("bytes that are no text"),
        PageError::TooManySeries { limit } => {
            (format!("has more than {limit} series"), "scrape.max_series")
        }
        PageError::TooManyFamilies { limit } => (
            format!("has more than {limit} metric families"),
            "scrape.max_families",
        ),
        PageError::LabelsTooLong { limit, line } => (
            format!("has more than {limit} bytes of name and labels in line {line}"),
            "scrape.max_label_bytes",
        ),
    };
    Failed::TooLarge { seen, key }
}

/// Adds to a count; the reasons are few and fixed.
fn add(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, n: u64) {
    match counts.iter_mut().find(|(r, _)| *r == reason) {
        Some((_, count)) => *count += n,
        None => counts.push((reason, n)),
    }
}
