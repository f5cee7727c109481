//! `/kv` and `/sources`. Unknown is null, with its reason beside it.

use super::sharing::Sharing;
use super::{Answer, Conflicts, Shared};
use crate::engine;
use crate::exposition::Format;
use crate::kv::{FailureReason, Pool, Role, RoleState, SourceState, Unknown};
use crate::publish::millis;
use crate::scrape::Discovery;
use serde_json::{Map, Value, json};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(super) fn kv(shared: &Shared) -> Answer {
    let now = Instant::now();
    let settings = &shared.settings;
    let states = engine::observe(shared.board.load().snapshot(), now, settings.scrape.max_age);
    let headline = engine::headline(&states, settings.headers.headline);
    super::json(&json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "headline": headline.map(|h| json!({
            "role": h.role.as_str(),
            "model": h.model,
            "usage": h.usage.ok(),
            "unknown": h.usage.err().map(Unknown::as_str),
        })),
        "roles": states.iter().map(role).collect::<Vec<_>>(),
    }))
}

pub(super) fn role(state: &RoleState) -> Value {
    json!({
        "role": state.role.as_str(),
        "model": state.model,
        "usage": state.usage.ok(),
        "unknown": state.usage.err().map(Unknown::as_str),
        "max": state.max,
        "fill": state.fill,
        "used": state.used,
        "capacity": state.capacity,
        "pool": state.kind.as_str(),
        "running": state.running,
        "queued": state.queued,
        "queues": queues(&state.queues),
        "pending": state.pending,
        "hit_rate": state.hit_rate,
        "preempted": state.preempted,
        "host": state.host,
        "age_ms": state.age.map(millis),
        "pools": state.pools,
        "missing": state.missing.map(|(count, why)| json!({
            "count": count,
            "reason": why.as_str(),
        })),
    })
}

fn queues(queues: &crate::kv::Queues) -> Map<String, Value> {
    queues
        .iter()
        .into_iter()
        .filter_map(|(name, n)| Some((name.to_owned(), json!(n?))))
        .collect()
}

pub(super) async fn sources(shared: Rc<Shared>) -> Answer {
    // Conflicts are seen in a merge.
    let _ = Sharing::page(&shared, Format::CLASSIC, false).await;
    let now = Instant::now();
    let max_age = shared.settings.scrape.max_age;
    let view = shared.board.load();
    let sources: Vec<Value> = view
        .snapshot()
        .sources
        .iter()
        .map(|s| source(s, &shared.conflicts, now, max_age))
        .collect();
    let mut answer = json!({ "sources": sources });
    if !view.discoveries().is_empty() {
        let all = view.discoveries().iter();
        answer["discovery"] = all.map(|d| discovery(d, now)).collect();
    }
    super::json(&answer)
}

/// How sources are found.
fn discovery(discovery: &Discovery, now: Instant) -> Value {
    let since = |at: Instant| millis(now.saturating_duration_since(at));
    json!({
        "kind": discovery.kind,
        "state": match discovery.up {
            None => "not_looked",
            Some(true) => "up",
            Some(false) => "failing",
        },
        "found": discovery.found,
        "left_out": discovery.left_out,
        "unhealthy": discovery.unhealthy,
        "age_ms": discovery.taken.map(since),
        "failures": discovery.failures,
        "problem": discovery.problem,
    })
}

