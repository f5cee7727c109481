//! The unified page: what kvgauge counted, what the snapshot says, and the sources' own pages,
//! merged. A GET merges prepared blocks and never reads a source.

use super::sharing::Sharing;
use super::{Answer, Conflicts, Shared};
use crate::config::Expose;
use crate::engine;
use crate::exposition::{
    Format, Limits, MetricType, Page, Prepared, TextWriter, merge, takes_gzip,
};
use crate::kv::{FailureReason, Reading, Role, RoleState, SourceState};
use crate::scrape::{Discovery, View};
use crate::telemetry::names::{self, Name};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// kvgauge's own pages come first and keep their types.
const OWN_PAGES: usize = 3;

/// Our own pages are far below these.
const OWN_LIMITS: Limits = Limits {
    max_series: 1_000_000,
    max_label_bytes: 64 * 1024,
    max_families: 10_000,
};

/// Answers in the form, and the coding, that the client likes best.
pub(super) fn metrics(
    shared: Rc<Shared>,
    headers: &HeaderMap,
) -> impl Future<Output = Answer> + use<> {
    let format = Format::negotiate(values(headers, ACCEPT));
    let gzip = takes_gzip(values(headers, ACCEPT_ENCODING));
    async move {
        let Some(page) = Sharing::page(&shared, format, gzip).await else {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return super::text(status, "the page could not be made; see standard error\n");
        };
        let mut answer = super::answer(StatusCode::OK, format.content_type(), page.body);
        let headers = answer.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        if page.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

/// The values of all lines of a name.
pub(super) fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes)
}

/// The page in a form. What its merge leaves out is noted.
pub(super) fn render(shared: &Shared, format: Format, now: Instant) -> Bytes {
    let view = shared.board.load();
    let snapshot = view.snapshot();
    let settings = shared.settings();
    let max_age = settings.scrape.max_age;
    let states = engine::observe(snapshot, now, max_age);

    let recorded = shared.telemetry.render();
    let process = shared.telemetry.render_process();
    let written = write(&view, &states, &shared.conflicts, now, max_age);
    let own = [recorded.as_bytes(), process.as_bytes(), &written].map(own_page);

    let mut pages: Vec<Arc<Prepared>> = own.into_iter().flatten().map(Arc::new).collect();
    let pinned = pages.len().min(OWN_PAGES);
    let mut sources = Vec::new();
    if settings.metrics.expose != Expose::None {
        for (source, page) in view.sources() {
            // A source that has failed past its time vanishes with its series.
            let current = source
                .taken
                .is_some_and(|taken| now.saturating_duration_since(taken) <= max_age);
            if let Some(page) = page.filter(|_| current) {
                pages.push(Arc::clone(page));
                sources.push(Arc::clone(&source.name));
            }
        }
    }
    let pages: Vec<&Prepared> = pages.iter().map(|page| &**page).collect();
    let merged = merge(&pages, pinned, format);
    shared
        .conflicts
        .note(&merged, pinned, &sources, &snapshot.sources);
    merged.text.into()
}

fn own_page(text: &[u8]) -> Option<Prepared> {
    let page = Page::read(text, &OWN_LIMITS).ok()?;
    Some(Prepared::new(&page, None))
}

/// The families that must be able to vanish.
fn write(
    view: &View,
    states: &[RoleState],
    conflicts: &Conflicts,
    now: Instant,
    max_age: Duration,
) -> Vec<u8> {
    let mut out = Families(TextWriter::new());
    out.family(
        names::BUILD_INFO,
        [(vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)],
    );
    let sources = &view.snapshot().sources;
    roles(&mut out, states);
    discoveries(&mut out, view.discoveries());
    source_gauges(&mut out, sources, now, max_age);
    source_counters(&mut out, sources, conflicts);
    preempted(&mut out, sources, now, max_age);
    out.0.finish()
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

struct Families(TextWriter);

impl Families {
    /// A family with its samples; none where there are none.
    fn family<'a>(&mut self, name: Name, samples: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        debug_assert!(matches!(name.kind, MetricType::Gauge | MetricType::Counter));
        self.0.family(name.name, name.kind, name.help);
        for (labels, value) in samples {
            self.0.sample("", &labels, value);
        }
    }
}

