//! A page made ready for merging, once, when it was scraped.

use super::MetricType;
use super::kind::{Suffix, fits_in_text};
use super::labels::{RawLabel, RawLabels};
use super::page::{Family, Page, Row};
use super::relabel::{canonical, push_all, push_exported, writable_label};
use super::scan::{is_metric_name, number};
use super::series::{hash, label_hash, mix, same_labels, series_hash};
use super::writer::{push_escaped, push_foreign_help, push_foreign_value};
use hashbrown::HashTable;

/// A page made ready for merging. Owns its text: for each family one block of sample lines with the
/// source label in each; names, digits and label values as they came; no timestamps, no exemplars.
///
/// Families are those of classic text: of an `OpenMetrics` counter `x` the samples `x_total` are a
/// family of that name, an info is a gauge `x_info`, and what classic text has no place for
/// (`x_created`, `x_gsum`, `x_gcount`) is a gauge by its own name.
#[derive(Debug)]
pub struct Prepared {
    text: String,
    /// Sorted by name.
    blocks: Vec<Block>,
    label: Option<(String, String)>,
    samples: usize,
    duplicates: u64,
    misfits: u64,
    unwritable: u64,
    content_hash: u64,
}

/// One family of a prepared page: offsets into its text, where name, help and samples follow each
/// other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    start: usize,
    name_end: usize,
    help_end: usize,
    end: usize,
    pub(super) kind: MetricType,
    pub(super) samples: u64,
}

/// A family of classic text that some of a page family's samples make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target<'t> {
    name: &'t str,
    kind: MetricType,
}

struct Builder<'p, 't> {
    page: &'p Page<'t>,
    /// The source label's name, and `name="value"`.
    label: Option<(String, String)>,
    out: Prepared,
    /// Hash and row of every series so far.
    seen: HashTable<(u64, u32)>,
    /// Label blocks in canonical form, where the page's own is not.
    scratch: String,
}

// === impl Prepared ===

impl Prepared {
    /// Makes `page` ready. `label` (say `source` and `decode`) is added to every sample; a series that
    /// has a label of that name keeps it as `exported_source`, one that has that too as
    /// `exported_exported_source`, and so on. With `None` the page is written as it is.
    ///
    /// A character that may not be in a label name is written as `_`; `le`, `quantile` and names in
    /// double underscores are put behind `source_`.
    #[must_use]
    pub fn new(page: &Page<'_>, label: Option<(&str, &str)>) -> Prepared {
        Prepared::filtered(page, label, &|_| true)
    }

    /// As [`new`](Self::new), with only the families of classic text whose name `keep` wants. The
    /// samples of the others are counted nowhere.
    #[must_use]
    pub fn filtered(
        page: &Page<'_>,
        label: Option<(&str, &str)>,
        keep: &dyn Fn(&str) -> bool,
    ) -> Prepared {
        let label = label.map(|(name, value)| (writable_label(name), value.to_owned()));
        let mut builder = Builder::new(page, label);
        let mut families: Vec<&Family<'_>> =
            page.families.iter().filter(|f| f.end > f.start).collect();
        families.sort_unstable_by_key(|f| f.name);
        for family in families {
            for target in builder.targets(family) {
                if keep(target.name) {
                    builder.block(family, target);
                }
            }
        }
        builder.finish()
    }

    /// Samples that it holds.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        self.samples
    }

    /// Families that it holds; only those that have samples.
    #[must_use]
    pub fn family_count(&self) -> usize {
        self.blocks.len()
    }

    /// Samples left out because the page has the same series twice: the first is kept.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Samples left out because their family's type has no place for them: a bucket whose `le` is no
    /// number, a bare `x` under a histogram `x`.
    #[must_use]
    pub fn misfits(&self) -> u64 {
        self.misfits
    }

    /// Samples left out because classic text can't write their metric or label names (UTF-8 names).
    #[must_use]
    pub fn unwritable(&self) -> u64 {
        self.unwritable
    }

    /// Equal for two pages with the same samples in any order; comparable within one process.
    #[must_use]
    pub fn content_hash(&self) -> u64 {
        self.content_hash
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(super) fn label(&self) -> Option<(&str, &str)> {
        self.label.as_ref().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }
}

// === impl Block ===

