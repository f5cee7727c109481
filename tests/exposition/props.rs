//! Whatever comes in, the merged page is valid and nothing panics.

use super::kit::forms::Form;
use super::kit::generate::{line, page, similar, tidy, tidy_text, worn_page};
use super::kit::strict::{Checked, Names};
use super::kit::{said, strict_open, try_check, try_check_in};
use super::{LIMITS, prepare, read, strict};
use kvgauge::exposition::{Page, Prepared};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Odd lines, or a good page after an accident.
fn any_page() -> impl Strategy<Value = String> {
    prop_oneof![page(), worn_page()]
}

/// What of a page of `OpenMetrics` is in a form that has these names.
fn expected(page: &Checked, names: Names) -> Checked {
    let mut page = page.clone();
    for family in page.values_mut() {
        let odd = |s: &strict::Sample| names == Names::Legacy && said::has_odd_name(s);
        family.samples.retain(|s| !odd(s));
        for sample in &mut family.samples {
            // An exemplar whose labels need quotes is left out in every form.
            let legacy = |e: &strict::Exemplar| e.labels.keys().all(|n| strict::is_name(n, false));
            sample.exemplar = sample.exemplar.take().filter(legacy);
        }
    }
    page.retain(|_, family| !family.samples.is_empty());
    page
}

/// Families with all that is said of them, the samples in any order.
fn whole(mut page: Checked) -> Vec<(String, strict::Family)> {
    for family in page.values_mut() {
        family.samples.sort();
    }
    page.into_iter().collect()
}

/// A failure without a panic: shrinking would print each.
fn good<T>(checked: Result<T, String>) -> Result<T, TestCaseError> {
    checked.map_err(TestCaseError::fail)
}

type Seen = (String, Vec<(String, String)>, String);

fn seen(text: &str) -> Vec<Seen> {
    let page = Page::read(text.as_bytes(), &LIMITS);
    let samples = page.iter().flat_map(Page::all_samples);
    samples
        .map(|s| {
            let labels = s
                .labels()
                .map(|(n, v)| (n.to_owned(), v.into_owned()))
                .collect();
            (s.name().to_owned(), labels, s.value_text().to_owned())
        })
        .collect()
}

