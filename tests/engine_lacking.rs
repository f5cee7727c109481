//! What is said of values that a page lacks: the cause and the next step, by engine and version.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use kvgauge::engine::{self, BlockSize, Lacking, MappedGauge, MappedUnit, Mapping, MappingSpec};
use kvgauge::exposition::{Limits, Page};
use kvgauge::kv::Reading;

fn with_page<T>(text: &str, of: impl FnOnce(&Page<'_>) -> T) -> T {
    let limits = Limits {
        max_series: 10_000,
        max_label_bytes: 16 * 1024,
        max_families: 10_000,
    };
    of(&Page::read(text.as_bytes(), &limits).expect("a readable page"))
}

/// What a page of the test data lacks.
fn lacking(file: &str) -> Vec<Lacking> {
    let text = support::data::page(file);
    engine::lacking(&with_page(&text, engine::read))
}

fn of<'a>(all: &'a [Lacking], value: &str) -> Option<&'a Lacking> {
    all.iter().find(|lacking| lacking.value == value)
}

#[test]
fn a_usage_that_is_not_there_has_the_cause_of_its_engine_and_version() {
    for (file, comes, why, next) in [
        // A fresh engine.
        (
            "sglang-0.5.23-decode-tp4-fresh",
            true,
            "gauges come with the first request",
            "--warmup",
        ),
        (
            "sglang-0.5.10-decode-tp4-fresh",
            true,
            "first request",
            "--warmup",
        ),
        // Builds and versions that never publish it: no request brings it.
        (
            "llamacpp-2025-no-kv-gauge.facts",
            false,
            "dropped",
            "/slots",
        ),
        (
            "tgi.facts",
            false,
            "tgi_batch_max_total_tokens",
            "stays unknown",
        ),
    ] {
        let all = lacking(file);
        let usage = of(&all, "usage").unwrap_or_else(|| panic!("{file}: {all:?}"));
        assert_eq!(usage.comes, comes, "{file}");
        assert!(usage.why.contains(why), "{file}: {}", usage.why);
        assert!(usage.next.contains(next), "{file}: {}", usage.next);
        // What never comes is not said to be on its way.
        let yet = of(&all, "fill").map(|fill| fill.why) == Some("not on the page yet");
        assert_eq!(yet, comes, "{file}");
    }
}

/// Text instead of a file: a page of which there is none.
fn usage_of(text: &str) -> Lacking {
    let all = engine::lacking(&with_page(text, engine::read));
    *of(&all, "usage").expect("it lacks a usage")
}

#[test]
fn a_fresh_engine_is_told_from_one_that_never_says_its_usage() {
    // The most that a batch may hold is there from the start.
    let tgi = usage_of("tgi_batch_max_total_tokens 8192\n");
    assert!(tgi.comes, "{tgi:?}");
    let dynamo = usage_of("# TYPE dynamo_component_gpu_cache_usage_percent gauge\nup 1\n");
    assert!(dynamo.why.contains("prefill workers"), "{dynamo:?}");
    let vllm = usage_of("# TYPE vllm:kv_cache_usage_perc gauge\nup 1\n");
    assert!(vllm.next.contains("--disable-log-stats"), "{vllm:?}");
    // Nothing is known of its versions: no cause is made up.
    let trtllm = usage_of("trtllm_num_requests_running{model_name=\"m\"} 1\n");
    assert_eq!(trtllm.why, "it has no KV usage on its page");
}

#[test]
fn what_a_version_does_not_publish_has_a_next_step() {
    for (file, value, next) in [
        (
            "sglang-0.5.5-decode-tp4-busy",
            "capacity",
            "/get_server_info",
        ),
        ("sglang-0.4.6-unified-busy", "capacity", "/get_server_info"),
        (
            "sglang-0.5.10-decode-tp4-busy",
            "fill",
            "kv_available_tokens",
        ),
        ("llamacpp-fork-2025-08.facts", "capacity", "/props"),
        ("lmdeploy-0.18.0-busy", "capacity", "nothing is to be done"),
        ("dynamo.facts", "used", "nothing is to be done"),
        ("vllm-0.32.0-loaded", "fill", "only SGLang does"),
    ] {
        let all = lacking(file);
        let found = of(&all, value).unwrap_or_else(|| panic!("{file}: {all:?}"));
        assert!(found.next.contains(next), "{file}: {found:?}");
        assert!(!found.comes, "{file}: {found:?}");
    }
}

