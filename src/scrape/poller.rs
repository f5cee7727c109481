//! The task of one source: read, report, wait.

use super::allowance::{Allowance, Allowed};
use super::board::{Entry, Id};
use super::fetch::Failed;
use super::filter::Filter;
use super::left_out::{Told, left_out};
use super::pace::{self, Pace};
use super::read::{PAGE, Read, Reader};
use super::scraper::Reports;
use super::stranger::Stranger;
use super::verdict::{Case, Stands, Trouble, Verdict};
use super::whose::{Whose, other_engine};
use crate::config::{Settings, Source, SourceKind};
use crate::engine::{self, Suspect};
use crate::exposition::{Page, Prepared};
use crate::kv::{Failure, FailureReason, LeftOut, Problem, Reading, SourceState};
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
    stands: Stands,
    /// What a mapping of it may be called.
    mapping: String,
    settings: Arc<Settings>,
    reader: Reader,
    state: SourceState,
    page: Option<Arc<Prepared>>,
    content: Option<u64>,
    filter: Filter,
    stranger: Stranger,
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

/// What is shown again of a page.
struct Shown {
    prepared: Prepared,
    left_out: Vec<LeftOut>,
    samples: usize,
}

/// What a page shows beside its reading; the loads show nothing else.
#[derive(Default)]
struct Seen {
    whose: Whose,
    other_engine: Option<&'static str>,
    suspects: Vec<Suspect>,
}

/// What is taken of a page.
struct Taken {
    seen: Seen,
    /// Of a source whose series are shown.
    shown: Option<Shown>,
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
        shared: Option<Shared>,
        started: Instant,
    ) -> Poller {
        Poller {
            id,
            stands: if settings.sources.contains(&source) {
                Stands::Set
            } else {
                Stands::Found
            },
            mapping: settings.free_mapping_names().next().unwrap_or_default(),
            stranger: Stranger::default(),
            reader: Reader::new(&source, settings, trusts),
            state: initial(&source),
            page: None,
            content: None,
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

    /// Goes on from what is known of the source: it is read as before, but with other settings.
    pub(super) fn resume(&mut self, entry: Entry) {
        self.state = Arc::unwrap_or_clone(entry.state);
        self.page = entry.page;
    }

    /// Reads until it is dropped.
    pub(super) async fn run(mut self, reports: Rc<Reports>) {
        loop {
            let asked = Instant::now();
            let result = self.read(asked).await;
            let took = asked.elapsed();
            self.state.duration = Some(took.as_secs_f64());
            self.state.redirected = self.reader.redirected().map(Arc::from);
            match result {
                Ok(read) => {
                    self.failed = 0;
                    self.good(asked, read);
                }
                Err(failed) => {
                    self.failed = if failed.is_refusal() {
                        // A server that starts again is seen at the next interval.
                        0
                    } else {
                        self.failed.saturating_add(1)
                    };
                    if failed.reason().ends_reading() {
                        self.page = None;
                    }
                    self.bad(asked, &failed);
                }
            }
            self.state.without_loads = self.reader.without_loads().map(Arc::from);
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

    /// One read. Of a source that is SGLang's loads no page is shown again, read or not.
    async fn read(&mut self, asked: Instant) -> Result<Read<Taken>, Failed> {
        let shows = self.source.kind != SourceKind::SglangLoads;
        let label = (&*self.settings.metrics.source_label, &*self.source.name);
        let (filter, stranger, source) = (&self.filter, &mut self.stranger, &self.source);
        let take = |text: &[u8], page: &Page<'_>, reading: &Reading| {
            let whose = Whose::of(page, reading);
            let seen = Seen {
                whose,
                other_engine: other_engine(page, source, reading),
                suspects: match whose {
                    Whose::Other => stranger.suspects(page, Instant::now()).to_vec(),
                    _ => Vec::new(),
                },
            };
            let shown = (shows && whose != Whose::Kvgauge).then(|| {
                let passes = |family: &str| filter.passes(family);
                let prepared = Prepared::filtered(page, Some(label), &passes);
                Shown {
                    left_out: left_out(text, page.dropped(), &prepared),
                    samples: page.sample_count(),
                    prepared,
                }
            });
            Taken { seen, shown }
        };
        let read = self.reader.read(asked, take).await?;
        match &read.page {
            // It repeats what others say.
            Some(page) if page.seen.whose == Whose::Kvgauge => Err(Failed::Ours),
            _ => Ok(read),
        }
    }

    fn good(&mut self, asked: Instant, read: Read<Taken>) {
        self.compare(asked, read.content);
        // Of both, the page is what is large.
        if read.page.is_some() || self.source.kind == SourceKind::SglangLoads {
            self.state.bytes = Some(read.bytes as u64);
        }
        let (seen, shown) = match read.page {
            Some(page) if read.from == PAGE => (page.seen, page.shown),
            Some(page) => (Seen::default(), page.shown),
            None => (Seen::default(), None),
        };
        if let Some(shown) = shown {
            self.show(shown);
        }
        if let Some(why) = read.news
            && self.may_tell()
        {
            tracing::warn!(
                "{why}; its values come from its page, and the loads are tried again each minute"
            );
        }
        self.state.reads = Some(read.from);
        self.take(asked, read.reading, &seen);
    }

    fn show(&mut self, shown: Shown) {
        for found in &shown.left_out {
            add(&mut self.state.dropped, found.reason, found.count);
        }
        let (name, url) = (&self.source.name, &self.state.url);
        let shared = self.shared.as_ref();
        let may = || shared.is_none_or(may_tell_of_those_found);
        self.told
            .tell(name, url, &shown.left_out, Instant::now(), may);
        self.state.left_out = shown.left_out;
        self.state.samples = Some(shown.samples as u64);
        self.state.exposed = Some(shown.prepared.sample_count() as u64);
        self.page = Some(Arc::new(shown.prepared));
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

    /// Since when nothing that counts has moved.
    fn compare(&mut self, asked: Instant, content: u64) {
        if self.content != Some(content) {
            self.content = Some(content);
            self.state.unchanged_since = Some(asked);
        }
    }

    fn take(&mut self, asked: Instant, reading: Reading, seen: &Seen) {
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
            whose: seen.whose,
            reading: &reading,
            other_engine: seen.other_engine,
            suspects: &seen.suspects,
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
        fn usage_from(reading: &Reading) -> Option<&str> {
            let mut chosen = reading.chosen.iter();
            chosen.find(|(v, _)| *v == "usage").map(|(_, from)| &**from)
        }
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
        allowed != Allowed::No && self.shared.as_ref().is_none_or(may_tell_of_those_found)
    }

    fn bad(&mut self, at: Instant, failed: &Failed) {
        let reason = failed.reason();
        let message: Arc<str> = self.reader.explain(failed).into();
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

/// Adds to a count; the reasons are few and fixed.
fn add(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, n: u64) {
    match counts.iter_mut().find(|(r, _)| *r == reason) {
        Some((_, count)) => *count += n,
        None => counts.push((reason, n)),
    }
}
