//! The task of one source: read, understand, report, wait.

use super::allowance::{Allowance, Allowed};
use super::board::{Entry, Id};
use super::explain::{Keys, explain};
use super::fetch::{Failed, Fetcher};
use super::filter::Filter;
use super::left_out::{Told, left_out};
use super::loads::{self, Loads};
use super::ours::is_ours;
use super::pace::{self, Pace};
use super::scraper::Reports;
use crate::config::{Settings, Source, SourceKind};
use crate::engine::{self, Lacking};
use crate::exposition::{self, Page, Prepared};
use crate::kv::{Failure, FailureReason, Reading, SourceState};
use crate::net::Trusts;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One source and what is kept of it between two reads.
pub(super) struct Poller {
    id: Id,
    source: Source,
    /// What cures are to be made in.
    keys: &'static Keys,
    settings: Arc<Settings>,
    fetcher: Fetcher,
    state: SourceState,
    page: Option<Arc<Prepared>>,
    content: Option<u64>,
    filter: Filter,
    loads: Loads,
    told: Told,
    allowance: Allowance,
    /// That of all sources which were found, where this one was.
    shared: Option<Shared>,
    pace: Pace,
    /// Attempts in a row that have failed and cost somebody something.
    failed: u32,
}

/// An allowance of several sources together.
pub(super) type Shared = Rc<RefCell<Allowance>>;

/// What is made of a page.
struct Understood {
    /// `None` where the page was not read this time.
    prepared: Option<Prepared>,
    reading: Reading,
    /// What the reading is of: `page` or `loads`.
    of: &'static str,
    /// Of the gauges that the reading is made of; of all that is on the page, shown again or not,
    /// where there is no such gauge.
    content: u64,
}

