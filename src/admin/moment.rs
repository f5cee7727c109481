//! What one moment looks like: an event of `/kv/stream`. Its schema is `docs/live.schema.json`.

use super::requests::{Requests, Wrong};
use super::{Shared, json, short};
use crate::config::{CRIT, WARN};
use crate::engine;
use crate::kv::{Pool, Reading, Role, RoleState, SourceState, Unknown};
use crate::proxy::Phase;
use crate::publish::{Incidents, Now, millis};
use crate::telemetry::{Look, Quantiles, Traffic, WINDOW};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pools that are shown, the fullest first.
const MOST_POOLS: usize = 64;

/// Roles, and models of them, that are shown. Only pages' limits bound how many models there are.
const MOST_ROLES: usize = 64;

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
    let (roles, roles_left_out) = roles(&states, headline);
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
        "roles": roles,
        "roles_left_out": roles_left_out,
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

// === roles ===

/// In their order, and how many more there are. Who is left out is known and less full than all that are
/// shown.
fn roles(states: &[RoleState], headline: Option<&RoleState>) -> (Vec<Value>, usize) {
    let mut shown: Vec<(usize, &RoleState)> = states.iter().enumerate().collect();
    let is_headline =
        |state: &RoleState| headline.is_some_and(|headline| std::ptr::eq(headline, state));
    let fullness = |state: &RoleState| state.max.or(state.usage.ok()).unwrap_or_default();
    let first = |state: &RoleState| (is_headline(state), state.usage.is_err());
    shown.sort_by(|(_, a), (_, b)| {
        let order = first(b).cmp(&first(a));
        order.then(fullness(b).total_cmp(&fullness(a)))
    });
    let left_out = shown.len().saturating_sub(MOST_ROLES);
    shown.truncate(MOST_ROLES);
    shown.sort_by_key(|(at, _)| *at);
    let shown = shown.into_iter().map(|(_, state)| {
        let mut role = json::role(state);
        role["model"] = json!(state.model.as_deref().map(short::name));
        role
    });
    (shown.collect(), left_out)
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
        .filter(|(source, _, pool)| engine::pool_role(source, pool).is_some())
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
            "role": engine::pool_role(source, pool).map(Role::as_str),
            "model": pool.model.as_deref().map(short::name),
            "source": short::name(&source.name),
            "pool": engine::pool_label(reading, pool).as_deref().map(short::name),
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

// === sources ===

fn source(source: &SourceState, now: Instant, max_age: Duration) -> Value {
    let since = |at: Instant| millis(now.saturating_duration_since(at));
    let reading = source.reading.as_deref();
    json!({
        "name": short::name(&source.name),
        "url": short::text(&source.url),
        "role": source.roles.only().map(Role::as_str),
        "engine": reading.and_then(|reading| reading.engine.as_deref()).map(short::name),
        "state": json::state(source),
        "age_ms": source.taken.map(since),
        "unchanged_ms": source.unchanged_since.map(since),
        "stands_still": engine::stands_still(source, now, max_age),
        "unknown": json::unknown(source, now, max_age).map(Unknown::as_str),
        "message": message(source).as_deref().map(short::message),
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

/// What went wrong last with sources, and what with requests, so that neither pushes the other out; the
/// newest first, equal ones once, the last time.
fn errors(incidents: &Incidents, requests: &[Wrong], now: Now) -> Vec<Value> {
    let of_sources = incidents.messages().map(|said| Wrong {
        at: i64::try_from((now.unix + said.at).saturating_sub(now.at).as_millis())
            .unwrap_or(i64::MAX),
        count: None,
        who: said.who.to_string(),
        message: said.message.to_string(),
    });
    let mut all: Vec<Wrong> = of_sources.chain(requests.iter().cloned()).collect();
    all.sort_by_key(|wrong| std::cmp::Reverse(wrong.at));
    let shown = all.iter().map(|wrong| {
        let ms = u64::try_from(wrong.at).unwrap_or_default();
        json!({
            "timestamp": timestamp(Duration::from_millis(ms)),
            "count": wrong.count,
            "who": short::text(&wrong.who),
            "message": short::message(&wrong.message),
        })
    });
    shown.collect()
}