fn source(source: &SourceState, conflicts: &Conflicts, now: Instant, max_age: Duration) -> Value {
    let since = |at: Instant| millis(now.saturating_duration_since(at));
    let reading = source.reading.as_deref();
    let unknown = unknown(source, now, max_age);
    json!({
        "name": source.name,
        "url": source.url,
        "redirected_to": source.redirected,
        "kind": source.kind,
        "bearer_file": source.bearer_file.as_ref().map(|path| path.display().to_string()),
        "role": source.roles.only().map(Role::as_str),
        "state": state(source),
        "unknown": unknown.map(Unknown::as_str),
        "engine": reading.and_then(|r| r.engine.as_deref()),
        "reading_from": source.reads,
        "without_loads": source.without_loads,
        "interval_ms": source.interval.map(millis),
        "age_ms": source.taken.map(since),
        "unchanged_ms": source.unchanged_since.map(since),
        "scrape_duration_ms": source.duration.map(|s| s * 1000.0),
        "bytes": source.bytes,
        "samples": source.samples,
        "exposed_samples": source.exposed,
        "last_error": source.failure.as_ref().map(|f| json!({
            "reason": f.reason.as_str(),
            "message": f.message,
            "age_ms": since(f.at),
            "resolved": source.up == Some(true),
        })),
        "failures": counts(FailureReason::ALL.iter().zip(source.failures)
            .filter(|(_, n)| *n > 0)
            .map(|(reason, n)| (reason.as_str(), n))),
        "dropped_samples": counts(source.dropped.iter().copied().chain(conflicts.counts(&source.name))),
        "left_out": source.left_out.iter().map(|l| json!({
            "reason": l.reason,
            "count": l.count,
            "line": l.line,
            "excerpt": l.excerpt,
        })).collect::<Vec<_>>(),
        "type_conflicts": conflicts.of(&source.name).iter().map(|c| json!({
            "family": c.family,
            "type": c.kind.as_str(),
            "kept": c.kept.as_str(),
            "samples": c.samples,
        })).collect::<Vec<_>>(),
        "odd_values": counts(source.odd.iter().copied()),
        "chosen": reading.map(|r| r.chosen.iter()
            .map(|(value, metric)| ((*value).to_owned(), json!(metric)))
            .collect::<Map<_, _>>()),
        "passed_over": reading.map(|r| r.passed_over.iter()
            .map(|(value, metric, why)| json!({"value": value, "metric": metric, "why": why}))
            .collect::<Vec<_>>()),
        "lacking": reading.map(|r| engine::lacking(r).iter()
            .map(|l| json!({"value": l.value, "why": l.why, "next": l.next}))
            .collect::<Vec<_>>()),
        "problems": source.problems.iter()
            .map(|p| json!({"cause": p.cause, "next": p.next}))
            .collect::<Vec<_>>(),
        "mapping": source.mapping,
        "pools": reading.map(|r| r.pools.iter().map(pool).collect::<Vec<_>>()),
    })
}

/// How the last attempt to read a source ended.
pub(super) fn state(source: &SourceState) -> &'static str {
    match source.up {
        None => "not_read",
        Some(true) => "up",
        Some(false) => "down",
    }
}

/// Why nothing is known of a source's usage, where that is so. A router's has none to know.
pub(super) fn unknown(source: &SourceState, now: Instant, max_age: Duration) -> Option<Unknown> {
    let (reading, _) = match engine::current(source, now, max_age) {
        Ok(current) => current,
        Err(why) => return Some(why),
    };
    if source.roles.is_empty() {
        return None;
    }
    if reading.pools.iter().any(|pool| pool.usage.is_ok()) {
        return None;
    }
    let first = reading.pools.iter().find_map(|pool| pool.usage.err());
    Some(first.unwrap_or(Unknown::Absent))
}

fn pool(pool: &Pool) -> Value {
    json!({
        "model": pool.model,
        "rank": pool.rank,
        "role": pool.role.map(Role::as_str),
        "pool": pool.kind.as_str(),
        "usage": pool.usage.ok(),
        "unknown": pool.usage.err().map(Unknown::as_str),
        "used": pool.used,
        "capacity": pool.capacity,
        "fill": pool.fill,
        "running": pool.running,
        "queued": pool.queued,
        "preempted": pool.preempted,
        "host": pool.host,
    })
}

fn counts(counts: impl Iterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    counts
        .map(|(reason, n)| (reason.to_owned(), json!(n)))
        .collect()
}
