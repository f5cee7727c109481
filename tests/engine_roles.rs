//! From readings to what each role says: sums, models, what is missing, the headline, freshness.

#![allow(clippy::expect_used, clippy::panic)] // Tests may.

use kvgauge::config::Headline;
use kvgauge::engine::{self, SourceReading, aggregate, headline};
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::{
    Failure, FailureReason, Pool, PoolKind, Queues, Reading, Role, RoleState, Roles, Snapshot,
    SourceState, Unknown,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn exposition(name: &str) -> Reading {
    let root = std::env::var_os("KVGAUGE_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")),
        PathBuf::from,
    );
    let path = root.join(format!("expositions/{name}.prom"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let limits = Limits {
        max_series: 1_000_000,
        max_label_bytes: 16 * 1024,
        max_families: 100_000,
    };
    engine::read(&Page::read(&text, &limits).expect("a readable page"))
}

fn pool(usage: Result<f64, Unknown>, capacity: Option<u64>) -> Pool {
    Pool {
        usage,
        capacity,
        running: Some(1),
        ..Pool::unknown(Unknown::Absent)
    }
}

fn of_model(model: &str, pool: Pool) -> Pool {
    Pool {
        model: Some(model.into()),
        ..pool
    }
}

fn reading(pools: Vec<Pool>) -> Reading {
    Reading {
        engine: Some("sglang".into()),
        pools,
        ..Reading::none()
    }
}

fn known(role: Role, reading: &Reading, age_ms: u64) -> SourceReading<'_> {
    SourceReading {
        roles: Some(role).into(),
        reading: Ok(reading),
        age: Some(Duration::from_millis(age_ms)),
    }
}

fn unknown(role: Role, why: Unknown) -> SourceReading<'static> {
    SourceReading {
        roles: Some(role).into(),
        reading: Err(why),
        age: None,
    }
}

