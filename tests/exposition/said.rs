//! What a page says, whoever wrote it and in whatever form: its samples, to be compared.

use super::strict::{Checked, Labels, Sample, is_name};
use kvgauge::exposition::Page;
use std::collections::{BTreeMap, BTreeSet};

/// A sample: name, labels, value. NaN is NaN, and 0 is not -0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Said {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    bits: u64,
}

impl Said {
    pub(crate) fn new(name: impl Into<String>, labels: Labels, value: f64) -> Said {
        let value = if value.is_nan() { f64::NAN } else { value };
        Said {
            name: name.into(),
            labels,
            bits: value.to_bits(),
        }
    }

    pub(crate) fn value(&self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// With `le` and `quantile` as numbers: `1`, `1.0` and `1e0` are the same.
    pub(crate) fn loose(mut self) -> Said {
        for split in ["le", "quantile"] {
            if let Some(text) = self.labels.get_mut(split) {
                *text = loose(text);
            }
        }
        self
    }

    /// As it was before a merge, without our label; `None` if it is of another source.
    pub(crate) fn of_source(mut self, source: &str) -> Option<Said> {
        if self.labels.remove("source")? != source {
            return None;
        }
        // vLLM has a label of that name itself.
        if let Some(theirs) = self.labels.remove("exported_source") {
            self.labels.insert("source".into(), theirs);
        }
        Some(self)
    }
}

fn loose(text: &str) -> String {
    match text.parse::<f64>() {
        // The text of a number that is too large says more than its value.
        Ok(number) if number.is_finite() || !text.contains(|c: char| c.is_ascii_digit()) => {
            format!("{number:?}")
        }
        _ => text.to_owned(),
    }
}

/// Sorted, so that two can be compared.
pub(crate) fn sorted(said: impl IntoIterator<Item = Said>) -> Vec<Said> {
    let mut said: Vec<Said> = said.into_iter().collect();
    said.sort();
    said
}

/// What a checked page says.
pub(crate) fn of_checked(page: &Checked) -> Vec<Said> {
    let samples = page.values().flat_map(|family| &family.samples);
    sorted(samples.map(|s| Said::new(&s.name, s.labels.clone(), s.number())))
}

/// What our own reader sees on a page.
pub(crate) fn of_page(page: &Page<'_>) -> Vec<Said> {
    sorted(page.all_samples().map(|s| {
        let labels = s.labels().map(|(n, v)| (n.to_owned(), v.into_owned()));
        Said::new(s.name(), labels.collect(), s.value())
    }))
}

/// What is on one side only, in words; `Ok` if both say the same.
pub(crate) fn same(left: &[Said], right: &[Said]) -> Result<(), String> {
    let mut counts: BTreeMap<&Said, i64> = BTreeMap::new();
    for said in left {
        *counts.entry(said).or_default() += 1;
    }
    for said in right {
        *counts.entry(said).or_default() -= 1;
    }
    let name = |said: &Said| format!("{} {:?} {}", said.name, said.labels, said.value());
    let only = |keep: fn(i64) -> bool| -> Vec<String> {
        let kept = counts.iter().filter(|(_, count)| keep(**count));
        kept.map(|(said, _)| name(said)).take(5).collect()
    };
    let (lost, gained) = (only(|n| n > 0), only(|n| n < 0));
    if lost.is_empty() && gained.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} against {} samples; lost {lost:#?}; gained {gained:#?}",
        left.len(),
        right.len()
    ))
}

/// What a page in another form may hold on top of one of classic text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Nothing,
    /// Samples with names that need quotes.
    OddNames,
    /// Names are respelled.
    Anything,
}

/// Holds a page in another form against one of classic text: every sample of that one is there,
/// under its name, with its labels and its digits; only `le` and `quantile` of a histogram or summary
/// may be spelled anew.
pub(crate) fn compare(classic: &Checked, other: &Checked, more: More) -> Result<(), String> {
    type Key = (String, Labels, String);
    let key = |s: &Sample| -> Key {
        let said = Said::new(&s.name, s.labels.clone(), 0.0).loose();
        (said.name, said.labels, s.value.clone())
    };
    let mut left: BTreeMap<Key, Vec<&Labels>> = BTreeMap::new();
    for sample in classic.values().flat_map(|f| &f.samples) {
        left.entry(key(sample)).or_default().push(&sample.labels);
    }
    // Whatever has become of the type in the other form.
    let with_bounds = classic
        .values()
        .filter(|family| ["histogram", "summary"].contains(&&*family.kind))
        .flat_map(|family| &family.samples)
        .map(|sample| sample.name.as_str());
    let with_bounds: BTreeSet<&str> = with_bounds.collect();
    for family in other.values() {
        for sample in &family.samples {
            let respelled = with_bounds.contains(&*sample.name);
            let found = left.get_mut(&key(sample)).and_then(|left| {
                let same = left.iter().position(|labels| **labels == sample.labels);
                let similar = (respelled && !left.is_empty()).then_some(0);
                Some(left.swap_remove(same.or(similar)?))
            });
            let may_be_new = match more {
                More::Nothing => false,
                More::OddNames => has_odd_name(sample),
                More::Anything => true,
            };
            if found.is_none() && !may_be_new {
                return Err(format!("not in classic text, or not so: {sample:?}"));
            }
        }
    }
    left.retain(|_, labels| !labels.is_empty());
    match left.iter().next() {
        Some(lost) => Err(format!("{} lost, the first: {lost:?}", left.len())),
        None => Ok(()),
    }
}

/// Whether a name of it needs quotes.
pub(crate) fn has_odd_name(sample: &Sample) -> bool {
    !is_name(&sample.name, true) || sample.labels.keys().any(|label| !is_name(label, false))
}
