//! Every real page goes through, with nothing lost or altered.

use super::kit::forms::Form;
use super::kit::strict::Names;
use super::kit::{check_in, plain_open, strict_open};
use super::{check, prepare, read, real, strict};
use kvgauge::exposition::{Conflict, Page};
use std::collections::BTreeMap;

/// The sample lines of a page, read by the checker: the real pages hold nothing but the plain form,
/// and exemplars.
fn naive(text: &[u8]) -> Vec<strict::Sample> {
    let text = std::str::from_utf8(text).unwrap();
    let lines = text.lines().map(|l| l.split(" # {").next().unwrap());
    lines
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| strict::sample(l, Names::Legacy).unwrap())
        .collect()
}

#[test]
fn a_real_page_goes_through_whole() {
    for (file, text) in real() {
        let page = read(&text);
        assert!(page.dropped().is_empty(), "{file}: {:?}", page.dropped());
        let mut before = naive(&text);
        assert_eq!(page.sample_count(), before.len(), "{file}");

        let prepared = prepare(&text, &file);
        assert_eq!(
            (
                prepared.duplicates(),
                prepared.misfits(),
                prepared.unwritable()
            ),
            (0, 0, 0),
            "{file}"
        );
        let (merged, checked) = check(&[prepared], 0);
        assert_eq!(merged.conflicts, [], "{file}");
        let mut after: Vec<strict::Sample> =
            checked.values().flat_map(|f| f.samples.clone()).collect();
        for sample in &mut after {
            assert_eq!(sample.labels.remove("source").as_deref(), Some(&*file));
            // vLLM has a label of that name itself.
            if let Some(theirs) = sample.labels.remove("exported_source") {
                sample.labels.insert("source".into(), theirs);
            }
        }
        before.sort();
        after.sort();
        assert_eq!(after.len(), before.len(), "{file}");
        for (after, before) in after.iter().zip(&before) {
            assert_eq!(after, before, "{file}");
        }

        // And our own reader sees in the merged page what it saw in the page.
        let again = read(&merged.text);
        assert_eq!(count_by_name(&again), count_by_name(&page), "{file}");
        assert!(again.dropped().is_empty());
    }
}

fn count_by_name(page: &Page<'_>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sample in page.all_samples() {
        *counts.entry(sample.name().to_owned()).or_default() += 1;
    }
    for (name, count) in &counts {
        assert_eq!(page.samples(name).count(), *count, "{name}");
    }
    counts
}

#[test]
fn the_reader_slices_what_the_checker_slices() {
    for (file, text) in real() {
        let page = read(&text);
        for (ours, theirs) in page.all_samples().zip(naive(&text)) {
            assert_eq!(ours.name(), theirs.name, "{file}");
            assert_eq!(ours.value_text(), theirs.value, "{file}");
            assert_eq!(ours.value().to_bits(), theirs.number().to_bits(), "{file}");
            let labels: BTreeMap<String, String> = ours
                .labels()
                .map(|(name, value)| (name.to_owned(), value.into_owned()))
                .collect();
            assert_eq!(labels, theirs.labels, "{file}");
            for (name, value) in &theirs.labels {
                assert_eq!(ours.label(name).as_deref(), Some(value.as_str()));
            }
        }
    }
}

/// Merged all at once, what is missing is what the files type differently, and nothing else.
#[test]
fn all_real_pages_at_once_lose_only_families_that_are_typed_differently() {
    let real = real();
    let pages: Vec<_> = real
        .iter()
        .map(|(file, text)| prepare(text, file))
        .collect();
    let before: usize = real.iter().map(|(_, text)| naive(text).len()).sum();
    let (merged, checked) = check(&pages, 0);
    let lost = |c: &Conflict| c.dropped.iter().map(|d| d.2).sum::<u64>() as usize;
    assert_eq!(
        strict::sample_count(&checked) + merged.conflicts.iter().map(lost).sum::<usize>(),
        before
    );
    assert_eq!(merged.duplicates, 0);
    let mut missing = Vec::new();
    for conflict in &merged.conflicts {
        for (source, kind, samples) in &conflict.dropped {
            let file = real[*source].0.as_str();
            missing.push((conflict.family.as_str(), file, kind.as_str(), *samples));
        }
    }
    assert_eq!(missing, EXPECTED_MISSING);
}

/// Family, file, its type there, samples: SGLang 0.5.5 had gauges where later versions have
/// histograms.
const EXPECTED_MISSING: &[(&str, &str, &str, u64)] = &[
    (
        "sglang:kv_transfer_alloc_ms",
        "sglang-0.5.5-decode-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_alloc_ms",
        "sglang-0.5.5-prefill-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_bootstrap_ms",
        "sglang-0.5.5-decode-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_bootstrap_ms",
        "sglang-0.5.5-prefill-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_latency_ms",
        "sglang-0.5.5-decode-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_latency_ms",
        "sglang-0.5.5-prefill-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_speed_gb_s",
        "sglang-0.5.5-decode-tp4-busy",
        "gauge",
        1,
    ),
    (
        "sglang:kv_transfer_speed_gb_s",
        "sglang-0.5.5-prefill-tp4-busy",
        "gauge",
        1,
    ),
];

/// A family has the type in `OpenMetrics` that it has in classic text, unless it breaks a rule.
#[test]
fn real_pages_keep_their_types_in_open_metrics() {
    let mut given_up = Vec::new();
    let mut kept = 0;
    for (file, text) in real() {
        let pages = [prepare(&text, &file)];
        let (_, classic) = check_in(&pages, 0, Form::CLASSIC);
        let (_, open) = check_in(&pages, 0, Form::OPEN);
        for (name, family) in &classic {
            let sample = &family.samples[0].name;
            let (of, now) = open
                .iter()
                .find(|(_, f)| f.samples.iter().any(|s| s.name == *sample))
                .unwrap();
            // Beside its counter or histogram.
            if of.as_str() == name.strip_suffix("_created").unwrap_or_default() {
                continue;
            }
            let same = match (family.kind.as_str(), now.kind.as_str()) {
                ("untyped", "unknown") | ("gauge", "info" | "stateset") => true,
                (before, now) => before == now,
            };
            let can = plain_open::typed(name, family).is_some();
            // A clash of names is not seen by looking at one family.
            assert!(
                !same || can || now.kind == "info",
                "{file}: {name}: {}",
                now.kind
            );
            if same {
                kept += 1;
            } else {
                given_up.push((file.clone(), name.clone(), can));
            }
        }
    }
    assert!(kept > 2_000, "{kept} families have kept their type");
    let given_up: Vec<_> = given_up
        .iter()
        .map(|(file, name, can)| (file.as_str(), name.as_str(), *can))
        .collect();
    assert_eq!(given_up, GIVEN_UP);
}

/// File, family, whether it would be valid alone: counters without `_total`.
const GIVEN_UP: &[(&str, &str, bool)] = &[
    (
        "llamacpp-2025-no-kv-gauge.facts",
        "llamacpp:n_busy_slots_per_decode",
        false,
    ),
    ("tgi.facts", "tgi_request_count", false),
    ("tgi.facts", "tgi_request_success", false),
];

/// The simple writer, the strict reader and the real pages fit each other.
#[test]
fn real_pages_can_be_said_in_open_metrics() {
    for (file, text) in real() {
        let (_, classic) = check_in(&[prepare(&text, &file)], 0, Form::CLASSIC);
        let open = plain_open::page(&classic);
        if let Err(error) = strict_open::check(open.as_bytes(), Names::Legacy) {
            assert!(error.contains("reserved by two"), "{file}: {error}");
        }
    }
}
