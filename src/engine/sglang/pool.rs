//! From the gauges of one pool to its values, the exact before the rounded.
//!
//! SGLang has up to three kinds of pool (full attention, sliding window, state space), each with an
//! exact gauge; `token_usage` is the fullest of them, rounded to two decimals (12,034 tokens of
//! 2,581,504 read 0.0). Which gauges there are, and which can be trusted, depends on the version:
//!
//! | version | exact | `token_usage` |
//! |---|---|---|
//! | 0.4.6 | - | rounded on prefill, exact on decode |
//! | 0.5.5 | sliding window, state space | exact while busy, rounded when idle |
//! | 0.5.10 | all; full attention stays at its last busy value when idle | as 0.5.5 |
//! | 0.5.23 | all, and `kv_used_tokens` | rounded |
//!
//! `num_used_tokens` is the larger of the full and the sliding-window pool's tokens, so its 0 says that
//! both are empty, whatever their shares have been left at.
//!
//! A gauge whose value can't be one counts as missing; where nothing else covers it, the usage is
//! unknown (`invalid`), since it may be the fullest one.

use super::super::gauges::{MORE_THAN_FIT, Odd, Row, Unit, fit, float, whole};
use super::super::notes::Notes;
use crate::kv::{Pool, PoolKind, Queues, Role, Unknown};

/// How far `token_usage` may lie from the value it was rounded from, with room for the float.
const ROUNDING: f64 = 0.005 + 1e-9;

/// How full one kind of pool is.
#[derive(Clone, Copy)]
struct Level {
    kind: PoolKind,
    usage: f64,
    from: &'static str,
}

/// Capacity in tokens, and where it is from.
#[derive(Clone, Copy)]
struct Capacity {
    tokens: u64,
    from: &'static str,
    /// What the usage is called that is made with it.
    ratio: &'static str,
}

/// The values of the pool that `row` speaks of. `role` is the one that the page names, `info` the
/// capacity that it names for the engine as a whole.
pub(super) fn read(
    row: &Row,
    role: Option<Role>,
    info: Option<u64>,
    odd: &mut Odd,
    notes: &mut Notes,
) -> Pool {
    let capacity = full_capacity(row, info, odd);
    let level = fullest(row, capacity, odd);
    let kind = level.map_or(PoolKind::Full, |level| level.kind);

    let mut pool = Pool::unknown(Unknown::Absent);
    pool.kind = kind;
    pool.usage = level.map(|level| level.usage);
    let used = used(row, kind, capacity).filter(|_| level.is_ok());
    let capacity = match kind {
        PoolKind::Full => capacity.map(|c| (c.tokens, c.from)),
        PoolKind::Swa => row
            .count("max_total_num_tokens_swa")
            .filter(|tokens| *tokens > 0)
            .map(|tokens| (tokens, "max_total_num_tokens_swa")),
        PoolKind::Mamba | PoolKind::Other => None,
    };
    if let Some((tokens, from)) = capacity {
        pool.capacity = Some(tokens);
        notes.chose("capacity", from);
    }
    if let Ok(level) = level {
        notes.chose("usage", level.from);
    }
    match used {
        Some((used, from)) if fit(used, pool.capacity) => {
            pool.used = Some(used);
            notes.chose("used", from);
        }
        Some((_, from)) => notes.passed("used", from, MORE_THAN_FIT),
        None => {}
    }
    // Where the fullest pool is not known, or its tokens are refused, its fill is not known either.
    pool.fill = fill(row, kind, pool.capacity, notes).filter(|_| level.is_ok());

    let mut count = |value, names: &[&'static str]| {
        let (number, from) = names
            .iter()
            .find_map(|name| Some((row.count(name)?, *name)))?;
        notes.chose(value, from);
        Some(number)
    };
    pool.running = count("running", &["num_running_reqs"]);
    pool.queued = count("queued", &["num_queue_reqs"]);
    pool.preempted = count("preempted", &["num_retracted_requests_total"]);
    pool.queues = Queues {
        bootstrap: count(
            "bootstrap",
            &[
                "num_prefill_bootstrap_queue_reqs",
                "num_prefill_prealloc_queue_reqs",
            ],
        ),
        inflight: count("inflight", &["num_prefill_inflight_queue_reqs"]),
        prealloc: count("prealloc", &["num_decode_prealloc_queue_reqs"]),
        transfer: count("transfer", &["num_decode_transfer_queue_reqs"]),
    };
    pool.pending = row.get("pending_prealloc_token_usage").ok();
    if pool.pending.is_some() {
        notes.chose("pending", "pending_prealloc_token_usage");
    }
    let hit_rate = row.get("cache_hit_rate").ok();
    if hit_rate.is_some() && role == Some(Role::Decode) {
        notes.passed(
            "hit_rate",
            "cache_hit_rate",
            "a decode server looks up no prefix and always says 0",
        );
    } else if hit_rate.is_some() {
        pool.hit_rate = hit_rate;
        notes.chose("hit_rate", "cache_hit_rate");
    }
    pool.host = host(row, odd);
    if pool.host.is_some() {
        notes.chose(
            "host",
            "hicache_host_used_tokens / hicache_host_total_tokens",
        );
    }
    passed_over(row, level.ok(), &pool, notes);
    pool
}

