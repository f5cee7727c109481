//! What one moment looks like: an event of `/kv/stream`. Its schema is `docs/live.schema.json`.

use super::requests::{Requests, Wrong};
use super::{Shared, json};
use crate::config::{CRIT, WARN};
use crate::engine;
use crate::kv::{Pool, Reading, Role, SourceState, Unknown};
use crate::proxy::Phase;
use crate::publish::{Incidents, MOST_MESSAGES, Now, millis};
use crate::telemetry::{Look, Quantiles, Traffic, WINDOW};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pools that are shown, the fullest first.
const MOST_POOLS: usize = 64;

/// Characters of a pool's label.
const MOST_LABEL: usize = 80;

/// The moment's unix seconds, and its JSON in one line.
pub(super) fn render(shared: &Shared, requests: &mut Requests) -> (u64, String) {
    let now = Now::look();
    requests.renew(&shared.recent);
    let settings = shared.settings();
    let max_age = settings.scrape.max_age;
    let view = shared.board.load();
    let snapshot = view.snapshot();
    let states = engine::observe(snapshot, now.instant, max_age);
    let headline = engine::headline(&states, settings.headers.headline);
    let look = Look::read(&shared.telemetry.render());
    let (traffic, errors) = {
        let past = shared.chronicle.past();
        let traffic = past.window.traffic(now.at, &look);
        (traffic, errors(&past.incidents, &requests.errors, now))
    };
    let (pools, pools_left_out) = pools(&snapshot.sources, now.instant, max_age);
    let sources = &snapshot.sources;
    let json = json!({
        "timestamp": timestamp(now.unix),
        "kvgauge": {
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": now.instant.saturating_duration_since(shared.started).as_secs(),
            "phase": match *shared.phase.borrow() {
                Phase::Serving => "serving",
                Phase::Leaving | Phase::Draining | Phase::Cutting => "draining",
            },
            "upstream": format!("http://{}", settings.upstream.authority()),
        },
        "warn": WARN,
        "crit": CRIT,
        "headline": headline.map(|state| state.role.as_str()),
        "roles": states.iter().map(json::role).collect::<Vec<_>>(),
        "pools": pools,
        "pools_left_out": pools_left_out,
        "traffic": self::traffic(&traffic),
        "sources": sources.iter().map(|s| source(s, now.instant, max_age)).collect::<Vec<_>>(),
        "requests": requests.shown,
        "errors": errors,
    });
    (now.unix.as_secs(), json.to_string())
}

/// RFC 3339 in UTC with milliseconds.
pub(super) fn timestamp(unix: Duration) -> String {
    let ms = i64::try_from(unix.as_millis()).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{at:.3}")
}

fn traffic(traffic: &Traffic) -> Value {
    json!({
        "window_s": WINDOW.as_secs(),
        "in_flight": traffic.in_flight,
        "requests_per_s": traffic.requests,
        "failed_per_s": traffic.failed,
        "input_tokens_per_s": traffic.input_tokens,
        "output_tokens_per_s": traffic.output_tokens,
        "ttft_ms": quantiles(&traffic.ttft),
        "tpot_ms": quantiles(&traffic.tpot),
        "duration_ms": quantiles(&traffic.duration),
    })
}

fn quantiles(quantiles: &Quantiles) -> Value {
    let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1000.0);
    json!({
        "p50": ms(quantiles.p50),
        "p90": ms(quantiles.p90),
        "p99": ms(quantiles.p99),
    })
}

// === pools ===

/// The fullest pools, and how many more there are.
fn pools(sources: &[Arc<SourceState>], now: Instant, max_age: Duration) -> (Vec<Value>, usize) {
    let current = sources.iter().filter_map(|source| {
        let (reading, _) = engine::current(source, now, max_age).ok()?;
        Some((source, reading))
    });
    let mut pools: Vec<(&SourceState, &Reading, &Pool)> = current
        .flat_map(|(source, reading)| {
            let pools = reading.pools.iter();
            pools.map(move |pool| (&**source, &**reading, pool))
        })
        .filter(|(source, _, pool)| role(source, pool).is_some())
        .collect();
    let fullness = |pool: &Pool| pool.usage.unwrap_or(-1.0);
    let fuller = |a: &(_, _, &Pool), b: &(_, _, &Pool)| -> Ordering {
        fullness(b.2).total_cmp(&fullness(a.2))
    };
    pools.sort_by(fuller);
    let left_out = pools.len().saturating_sub(MOST_POOLS);
    pools.truncate(MOST_POOLS);
    let shown = pools.into_iter().map(|(source, reading, pool)| {
        json!({
            "role": role(source, pool).map(Role::as_str),
            "model": pool.model,
            "source": source.name,
            "pool": label(reading, pool),
            "kind": pool.kind.as_str(),
            "usage": pool.usage.ok(),
            "unknown": pool.usage.err().map(Unknown::as_str),
            "used": pool.used,
            "capacity": pool.capacity,
            "fill": pool.fill,
            "running": pool.running,
            "queued": pool.queued,
        })
    });
    (shown.collect(), left_out)
}