/// The only state.
fn one(sources: &[SourceReading<'_>]) -> RoleState {
    let mut states = aggregate(sources);
    assert_eq!(states.len(), 1, "{states:?}");
    states.remove(0)
}

fn places(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

#[test]
fn a_prefill_decode_host_says_what_its_pages_say() {
    let decode = exposition("sglang-0.5.23-decode-tp4-busy");
    let prefill = exposition("sglang-0.5.23-prefill-tp4-busy");
    let router = exposition("sglang-router-0.3.2-pd-after-traffic");
    let states = aggregate(&[
        SourceReading {
            roles: None.into(),
            reading: Ok(&router),
            age: Some(Duration::ZERO),
        },
        known(Role::Prefill, &prefill, 300),
        known(Role::Decode, &decode, 812),
    ]);
    let [decode, prefill] = states.as_slice() else {
        panic!("{states:?}")
    };
    assert_eq!((decode.role, prefill.role), (Role::Decode, Role::Prefill));
    assert_eq!(places(decode.usage.ok()), "0.0047");
    assert_eq!(places(decode.max), "0.0047");
    assert_eq!(places(decode.fill), "0.0284");
    assert_eq!(
        (decode.used, decode.capacity),
        (Some(12_034), Some(2_581_504))
    );
    assert_eq!((decode.running, decode.queued), (Some(3), Some(0)));
    // Only the role's own queues, though the page has all four.
    assert_eq!(
        decode.queues,
        Queues {
            prealloc: Some(2),
            transfer: Some(1),
            ..Queues::default()
        }
    );
    assert_eq!((decode.pending, decode.hit_rate), (Some(0.0), None));
    assert_eq!(decode.age, Some(Duration::from_millis(812)));
    assert_eq!((decode.pools, decode.missing), (1, None));
    assert_eq!(
        prefill.queues,
        Queues {
            bootstrap: Some(1),
            inflight: Some(2),
            ..Queues::default()
        }
    );
    assert_eq!((prefill.pending, prefill.hit_rate), (None, Some(0.182)));
}

#[test]
fn repeated_ranks_read_as_one_pool() {
    let ranks = exposition("sglang-0.5.23-decode-tp4-allranks-busy");
    let rank0 = exposition("sglang-0.5.23-decode-tp4-busy");
    assert_eq!(
        one(&[known(Role::Decode, &ranks, 0)]),
        one(&[known(Role::Decode, &rank0, 0)])
    );
}

#[test]
fn data_parallel_pools_are_summed_by_capacity_and_the_fullest_is_kept() {
    let reading = exposition("sglang-0.5.23-decode-dpattn4-busy");
    let state = one(&[known(Role::Decode, &reading, 0)]);
    // (12,034 + 9,120 + 0 + 310,112) of 4 * 645,376.
    assert_eq!(places(state.usage.ok()), "0.1283");
    assert_eq!(places(state.max), "0.4805");
    assert_eq!(
        (state.used, state.capacity),
        (Some(331_266), Some(2_581_504))
    );
    assert_eq!((state.running, state.queued), (Some(49), Some(5)));
    assert_eq!(state.pools, 4);

    let reading = exposition("sglang-0.5.23-unified-dp2-tp1-busy");
    let state = one(&[known(Role::Unified, &reading, 0)]);
    assert_eq!(places(state.usage.ok()), "0.0801");
    assert_eq!(places(state.max), "0.1556");
    assert_eq!(
        (state.used, state.capacity),
        (Some(413_698), Some(5_163_008))
    );
    assert_eq!(state.queues, Queues::default());
}

#[test]
fn two_servers_of_a_role_are_summed_with_the_age_of_the_older_reading() {
    let busy = exposition("sglang-0.5.23-decode-tp4-busy");
    let hot = exposition("sglang-0.5.23-decode-tp4-hot");
    let state = one(&[
        known(Role::Decode, &busy, 2000),
        known(Role::Decode, &hot, 10),
    ]);
    assert_eq!(places(state.usage.ok()), "0.4676");
    assert_eq!(places(state.max), "0.9305");
    assert_eq!(state.used, Some(2_414_152));
    assert_eq!(state.queues.prealloc, Some(19));
    assert_eq!(state.age, Some(Duration::from_millis(2000)));
}

#[test]
fn a_fresh_engine_is_unknown_with_its_capacity_known() {
    for file in [
        "sglang-0.5.23-decode-tp4-fresh",
        "sglang-0.5.10-decode-tp4-fresh",
    ] {
        let fresh = exposition(file);
        let state = one(&[known(Role::Decode, &fresh, 5)]);
        assert_eq!(state.usage, Err(Unknown::Absent), "{file}");
        assert_eq!((state.max, state.used, state.fill), (None, None, None));
        assert_eq!(state.capacity, Some(2_581_504));
        assert_eq!((state.running, state.queued), (None, None));
        assert_eq!(state.missing, Some((1, Unknown::Absent)));
    }
}

#[test]
fn without_capacities_the_fullest_is_the_value() {
    let reading = reading(vec![
        pool(Ok(0.9), Some(100)),
        pool(Ok(0.1), None),
        pool(Ok(0.2), Some(100)),
    ]);
    let state = one(&[known(Role::Decode, &reading, 0)]);
    assert_eq!((state.usage, state.max), (Ok(0.9), Some(0.9)));
    assert_eq!((state.used, state.capacity), (None, None));
    assert_eq!(state.running, Some(3));
    // One pool needs no weight.
    let old = exposition("sglang-0.4.6-unified-busy");
    let state = one(&[known(Role::Unified, &old, 0)]);
    assert_eq!(places(state.usage.ok()), "0.0047");
    assert_eq!((state.used, state.capacity), (Some(12_034), None));
}

#[test]
fn pools_of_different_kinds_are_not_added_up() {
    let window = Pool {
        kind: PoolKind::Swa,
        used: Some(85),
        ..pool(Ok(0.85), Some(100))
    };
    let full = Pool {
        used: Some(200),
        ..pool(Ok(0.2), Some(1000))
    };
    let mixed = reading(vec![full, window.clone()]);
    let state = one(&[known(Role::Unified, &mixed, 0)]);
    assert_eq!((state.usage, state.kind), (Ok(0.85), PoolKind::Swa));
    assert_eq!((state.used, state.capacity), (None, None));

    let same = reading(vec![
        window.clone(),
        Pool {
            usage: Ok(0.15),
            used: Some(15),
            ..window
        },
    ]);
    let state = one(&[known(Role::Unified, &same, 0)]);
    assert_eq!((state.usage, state.kind), (Ok(0.5), PoolKind::Swa));
    assert_eq!((state.used, state.capacity), (Some(100), Some(200)));
}

#[test]
fn a_part_that_is_unknown_is_left_out_and_named() {
    let reading = reading(vec![
        Pool {
            used: Some(20),
            ..pool(Ok(0.2), Some(100))
        },
        pool(Err(Unknown::Absent), Some(100)),
    ]);
    let state = one(&[
        known(Role::Decode, &reading, 0),
        unknown(Role::Decode, Unknown::NotRead),
        unknown(Role::Decode, Unknown::Unreachable),
    ]);
    assert_eq!(state.usage, Ok(0.2));
    // Used and capacity stay those of the usage.
    assert_eq!((state.used, state.capacity), (Some(20), Some(100)));
    // Requests are counted wherever they are told.
    assert_eq!(state.running, Some(2));
    assert_eq!(state.pools, 1);
    assert_eq!(state.missing, Some((3, Unknown::Unreachable)));
}

#[test]
fn where_all_is_unknown_the_gravest_reason_stands() {
    for (reasons, want) in [
        (&[Unknown::NotRead][..], Unknown::NotRead),
        (&[Unknown::NotRead, Unknown::Absent], Unknown::Absent),
        (&[Unknown::Absent, Unknown::Stale], Unknown::Stale),
        (
            &[Unknown::Stale, Unknown::Unreachable, Unknown::Invalid],
            Unknown::Unreachable,
        ),
    ] {
        let sources: Vec<_> = reasons
            .iter()
            .map(|why| unknown(Role::Decode, *why))
            .collect();
        let state = one(&sources);
        assert_eq!(state.usage, Err(want));
        assert_eq!(state.missing, Some((reasons.len(), want)));
        assert_eq!(
            (state.capacity, state.running, state.age),
            (None, None, None)
        );
    }
    // A good page without any gauge, recognised or not.
    let state = one(&[known(Role::Decode, &reading(Vec::new()), 0)]);
    assert_eq!(state.usage, Err(Unknown::Absent));
}

#[test]
fn a_count_that_a_known_pool_does_not_give_is_unknown() {
    let reading = reading(vec![
        pool(Ok(0.2), Some(100)),
        Pool {
            running: None,
            ..pool(Ok(0.3), Some(100))
        },
    ]);
    assert_eq!(one(&[known(Role::Decode, &reading, 0)]).running, None);
}

#[test]
fn b16_models_are_kept_apart_and_an_unnamed_pool_joins_the_only_model() {
    let two = reading(vec![
        of_model("m-a", pool(Ok(0.2), Some(100))),
        of_model("org/m-b", pool(Ok(0.8), Some(900))),
    ]);
    let states = aggregate(&[
        known(Role::Decode, &two, 0),
        unknown(Role::Decode, Unknown::Stale),
    ]);
    let seen: Vec<_> = states
        .iter()
        .map(|state| (state.model.as_deref(), state.usage, state.missing))
        .collect();
    // Whose model the stale source serves is not known: it may be either's.
    let missing = Some((1, Unknown::Stale));
    assert_eq!(
        seen,
        [
            (Some("m-a"), Ok(0.2), missing),
            (Some("org/m-b"), Ok(0.8), missing)
        ]
    );

    let named = reading(vec![of_model("m-a", pool(Ok(0.2), Some(100)))]);
    let unnamed = reading(vec![pool(Ok(0.6), Some(100))]);
    let state = one(&[
        known(Role::Decode, &unnamed, 0),
        known(Role::Decode, &named, 0),
    ]);
    assert_eq!(state.model.as_deref(), Some("m-a"));
    assert_eq!(state.capacity, Some(200));
    assert_eq!(places(state.usage.ok()), "0.4000");
}

/// What another engine serves beside a named model is not known to be that model.
#[test]
fn b16_an_unnamed_pool_joins_the_only_model_only_where_its_engine_serves_it() {
    let of = |engine: &'static str, pools| Reading {
        engine: Some(engine.into()),
        ..reading(pools)
    };
    let vllm = of("vllm", vec![of_model("m-a", pool(Ok(0.2), Some(100)))]);
    let llama = of("llamacpp", vec![pool(Ok(0.6), Some(300))]);
    let unnamed_vllm = of("vllm", vec![pool(Ok(0.4), Some(100))]);
    let says = |readings: &[&Reading]| -> Vec<_> {
        let sources: Vec<_> = readings
            .iter()
            .map(|reading| known(Role::Unified, reading, 0))
            .collect();
        let states = aggregate(&sources).into_iter();
        states
            .map(|s| (s.model.as_deref().map(str::to_owned), s.capacity, s.pools))
            .collect()
    };
    let named = Some("m-a".to_owned());
    assert_eq!(
        says(&[&vllm, &llama]),
        [(None, Some(300), 1), (named.clone(), Some(100), 1)]
    );
    assert_eq!(
        says(&[&llama, &unnamed_vllm, &vllm]),
        [(None, Some(300), 1), (named.clone(), Some(200), 2)]
    );
    // Two that name nothing, of two engines, are not added up either.
    let tgi = of("tgi", vec![pool(Ok(0.2), Some(900))]);
    let state = one(&[
        known(Role::Unified, &llama, 0),
        known(Role::Unified, &tgi, 0),
    ]);
    assert_eq!((state.usage, state.max), (Ok(0.6), Some(0.6)));
    assert_eq!((state.used, state.capacity), (None, None));
    // The same of mappings, which go by their names.
    let (mine, others) = (
        of("mine", vec![of_model("m-a", pool(Ok(0.2), Some(100)))]),
        of("others", vec![pool(Ok(0.6), Some(300))]),
    );
    assert_eq!(says(&[&mine, &others]).len(), 2);
    let unnamed = of("mine", vec![pool(Ok(0.4), Some(100))]);
    assert_eq!(says(&[&mine, &unnamed]), [(named, Some(200), 2)]);
}

#[test]
fn b18_the_settings_role_wins_and_takes_its_own_queues() {
    let page = exposition("sglang-0.5.23-prefill-tp4-busy");
    assert_eq!(page.role, Some(Role::Prefill));
    let state = one(&[known(Role::Decode, &page, 0)]);
    assert_eq!(state.role, Role::Decode);
    assert_eq!(
        (state.queues.bootstrap, state.queues.prealloc),
        (None, Some(0))
    );
    assert_eq!(state.hit_rate, None);
}

#[test]
fn preempted_requests_are_summed_and_of_the_tiers_in_host_memory_the_fullest_counts() {
    let with = |preempted, host| Pool {
        preempted,
        host,
        ..pool(Ok(0.5), Some(100))
    };
    let said = |pools| {
        let page = reading(pools);
        let state = one(&[known(Role::Unified, &page, 0)]);
        (state.preempted, state.host)
    };
    let two = vec![with(Some(3), Some(0.25)), with(Some(4), Some(0.75))];
    assert_eq!(said(two), (Some(7), Some(0.75)));
    // Not all say it: a sum of a part is no sum. A pool without a tier takes none from the other.
    let part = vec![with(Some(3), None), with(None, Some(0.75))];
    assert_eq!(said(part), (None, Some(0.75)));
    assert_eq!(said(vec![with(None, None)]), (None, None));
}

#[test]
fn pools_that_a_page_has_too_many_of_are_missing() {
    let page = Reading {
        odd: vec![("nan", 3), ("too_many_pools", 76)],
        ..reading(vec![pool(Ok(0.5), Some(100))])
    };
    let state = one(&[known(Role::Unified, &page, 0)]);
    assert_eq!(state.usage, Ok(0.5));
    assert_eq!(state.missing, Some((76, Unknown::NotRead)));
}

#[test]
fn on_a_page_of_several_roles_each_pool_is_of_its_own_and_a_nameless_one_is_missing_from_each() {
    let of = |role, usage| Pool {
        role,
        ..pool(Ok(usage), Some(100))
    };
    let merged = reading(vec![
        of(Some(Role::Prefill), 0.9),
        of(Some(Role::Decode), 0.2),
        of(None, 0.7),
    ]);
    let all = |roles: Roles| SourceReading {
        roles,
        reading: Ok(&merged),
        age: None,
    };
    let seen = |sources: &[SourceReading<'_>]| -> Vec<_> {
        let states = aggregate(sources);
        let seen = states.iter().map(|s| (s.role, s.usage, s.missing));
        seen.collect()
    };
    let missing = Some((1, Unknown::Absent));
    let decode = (Role::Decode, Ok(0.2), missing);
    let prefill = (Role::Prefill, Ok(0.9), missing);
    assert_eq!(seen(&[all(merged.roles())]), [decode, prefill]);
    assert_eq!(seen(&[all(Some(Role::Decode).into())]), [decode]);

    // Prefill's engine has left: what is there is not its.
    let left = Reading {
        role: Some(Role::Decode),
        ..reading(vec![of(Some(Role::Decode), 0.2)])
    };
    let before = [Role::Decode, Role::Prefill].into_iter().collect();
    let source = SourceReading {
        roles: before,
        reading: Ok(&left),
        age: None,
    };
    assert_eq!(
        seen(&[source]),
        [
            (Role::Decode, Ok(0.2), None),
            (Role::Prefill, Err(Unknown::Absent), missing)
        ]
    );
    // One that names a role among those that name none does not speak for the page.
    let one = reading(vec![of(Some(Role::Decode), 0.2), of(None, 0.7)]);
    assert_eq!(one.roles(), Roles::default());
}

#[test]
fn the_headline_is_the_decode_servers_where_there_is_one_even_unknown() {
    let low = reading(vec![pool(Ok(0.1), Some(100))]);
    let high = reading(vec![pool(Ok(0.9), Some(100))]);
    let says = |sources: &[SourceReading<'_>], which| {
        headline(&aggregate(sources), which).map(|state| (state.role, state.usage))
    };

    let both = [
        known(Role::Prefill, &high, 0),
        known(Role::Unified, &high, 0),
        known(Role::Decode, &low, 0),
    ];
    assert_eq!(says(&both, Headline::Auto), Some((Role::Decode, Ok(0.1))));
    assert_eq!(
        says(&both, Headline::Role(Role::Prefill)),
        Some((Role::Prefill, Ok(0.9)))
    );
    assert_eq!(
        says(&both[..1], Headline::Role(Role::Decode)),
        None,
        "no source has the role"
    );

    let gone = [
        known(Role::Prefill, &high, 0),
        unknown(Role::Decode, Unknown::Unreachable),
    ];
    assert_eq!(
        says(&gone, Headline::Auto),
        Some((Role::Decode, Err(Unknown::Unreachable)))
    );
    assert_eq!(
        says(&gone, Headline::Fullest),
        Some((Role::Prefill, Ok(0.9)))
    );

    assert_eq!(
        says(&both[..2], Headline::Auto),
        Some((Role::Unified, Ok(0.9)))
    );
    assert_eq!(
        says(&both[..1], Headline::Auto),
        Some((Role::Prefill, Ok(0.9)))
    );
    assert_eq!(says(&[], Headline::Auto), None);
    assert_eq!(says(&[], Headline::Fullest), None);
}

#[test]
fn of_several_models_the_fullest_is_the_headline() {
    let models = reading(vec![
        of_model("a", pool(Ok(0.2), Some(100))),
        of_model("b", pool(Ok(0.8), Some(100))),
        of_model("c", pool(Err(Unknown::Absent), Some(100))),
    ]);
    let states = aggregate(&[known(Role::Decode, &models, 0)]);
    let state = headline(&states, Headline::Auto).expect("a headline");
    assert_eq!((state.model.as_deref(), state.usage), (Some("b"), Ok(0.8)));
}

const MAX_AGE: Duration = Duration::from_secs(10);

/// A source whose last good page was asked for at `taken`.
fn source(taken: Option<Instant>, failure: Option<FailureReason>, at: Instant) -> SourceState {
    SourceState {
        name: "decode".into(),
        url: "http://127.0.0.1:30002/metrics".into(),
        roles: Some(Role::Decode).into(),
        up: Some(failure.is_none()),
        reading: taken.map(|_| Arc::new(reading(vec![pool(Ok(0.5), Some(100))]))),
        taken,
        unchanged_since: None,
        duration: None,
        samples: None,
        bytes: None,
        redirected: None,
        kind: "metrics",
        bearer_file: None,
        reads: None,
        without_loads: None,
        interval: None,
        exposed: None,
        left_out: Vec::new(),
        problems: Vec::new(),
        mapping: None,
        failure: failure.map(|reason| Failure {
            reason,
            message: "".into(),
            at,
        }),
        failures: [0; FailureReason::ALL.len()],
        dropped: Vec::new(),
        odd: Vec::new(),
    }
}

fn age(source: &SourceState, now: Instant) -> Result<u64, Unknown> {
    let current = engine::current(source, now, MAX_AGE);
    current.map(|(_, age)| u64::try_from(age.as_millis()).expect("a short age"))
}

#[test]
fn a_reading_holds_until_max_age_unless_its_source_is_gone() {
    let taken = Instant::now();
    let at = |ms| taken + Duration::from_millis(ms);

    let well = source(Some(taken), None, taken);
    assert_eq!(age(&well, at(0)), Ok(0));
    assert_eq!(age(&well, at(10_000)), Ok(10_000));
    // A scraper that stands still keeps nothing fresh.
    assert_eq!(age(&well, at(10_001)), Err(Unknown::Stale));

    for reason in FailureReason::ALL {
        let failed = source(Some(taken), Some(reason), at(1000));
        let gone = matches!(
            reason,
            FailureReason::Connect | FailureReason::Resolve | FailureReason::Tls
        );
        let (soon, late) = if gone {
            (Err(Unknown::Unreachable), Err(Unknown::Unreachable))
        } else {
            (Ok(2000), Err(Unknown::Stale))
        };
        assert_eq!(age(&failed, at(2000)), soon, "{reason:?}");
        assert_eq!(age(&failed, at(10_001)), late, "{reason:?}");
    }

    // Well again: the failure is only for display.
    let mut again = source(Some(taken), Some(FailureReason::Connect), taken);
    again.up = Some(true);
    assert_eq!(age(&again, at(5)), Ok(5));
}

#[test]
fn a_source_that_was_never_read_says_so() {
    let now = Instant::now();
    let mut fresh = source(None, None, now);
    fresh.up = None;
    assert_eq!(age(&fresh, now), Err(Unknown::NotRead));
    let slow = source(None, Some(FailureReason::Timeout), now);
    assert_eq!(age(&slow, now), Err(Unknown::NotRead));
    // B19: refused from the start.
    let refused = source(None, Some(FailureReason::Connect), now);
    assert_eq!(age(&refused, now), Err(Unknown::Unreachable));
}

#[test]
fn a_reading_that_a_refusal_ended_is_not_brought_back_by_a_timeout() {
    let taken = Instant::now();
    let mut ended = source(Some(taken), Some(FailureReason::Timeout), taken);
    ended.reading = None;
    assert_eq!(
        age(&ended, taken + Duration::from_secs(1)),
        Err(Unknown::Stale)
    );
}

#[test]
fn a_snapshot_is_observed_source_by_source() {
    let taken = Instant::now();
    let now = taken + Duration::from_millis(250);
    let mut second = source(Some(taken), Some(FailureReason::Connect), now);
    second.name = "decode-2".into();
    let mut router = source(Some(taken), None, taken);
    router.roles = None.into();
    let snapshot = Snapshot {
        sources: vec![
            Arc::new(router),
            Arc::new(source(Some(taken), None, taken)),
            Arc::new(second),
        ],
    };
    let states = engine::observe(&snapshot, now, MAX_AGE);
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].usage, Ok(0.5));
    assert_eq!(states[0].age, Some(Duration::from_millis(250)));
    assert_eq!(states[0].missing, Some((1, Unknown::Unreachable)));
}