fn roles(out: &mut Families, states: &[RoleState]) {
    let labels = |s: &RoleState| -> (&'static str, String) {
        let model = s.model.as_deref().unwrap_or_default();
        (s.role.as_str(), model.to_owned())
    };
    let labels: Vec<(&'static str, String)> = states.iter().map(labels).collect();
    let mut gauge = |name: Name, value: &dyn Fn(&RoleState) -> Option<f64>| {
        let samples = states
            .iter()
            .zip(&labels)
            .filter_map(|(state, (role, model))| {
                Some((
                    vec![("role", *role), ("model", model.as_str())],
                    value(state)?,
                ))
            });
        out.family(name, samples);
    };
    gauge(names::KV_USAGE, &|s| s.usage.ok());
    gauge(names::KV_USAGE_MAX, &|s| s.max);
    gauge(names::KV_MISSING, &|s| {
        s.usage.ok()?;
        Some(count(s.missing.map_or(0, |(number, _)| number as u64)))
    });
    gauge(names::KV_FILL, &|s| s.fill);
    gauge(names::KV_USED, &|s| s.used.map(count));
    gauge(names::KV_CAPACITY, &|s| s.capacity.map(count));
    gauge(names::ENGINE_RUNNING, &|s| s.running.map(count));
    gauge(names::ENGINE_QUEUED, &|s| s.queued.map(count));
    gauge(names::HIT_RATIO, &|s| s.hit_rate);

    let unknown = states
        .iter()
        .zip(&labels)
        .filter_map(|(state, (role, model))| {
            let why = state.usage.err()?.as_str();
            let labels = vec![("role", *role), ("model", model.as_str()), ("reason", why)];
            Some((labels, 1.0))
        });
    out.family(names::KV_UNKNOWN, unknown);

    let queues = states
        .iter()
        .zip(&labels)
        .flat_map(|(state, (role, model))| {
            state
                .queues
                .iter()
                .into_iter()
                .filter_map(move |(queue, n)| {
                    let labels = vec![("role", *role), ("model", model.as_str()), ("queue", queue)];
                    Some((labels, count(n?)))
                })
        });
    out.family(names::PD_REQUESTS, queues);
}

fn discoveries(out: &mut Families, all: &[Discovery]) {
    let mut family = |name: Name, value: &dyn Fn(&Discovery) -> Option<f64>| {
        let samples = all
            .iter()
            .filter_map(|d| Some((vec![("discovery", d.kind)], value(d)?)));
        out.family(name, samples);
    };
    let number = |n: usize| Some(count(n as u64));
    family(names::DISCOVERY_UP, &|d| Some(f64::from(u8::from(d.up?))));
    family(names::DISCOVERY_FOUND, &|d| number(d.found));
    family(names::DISCOVERY_LEFT_OUT, &|d| number(d.left_out));
    family(names::DISCOVERY_FAILURES, &|d| Some(count(d.failures)));
}

fn source_gauges(
    out: &mut Families,
    sources: &[Arc<SourceState>],
    now: Instant,
    max_age: Duration,
) {
    let since = |at: Option<Instant>| Some(now.saturating_duration_since(at?).as_secs_f64());
    let mut gauge = |name: Name, value: &dyn Fn(&SourceState) -> Option<f64>| {
        let samples = sources
            .iter()
            .filter_map(|s| Some((vec![("source", &*s.name)], value(s)?)));
        out.family(name, samples);
    };
    gauge(names::SOURCE_UP, &|s| Some(f64::from(u8::from(s.up?))));
    gauge(names::SOURCE_AGE, &|s| since(s.taken));
    gauge(names::SOURCE_UNCHANGED, &|s| {
        since(s.unchanged_since.filter(|_| s.up == Some(true)))
    });
    gauge(names::SOURCE_DURATION, &|s| s.duration);
    gauge(names::SOURCE_SAMPLES, &|s| s.samples.map(count));
    let requests = |s: &SourceState, which: fn(&Reading) -> Option<u64>| {
        let (reading, _) = engine::current(s, now, max_age).ok()?;
        which(reading).map(count)
    };
    gauge(names::SOURCE_RUNNING, &|s| requests(s, Reading::running));
    gauge(names::SOURCE_WAITING, &|s| requests(s, Reading::waiting));
    let info = sources.iter().flat_map(|s| {
        // A router's page has no role: one series without.
        let none = s.roles.is_empty().then_some("");
        let roles = s.roles.iter().map(Role::as_str).chain(none);
        let engine = s.reading.as_ref().and_then(|r| r.engine.as_deref());
        roles.map(move |role| {
            let labels = vec![
                ("source", &*s.name),
                ("role", role),
                ("engine", engine.unwrap_or_default()),
            ];
            (labels, 1.0)
        })
    });
    out.family(names::SOURCE_INFO, info);
}

fn source_counters(out: &mut Families, sources: &[Arc<SourceState>], conflicts: &Conflicts) {
    let failures = sources.iter().flat_map(|s| {
        FailureReason::ALL
            .iter()
            .zip(s.failures)
            .map(|(reason, n)| (by_reason(s, reason.as_str()), count(n)))
    });
    out.family(names::SOURCE_FAILURES, failures);
    let dropped = sources.iter().flat_map(|s| {
        let all = s.dropped.iter().copied().chain(conflicts.counts(&s.name));
        all.map(|(reason, n)| (by_reason(s, reason), count(n)))
    });
    out.family(names::SOURCE_DROPPED, dropped);
    let odd = sources.iter().flat_map(|s| {
        let all = s.odd.iter();
        all.map(|(reason, n)| (by_reason(s, reason), count(*n)))
    });
    out.family(names::SOURCE_ODD, odd);
}

/// The engines' own counters, each pool's by itself: a sum falls when one of them leaves, and a counter
/// that falls is taken for one that has begun anew.
fn preempted(out: &mut Families, sources: &[Arc<SourceState>], now: Instant, max_age: Duration) {
    let samples = sources.iter().flat_map(|s| {
        let reading = engine::current(s, now, max_age).ok();
        let pools = reading.into_iter().flat_map(|(reading, _)| &reading.pools);
        // A rank that serves several models counts for all of them.
        let mut ranks: BTreeMap<&str, u64> = BTreeMap::new();
        for pool in pools {
            if let Some(n) = pool.preempted {
                let sum = ranks.entry(pool.rank.as_deref().unwrap_or_default());
                let sum = sum.or_default();
                *sum = sum.saturating_add(n);
            }
        }
        ranks.into_iter().map(|(rank, n)| {
            let labels = vec![("source", &*s.name), ("rank", rank)];
            (labels, count(n))
        })
    });
    out.family(names::SOURCE_PREEMPTED, samples);
}

fn by_reason<'a>(source: &'a SourceState, reason: &'a str) -> Labels<'a> {
    vec![("source", &*source.name), ("reason", reason)]
}

/// Counts stay far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn count(n: u64) -> f64 {
    n as f64
}