/// A pool is of the role that its page names for it, else of its source's.
fn role(source: &SourceState, pool: &Pool) -> Option<Role> {
    match source.roles.only() {
        Some(role) => Some(role).filter(|role| pool.role.is_none_or(|own| own == *role)),
        None => pool.role,
    }
}

/// What tells the pool apart from others of its source; `None` where nothing has to.
fn label(reading: &Reading, pool: &Pool) -> Option<String> {
    let differs = |other: &Pool| other.model != pool.model;
    let several_models = reading.pools.iter().any(differs);
    let model = pool.model.as_deref().filter(|_| several_models);
    let rank = pool.rank.as_deref().map(|rank| {
        let (worker, number) = rank.rsplit_once(' ').unwrap_or(("", rank));
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        match (worker, is_number) {
            ("", true) => format!("rank {number}"),
            (worker, true) => format!("{worker} rank {number}"),
            _ => rank.to_owned(),
        }
    });
    let label: Vec<&str> = [model, rank.as_deref()].into_iter().flatten().collect();
    let label: String = label.join(" ").chars().take(MOST_LABEL).collect();
    (!label.is_empty()).then_some(label)
}

// === sources ===

fn source(source: &SourceState, now: Instant, max_age: Duration) -> Value {
    let since = |at: Instant| millis(now.saturating_duration_since(at));
    let reading = source.reading.as_deref();
    json!({
        "name": source.name,
        "url": source.url,
        "role": source.roles.only().map(Role::as_str),
        "engine": reading.and_then(|reading| reading.engine.as_deref()),
        "state": json::state(source),
        "age_ms": source.taken.map(since),
        "unchanged_ms": source.unchanged_since.map(since),
        "stands_still": engine::stands_still(source, now, max_age),
        "unknown": json::unknown(source, now, max_age).map(Unknown::as_str),
        "message": message(source),
    })
}

/// What is wrong now, and what to do.
fn message(source: &SourceState) -> Option<String> {
    if source.up != Some(true)
        && let Some(failure) = &source.failure
    {
        return Some(failure.message.to_string());
    }
    let said = |why: &str, next: &str| format!("{why}; {next}");
    let problems = source.problems.iter().map(|p| said(&p.cause, &p.next));
    let mut problems = problems.collect::<Vec<_>>().join("; and ");
    if source.mapping.is_some() {
        problems.push_str("; /sources has it as `mapping`");
    }
    if !problems.is_empty() {
        return Some(problems);
    }
    let lacking = engine::lacking(source.reading.as_deref()?);
    let usage = lacking.iter().find(|lacks| lacks.value == "usage")?;
    Some(said(usage.why, usage.next))
}

// === errors ===

/// The last things that went wrong, the newest first; equal ones once, the last time.
fn errors(incidents: &Incidents, requests: &[Wrong], now: Now) -> Vec<Value> {
    let of_sources = incidents.messages().map(|said| Wrong {
        at: i64::try_from((now.unix + said.at).saturating_sub(now.at).as_millis())
            .unwrap_or(i64::MAX),
        who: said.who.to_string(),
        message: said.message.to_string(),
    });
    let mut all: Vec<Wrong> = of_sources.chain(requests.iter().cloned()).collect();
    all.sort_by_key(|wrong| std::cmp::Reverse(wrong.at));
    let mut shown: Vec<Wrong> = Vec::new();
    for wrong in all {
        let same = |other: &Wrong| other.who == wrong.who && other.message == wrong.message;
        if shown.len() < MOST_MESSAGES && !shown.iter().any(same) {
            shown.push(wrong);
        }
    }
    let shown = shown.iter().map(|wrong| {
        let ms = u64::try_from(wrong.at).unwrap_or_default();
        json!({
            "timestamp": timestamp(Duration::from_millis(ms)),
            "who": wrong.who,
            "message": wrong.message,
        })
    });
    shown.collect()
}
