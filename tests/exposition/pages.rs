//! Every real page goes through, with nothing lost or altered.

use super::{check, prepare, read, shared, strict};
use kvgauge::exposition::{Conflict, Format, Page, merge};
use std::collections::BTreeMap;

/// Name and text of every real page.
fn real() -> Vec<(String, Vec<u8>)> {
    let mut pages: Vec<(String, Vec<u8>)> = std::fs::read_dir(shared("expositions"))
        .expect("the folder of real pages, tests/data/expositions")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "prom"))
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect();
    pages.sort();
    assert!(pages.len() > 40, "only {} real pages found", pages.len());
    pages
}

/// The sample lines of a page, read by the checker: the real pages hold nothing but the plain form,
/// and exemplars.
fn naive(text: &[u8]) -> Vec<strict::Sample> {
    let text = std::str::from_utf8(text).unwrap();
    let lines = text.lines().map(|l| l.split(" # {").next().unwrap());
    lines
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| strict::sample(l).unwrap())
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
    let families: Vec<&str> = merged.conflicts.iter().map(|c| c.family.as_str()).collect();
    assert_eq!(families, EXPECTED_CONFLICTS);
}

/// SGLang 0.5.5 had gauges where later versions have histograms.
const EXPECTED_CONFLICTS: &[&str] = &[
    "sglang:kv_transfer_alloc_ms",
    "sglang:kv_transfer_bootstrap_ms",
    "sglang:kv_transfer_latency_ms",
    "sglang:kv_transfer_speed_gb_s",
];

/// Leaves every real page, merged alone and all together, where other readers can be held against
/// ours: `tests/py/exposition_readers.py`.
#[test]
fn merged_pages_are_left_for_other_readers() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("exposition");
    std::fs::create_dir_all(&folder).unwrap();
    let real = real();
    let pages: Vec<_> = real
        .iter()
        .map(|(file, text)| prepare(text, file))
        .collect();
    for ((file, _), page) in real.iter().zip(&pages) {
        let alone = merge(&[page], 0, Format::CLASSIC);
        std::fs::write(folder.join(format!("{file}.prom")), alone.text).unwrap();
    }
    let all = merge(&pages.iter().collect::<Vec<_>>(), 0, Format::CLASSIC);
    std::fs::write(folder.join("all.prom"), all.text).unwrap();
}
