//! What has to be known of each sample before it is written.

use super::MetricType;
use super::bounds::is_float_form;
use super::kind::Suffix;
use super::labels::{RawLabel, RawLabels};
use super::page::Page;
use super::relabel::{canonical, push_relabelled};
use super::scan::{is_metric_name, number};
use super::series::{hash, label_hash, mix, same_labels, series_hash};
use hashbrown::HashMap;
use std::borrow::Cow;

/// The labels of the row before, hashed: most of the next row's are the same.
#[derive(Default)]
pub(super) struct Known<'t>(Vec<(u64, RawLabel<'t>)>);

impl<'t> Known<'t> {
    #[inline]
    pub(super) fn hashed<'k>(
        &'k mut self,
        labels: impl Iterator<Item = RawLabel<'t>> + 'k,
    ) -> impl Iterator<Item = (u64, RawLabel<'t>)> + 'k {
        labels.enumerate().map(|(at, label)| {
            if let Some(known) = self.0.get_mut(at) {
                if known.1.value != label.value || known.1.name != label.name {
                    *known = (label_hash(&label), label);
                }
                *known
            } else {
                self.0.push((label_hash(&label), label));
                (self.0[at].0, label)
            }
        })
    }
}

/// The labels of a block in canonical form, hashed.
pub(super) fn hashed(block: &str, legacy: bool) -> impl Iterator<Item = (u64, RawLabel<'_>)> {
    RawLabels::new(block, legacy).map(|label| (label_hash(&label), label))
}

/// The bounds that were looked at before, by the hashes of their labels: those of one histogram are
/// those of the next.
#[derive(Default)]
pub(super) struct Bounds(HashMap<u64, (Split, bool), foldhash::fast::RandomState>);

/// Bounds that are remembered.
const MOST_BOUNDS: usize = 4096;

impl Bounds {
    /// The number, and whether it is in float form.
    #[inline]
    fn of(&mut self, hash: u64, text: &str) -> (Split, bool) {
        if let Some(known) = self.0.get(&hash) {
            return *known;
        }
        let split = number(text.as_bytes()).map_or(Split::Text, Split::Number);
        let found = (split, is_float_form(text));
        if self.0.len() < MOST_BOUNDS {
            self.0.insert(hash, found);
        }
        found
    }
}

/// What has to be known of a sample's labels.
pub(super) struct LabelFacts {
    /// Does not depend on their order.
    pub(super) hash: u64,
    /// The same without the label that splits the family.
    pub(super) metric: u64,
    /// One is called like the source label.
    pub(super) clash: bool,
    pub(super) split: Split,
    pub(super) float_form: bool,
}

/// The value of the label that splits a family.
#[derive(Clone, Copy)]
pub(super) enum Split {
    Absent,
    Text,
    Number(f64),
}

impl Split {
    /// `None` where it is not there.
    pub(super) fn is_number(self) -> Option<bool> {
        match self {
            Split::Absent => None,
            Split::Text => Some(false),
            Split::Number(_) => Some(true),
        }
    }

    /// As [`Facts`](super::open::Facts) has it. (The states of a state set are words.)
    pub(super) fn bound(self, kind: MetricType) -> f64 {
        match self {
            Split::Absent => f64::NAN,
            _ if kind == MetricType::StateSet => 0.0,
            Split::Text => f64::NAN,
            Split::Number(number) => number,
        }
    }
}

impl LabelFacts {
    #[inline]
    pub(super) fn of<'t>(
        labels: impl Iterator<Item = (u64, RawLabel<'t>)>,
        ours: Option<&str>,
        split_label: Option<&str>,
        bounds: &mut Bounds,
    ) -> LabelFacts {
        let mut facts = LabelFacts {
            hash: 0,
            metric: 0,
            clash: false,
            split: Split::Absent,
            float_form: true,
        };
        for (hash, label) in labels {
            facts.hash = facts.hash.wrapping_add(hash);
            facts.clash |= ours == Some(label.name);
            if split_label == Some(label.name) {
                (facts.split, facts.float_form) = bounds.of(hash, label.value);
            } else if label.value.is_empty() {
                // The same series as without it, but some readers see another metric.
                let here = mix(super::series::hash(label.name.as_bytes()));
                facts.metric = facts.metric.wrapping_add(here);
            } else {
                facts.metric = facts.metric.wrapping_add(hash);
            }
        }
        facts
    }
}

/// A sample name while its block is written.
pub(super) struct SampleName {
    pub(super) hash: u64,
    /// What it adds to the name of its family.
    pub(super) suffix: Option<Suffix>,
    /// It is of the old character set.
    pub(super) writable: bool,
}

impl SampleName {
    pub(super) fn new(text: &str, family: &str) -> SampleName {
        let suffix = Suffix::split(text)
            .filter(|(base, _)| *base == family)
            .map(|(_, suffix)| suffix);
        SampleName {
            hash: hash(text.as_bytes()),
            suffix,
            writable: is_metric_name(text),
        }
    }
}

/// The label block that a row's line has on the merged page, our own label aside: in canonical form, and
/// with theirs of the name `ours` renamed. Whether no name in it is in quotes.
pub(super) fn final_block<'t>(
    page: &Page<'t>,
    row: u32,
    ours: Option<&str>,
) -> (Cow<'t, str>, bool) {
    let row = &page.rows[row as usize];
    let mut block = Cow::Borrowed(row.labels);
    let mut legacy = true;
    if !row.plain {
        let mut out = String::new();
        legacy = canonical(&mut out, row.labels);
        block = Cow::Owned(out);
    }
    if ours.is_some_and(|ours| RawLabels::new(&block, legacy).any(|l| l.name == ours)) {
        let mut out = String::new();
        push_relabelled(&mut out, &block, legacy, ours, None);
        block = Cow::Owned(out);
    }
    (block, legacy)
}

/// Whether two rows that have the same hash are the same series on the merged page.
pub(super) fn same_series(page: &Page<'_>, a: u32, b: u32, ours: Option<&str>) -> bool {
    if page.rows[a as usize].name != page.rows[b as usize].name {
        return false;
    }
    let (a, b) = (final_block(page, a, ours).0, final_block(page, b, ours).0);
    same_labels(&a, &b)
}

/// The hash of a row's series on the merged page.
pub(super) fn series_of(page: &Page<'_>, row: u32, ours: Option<&str>) -> u64 {
    let name = page.rows[row as usize].name;
    let name = hash(page.names.list[name as usize].text.as_bytes());
    let (block, legacy) = final_block(page, row, ours);
    let hashes = RawLabels::new(&block, legacy).map(|label| label_hash(&label));
    series_hash(name, hashes.fold(0, u64::wrapping_add))
}