/// The tier in host memory; an engine without one says 0 of 0.
fn host(row: &Row, odd: &mut Odd) -> Option<f64> {
    let used = row.get("hicache_host_used_tokens").ok()?;
    let total = row.get("hicache_host_total_tokens").ok()?;
    if total <= 0.0 {
        return None;
    }
    odd.check(used / total, Unit::Fraction)
}

/// The gauges that look like a candidate too, and why another was taken.
fn passed_over(row: &Row, level: Option<Level>, pool: &Pool, notes: &mut Notes) {
    let mut passed = |value, metric: &'static str, why| {
        if row.get(metric) != Err(Unknown::Absent) {
            notes.passed(value, metric, why);
        }
    };
    for (metric, kind) in [
        ("token_usage", PoolKind::Other),
        ("full_token_usage", PoolKind::Full),
        ("swa_token_usage", PoolKind::Swa),
        ("mamba_usage", PoolKind::Mamba),
    ] {
        let why = match (row.get(metric), level) {
            (Err(_), _) => "holds what can't be a value",
            (_, Some(level)) if level.from == metric => continue,
            (Ok(usage), _) if usage > 0.0 && in_tokens(kind) && emptied(row) => {
                "left from a busier moment"
            }
            (_, Some(_)) if metric == "token_usage" => {
                "the fullest pool's, rounded to two decimals"
            }
            (Ok(usage), Some(level)) if level.kind == kind && usage > level.usage + ROUNDING => {
                "left from a busier moment"
            }
            (_, Some(level)) if level.kind == kind => {
                "kv_used_tokens over the capacity is exact to the token, and never left from before"
            }
            (Ok(usage), Some(level)) if level.from == "token_usage" && usage > level.usage => {
                "left from a busier moment"
            }
            (_, Some(_)) => "of a pool that is less full",
            (_, None) => "another pool's gauge holds what can't be a value, and may be fuller",
        };
        passed("usage", metric, why);
    }
    passed(
        "usage",
        "pending_prealloc_token_usage",
        "what requests that wait for room will need: `pending`",
    );
    passed(
        "queued",
        "num_grammar_queue_reqs",
        "waits for its grammar, before the scheduler's queue",
    );
    if pool.used.is_some() && row.get("kv_used_tokens").is_ok() {
        passed(
            "used",
            "num_used_tokens",
            "the larger of the full and the sliding-window pool's tokens",
        );
    } else if pool.used.is_none() && level.is_some() && row.get("kv_used_tokens").is_err() {
        passed(
            "used",
            "num_used_tokens",
            "may be the tokens of another pool than the fullest",
        );
    }
    if pool.capacity.is_some() && row.get("max_total_num_tokens").is_ok() {
        passed(
            "capacity",
            "num_pages",
            "max_total_num_tokens says it in tokens",
        );
    }
}

