//! Engines that kvgauge does not know: reading by a mapping, and the names that may go into one.

#![allow(clippy::expect_used, clippy::panic)] // Tests may.

use MappedUnit::{Blocks, Fraction, Percent, Requests, Tokens};
use kvgauge::engine::{
    self, BlockSize, MappedGauge, MappedUnit, Mapping, MappingError, MappingSpec, Suspect,
};
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::{Reading, Role, Unknown};
use proptest::prelude::*;

fn with_page<T>(text: &str, of: impl FnOnce(&Page<'_>) -> T) -> T {
    let limits = Limits {
        max_series: 10_000,
        max_label_bytes: 16 * 1024,
        max_families: 10_000,
    };
    of(&Page::read(text.as_bytes(), &limits).expect("a readable page"))
}

fn gauge(selector: &str, unit: MappedUnit) -> Option<MappedGauge> {
    Some(MappedGauge::new(selector, unit).expect("a selector"))
}

fn read(spec: MappingSpec, text: &str) -> Reading {
    let mapping = Mapping::new(spec).expect("a mapping");
    with_page(text, |page| engine::read_mapped(page, "mine", &mapping))
}

#[test]
fn a_usage_in_any_unit_is_a_fraction() {
    for (unit, text, wanted, odd) in [
        (Fraction, "my_usage 0.25\n", Ok(0.25), None),
        (Percent, "my_usage 25\n", Ok(0.25), None),
        (Percent, "my_usage 103\n", Ok(1.0), Some("above_one")),
        (
            Percent,
            "my_usage 110\n",
            Err(Unknown::Invalid),
            Some("far_above_one"),
        ),
        (
            Fraction,
            "my_usage 25\n",
            Err(Unknown::Invalid),
            Some("far_above_one"),
        ),
    ] {
        let spec = MappingSpec {
            usage: gauge("my_usage", unit),
            ..MappingSpec::default()
        };
        let reading = read(spec, text);
        assert_eq!(reading.pools[0].usage, wanted, "{text}");
        let counted: Vec<_> = odd.map(|reason| (reason, 1)).into_iter().collect();
        assert_eq!(reading.odd, counted, "{text}");
        assert_eq!(
            (reading.engine.as_deref(), reading.role),
            (Some("mine"), Some(Role::Unified))
        );
    }
    // A page without the gauge has no pool.
    let spec = MappingSpec {
        usage: gauge("my_usage", Percent),
        ..MappingSpec::default()
    };
    let reading = read(spec, "other 1\n");
    assert_eq!((reading.pools.len(), reading.fingerprint), (0, None));
}

const PAGE: &str = "\
acme_blocks{state=\"used\",model=\"m\",shard=\"0\",device=\"gpu\"} 10
acme_blocks{state=\"all\",model=\"m\",shard=\"0\",device=\"gpu\"} 40
acme_blocks{state=\"used\",model=\"m\",shard=\"1\",device=\"gpu\"} 30
acme_blocks{state=\"all\",model=\"m\",shard=\"1\",device=\"gpu\"} 40
acme_blocks{state=\"used\",model=\"m\",shard=\"1\",device=\"cpu\"} 39
acme_running{model=\"m\",shard=\"0\"} 3
acme_running{model=\"m\",shard=\"1\"} 4
acme_waiting{model=\"m\",shard=\"1\"} 5
acme_block_size{model=\"m\"} 16
";

fn acme() -> MappingSpec {
    MappingSpec {
        used: gauge("acme_blocks{state=\"used\",device=gpu}", Blocks),
        capacity: gauge("acme_blocks{ state = all }", Blocks),
        running: gauge("acme_running", Requests),
        queued: gauge("acme_waiting", Requests),
        block_size: Some(BlockSize::Gauge(
            MappedGauge::new("acme_block_size", Tokens).expect("a selector"),
        )),
        model: Some("model".into()),
        rank: Some("shard".into()),
        ..MappingSpec::default()
    }
}

#[test]
fn labels_select_the_samples_and_tell_pools_apart() {
    let reading = read(acme(), PAGE);
    let pools: Vec<_> = reading
        .pools
        .iter()
        .map(|p| {
            (
                p.rank.as_deref(),
                p.usage,
                p.used,
                p.capacity,
                p.running,
                p.queued,
            )
        })
        .collect();
    assert_eq!(
        pools,
        [
            (Some("0"), Ok(0.25), Some(160), Some(640), Some(3), None),
            (Some("1"), Ok(0.75), Some(480), Some(640), Some(4), Some(5)),
        ]
    );
    assert!(
        reading
            .pools
            .iter()
            .all(|p| p.model.as_deref() == Some("m"))
    );
    for (value, from) in [
        (
            "usage",
            "acme_blocks{state=\"used\",device=\"gpu\"} / acme_blocks{state=\"all\"}",
        ),
        (
            "used",
            "acme_blocks{state=\"used\",device=\"gpu\"} * acme_block_size",
        ),
        ("capacity", "acme_blocks{state=\"all\"} * acme_block_size"),
        ("running", "acme_running"),
    ] {
        assert!(
            reading.chosen.contains(&(value, from.into())),
            "{reading:?}"
        );
    }

    // The size of a block as a number; without one the share is known, and no tokens are.
    let fixed = MappingSpec {
        block_size: Some(BlockSize::Tokens(32)),
        ..acme()
    };
    assert_eq!(read(fixed, PAGE).pools[0].used, Some(320));
    let unsized_blocks = MappingSpec {
        block_size: None,
        ..acme()
    };
    let reading = read(unsized_blocks, PAGE);
    let pool = &reading.pools[0];
    assert_eq!(
        (pool.usage, pool.used, pool.capacity),
        (Ok(0.25), None, None)
    );
}

#[test]
fn gauges_without_the_labels_of_the_pools_are_the_only_pools() {
    let spec = || MappingSpec {
        usage: gauge("u", Fraction),
        running: gauge("r", Requests),
        rank: Some("rank".into()),
        ..MappingSpec::default()
    };
    let reading = read(spec(), "u{rank=\"0\"} 0.5\nr 3\n");
    assert_eq!(reading.pools.len(), 1, "{reading:?}");
    assert_eq!(
        (reading.pools[0].usage, reading.pools[0].running),
        (Ok(0.5), Some(3))
    );
    assert_eq!(reading.pools[0].rank.as_deref(), Some("0"));
}

#[test]
fn nothing_of_nothing_is_unknown() {
    let spec = MappingSpec {
        used: gauge("used", Tokens),
        capacity: gauge("all", Tokens),
        ..MappingSpec::default()
    };
    let reading = read(spec, "used 0\nall 0\n");
    let pool = &reading.pools[0];
    assert_eq!(
        (pool.usage, pool.used, pool.capacity),
        (Err(Unknown::Absent), None, None)
    );
    assert_eq!(reading.odd, [("zero_capacity", 1)]);
}

#[test]
fn a_mapping_that_cannot_be_read_by_says_what_is_wrong() {
    let error = |spec: MappingSpec| Mapping::new(spec).expect_err("wrong").to_string();
    assert_eq!(
        error(MappingSpec::default()),
        "it gives no usage: name `usage`, or `used` and `capacity` in the same unit"
    );
    assert_eq!(
        error(MappingSpec {
            usage: gauge("u", Tokens),
            ..MappingSpec::default()
        }),
        "`usage` can't be counted in tokens; it is counted in fraction or percent"
    );
    assert_eq!(
        error(MappingSpec {
            usage: gauge("u", Fraction),
            running: gauge("r", Fraction),
            ..MappingSpec::default()
        }),
        "`running` can't be counted in fraction; it is counted in requests"
    );
    // Blocks over tokens are no share, unless a block's size is known.
    let mixed = MappingSpec {
        used: gauge("a", Blocks),
        capacity: gauge("b", Tokens),
        ..MappingSpec::default()
    };
    assert_eq!(Mapping::new(mixed.clone()), Err(MappingError::NoUsage));
    let sized = MappingSpec {
        block_size: Some(BlockSize::Tokens(16)),
        ..mixed.clone()
    };
    assert_eq!(read(sized, "a 2\nb 64\n").pools[0].usage, Ok(0.5));
    let zero = MappingSpec {
        block_size: Some(BlockSize::Tokens(0)),
        ..mixed
    };
    assert_eq!(error(zero), "`block_size` is 0");
    assert_eq!(
        error(MappingSpec {
            usage: gauge("u", Fraction),
            model: Some("model name".into()),
            ..MappingSpec::default()
        }),
        "`model` is \"model name\", which is no label's name"
    );
}

#[test]
fn a_selector_is_a_name_with_labels() {
    for good in [
        "a",
        "vllm:x_y",
        "a{}",
        " a{b=\"c\"} ",
        "a{b=c,d=\"e,f\"}",
        "a{b=\"q\\\"}\\\\\"}",
        "a{b=\"\",}",
    ] {
        assert!(MappedGauge::new(good, Fraction).is_ok(), "{good}");
    }
    for bad in [
        "",
        "{}",
        "a b",
        "1a",
        "a{",
        "a}",
        "a{b}",
        "a{b=\"c}",
        "a{b:c=1}",
        "a{b=\"c\"d=1}",
        "a{=c}",
        "a{b=\"\\x\"}",
    ] {
        let error = MappedGauge::new(bad, Fraction).expect_err(bad).to_string();
        assert!(error.contains("write a metric's name"), "{error}");
    }
    let long = "a".repeat(2000);
    let error = MappedGauge::new(&long, Fraction)
        .expect_err("long")
        .to_string();
    assert!(error.len() < 300, "{error}");
    for unit in MappedUnit::ALL {
        assert_eq!(unit.as_str().parse(), Ok(unit));
    }
}

proptest! {
    #[test]
    fn any_selector_is_taken_or_refused(text in any::<String>(), tail in "[a-z{}=\",\\\\]{0,20}") {
        let _ = MappedGauge::new(&text, Fraction);
        let _ = MappedGauge::new(&format!("a{{{tail}"), Fraction);
    }

    #[test]
    fn any_values_give_a_share_or_unknown(used in any::<f64>(), all in any::<f64>(), size in any::<u64>()) {
        let spec = MappingSpec {
            used: gauge("used", Blocks),
            capacity: gauge("all", Blocks),
            block_size: (size > 0).then_some(BlockSize::Tokens(size)),
            ..MappingSpec::default()
        };
        let reading = read(spec, &format!("used {used}\nall {all}\n"));
        for pool in &reading.pools {
            prop_assert!(pool.usage.is_ok() || pool.used.is_none());
            prop_assert!(pool.usage.is_err() || (0.0..=1.0).contains(&pool.usage.unwrap_or(2.0)));
            prop_assert_ne!(pool.capacity, Some(0));
        }
    }
}

#[test]
fn the_families_of_a_mapping_are_its_gauges() {
    let mapping = Mapping::new(acme()).expect("a mapping");
    for (name, is) in [
        ("acme_blocks", true),
        ("acme_block_size", true),
        ("acme_waiting", true),
        ("acme_other", false),
    ] {
        assert_eq!(mapping.is_kv_family(name), is, "{name}");
    }
}

// === suspects ===

fn suspects(text: &str) -> Vec<(&'static str, String, MappedUnit)> {
    with_page(text, engine::suspects)
        .into_iter()
        .map(
            |Suspect {
                 value,
                 metric,
                 unit,
                 ..
             }| (value, metric.into(), unit),
        )
        .collect()
}

#[test]
fn names_that_look_like_kv_usage_are_found_and_no_others() {
    let text = "\
# TYPE acme_kv_cache_usage_percent gauge
acme_kv_cache_usage_percent 37.5
# TYPE acme_kv_blocks_used gauge
acme_kv_blocks_used 10
# TYPE acme_max_kv_blocks gauge
acme_max_kv_blocks 40
# TYPE acme_requests_running gauge
acme_requests_running 3
# TYPE acme_requests_waiting gauge
acme_requests_waiting 1
# TYPE acme_prefix_cache_hit_rate gauge
acme_prefix_cache_hit_rate 0.3
# TYPE acme_kv_tokens_total counter
acme_kv_tokens_total 17
# TYPE acme_lora_cache_usage gauge
acme_lora_cache_usage 0.9
# TYPE acme_cpu_usage_ratio gauge
acme_cpu_usage_ratio 0.9
# TYPE acme_kv_cache_usage_seconds gauge
acme_kv_cache_usage_seconds 0.9
# TYPE acme_kv_usage gauge
";
    let found = suspects(text);
    let wanted: Vec<_> = [
        ("usage", "acme_kv_cache_usage_percent", Percent),
        ("used", "acme_kv_blocks_used", Blocks),
        ("capacity", "acme_max_kv_blocks", Blocks),
        ("running", "acme_requests_running", Requests),
        ("queued", "acme_requests_waiting", Requests),
        ("hit_rate", "acme_prefix_cache_hit_rate", Fraction),
    ]
    .map(|(value, metric, unit)| (value, metric.to_owned(), unit))
    .into();
    assert_eq!(found, wanted);
    // Which a mapping takes as they are.
    let of = |value| {
        found
            .iter()
            .find(|found| found.0 == value)
            .and_then(|(_, metric, unit)| gauge(metric, *unit))
    };
    let spec = MappingSpec {
        usage: of("usage"),
        used: of("used"),
        capacity: of("capacity"),
        running: of("running"),
        queued: of("queued"),
        hit_rate: of("hit_rate"),
        ..MappingSpec::default()
    };
    assert_eq!(read(spec, text).pools[0].usage, Ok(0.375));
}

/// Requests that are counted for the server as a whole are no third pool without a usage.
#[test]
fn requests_without_a_rank_are_none_of_several_pools() {
    let spec = MappingSpec {
        usage: gauge("kv", Fraction),
        running: gauge("running", Requests),
        rank: Some("shard".into()),
        ..MappingSpec::default()
    };
    let text = "kv{shard=\"0\"} 0.25\nkv{shard=\"1\"} 0.5\nrunning 3\n";
    let usages: Vec<_> = read(spec.clone(), text)
        .pools
        .iter()
        .map(|p| p.usage)
        .collect();
    assert_eq!(usages, [Ok(0.25), Ok(0.5)]);
    // A pool whose usage is not there is one all the same.
    let text = "kv{shard=\"0\"} 0.25\nkv{shard=\"1\"} 0.5\nrunning{shard=\"2\"} 3\n";
    let reading = read(spec, text);
    assert_eq!(reading.pools[2].usage, Err(Unknown::Absent));
    let lacking = engine::lacking(&reading);
    assert_eq!(lacking[0].why, "some of its pools have no KV usage yet");
}

/// The README's mapping on a page of two shards.
#[test]
fn a_capacity_that_may_be_of_one_shard_or_of_all_is_unknown() {
    let spec = |rank: Option<&str>| MappingSpec {
        usage: gauge("acme_kv_used_percent", Percent),
        capacity: gauge("acme_blocks{state=all}", Blocks),
        running: gauge("acme_running", Requests),
        block_size: Some(BlockSize::Tokens(16)),
        rank: rank.map(Into::into),
        ..MappingSpec::default()
    };
    let usage = "acme_kv_used_percent{shard=\"0\"} 25\nacme_kv_used_percent{shard=\"1\"} 75\n";
    let blocks =
        "acme_blocks{shard=\"0\",state=\"all\"} 40\nacme_blocks{shard=\"1\",state=\"all\"} 40\n";
    let running = "acme_running{shard=\"0\"} 3\nacme_running{shard=\"1\"} 4\n";
    let total = "acme_blocks{state=\"all\"} 80\nacme_running 7\n";
    let says = |rank, text: &str| {
        let reading = read(spec(rank), text);
        let pools: Vec<_> = reading
            .pools
            .iter()
            .map(|p| (p.usage, p.capacity, p.running))
            .collect();
        let lacking = engine::lacking(&reading).into_iter();
        let why: Vec<_> = lacking
            .filter(|l| ["capacity", "running"].contains(&l.value))
            .map(|l| l.why)
            .collect();
        (pools, why)
    };
    let several = "has several series for one pool, which may be pools that are not told apart";
    let nobodys =
        "has no label of `rank` or `model`, so it is not known which of several pools it is of";

    // Each with its own.
    let (pools, why) = says(Some("shard"), &format!("{usage}{blocks}{running}"));
    assert_eq!(
        pools,
        [
            (Ok(0.25), Some(640), Some(3)),
            (Ok(0.75), Some(640), Some(4))
        ]
    );
    assert!(why.is_empty(), "{why:?}");
    // Numbers that no shard has.
    let (pools, why) = says(Some("shard"), &format!("{usage}{total}"));
    assert_eq!(pools, [(Ok(0.25), None, None), (Ok(0.75), None, None)]);
    assert_eq!(why, [nobodys, nobodys]);
    // Of one shard it is sure.
    let one = "acme_kv_used_percent{shard=\"0\"} 25\n";
    let (pools, _) = says(Some("shard"), &format!("{one}{total}"));
    assert_eq!(pools, [(Ok(0.25), Some(1280), Some(7))]);
    // Without `rank` the fullest is a usage, and the rest of neither.
    let (pools, why) = says(None, &format!("{usage}{blocks}{running}"));
    assert_eq!(pools, [(Ok(0.75), None, None)]);
    assert_eq!(why, [several, several]);
    // Nor is the usage of one that of all.
    let (pools, _) = says(None, &format!("{usage}{total}"));
    assert_eq!(pools, [(Ok(0.75), None, Some(7))]);
    // Ranks that share their tokens repeat one another.
    let text = format!("{usage}{blocks}").replace("shard", "tp_rank");
    let (pools, _) = says(None, &text);
    assert_eq!(pools, [(Ok(0.75), Some(640), None)]);
}

#[test]
fn a_quotient_of_several_series_is_unknown_and_says_why() {
    let spec = || MappingSpec {
        used: gauge("used", Tokens),
        capacity: gauge("all", Tokens),
        model: Some("model".into()),
        ..MappingSpec::default()
    };
    let reading = read(
        spec(),
        "used{shard=\"0\"} 10\nused{shard=\"1\"} 90\nall 200\n",
    );
    let pool = &reading.pools[0];
    assert_eq!(
        (pool.usage, pool.used, pool.capacity),
        (Err(Unknown::Absent), None, None)
    );
    let told = engine::lacking(&reading);
    assert!(
        told.iter().all(|l| l.why.starts_with("has several series")
            || l.value == "fill"
            || l.value == "running"
            || l.value == "queued"),
        "{told:?}"
    );
    assert!(
        reading
            .passed_over
            .iter()
            .any(|p| p.0 == "usage" && p.1 == "used / all")
    );

    // With its own capacity each the fullest is the usage: not 90 of 900.
    let text =
        "used{shard=\"0\"} 45\nused{shard=\"1\"} 90\nall{shard=\"0\"} 50\nall{shard=\"1\"} 900\n";
    let reading = read(spec(), text);
    let pool = &reading.pools[0];
    assert_eq!(
        (pool.usage, pool.used, pool.capacity),
        (Ok(0.9), None, None)
    );

    // Labelled in part: one model's, or nobody's.
    let reading = read(spec(), "used{model=\"a\"} 10\nall 200\n");
    assert_eq!((reading.pools.len(), reading.pools[0].usage), (1, Ok(0.05)));
    let text = "used{model=\"a\"} 10\nused{model=\"b\"} 20\nall 200\n";
    let usages: Vec<_> = read(spec(), text).pools.iter().map(|p| p.usage).collect();
    assert_eq!(usages, [Err(Unknown::Absent), Err(Unknown::Absent)]);
    // What one rank runs is not another's.
    let spec = MappingSpec {
        usage: gauge("u", Fraction),
        running: gauge("r", Requests),
        rank: Some("rank".into()),
        ..MappingSpec::default()
    };
    let reading = read(spec, "u{rank=\"0\"} 0.5\nr{rank=\"1\"} 3\n");
    let pools: Vec<_> = reading.pools.iter().map(|p| (p.usage, p.running)).collect();
    assert_eq!(pools, [(Ok(0.5), None), (Err(Unknown::Absent), Some(3))]);
}

#[test]
fn a_family_that_needs_a_selector_says_by_which_label() {
    let found = with_page(
        "kv_usage{kind=\"a\",model=\"m\"} 0.1\nkv_usage{kind=\"b\",model=\"m\"} 0.2\n",
        engine::suspects,
    );
    assert_eq!(found[0].labels, ["kind".into()]);
}

#[test]
fn a_page_gives_a_few_suspects_at_most() {
    let page: String = (0..100).map(|n| format!("kv_usage_{n} 0.1\n")).collect();
    assert_eq!(suspects(&page).len(), 16);
    // A router's page has none.
    let router = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/expositions/sglang-router-0.3.2-pd-after-traffic.prom"
    ))
    .expect("a page");
    let found = with_page(&router, engine::suspects);
    assert!(found.iter().all(|s| s.value != "usage"), "{found:?}");
}