/// A source that has not been read.
pub(super) fn initial(source: &Source) -> SourceState {
    SourceState {
        name: Arc::clone(&source.name),
        url: source.url.to_string().into(),
        roles: source.role.into(),
        up: None,
        reading: None,
        taken: None,
        unchanged_since: None,
        duration: None,
        samples: None,
        bytes: None,
        redirected: None,
        kind: source.kind.as_str(),
        bearer_file: source.bearer_file.clone(),
        reads: None,
        without_loads: None,
        interval: None,
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
        trusts: &Trusts,
        shared: Option<Shared>,
        started: Instant,
    ) -> Poller {
        Poller {
            id,
            keys: Keys::of(&source, settings),
            fetcher: Fetcher::new(&source.url, &settings.scrape)
                .with_token(source.bearer_file.as_ref())
                .with_trust(trusts.of(source.ca_file.as_ref())),
            state: initial(&source),
            page: None,
            content: None,
            loads: Loads::new(&source.url),
            filter: Filter::new(settings, &source),
            told: Told::default(),
            allowance: Allowance::new(Instant::now()),
            shared,
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
            let result = match self.source.kind {
                SourceKind::Metrics => self.read_page().await,
                SourceKind::SglangLoads => self.read_loads().await,
                SourceKind::Auto => self.read_either(asked).await,
            };
            let took = asked.elapsed();
            self.state.duration = Some(took.as_secs_f64());
            self.state.redirected = self.fetcher.redirected().map(Arc::from);
            match result {
                Ok(page) => {
                    self.failed = 0;
                    self.compare(asked, page.content);
                    if let Some(prepared) = page.prepared {
                        self.page = Some(Arc::new(prepared));
                    }
                    self.state.reads = Some(page.of);
                    self.good(asked, page.reading);
                }
                Err(failed) => {
                    self.failed = if failed.is_refusal() {
                        // A server that starts again is seen at the next interval.
                        0
                    } else {
                        self.failed.saturating_add(1)
                    };
                    self.loads.forget();
                    if failed.reason().ends_reading() {
                        self.page = None;
                    }
                    self.bad(asked, &failed);
                }
            }
            if self.source.kind == SourceKind::Auto {
                let why = self.loads.why_not(Instant::now());
                self.state.without_loads = why.map(Arc::from);
            }
            let every = self.every();
            self.state.interval = Some(every);
            reports.report(Entry {
                id: self.id,
                state: Arc::new(self.state.clone()),
                page: self.page.clone(),
            });
            sleep(self.pause(asked, every)).await;
        }
    }

    async fn read_page(&mut self) -> Result<Understood, Failed> {
        let text = self.fetcher.fetch().await?;
        self.understand(&text)
    }

    async fn read_loads(&mut self) -> Result<Understood, Failed> {
        let text = self.fetcher.fetch_json(&self.loads.path).await?;
        self.state.bytes = Some(text.len() as u64);
        Ok(of_loads(loads::understand(&text)?))
    }

    /// The page when it is due, and the loads for the reading where they can be had.
    async fn read_either(&mut self, asked: Instant) -> Result<Understood, Failed> {
        let mut page = None;
        if self.loads.page_is_due(asked, self.settings.scrape.max_age) {
            let read = self.read_page().await?;
            self.loads.saw_page(asked, &read.reading);
            page = Some(read);
        }
        if self.loads.may_ask(asked) {
            let text = self.fetcher.fetch_json(&self.loads.path).await;
            match text.and_then(|text| self.loads.beside_page(&text)) {
                Ok(reading) => {
                    let mut loads = of_loads(reading);
                    loads.prepared = page.and_then(|page| page.prepared);
                    return Ok(loads);
                }
                // There is nobody to ask for the page either.
                Err(failed) if failed.reason().ends_reading() => return Err(failed),
                Err(failed) => self.without_loads(asked, &failed),
            }
        }
        match page {
            Some(page) => Ok(page),
            None => self.read_page().await,
        }
    }

    /// Says once why the readings come from the page.
    fn without_loads(&mut self, asked: Instant, failed: &Failed) {
        let why = explain(&self.source.name, &self.loads.target, failed, self.keys);
        if self.loads.pause(asked, &why) && self.may_tell() {
            tracing::warn!(
                "{why}; its values come from its page, and the loads are tried again each minute"
            );
        }
    }

    /// From one read to the next, as it stands now.
    fn every(&self) -> Duration {
        let scrape = &self.settings.scrape;
        let set = self.source.interval.unwrap_or(scrape.interval);
        if self.failed > 0 {
            return pace::back_off(set, self.failed, scrape.max_age);
        }
        let took = Duration::try_from_secs_f64(self.state.duration.unwrap_or_default());
        pace::stretched(set, took.unwrap_or_default(), scrape.max_age)
    }

    /// From now to the next read.
    fn pause(&self, asked: Instant, every: Duration) -> Duration {
        if self.failed > 0 {
            return every.saturating_sub(asked.elapsed());
        }
        self.pace.pause(asked, Instant::now(), every)
    }

    fn understand(&mut self, text: &[u8]) -> Result<Understood, Failed> {
        let scrape = &self.settings.scrape;
        let limits = exposition::Limits {
            max_series: scrape.max_series,
            max_label_bytes: scrape.max_label_bytes,
            max_families: scrape.max_families,
        };
        let page = Page::read(text, &limits).map_err(Failed::from)?;
        if is_ours(&page) {
            return Err(Failed::Ours);
        }
        let label = (&*self.settings.metrics.source_label, &*self.source.name);
        let passes = |family: &str| self.filter.passes(family);
        let prepared = Prepared::filtered(&page, Some(label), &passes);
        let left_out = left_out(text, page.dropped(), &prepared);
        for found in &left_out {
            add(&mut self.state.dropped, found.reason, found.count);
        }
        let (name, url) = (&self.source.name, &self.state.url);
        let shared = self.shared.as_ref();
        let may = || shared.is_none_or(may_tell_of_those_found);
        self.told.tell(name, url, &left_out, Instant::now(), may);
        self.state.left_out = left_out;
        self.state.samples = Some(page.sample_count() as u64);
        self.state.exposed = Some(prepared.sample_count() as u64);
        self.state.bytes = Some(text.len() as u64);
        let reading = engine::read_source(&page, &self.source, &self.settings);
        Ok(Understood {
            prepared: Some(prepared),
            of: "page",
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
        // An engine that has just started again may not name its role yet, and on a merged page the
        // last engine of a role may be gone: its role is unknown then, and goes to no other.
        let named = reading.roles();
        if self.source.role.is_none() && !self.state.roles.hold(named) {
            self.state.roles = named;
        }
        self.state.up = Some(true);
        self.state.taken = Some(asked);
        self.state.reading = Some(Arc::new(reading));
    }

    /// Says what is read and from which metric, at the start and whenever that changes.
    fn announce(&mut self, reading: &Reading) {
        let usage_from = |r: &Reading| r.chosen.iter().find(|(v, _)| *v == "usage").map(|c| c.1);
        let (engine, metric) = (&reading.engine, usage_from(reading));
        let before = self.state.reading.as_deref();
        let same = before.is_some_and(|b| b.engine == *engine && usage_from(b) == metric);
        if (same && self.state.up == Some(true)) || !self.may_tell() {
            return;
        }
        let (source, url) = (&self.source.name, &self.state.url);
        let lacking = engine::lacking(reading);
        let usage = lacking.iter().find(|lacking| lacking.value == "usage");
        match (engine::in_words(reading), metric) {
            (Some(engine), Some(metric)) => {
                tracing::info!("{source}: reading {engine} at {url}, usage from {metric}");
            }
            (Some(engine), None) => match usage {
                Some(Lacking { why, comes, .. }) if *comes => {
                    tracing::info!("{source}: reading {engine} at {url}; {why}");
                }
                Some(Lacking { why, next, .. }) => {
                    tracing::warn!("{source}: reading {engine} at {url}; {why}: {next}");
                }
                None => tracing::warn!(
                    "{source}: reading {engine} at {url}; its KV usage is unknown, as a gauge holds what can't be a value"
                ),
            },
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
        allowed != Allowed::No && self.shared.as_ref().is_none_or(may_tell_of_those_found)
    }

    fn bad(&mut self, at: Instant, failed: &Failed) {
        let reason = failed.reason();
        let (name, url) = (&self.source.name, &self.source.url);
        let message: Arc<str> = explain(name, url, failed, self.keys).into();
        let was = self.state.failure.as_ref().map(|f| &f.message);
        // Said once for each change, not at every attempt.
        let news = self.state.up != Some(false) || was != Some(&message);
        if news && self.may_tell() {
            tracing::warn!(source = %self.source.name, reason = reason.as_str(), "{message}");
        }
        if reason.ends_reading() {
            self.state.reading = None;
            self.state.reads = None;
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

/// Whether the diagnostics take another line of the sources that were found.
fn may_tell_of_those_found(shared: &Shared) -> bool {
    let allowed = shared.borrow_mut().take(Instant::now());
    if allowed == Allowed::Last {
        tracing::warn!(
            "the sources that were found change so often that what follows is told now and then only; /sources has it all"
        );
    }
    allowed != Allowed::No
}

/// What the loads give, with no page.
fn of_loads(reading: Reading) -> Understood {
    Understood {
        prepared: None,
        of: "loads",
        content: reading.fingerprint.unwrap_or_default(),
        reading,
    }
}

/// Adds to a count; the reasons are few and fixed.
fn add(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, n: u64) {
    match counts.iter_mut().find(|(r, _)| *r == reason) {
        Some((_, count)) => *count += n,
        None => counts.push((reason, n)),
    }
}
