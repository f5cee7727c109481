//! SGLang's `/v1/loads` as a reading, every number derived by hand.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests may.

use kvgauge::engine::{self, LoadsError, SourceReading, aggregate, read_loads};
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::{PoolKind, Queues, Reading, Role, Unknown};
use proptest::prelude::*;

fn file(name: &str) -> Reading {
    let name = format!("sglang-0.5.23-{name}-cpu-real-busy.v1_loads.json");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/expositions");
    read_loads(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// One entry of `loads`, with these fields beside a few that nobody reads.
fn of(fields: &str) -> Reading {
    let text =
        format!("{{\"version\":\"x\",\"loads\":[{{\"timestamp\":1.5,\"z\":[{{}}],{fields}}}]}}");
    read_loads(text.as_bytes()).unwrap()
}

#[test]
fn the_real_servers_loads_are_read_exactly() {
    for (name, role, used, usage, running, queued, hit_rate) in [
        // 15,585 of 16,384 is 0.95123…, which the file rounds to 0.9512.
        (
            "unified-tp1",
            Role::Unified,
            15_585,
            0.951_232_910_156_25,
            22,
            2,
            Some(0.0298),
        ),
        // 3,489 of 16,384 is 0.21295…, rounded to 0.213.
        (
            "unified-tp2",
            Role::Unified,
            3_489,
            0.212_951_660_156_25,
            10,
            0,
            Some(0.0),
        ),
        // 3,915 of 16,384 is 0.23895…, rounded to 0.239. A decode server looks up no prefix.
        (
            "decode-tp2",
            Role::Decode,
            3_915,
            0.238_952_636_718_75,
            12,
            0,
            None,
        ),
    ] {
        let reading = file(name);
        assert_eq!(
            (reading.engine.as_deref(), reading.role),
            (Some("sglang"), Some(role))
        );
        let [pool] = &reading.pools[..] else {
            panic!("{reading:?}")
        };
        assert_eq!(pool.usage, Ok(usage), "{name}");
        assert_eq!(
            (pool.used, pool.capacity),
            (Some(used), Some(16_384)),
            "{name}"
        );
        assert_eq!(
            (pool.running, pool.queued),
            (Some(running), Some(queued)),
            "{name}"
        );
        assert_eq!(
            (pool.kind, pool.hit_rate),
            (PoolKind::Full, hit_rate),
            "{name}"
        );
        // The queues of its role only: without disaggregation there are none.
        let decode = (role == Role::Decode).then_some(0);
        let queues = [
            ("bootstrap", None),
            ("inflight", None),
            ("prealloc", decode),
            ("transfer", decode),
        ];
        assert_eq!(pool.queues.iter(), queues, "{name}");
        // Not in the loads, so not known.
        assert_eq!(
            (pool.fill, pool.pending, pool.preempted, pool.host),
            (None, None, None, None)
        );
        assert_eq!((&pool.model, &pool.rank), (&None, &None));
        assert_eq!(reading.odd, []);
        let from = "/v1/loads num_used_tokens / max_total_num_tokens";
        assert!(
            reading.chosen.contains(&("usage", from.into())),
            "{reading:?}"
        );
    }
}

#[test]
fn ranks_are_pools_of_their_own_and_queues_those_of_the_role() {
    let rank = |rank: u32, used: u32, usage: f64| {
        format!(
            "{{\"dp_rank\":{rank},\"num_used_tokens\":{used},\"max_total_num_tokens\":645376,\
             \"token_usage\":{usage},\"disaggregation\":{{\"mode\":\"prefill\",\
             \"prefill_bootstrap_queue_reqs\":{rank},\"prefill_inflight_queue_reqs\":-1,\
             \"decode_transfer_queue_reqs\":7}}}}"
        )
    };
    // 310,112 of 645,376 is 0.48051…; 12,034 is 0.01864….
    let text = format!(
        "{{\"loads\":[{},{}]}}",
        rank(10, 310_112, 0.4805),
        rank(2, 12_034, 0.0186)
    );
    let reading = read_loads(text.as_bytes()).unwrap();
    assert_eq!(reading.role, Some(Role::Prefill));
    let seen: Vec<_> = reading
        .pools
        .iter()
        .map(|p| {
            (
                p.rank.as_deref(),
                p.used,
                p.queues.bootstrap,
                p.queues.inflight,
                p.queues.transfer,
            )
        })
        .collect();
    let wanted = [
        (Some("2"), Some(12_034), Some(2), None, None),
        (Some("10"), Some(310_112), Some(10), None, None),
    ];
    assert_eq!(seen, wanted);
    // In whatever order.
    let text = format!(
        "{{\"loads\":[{},{}]}}",
        rank(2, 12_034, 0.0186),
        rank(10, 310_112, 0.4805)
    );
    assert_eq!(read_loads(text.as_bytes()).unwrap(), reading);
    let other = format!(
        "{{\"loads\":[{},{}]}}",
        rank(2, 12_035, 0.0186),
        rank(10, 310_112, 0.4805)
    );
    assert_ne!(
        read_loads(other.as_bytes()).unwrap().fingerprint,
        reading.fingerprint
    );
}

#[test]
fn tokens_of_another_pool_make_no_usage() {
    // A sliding window at 0.8503, whose 175,616 tokens are 0.068 of the full pool's 2,581,504.
    let reading =
        of("\"num_used_tokens\":175616,\"max_total_num_tokens\":2581504,\"token_usage\":0.8503");
    let pool = &reading.pools[0];
    assert_eq!((pool.kind, pool.usage), (PoolKind::Other, Ok(0.8503)));
    assert_eq!((pool.used, pool.capacity), (None, None));
}

#[test]
fn what_is_missing_or_minus_one_is_unknown_and_what_can_not_be_is_counted() {
    let tokens = "\"num_used_tokens\":1,\"max_total_num_tokens\":4";
    for (fields, usage, odd) in [
        (format!("{tokens},\"token_usage\":0.25"), Ok(0.25), None),
        (tokens.to_owned(), Err(Unknown::Absent), None),
        (
            format!("{tokens},\"token_usage\":-1"),
            Err(Unknown::Absent),
            None,
        ),
        (
            format!("{tokens},\"token_usage\":null"),
            Err(Unknown::Absent),
            None,
        ),
        (
            format!("{tokens},\"token_usage\":-0.5"),
            Err(Unknown::Invalid),
            Some("negative"),
        ),
        (
            format!("{tokens},\"token_usage\":25"),
            Err(Unknown::Invalid),
            Some("far_above_one"),
        ),
        (
            "\"token_usage\":1.02".to_owned(),
            Ok(1.0),
            Some("above_one"),
        ),
        (
            "\"num_used_tokens\":102,\"max_total_num_tokens\":100,\"token_usage\":1.02".to_owned(),
            Ok(1.0),
            Some("above_one"),
        ),
        (
            "\"num_used_tokens\":0,\"max_total_num_tokens\":0,\"token_usage\":0.0".to_owned(),
            Ok(0.0),
            Some("zero_capacity"),
        ),
    ] {
        let reading = of(&fields);
        assert_eq!(reading.pools[0].usage, usage, "{fields}");
        let counted: Vec<_> = odd.map(|reason| (reason, 1)).into_iter().collect();
        assert_eq!(reading.odd, counted, "{fields}");
    }
    let reading = of("\"num_running_reqs\":-1,\"num_waiting_reqs\":1e300");
    let pool = &reading.pools[0];
    assert_eq!((pool.running, pool.queued), (None, None));
    assert_eq!(reading.odd, [("too_large", 1)]);
    assert_eq!(reading.role, None);
}

#[test]
fn other_texts_are_refused_and_ranks_are_bounded() {
    for text in [
        "",
        "<html>",
        "[]",
        "{}",
        "{\"loads\":5}",
        "{\"loads\":[{\"token_usage\":\"0.5\"}]}",
        "{\"loads\":[{\"token_usage\":NaN}]}",
    ] {
        let error = read_loads(text.as_bytes()).unwrap_err();
        assert!(matches!(error, LoadsError::Shape(_)), "{text}: {error:?}");
    }
    let two = read_loads(b"{\"loads\":[{\"dp_rank\":0},{}]}");
    assert_eq!(two, Err(LoadsError::NoRank));
    assert_eq!(read_loads(b"{\"loads\":[]}").unwrap().pools, []);

    let many: Vec<String> = (0..2000)
        .map(|rank| format!("{{\"dp_rank\":{rank}}}"))
        .collect();
    let reading = read_loads(format!("{{\"loads\":[{}]}}", many.join(",")).as_bytes()).unwrap();
    assert_eq!(
        (reading.pools.len(), reading.odd),
        (1024, vec![("too_many_pools", 976)])
    );
}

/// The page of this file.
fn page(name: &str) -> Reading {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/expositions");
    let text = std::fs::read(folder.join(format!("sglang-0.5.23-{name}.prom"))).unwrap();
    let limits = Limits {
        max_series: 100_000,
        max_label_bytes: 16 * 1024,
        max_families: 10_000,
    };
    engine::read(&Page::read(&text, &limits).unwrap())
}

/// What the server of a page would answer in the same moment.
fn loads_of(reading: &Reading) -> String {
    let role = reading.role.unwrap();
    let mode = if role == Role::Unified {
        "null"
    } else {
        role.as_str()
    };
    let entries: Vec<_> = (0..)
        .zip(&reading.pools)
        .map(|(n, pool): (u32, _)| {
            let usage = (pool.usage.unwrap() * 1e4).round() / 1e4;
            serde_json::json!({
                "dp_rank": pool.rank.as_ref().map_or(n, |rank| rank.parse().unwrap()),
                "num_running_reqs": pool.running,
                "num_waiting_reqs": pool.queued,
                "num_used_tokens": pool.used,
                "max_total_num_tokens": pool.capacity,
                "token_usage": usage,
                "cache_hit_rate": pool.hit_rate.unwrap_or(0.0),
                "disaggregation": {
                    "mode": mode,
                    "prefill_bootstrap_queue_reqs": pool.queues.bootstrap,
                    "prefill_inflight_queue_reqs": pool.queues.inflight,
                    "decode_prealloc_queue_reqs": pool.queues.prealloc,
                    "decode_transfer_queue_reqs": pool.queues.transfer,
                },
            })
        })
        .collect();
    serde_json::json!({ "version": "0.5.99", "loads": entries }).to_string()
}

#[test]
fn page_and_loads_of_one_moment_say_the_same_of_a_role() {
    for name in [
        "decode-tp4-busy",
        "decode-tp4-hot",
        "decode-dpattn4-busy",
        "prefill-tp4-busy",
        "unified-dp2-tp1-busy",
        "unified-tp1-busy",
        "unified-tp1-idle-after",
    ] {
        let page = page(name);
        let loads = read_loads(loads_of(&page).as_bytes()).unwrap();
        let state = |reading: &Reading| {
            let source = SourceReading {
                roles: reading.roles(),
                reading: Ok(reading),
                age: None,
            };
            let mut states = aggregate(&[source]);
            assert_eq!(states.len(), 1, "{name}");
            let mut state = states.remove(0);
            // The loads do not say these.
            (state.model, state.fill, state.pending) = (None, None, None);
            (state.preempted, state.host) = (None, None);
            state
        };
        assert_eq!(state(&loads), state(&page), "{name}");
    }
}

#[test]
fn a_version_that_says_less_or_more_is_read_as_far_as_it_is_known() {
    // Sections that are left out or null, a mode that is not known, fields that are new.
    for (fields, role) in [
        ("\"disaggregation\":null", None),
        ("\"disaggregation\":{}", None),
        ("\"disaggregation\":{\"mode\":null}", None),
        ("\"disaggregation\":{\"mode\":\"encode\"}", None),
        (
            "\"disaggregation\":{\"mode\":\"decode\",\"new_queue_reqs\":[1]},\"memory\":3",
            Some(Role::Decode),
        ),
    ] {
        let reading = of(&format!(
            "{fields},\"num_used_tokens\":1,\"max_total_num_tokens\":4,\"token_usage\":0.25,\"dp_rank\":null"
        ));
        assert_eq!(reading.role, role, "{fields}");
        assert_eq!(reading.pools[0].usage, Ok(0.25), "{fields}");
        assert_eq!(reading.pools[0].queues, Queues::default(), "{fields}");
    }
    // Ranks of several roles are of none.
    let rank = |n: u32, mode: &str| {
        format!("{{\"dp_rank\":{n},\"disaggregation\":{{\"mode\":\"{mode}\"}}}}")
    };
    let two = format!(
        "{{\"loads\":[{},{}]}}",
        rank(0, "decode"),
        rank(1, "prefill")
    );
    assert_eq!(read_loads(two.as_bytes()).unwrap().role, None);
    // A rank that is no rank is no answer of SGLang's.
    for rank in ["-1", "0.5", "\"0\"", "18446744073709551616"] {
        let text = format!("{{\"loads\":[{{\"dp_rank\":{rank},\"token_usage\":0.5}}]}}");
        assert!(read_loads(text.as_bytes()).is_err(), "{rank}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// No bytes make it panic, and no usage is outside of 0 to 1.
    #[test]
    fn any_answer_is_read_or_refused(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        used in any::<f64>(), capacity in any::<f64>(), usage in -2.0..2.0,
    ) {
        let _ = read_loads(&noise);
        let text = format!(
            "{{\"loads\":[{{\"num_used_tokens\":{used:e},\"max_total_num_tokens\":{capacity:e},\"token_usage\":{usage}}}]}}"
        );
        if let Ok(reading) = read_loads(text.as_bytes()) {
            for pool in reading.pools {
                prop_assert!(pool.usage.is_err() || (0.0..=1.0).contains(&pool.usage.unwrap()));
            }
        }
    }
}
