//! Every real page and every public case: what the prometheus client reads of the original it reads of
//! the merged page, in every form, and nothing else.

use super::agree::sees_the_same;
use super::kit::forms::Form;
use super::kit::said::{self, Said, same, sorted};
use super::kit::{cases, check_in, prepare, read, real};
use super::oracle::{Answer, Reader, ask, ask_one};
use kvgauge::exposition::Conflict;
use std::collections::BTreeMap;

/// Originals that a reader of the client refuses and ours takes: page, reader, a part of its error.
const REFUSED: &[(&str, Reader, &str)] = &[
    // Half respelled: HELP and TYPE say `sglang:x`, samples `sglang_x`. The client takes those for
    // families of unknown type, one for each name; `x_sum` stands in two places.
    (
        "sglang-0.5.23-decode-tp4-busy.openmetrics",
        Reader::Open,
        "Clashing name: sglang_dp_attention_token_imbalance_ratio_sum",
    ),
    (
        "sglang-0.5.23-unified-tp1-busy.openmetrics",
        Reader::Open,
        "Clashing name: sglang_per_stage_req_latency_seconds_sum",
    ),
    // A quote within a label value: one line is bad, and ours drops that one.
    ("b02", Reader::Classic, "could not convert string to float"),
];

/// Asks both readers about the originals. Each page with the answer of the one that is for it: that
/// of `OpenMetrics` where the page is such, else, and where that one refuses it, that of classic text.
fn originals() -> Vec<(String, Vec<u8>, Vec<Said>)> {
    let pages: Vec<(String, Vec<u8>)> = real().into_iter().chain(cases()).collect();
    let answers = ask(pages.iter().flat_map(|(_, text)| {
        [Reader::Classic, Reader::Open].map(|reader| (reader, text.as_slice()))
    }));
    let mut refused = Vec::new();
    let mut originals = Vec::new();
    for ((name, text), answers) in pages.into_iter().zip(answers.chunks(2)) {
        let is_open = text.ends_with(b"# EOF\n");
        let readers = [(Reader::Open, &answers[1]), (Reader::Classic, &answers[0])];
        let mut seen = None;
        for (reader, answer) in readers.into_iter().skip(usize::from(!is_open)) {
            match answer.samples() {
                Ok(samples) => seen = seen.or(Some(samples)),
                Err(error) => refused.push((name.clone(), reader, error.to_owned())),
            }
        }
        originals.push((name, text, seen.unwrap_or_default()));
    }
    for (name, reader, error) in &refused {
        assert!(
            REFUSED
                .iter()
                .any(|(n, r, e)| n == name && r == reader && error.contains(e)),
            "{name}: {reader:?} refuses it: {error}"
        );
    }
    assert_eq!(
        refused.len(),
        REFUSED.len(),
        "REFUSED is out of date: {refused:?}"
    );
    originals
}

#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn what_the_client_reads_of_a_page_it_reads_of_the_merged_one() {
    let mut total = 0;
    for (name, text, before) in originals() {
        let bad_lines: u64 = read(&text).dropped().iter().map(|d| d.count).sum();
        assert_eq!(bad_lines, u64::from(name == "b02"), "{name}");
        if name == "b02" {
            continue;
        }
        total += before.len();
        let page = [prepare(&text, &name)];
        for form in Form::ALL {
            let (merged, checked) = check_in(&page, 0, form);
            assert_eq!(merged.conflicts, [], "{name}");
            let answer = ask_one(Reader::of(form), &merged.text);
            if form.is_open() {
                sees_the_same(&checked, &answer).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            let after = samples(&answer, &name, form);
            let after = after.map(|s| {
                s.of_source(&name)
                    .unwrap_or_else(|| panic!("{name}: no source"))
            });
            // `le` and `quantile` are spelled anew for OpenMetrics.
            let loose = |said: Said| if form.is_open() { said.loose() } else { said };
            let (before, after) = (before.iter().cloned().map(loose), after.map(loose));
            same(&sorted(before), &sorted(after))
                .unwrap_or_else(|e| panic!("{name}, {form:?}: {e}"));
        }
    }
    assert!(total > 20_000, "only {total} samples compared");
}

fn samples(answer: &Answer, name: &str, form: Form) -> impl Iterator<Item = Said> + use<> {
    let samples = answer.samples();
    let samples = samples.unwrap_or_else(|e| panic!("{name}: the client refuses {form:?}: {e}"));
    samples.into_iter()
}

/// All at once: what is missing is what the files type differently, and nothing else.
#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn of_all_real_pages_at_once_only_families_typed_differently_are_missing() {
    let originals: Vec<_> = originals()
        .into_iter()
        .filter(|(name, ..)| !name.starts_with('b'))
        .collect();
    let pages: Vec<_> = originals
        .iter()
        .map(|(name, text, _)| prepare(text, name))
        .collect();
    for form in Form::ALL {
        let (merged, checked) = check_in(&pages, 0, form);
        let answer = ask_one(Reader::of(form), &merged.text);
        if form.is_open() {
            sees_the_same(&checked, &answer).unwrap_or_else(|e| panic!("{e}"));
        }
        let mut after: BTreeMap<String, Vec<Said>> = BTreeMap::new();
        for said in samples(&answer, "all", form) {
            let source = said.labels["source"].clone();
            let ours = said.of_source(&source).unwrap();
            after.entry(source).or_default().push(ours);
        }
        let left_out = |source: usize, said: &Said| {
            let of = |c: &&Conflict| {
                let dropped = c.dropped.iter().any(|(page, ..)| *page == source);
                let rest = said.name.strip_prefix(c.family.as_str());
                dropped && matches!(rest, Some("" | "_bucket" | "_sum" | "_count"))
            };
            merged.conflicts.iter().find(of).is_some()
        };
        let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
        for (source, (name, _, before)) in originals.iter().enumerate() {
            let before = before.iter().filter(|said| {
                let left_out = left_out(source, said);
                *missing.entry(source).or_default() += usize::from(left_out);
                !left_out
            });
            let loose = |said: Said| if form.is_open() { said.loose() } else { said };
            let ours = after.remove(name).unwrap_or_default();
            let ours = sorted(ours.into_iter().map(loose));
            let before = sorted(before.cloned().map(loose));
            same(&before, &ours).unwrap_or_else(|e| panic!("{name}, {form:?}: {e}"));
        }
        // As many as are told of.
        for (source, missing) in missing {
            let told: u64 = merged
                .conflicts
                .iter()
                .flat_map(|c| &c.dropped)
                .filter(|(page, ..)| *page == source)
                .map(|(.., samples)| samples)
                .sum();
            assert_eq!(missing as u64, told, "{}", originals[source].0);
        }
    }
}

/// How our reader and the client differ on an original, if they do.
#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn our_reader_reads_of_an_original_what_the_client_reads() {
    for (name, text, theirs) in originals() {
        if name != "b02" {
            let ours = said::of_page(&read(&text));
            same(&sorted(theirs), &ours).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
