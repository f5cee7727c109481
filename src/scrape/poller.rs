//! A task for each source: read, understand, put into the snapshot, wait.

use super::allowance::{Allowance, Allowed};
use super::explain::explain;
use super::fetch::{Failed, Fetcher};
use super::filter::Filter;
use super::left_out::{Told, left_out};
use super::loads::{self, Loads};
use crate::config::{Settings, Source, SourceKind};
use crate::engine;
use crate::exposition::{self, Page, Prepared};
use crate::kv::{Failure, FailureReason, Handle, Reading, Snapshot, SourceState};
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Keeps reading all sources.
pub struct Scraper {
    settings: Arc<Settings>,
    snapshot: Handle,
    pages: Pages,
    on_read: Box<dyn Fn() + Send + Sync>,
}

/// The newest page of each source, ready for merging, in the order of the settings.
#[derive(Clone)]
pub struct Pages(Arc<[ArcSwapOption<Prepared>]>);

/// One source and what is kept of it between two reads.
struct Poller {
    index: usize,
    source: Source,
    settings: Arc<Settings>,
    fetcher: Fetcher,
    state: SourceState,
    content: Option<u64>,
    filter: Filter,
    loads: Loads,
    told: Told,
    allowance: Allowance,
}

/// What is made of a page.
struct Understood {
    /// `None` where the page was not read this time.
    prepared: Option<Prepared>,
    reading: Reading,
    /// Of the gauges that the reading is made of; of all that is on the page, shown again or not,
    /// where there is no such gauge.
    content: u64,
}

// === impl Pages ===

impl Pages {
    fn new(sources: usize) -> Pages {
        Pages((0..sources).map(|_| ArcSwapOption::empty()).collect())
    }

    /// The page of the source at `index`, if one was read and is not known to be gone.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Arc<Prepared>> {
        self.0.get(index)?.load_full()
    }

    fn set(&self, index: usize, page: Option<Arc<Prepared>>) {
        if let Some(slot) = self.0.get(index) {
            slot.store(page);
        }
    }
}

// === impl Scraper ===

impl Scraper {
    /// Puts every source into the snapshot, as not read yet. `on_read` is called after each read,
    /// when its result is in the snapshot.
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        snapshot: Handle,
        on_read: impl Fn() + Send + Sync + 'static,
    ) -> Scraper {
        snapshot.store(Snapshot {
            sources: settings
                .sources
                .iter()
                .map(|source| Arc::new(initial(source)))
                .collect(),
        });
        Scraper {
            pages: Pages::new(settings.sources.len()),
            settings,
            snapshot,
            on_read: Box::new(on_read),
        }
    }

    /// The pages read.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages.clone()
    }

    /// Starts a task for each source on this thread: call it within a tokio `LocalRuntime` or
    /// `LocalSet`.
    pub fn spawn(self) {
        let shared = Arc::new(self);
        for (index, source) in shared.settings.sources.iter().enumerate() {
            let poller = Poller::new(index, source.clone(), Arc::clone(&shared.settings));
            tokio::task::spawn_local(poller.run(Arc::clone(&shared)));
        }
    }
}

fn initial(source: &Source) -> SourceState {
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
    fn new(index: usize, source: Source, settings: Arc<Settings>) -> Poller {
        Poller {
            index,
            fetcher: Fetcher::new(&source.url, &settings.scrape)
                .with_token(source.bearer_file.as_ref()),
            state: initial(&source),
            content: None,
            loads: Loads::new(&source.url),
            filter: Filter::new(&settings, &source),
            told: Told::default(),
            allowance: Allowance::new(Instant::now()),
            source,
            settings,
        }
    }

    async fn run(mut self, shared: Arc<Scraper>) {
        loop {
            let asked = Instant::now();
            let result = match self.source.kind {
                SourceKind::Metrics => self.read_page().await,
                SourceKind::SglangLoads => self.read_loads().await,
                SourceKind::Auto => self.read_either(asked).await,
            };
            let took = asked.elapsed();
            self.state.duration = Some(took.as_secs_f64());
            match result {
                Ok(page) => {
                    self.compare(asked, page.content);
                    if let Some(prepared) = page.prepared {
                        shared.pages.set(self.index, Some(Arc::new(prepared)));
                    }
                    self.good(asked, page.reading);
                }
                Err(failed) => {
                    self.loads.forget();
                    if failed.reason().ends_reading() {
                        shared.pages.set(self.index, None);
                    }
                    self.bad(asked, &failed);
                }
            }
            shared
                .snapshot
                .update(self.index, &Arc::new(self.state.clone()));
            (shared.on_read)();
            let pause = self.interval().saturating_sub(asked.elapsed());
            sleep(pause.max(Duration::from_millis(1))).await;
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
        let why = explain(&self.source.name, &self.loads.target, failed);
        if self.loads.pause(asked, &why) && self.may_tell() {
            tracing::warn!(
                "{why}; its values come from its page, and the loads are tried again each minute"
            );
        }
    }

    /// Stretched to 50 times the last scrape's duration, so that a slow page costs its server at most
    /// two per cent, but never so far that the reading would get old.
    fn interval(&self) -> Duration {
        let scrape = &self.settings.scrape;
        let set = self.source.interval.unwrap_or(scrape.interval);
        let up = self.state.up == Some(true);
        let took = Duration::try_from_secs_f64(self.state.duration.unwrap_or_default())
            .unwrap_or_default();
        let stretched = if up { took * 50 } else { Duration::ZERO };
        set.max(stretched.min(scrape.max_age / 3))
    }

    fn understand(&mut self, text: &[u8]) -> Result<Understood, Failed> {
        let scrape = &self.settings.scrape;
        let limits = exposition::Limits {
            max_series: scrape.max_series,
            max_label_bytes: scrape.max_label_bytes,
            max_families: scrape.max_families,
        };
        let page = Page::read(text, &limits).map_err(Failed::from)?;
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
        let reading = engine::read_source(&page, &self.source, &self.settings);
        Ok(Understood {
            prepared: Some(prepared),
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

/// What the loads give, with no page.
fn of_loads(reading: Reading) -> Understood {
    Understood {
        prepared: None,
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