/// The full-attention pool's capacity. 0.4.6 and 0.5.5 publish none; an engine that starts may say 0.
fn full_capacity(row: &Row, info: Option<u64>, odd: &mut Odd) -> Option<Capacity> {
    let gauge = row.count("max_total_num_tokens");
    if gauge == Some(0) {
        odd.add("zero_capacity");
    }
    let pages = || {
        let (size, number) = (row.get("page_size").ok()?, row.get("num_pages").ok()?);
        whole(size * number)
    };
    gauge
        .filter(|tokens| *tokens > 0)
        .map(|tokens| Capacity {
            tokens,
            from: "max_total_num_tokens",
            ratio: "kv_used_tokens / max_total_num_tokens",
        })
        .or_else(|| {
            Some(Capacity {
                tokens: pages().filter(|tokens| *tokens > 0)?,
                from: "page_size * num_pages",
                ratio: "kv_used_tokens / (page_size * num_pages)",
            })
        })
        .or_else(|| {
            Some(Capacity {
                tokens: info?,
                from: "cache_config_info",
                ratio: "kv_used_tokens / cache_config_info",
            })
        })
}

/// The fullest kind of pool.
fn fullest(row: &Row, capacity: Option<Capacity>, odd: &mut Odd) -> Result<Level, Unknown> {
    let gauge = |kind, from| row.get(from).map(|usage| Level { kind, usage, from });
    let headline = gauge(PoolKind::Full, "token_usage");
    let mut kinds = [
        full(row, capacity, odd),
        gauge(PoolKind::Swa, "swa_token_usage"),
        gauge(PoolKind::Mamba, "mamba_usage"),
    ];
    let broken = [headline, kinds[0], kinds[1], kinds[2]]
        .iter()
        .any(|level| matches!(level, Err(Unknown::Invalid)));

    if emptied(row) {
        for kind in &mut kinds {
            if kind.is_ok_and(|kind| kind.usage > 0.0 && in_tokens(kind.kind)) {
                *kind = Err(Unknown::Absent);
            }
        }
    }

    let Ok(headline) = headline else {
        // Without the headline nothing covers a kind whose gauge is broken.
        if broken {
            return Err(Unknown::Invalid);
        }
        return larger(&kinds).map_or_else(|| used_of_capacity(row, capacity, odd), Ok);
    };

    if row.get("kv_used_tokens").is_err() {
        // The headline is the largest of all: what stands above it is left from a busier moment.
        for kind in &mut kinds {
            if kind.is_ok_and(|kind| kind.usage > headline.usage + ROUNDING) {
                *kind = Err(Unknown::Absent);
            }
        }
    }
    match (kinds[0], larger(&kinds)) {
        (Ok(_), Some(largest)) if headline.usage > largest.usage + ROUNDING => Ok(Level {
            kind: PoolKind::Other,
            ..headline
        }),
        (Ok(_), Some(largest)) => Ok(largest),
        // The headline stands for the full-attention pool, unless it is another one's, rounded.
        (Err(_), Some(largest)) if rounds_to(largest.usage, headline.usage) => Ok(largest),
        _ => Ok(headline),
    }
}

/// Full attention, exact.
fn full(row: &Row, capacity: Option<Capacity>, odd: &mut Odd) -> Result<Level, Unknown> {
    let used = row.get("kv_used_tokens");
    let mut broken = matches!(used, Err(Unknown::Invalid));
    if let (Ok(used), Some(capacity)) = (used, capacity) {
        if let Some(usage) = odd.check(used / float(capacity.tokens), Unit::Fraction) {
            return Ok(Level {
                kind: PoolKind::Full,
                usage,
                from: capacity.ratio,
            });
        }
        broken = true;
    }
    match row.get("full_token_usage") {
        Ok(usage) => Ok(Level {
            kind: PoolKind::Full,
            usage,
            from: "full_token_usage",
        }),
        Err(Unknown::Absent) if broken => Err(Unknown::Invalid),
        Err(why) => Err(why),
    }
}

/// The last resort: no gauge says a share, but tokens used and capacity are of one pool.
fn used_of_capacity(
    row: &Row,
    capacity: Option<Capacity>,
    odd: &mut Odd,
) -> Result<Level, Unknown> {
    let capacity = capacity.ok_or(Unknown::Absent)?;
    if sliding_window(row) {
        return Err(Unknown::Absent);
    }
    let usage = row.get("num_used_tokens")? / float(capacity.tokens);
    Ok(Level {
        kind: PoolKind::Full,
        usage: odd.check(usage, Unit::Fraction).ok_or(Unknown::Invalid)?,
        from: "num_used_tokens / capacity",
    })
}