impl Block {
    pub(super) fn name(self, page: &Prepared) -> &str {
        &page.text[self.start..self.name_end]
    }

    /// Escaped for classic text; may be empty.
    pub(super) fn help(self, page: &Prepared) -> &str {
        &page.text[self.name_end..self.help_end]
    }

    /// The sample lines, each with its newline.
    pub(super) fn lines(self, page: &Prepared) -> &str {
        &page.text[self.help_end..self.end]
    }
}

// === impl Builder ===

impl<'p, 't> Builder<'p, 't> {
    fn new(page: &'p Page<'t>, label: Option<(String, String)>) -> Builder<'p, 't> {
        let written = label.as_ref().map(|(name, value)| {
            let mut pair = format!("{name}=\"");
            push_escaped(&mut pair, value);
            pair.push('"');
            (name.clone(), pair)
        });
        let extra = written.as_ref().map_or(0, |(_, pair)| pair.len()) + "{,} \n".len();
        let room: usize = page
            .rows
            .iter()
            .map(|r| {
                page.names.list[r.name as usize].text.len()
                    + r.labels.len()
                    + r.value_text.len()
                    + extra
            })
            .sum();
        let heads: usize = page
            .families
            .iter()
            .map(|f| f.name.len() + f.help.map_or(0, str::len))
            .sum();
        Builder {
            page,
            label: written,
            out: Prepared {
                text: String::with_capacity(room + heads),
                blocks: Vec::with_capacity(page.families.len()),
                label,
                samples: 0,
                duplicates: 0,
                misfits: 0,
                unwritable: 0,
                content_hash: 0,
            },
            seen: HashTable::with_capacity(page.rows.len()),
            scratch: String::new(),
        }
    }