#[test]
fn a_source_with_work_that_says_nothing_new_stands_still() {
    let start = Instant::now();
    let with = |pool: Pool, up| SourceState {
        up,
        reading: Some(Arc::new(reading(vec![pool]))),
        unchanged_since: Some(start),
        ..source(Some(start), None, start)
    };
    let of = |running, queued, transfer| Pool {
        running,
        queued,
        queues: Queues {
            transfer,
            ..Queues::default()
        },
        ..pool(Ok(0.5), Some(100))
    };
    let after = |source: &SourceState, seconds| {
        let now = start + Duration::from_secs(seconds);
        let read = SourceState {
            taken: Some(now),
            ..source.clone()
        };
        engine::stands_still(&read, now, MAX_AGE)
    };
    let up = Some(true);
    for (work, what) in [
        (of(Some(1), Some(0), None), "one runs"),
        (of(Some(0), Some(1), None), "one is queued"),
        (of(Some(0), Some(0), Some(1)), "one's KV is on its way"),
        (of(None, Some(1), None), "who runs is unknown"),
    ] {
        let source = with(work, up);
        assert!(!after(&source, 34), "{what}");
        assert!(after(&source, 35), "{what}");
    }
    for (work, what) in [
        (of(Some(0), Some(0), Some(0)), "idle"),
        (of(None, None, None), "unknown is not work"),
    ] {
        assert!(!after(&with(work, up), 600), "{what}");
    }
    let busy = of(Some(1), None, None);
    for up in [None, Some(false)] {
        assert!(!after(&with(busy.clone(), up), 600), "{up:?}");
    }
    let moves = SourceState {
        unchanged_since: None,
        ..with(busy, up)
    };
    assert!(!after(&moves, 600), "nothing was compared yet");
}