/// The fullest of those known; the first at a tie.
fn larger(kinds: &[Result<Level, Unknown>]) -> Option<Level> {
    kinds.iter().flatten().copied().reduce(
        |best, next| {
            if next.usage > best.usage { next } else { best }
        },
    )
}

/// Whether `headline` is no more than `exact`, as it is or rounded to two decimals. A 0 says nothing
/// of whose it is.
fn rounds_to(exact: f64, headline: f64) -> bool {
    let rounded = (exact * 100.0).round() / 100.0;
    exact > 0.0 && (exact >= headline || (rounded - headline).abs() < 1e-9)
}

/// Whether no pool that is counted in tokens holds any, going by the one number that is never left from
/// before; newer versions have `kv_used_tokens` for it.
fn emptied(row: &Row) -> bool {
    row.get("kv_used_tokens").is_err() && row.get("num_used_tokens") == Ok(0.0)
}

/// Whether `num_used_tokens` counts this kind of pool too.
fn in_tokens(kind: PoolKind) -> bool {
    matches!(kind, PoolKind::Full | PoolKind::Swa)
}

/// Whether the sliding-window pool holds anything, so that `num_used_tokens` (the larger of its and
/// the full pool's tokens) may be its.
fn sliding_window(row: &Row) -> bool {
    if emptied(row) {
        return false;
    }
    !matches!(row.get("swa_token_usage"), Ok(0.0) | Err(Unknown::Absent))
        || row
            .count("swa_used_tokens")
            .is_some_and(|tokens| tokens > 0)
        || (row.get("swa_token_usage").is_err()
            && row
                .count("max_total_num_tokens_swa")
                .is_some_and(|tokens| tokens > 0))
}

/// Tokens held in the pool of this kind, and where they are from.
fn used(row: &Row, kind: PoolKind, capacity: Option<Capacity>) -> Option<(u64, &'static str)> {
    let number = |name| Some((row.count(name)?, name));
    match kind {
        PoolKind::Full => number("kv_used_tokens")
            .or_else(|| number("num_used_tokens").filter(|_| !sliding_window(row))),
        PoolKind::Swa => number("swa_used_tokens").or_else(|| {
            // The larger of two is the sliding window's where the full pool is known to hold less.
            let full = row.get("kv_used_tokens").ok().or_else(|| {
                let share = row.get("full_token_usage").ok()?;
                Some(share * float(capacity?.tokens) + 1.0)
            })?;
            number("num_used_tokens").filter(|(used, _)| float(*used) > full)
        }),
        PoolKind::Mamba | PoolKind::Other => None,
    }
}

/// The share that is physically occupied. The three gauges add up to what the pool can hold.
fn fill(row: &Row, kind: PoolKind, capacity: Option<u64>, notes: &mut Notes) -> Option<f64> {
    let (names, from) = match kind {
        PoolKind::Full => (
            [
                "kv_available_tokens",
                "kv_evictable_tokens",
                "kv_used_tokens",
            ],
            "kv_available_tokens, kv_evictable_tokens, kv_used_tokens",
        ),
        PoolKind::Swa => (
            [
                "swa_available_tokens",
                "swa_evictable_tokens",
                "swa_used_tokens",
            ],
            "swa_available_tokens, swa_evictable_tokens, swa_used_tokens",
        ),
        PoolKind::Mamba => (
            [
                "mamba_available_tokens",
                "mamba_evictable_tokens",
                "mamba_used_tokens",
            ],
            "mamba_available_tokens, mamba_evictable_tokens, mamba_used_tokens",
        ),
        PoolKind::Other => return None,
    };
    let [available, evictable, used] = names.map(|name| row.get(name).ok());
    let all = available? + evictable? + used?;
    if all <= 0.0 {
        return None;
    }
    if whole(all).is_none_or(|all| !fit(all, capacity)) {
        notes.passed("fill", from, MORE_THAN_FIT);
        return None;
    }
    notes.chose("fill", from);
    Some((1.0 - available? / all).clamp(0.0, 1.0))
}