    fn rows(&self, family: &Family<'t>) -> &'p [u32] {
        &self.page.order[family.start as usize..family.end as usize]
    }

    /// The families of classic text that a family's samples make up, in order.
    fn targets(&self, family: &Family<'t>) -> Vec<Target<'t>> {
        let mut targets = Vec::with_capacity(1);
        let mut last = u32::MAX;
        for row in self.rows(family) {
            let id = self.page.rows[*row as usize].name;
            if id != last {
                last = id;
                let target = target(family, self.page.names.list[id as usize].text);
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        targets
    }

    /// Writes one family of classic text.
    fn block(&mut self, family: &Family<'t>, wanted: Target<'t>) {
        let start = self.out.text.len();
        self.out.text.push_str(wanted.name);
        let name_end = self.out.text.len();
        push_foreign_help(&mut self.out.text, family.help.unwrap_or_default());
        let help_end = self.out.text.len();
        let before = self.out.samples;
        let (mut last, mut name) = (u32::MAX, None);
        for index in self.rows(family) {
            let row = &self.page.rows[*index as usize];
            if row.name != last {
                last = row.name;
                let text = self.page.names.list[last as usize].text;
                name = (target(family, text) == wanted).then(|| SampleName::new(text, wanted.name));
            }
            if let Some(name) = &name {
                self.sample(*index, row, name, wanted.kind);
            }
        }
        let samples = (self.out.samples - before) as u64;
        if samples == 0 {
            self.out.text.truncate(start);
            return;
        }
        let end = self.out.text.len();
        self.out.blocks.push(Block {
            start,
            name_end,
            help_end,
            end,
            kind: wanted.kind,
            samples,
        });
    }

    fn sample(&mut self, index: u32, row: &Row<'t>, name: &SampleName<'t>, kind: MetricType) {
        let block = if !name.writable {
            None
        } else if row.plain {
            Some(row.labels)
        } else {
            canonical(&mut self.scratch, row.labels).then_some(self.scratch.as_str())
        };
        let Some(block) = block else {
            self.out.unwritable += 1;
            return;
        };
        let ours = self.label.as_ref().map(|(ours, _)| ours.as_str());
        let found = if row.plain {
            LabelFacts::of(self.page.labels(row), ours, kind)
        } else {
            LabelFacts::of(RawLabels::new(block, true), ours, kind)
        };
        if !fits_in_text(kind, name.suffix, found.split) {
            self.out.misfits += 1;
            return;
        }
        let series = series_hash(name.hash, found.hash);
        let page = self.page;
        let same = |&(other_hash, other): &(u64, u32)| {
            other_hash == series && same_series(page, index, other)
        };
        if self.seen.find(series, same).is_some() {
            self.out.duplicates += 1;
            return;
        }
        self.seen
            .insert_unique(series, (series, index), |(hash, _)| *hash);
        self.out.samples += 1;
        let value = mix(series ^ hash(row.value_text.as_bytes()));
        self.out.content_hash = self.out.content_hash.wrapping_add(value);

        let out = &mut self.out.text;
        out.push_str(name.text);
        match &self.label {
            None if block.is_empty() => out.push(' '),
            None => push_all(out, &["{", block, "} "]),
            Some((_, pair)) if block.is_empty() => push_all(out, &["{", pair, "} "]),
            Some((_, pair)) if !found.clash => push_all(out, &["{", pair, ",", block, "} "]),
            Some((ours, pair)) => {
                push_all(out, &["{", pair]);
                push_exported(out, block, ours);
                out.push_str("} ");
            }
        }
        push_foreign_value(out, row.value, row.value_text);
        out.push('\n');
    }

    fn finish(mut self) -> Prepared {
        let Prepared { text, blocks, .. } = &mut self.out;
        blocks.sort_by(|a, b| text[a.start..a.name_end].cmp(&text[b.start..b.name_end]));
        text.shrink_to_fit();
        blocks.shrink_to_fit();
        self.out
    }
}

/// What has to be known of a sample's labels.
struct LabelFacts {
    /// Does not depend on their order.
    hash: u64,
    /// One is called like the source label.
    clash: bool,
    /// Whether the label that splits the family is a number; `None`: it is not there.
    split: Option<bool>,
}

impl LabelFacts {
    #[inline]
    fn of<'t>(
        labels: impl Iterator<Item = RawLabel<'t>>,
        ours: Option<&str>,
        kind: MetricType,
    ) -> LabelFacts {
        let split_label = kind.split_label();
        let mut facts = LabelFacts {
            hash: 0,
            clash: false,
            split: None,
        };
        for label in labels {
            facts.hash = facts.hash.wrapping_add(label_hash(&label));
            facts.clash |= ours == Some(label.name);
            if split_label == Some(label.name) {
                facts.split = Some(number(label.value.as_bytes()).is_some());
            }
        }
        facts
    }
}

/// A sample name while its block is written.
struct SampleName<'t> {
    text: &'t str,
    hash: u64,
    /// What it adds to the name of its family.
    suffix: Option<Suffix>,
    writable: bool,
}

impl<'t> SampleName<'t> {
    fn new(text: &'t str, family: &str) -> SampleName<'t> {
        let suffix = Suffix::split(text)
            .filter(|(base, _)| *base == family)
            .map(|(_, suffix)| suffix);
        SampleName {
            text,
            hash: hash(text.as_bytes()),
            suffix,
            writable: is_metric_name(text),
        }
    }
}

/// The family of classic text that the samples called `sample` of a page's family are in.
fn target<'t>(family: &Family<'t>, sample: &'t str) -> Target<'t> {
    let suffix = Suffix::split(sample)
        .filter(|(base, _)| *base == family.name)
        .map(|(_, suffix)| suffix);
    let own = |kind| Target { name: sample, kind };
    match suffix {
        Some(Suffix::Created | Suffix::GaugeSum | Suffix::GaugeCount) => own(MetricType::Gauge),
        Some(Suffix::Total | Suffix::Info) => own(family.kind),
        _ => Target {
            name: family.name,
            kind: family.kind,
        },
    }
}

/// Whether two rows that have the same hash are the same series.
fn same_series(page: &Page<'_>, a: u32, b: u32) -> bool {
    let (a, b) = (&page.rows[a as usize], &page.rows[b as usize]);
    if a.name != b.name {
        return false;
    }
    if a.plain && b.plain {
        return same_labels(a.labels, b.labels);
    }
    let (mut left, mut right) = (String::new(), String::new());
    for (row, out) in [(a, &mut left), (b, &mut right)] {
        if row.plain {
            out.push_str(row.labels);
        } else {
            canonical(out, row.labels);
        }
    }
    same_labels(&left, &right)
}