#[test]
fn what_is_there_is_not_said_to_lack() {
    assert_eq!(lacking("sglang-0.5.23-decode-tp4-busy"), []);
    // A router has none to lack.
    assert_eq!(lacking("sglang-router-0.3.2-pd-after-traffic"), []);
    assert_eq!(engine::lacking(&Reading::none()), []);
    // A gauge that holds nonsense is there.
    let page = "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} NaN\n";
    let nonsense = engine::lacking(&with_page(page, engine::read));
    assert_eq!(of(&nonsense, "usage"), None);
}

#[test]
fn the_loads_are_not_taken_for_an_old_version() {
    let text = support::data::beside_pages("sglang-0.5.23-unified-tp1-cpu-real-busy.v1_loads.json");
    let all = engine::lacking(&engine::read_loads(text.as_bytes()).unwrap());
    let fill = of(&all, "fill").expect("the loads say no fill");
    assert!(fill.why.contains("loads"), "{fill:?}");
    assert!(fill.next.contains("kind = \"metrics\""), "{fill:?}");
}

#[test]
fn a_mapping_that_fits_nothing_is_the_first_to_look_at() {
    let usage = MappedGauge::new("acme_kv", MappedUnit::Fraction).ok();
    let mapping = Mapping::new(MappingSpec {
        usage,
        ..MappingSpec::default()
    });
    let reading = with_page("acme_kv_usage 0.5\n", |page| {
        engine::read_mapped(page, "acme", &mapping.unwrap())
    });
    let all = engine::lacking(&reading);
    let usage = of(&all, "usage").expect("it fits nothing");
    assert!(
        usage.next.contains("compare the mapping's metrics"),
        "{usage:?}"
    );
    assert_eq!(
        engine::in_words(&reading).as_deref(),
        Some("acme (mapping in the settings)")
    );
}

#[test]
fn a_mapping_that_names_no_metric_for_a_value_is_said_with_the_key_to_add() {
    let gauge = |metric: &str, unit| MappedGauge::new(metric, unit).ok();
    let spec = MappingSpec {
        usage: gauge("acme_kv_used_percent", MappedUnit::Percent),
        capacity: gauge("acme_blocks{state=\"all\"}", MappedUnit::Blocks),
        running: gauge("acme_running", MappedUnit::Requests),
        ..MappingSpec::default()
    };
    let page = "acme_kv_used_percent 50\nacme_blocks{state=\"all\"} 40\n\
                acme_blocks{state=\"used\"} 20\nacme_queued 3\n";
    let of_mapping = |spec: MappingSpec| {
        let mapping = Mapping::new(spec).unwrap();
        engine::lacking(&with_page(page, |page| {
            engine::read_mapped(page, "acme", &mapping)
        }))
    };
    let all = of_mapping(spec.clone());
    assert_eq!(of(&all, "usage"), None);
    for (value, key) in [
        ("used", "used = { metric = \"…\", unit = \"tokens\" }"),
        ("fill", "fill = { metric = \"…\", unit = \"fraction\" }"),
        ("queued", "queued = { metric = \"…\", unit = \"requests\" }"),
    ] {
        let lacks = of(&all, value).unwrap();
        assert!(lacks.why.contains("names no metric for it"), "{lacks:?}");
        assert!(lacks.next.contains(key), "{lacks:?}");
    }
    // It is on the page, but in blocks of nobody knows how many tokens.
    let capacity = of(&all, "capacity").unwrap();
    assert!(capacity.why.contains("in blocks"), "{capacity:?}");
    assert!(capacity.next.contains("block_size"), "{capacity:?}");
    // Named, and not there.
    let running = of(&all, "running").unwrap();
    assert!(
        running.why.contains("what its mapping names"),
        "{running:?}"
    );
    assert!(running.next.contains("compare the mapping"), "{running:?}");
    let whole = of_mapping(MappingSpec {
        used: gauge("acme_blocks{state=\"used\"}", MappedUnit::Blocks),
        queued: gauge("acme_queued", MappedUnit::Requests),
        block_size: Some(BlockSize::Tokens(16)),
        ..spec
    });
    let values: Vec<&str> = whole.iter().map(|lacks| lacks.value).collect();
    assert_eq!(values, ["fill", "running"]);
}
