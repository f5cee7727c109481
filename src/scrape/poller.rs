//! The task of one source: read, understand, report, wait.

use super::allowance::{Allowance, Allowed};
use super::board::{Entry, Id};
use super::explain::{Keys, explain};
use super::fetch::{Failed, Fetcher};
use super::filter::Filter;
use super::left_out::{Told, left_out};
use super::loads::{self, Loads};
use super::pace::{self, Pace};
use super::scraper::Reports;
use super::stranger::Stranger;
use super::verdict::{Case, Stands, Trouble, Verdict};
use super::whose::{Whose, other_engine};
use crate::config::{Settings, Source, SourceKind};
use crate::engine::{self, Suspect};
use crate::exposition::{self, Page, Prepared};
use crate::kv::{Failure, FailureReason, Problem, Reading, SourceState};
use crate::net::Trusts;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One source and what is kept of it between two reads.
pub(super) struct Poller {
    id: Id,
    source: Source,
    /// What cures are to be made in.
    keys: Keys,
    stands: Stands,
    /// What a mapping of it may be called.
    mapping: String,
    settings: Arc<Settings>,
    fetcher: Fetcher,
    state: SourceState,
    page: Option<Arc<Prepared>>,
    content: Option<u64>,
    filter: Filter,
    stranger: Stranger,
    seen: Seen,
    loads: Loads,
    told: Told,
    allowance: Allowance,
    pace: Pace,
    /// Attempts in a row that have failed and cost somebody something.
    failed: u32,
}

/// What a page shows beside its reading; the loads show nothing else.
#[derive(Default)]
struct Seen {
    whose: Whose,
    other_engine: Option<&'static str>,
    suspects: Vec<Suspect>,
}

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
        problems: Vec::new(),
        mapping: None,
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
        started: Instant,
    ) -> Poller {
        Poller {
            id,
            keys: Keys::of(&source, settings),
            stands: if settings.sources.contains(&source) {
                Stands::Set
            } else {
                Stands::Found
            },
            mapping: settings.free_mapping_names().next().unwrap_or_default(),
            stranger: Stranger::default(),
            seen: Seen::default(),
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
                    if page.of == "loads" {
                        self.seen = Seen::default();
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
        let why = explain(&self.source.name, &self.loads.target, failed, &self.keys);
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
        let whose = Whose::of(&page, &reading);
        self.seen = Seen {
            whose,
            other_engine: other_engine(&page, &self.source, &reading),
            suspects: match whose {
                Whose::Other => self.stranger.suspects(&page, Instant::now()).to_vec(),
                _ => Vec::new(),
            },
        };
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
        for (reason, count) in &reading.odd {
            add(&mut self.state.odd, reason, *count);
        }
        // An engine that has just started again may not name its role yet, and on a merged page the
        // last engine of a role may be gone: its role is unknown then, and goes to no other.
        let named = reading.roles();
        if self.source.role.is_none() && !self.state.roles.hold(named) {
            self.state.roles = named;
        }
        let verdict = Verdict::of(&Case {
            source: &self.source,
            whose: self.seen.whose,
            reading: &reading,
            other_engine: self.seen.other_engine,
            suspects: &self.seen.suspects,
            roles: self.state.roles,
            engines: true,
            stands: self.stands,
            mapping: &self.mapping,
        });
        self.announce(&reading, &verdict.troubles);
        let mapping = verdict.mapping.join("\n");
        self.state.mapping = (!mapping.is_empty()).then(|| mapping.into());
        let problems = verdict.troubles.into_iter().map(|t| t.problem);
        self.state.problems = problems.collect();
        self.state.up = Some(true);
        self.state.taken = Some(asked);
        self.state.reading = Some(Arc::new(reading));
    }

    /// Says what is read, from which metric and what is wrong with it, at the start and whenever that
    /// changes.
    fn announce(&mut self, reading: &Reading, troubles: &[Trouble]) {
        let usage_from = |r: &Reading| r.chosen.iter().find(|(v, _)| *v == "usage").map(|c| c.1);
        let (engine, metric) = (engine::in_words(reading), usage_from(reading));
        let before = self.state.reading.as_deref();
        let up = self.state.up == Some(true);
        let same = before.is_some_and(|b| b.engine == reading.engine && usage_from(b) == metric);
        let url = Arc::clone(&self.state.url);
        let source = Arc::clone(&self.source.name);
        let what = match &engine {
            Some(engine) => format!("reading {engine} at {url}"),
            None => format!("reading {url}"),
        };
        let news = !(same && up);
        let said = self.state.problems.iter();
        if !news && said.eq(troubles.iter().map(|trouble| &trouble.problem)) {
            return;
        }
        match metric {
            Some(metric) if news && self.may_tell() => {
                tracing::info!("{source}: {what}, usage from {metric}");
            }
            None if news && troubles.is_empty() && self.may_tell() => {
                tracing::info!("{source}: {what}, which has no KV gauges");
            }
            _ if !news && troubles.is_empty() && self.may_tell() => {
                tracing::info!("{source}: {what}; nothing is wrong with it any more");
            }
            _ => {}
        }
        for Trouble { problem, goes } in troubles {
            let Problem { cause, next } = problem;
            if !self.may_tell() {
                return;
            }
            if *goes {
                tracing::info!("{source}: {what}; {cause}");
            } else {
                tracing::warn!("{source}: {what}; {cause}: {next}");
            }
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
        let (name, url) = (&self.source.name, &self.source.url);
        let message: Arc<str> = explain(name, url, failed, &self.keys).into();
        let was = self.state.failure.as_ref().map(|f| &f.message);
        // Said once for each change, not at every attempt.
        let news = self.state.up != Some(false) || was != Some(&message);
        if news && self.may_tell() {
            tracing::warn!(source = %self.source.name, reason = reason.as_str(), "{message}");
        }
        if reason.ends_reading() {
            self.state.reading = None;
            self.state.problems.clear();
            self.state.mapping = None;
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
