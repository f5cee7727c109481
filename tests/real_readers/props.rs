//! Whatever pages come in, other readers read of the merged one what ours and the checkers read.

use super::agree::sees_the_same;
use super::kit::forms::Form;
use super::kit::generate::{page, tidy, tidy_text, worn_page};
use super::kit::{LIMITS, read, said, try_check_in};
use super::oracle::{Reader, ask};
use kvgauge::exposition::{Page, Prepared};
use proptest::prelude::*;

/// `KVGAUGE_CASES` rounds, or so many.
pub(crate) fn config(rounds: u32) -> ProptestConfig {
    let rounds = std::env::var("KVGAUGE_CASES").map_or(rounds, |text| {
        text.parse().expect("KVGAUGE_CASES: a number of rounds")
    });
    ProptestConfig {
        cases: rounds,
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    }
}

/// Pages of one to four sources, of which two have the same label.
fn sources() -> impl Strategy<Value = Vec<String>> {
    let page = prop_oneof![
        1 => page(),
        2 => worn_page(),
        1 => tidy().prop_map(|families| tidy_text(&families, false)),
    ];
    prop::collection::vec(page, 1..5)
}

fn prepared(texts: &[String]) -> Vec<Prepared> {
    let labels = ["a", "b", "b", "c"].map(|source| Some(("source", source)));
    let pages = texts.iter().zip(labels);
    pages
        .filter_map(|(text, label)| {
            let page = Page::read(text.as_bytes(), &LIMITS).ok()?;
            Some(Prepared::new(&page, label))
        })
        .collect()
}

proptest! {
    #![proptest_config(config(15))]

    /// Twenty merges at a time, each in seven forms.
    #[test]
    #[ignore = "needs prometheus-client: tests/run"]
    fn merged_pages_are_read_the_same_by_all(sets in prop::collection::vec(sources(), 20)) {
        let mut merged = Vec::new();
        for texts in &sets {
            let pages = prepared(texts);
            for form in Form::ALL.into_iter().chain(Form::ESCAPED) {
                let checked = try_check_in(&pages, 0, form);
                let (page, checked) = checked.map_err(TestCaseError::fail)?;
                merged.push((form, page.text, checked));
            }
        }
        let answers = ask(merged.iter().map(|(form, text, _)| (Reader::of(*form), text.as_slice())));
        for ((form, text, checked), answer) in merged.iter().zip(&answers) {
            let written = String::from_utf8_lossy(text);
            let ours = said::same(&said::of_checked(checked), &said::of_page(&read(text)));
            prop_assert!(ours.is_ok(), "our reader, {:?}: {:?}\n{}", form, ours, written);
            let theirs = if form.is_open() {
                sees_the_same(checked, answer)
            } else {
                answer.samples().map_err(str::to_owned).and_then(|theirs| {
                    said::same(&said::of_checked(checked), &said::sorted(theirs))
                })
            };
            prop_assert!(theirs.is_ok(), "the client, {:?}: {:?}\n{}", form, theirs, written);
        }
    }
}