/// Reads and prepares whatever can be read.
fn prepared(texts: &[impl AsRef<[u8]>]) -> Vec<Prepared> {
    let mut pages = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        if let Ok(page) = Page::read(text.as_ref(), &LIMITS) {
            let source = i.to_string();
            // The first page has no label, and two have the same, so that series can meet.
            let label = (i > 0).then_some(("source", if i == 3 { "2" } else { source.as_str() }));
            pages.push(Prepared::new(&page, label));
        }
    }
    pages
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn odd_pages_merge_into_a_valid_one_and_every_sample_is_accounted_for(
        texts in prop::collection::vec(any_page(), 1..5),
        pinned in 0usize..2,
    ) {
        let pages = prepared(&texts);
        let (merged, checked) = good(try_check(&pages, pinned))?;
        let before: u64 = pages.iter().map(|p| p.sample_count() as u64).sum();
        let conflicts: u64 = merged.conflicts.iter().flat_map(|c| &c.dropped).map(|d| d.2).sum();
        let after = strict::sample_count(&checked) as u64;
        prop_assert_eq!(after + conflicts + merged.duplicates, before);
        // Read and merged once more it says the same; metrics of an untyped page are put together.
        let again = Prepared::new(&read(&merged.text), None);
        let (_, again) = good(try_check(&[again], 0))?;
        prop_assert_eq!(whole(again), whole(checked));
    }

    #[test]
    fn no_sample_of_a_page_vanishes_uncounted(text in any_page()) {
        if let Ok(page) = Page::read(text.as_bytes(), &LIMITS) {
            let prepared = Prepared::new(&page, Some(("source", "s")));
            let kept = prepared.sample_count() as u64;
            let left_out = prepared.duplicates() + prepared.misfits() + prepared.unwritable();
            prop_assert_eq!(kept + left_out, page.sample_count() as u64);
            let in_families: usize = page.families().iter().map(|f| page.family_samples(f).count()).sum();
            prop_assert_eq!(in_families, page.sample_count());
            let names: BTreeSet<&str> = page.all_samples().map(|s| s.name()).collect();
            let by_name: usize = names.iter().map(|n| page.samples(n).count()).sum();
            prop_assert_eq!(by_name, page.sample_count());
        }
    }

    #[test]
    fn the_order_of_sources_changes_only_the_order(most in any_page(), other in any_page()) {
        // Two say the same, so no type has a tie: there the first in order wins.
        let mut pages = Vec::new();
        for (source, text) in [("a", &most), ("b", &most), ("c", &other)] {
            if let Ok(page) = Page::read(text.as_bytes(), &LIMITS) {
                pages.push(Prepared::new(&page, Some(("source", source))));
            }
        }
        prop_assume!(!pages.is_empty());
        let sorted = |pages: &[Prepared], form| {
            let (_, checked) = good(try_check_in(pages, 0, form))?;
            let families = checked.into_iter().map(|(name, f)| (name, f.kind, f.samples.into_iter().collect::<BTreeSet<_>>()));
            Ok::<_, TestCaseError>(families.collect::<Vec<_>>())
        };
        for form in Form::ALL {
            let forward = sorted(&pages, form)?;
            for _ in 0..3 {
                pages.rotate_left(1);
                prop_assert_eq!(&sorted(&pages, form)?, &forward, "{:?}", form);
            }
            pages.reverse();
            prop_assert_eq!(&sorted(&pages, form)?, &forward, "{:?}", form);
        }
    }

    /// Types, units, help texts, exemplars, all of it.
    #[test]
    fn a_page_of_open_metrics_comes_back_whole(families in tidy()) {
        let text = tidy_text(&families, true);
        let before = strict_open::check(text.as_bytes(), Names::Utf8);
        let before = before.unwrap_or_else(|e| panic!("the generator: {e}\n{text}"));
        // Its `le` and `quantile` may have been spelled in any way.
        let page = prepare(tidy_text(&families, false).as_bytes(), "ours");
        let pages = [page];
        good(try_check(&pages, 0))?;
        for form in Form::ALL.into_iter().filter(|form| form.is_open()) {
            let (_, mut merged) = good(try_check_in(&pages, 0, form))?;
            for sample in merged.values_mut().flat_map(|f| &mut f.samples) {
                let source = sample.labels.remove("source");
                prop_assert_eq!(source.as_deref(), Some("ours"));
                if let Some(theirs) = sample.labels.remove("exported_source") {
                    sample.labels.insert("source".into(), theirs);
                }
            }
            prop_assert_eq!(whole(merged), whole(expected(&before, form.names)), "{:?}", form);
        }
    }

    /// The reader holds a line against the one before it, which must not show.
    #[test]
    fn a_line_is_read_the_same_whatever_stands_before_it(
        lines in prop::collection::vec(prop_oneof![5 => similar(), 1 => line()], 1..30),
    ) {
        // A line that makes the page HTML is not the matter here, nor are breaks within one.
        let lines: Vec<String> = lines.into_iter().map(|l| l.replace(['\n', '<'], "")).collect();
        let alone: Vec<Seen> = lines.iter().flat_map(|line| seen(line)).collect();
        prop_assert_eq!(seen(&lines.join("\n")), alone);
    }

    #[test]
    fn any_bytes_do(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4)) {
        good(try_check(&prepared(&texts), 0))?;
    }

    #[test]
    fn a_good_line_survives_any_neighbours(before in ".*", after in ".*") {
        let text = format!("a 1\n{}\ngood{{x=\"1\"}} 7\n{}", before.replace('\n', ""), after);
        if let Ok(page) = Page::read(text.as_bytes(), &LIMITS) {
            prop_assert!(page.samples("good").any(|s| s.value() == 7.0));
        }
    }

    /// Real lines with a byte changed, dropped or put in.
    #[test]
    fn damaged_pages_do(at in 0usize..100_000, byte in any::<u8>(), what in 0u8..3) {
        let mut text = b"# HELP s:h Some text.\n# TYPE s:h histogram\ns:h_bucket{le=\"0.1\",m=\"a\\\\b\"} 1.0\ns:h_bucket{le=\"+Inf\",m=\"x\"} 2.0\n\
            s:h_sum{m=\"x\"} 0.5\ns:h_count{m=\"x\"} 2.0\n# TYPE g gauge\ng 1e-05\n".to_vec();
        let at = at % text.len();
        match what {
            0 => text[at] = byte,
            1 => { text.remove(at); }
            _ => text.insert(at, byte),
        }
        let pages = prepared(&[text]);
        let (_, checked) = good(try_check(&pages, 0))?;
        // One damaged byte costs one line, or splits one in two, or takes a family's type away.
        prop_assert!(strict::sample_count(&checked) + pages.iter().map(|p| (p.misfits() + p.unwritable()) as usize).sum::<usize>() >= 3);
    }
}
