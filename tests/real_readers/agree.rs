//! The strict checker of `OpenMetrics` is at least as strict as the prometheus client, and both see the
//! same on a page.

use super::kit::generate::{tidy, tidy_text, worn_page};
use super::kit::strict::{self, Checked, Labels, Names};
use super::kit::{bad_open, said, strict_open};
use super::oracle::{Answer, Exemplar, Reader, ask};
use super::props::config;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn the_bad_pages_are_refused_by_the_client_as_the_table_says() {
    let good = bad_open::GOOD.iter().map(|text| (*text, "", false));
    let table: Vec<_> = good.chain(bad_open::BAD.iter().copied()).collect();
    let answers = ask(table
        .iter()
        .map(|(text, ..)| (Reader::Open, text.as_bytes())));
    let wrong: Vec<String> = table
        .iter()
        .zip(&answers)
        .filter(|((_, _, refused), answer)| answer.samples().is_err() != *refused)
        .map(|((text, why, _), answer)| format!("{text}: {why}: {:?}", answer.samples()))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the checker sees is what the client sees: families with type, unit and help, samples,
/// exemplars.
pub(crate) fn sees_the_same(checked: &Checked, answer: &Answer) -> Result<(), String> {
    let theirs = said::sorted(answer.samples().map_err(str::to_owned)?);
    said::same(&said::of_checked(checked), &theirs)?;
    let unescaped = |help: &Option<String>| {
        let help = help.as_deref().unwrap_or_default();
        // One escape after the other, from the left.
        let mut out = String::new();
        let mut chars = help.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => out.extend(chars.next().map(|c| if c == 'n' { '\n' } else { c })),
                c => out.push(c),
            }
        }
        out
    };
    let mut families: BTreeMap<String, (String, String, String)> = answer
        .families()
        .into_iter()
        .map(|f| (f.name, (f.kind, f.unit, f.help)))
        .collect();
    for (name, family) in checked {
        let unit = family.unit.clone().unwrap_or_default();
        let ours = (family.kind.clone(), unit, unescaped(&family.help));
        let theirs = families.remove(name);
        if theirs.as_ref() != Some(&ours) {
            return Err(format!("family {name}: {ours:?} here, {theirs:?} there"));
        }
    }
    if !families.is_empty() {
        return Err(format!("more families: {families:?}"));
    }
    let mut exemplars: BTreeMap<(&str, &Labels), &Exemplar> = answer
        .exemplars()
        .map(|(name, labels, exemplar)| ((name, labels), exemplar))
        .collect();
    for sample in checked.values().flat_map(|f| &f.samples) {
        let theirs = exemplars.remove(&(sample.name.as_str(), &sample.labels));
        if !same_exemplar(sample.exemplar.as_ref(), theirs) {
            return Err(format!("exemplar of {sample:?}: {theirs:?}"));
        }
    }
    Ok(())
}

fn same_exemplar(ours: Option<&strict::Exemplar>, theirs: Option<&Exemplar>) -> bool {
    let (Some(ours), Some((labels, value, time))) = (ours, theirs) else {
        return ours.is_none() && theirs.is_none();
    };
    let number = |text: &str| text.parse::<f64>().unwrap();
    let same_time = match (&ours.timestamp, time) {
        // The client keeps times as whole numbers of nanoseconds.
        (Some(ours), Some(theirs)) => {
            (number(ours) - number(theirs)).abs() <= 1e-9 * number(ours).abs()
        }
        (ours, theirs) => ours.is_none() && theirs.is_none(),
    };
    let same_value = number(value).to_bits() == number(&ours.value).to_bits();
    *labels == ours.labels && same_value && same_time
}

proptest! {
    #![proptest_config(config(20))]

    /// Twenty at a time.
    #[test]
    #[ignore = "needs prometheus-client: tests/run"]
    fn whatever_the_client_refuses_the_checker_refuses(
        tidy in prop::collection::vec(tidy(), 5),
        worn in prop::collection::vec(worn_page(), 15),
    ) {
        let tidy = tidy.iter().map(|families| tidy_text(families, true));
        let texts: Vec<String> = tidy.chain(worn.into_iter().map(|text| text + "\n")).collect();
        let answers = ask(texts.iter().map(|text| (Reader::Open, text.as_bytes())));
        for (text, answer) in texts.iter().zip(&answers) {
            if let Ok(checked) = strict_open::check(text.as_bytes(), Names::Utf8) {
                let same = sees_the_same(&checked, answer);
                prop_assert!(same.is_ok(), "{:?}\n{}", same, text);
            }
        }
    }
}
