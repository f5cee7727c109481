//! A page made ready for merging, once, when it was scraped.

use super::MetricType;
use super::page::Page;
use super::prepare::Builder;
use super::relabel::writable_label;
use std::ops::Range;

/// A page made ready for merging. Owns its text: for each family one block of sample lines with the
/// source label in each; names, digits and label values as they came; no timestamps. Where the lines
/// of `OpenMetrics` differ, what differs is kept beside them: patches for exemplars and `le` in float
/// form, lines of their own for `_created` among its counter's samples.
///
/// Families are those of classic text: of an `OpenMetrics` counter `x` the samples `x_total` are a
/// family of that name, an info is a gauge `x_info`, and what classic text has no place for
/// (`x_created`, `x_gsum`, `x_gcount`) is a gauge by its own name.
#[derive(Debug)]
pub struct Prepared {
    pub(super) text: String,
    /// What patches put in.
    pub(super) put: String,
    /// By block, in order of place.
    pub(super) patches: Vec<Patch>,
    /// Sorted by name.
    pub(super) blocks: Vec<Block>,
    pub(super) label: Option<(String, String)>,
    pub(super) samples: usize,
    pub(super) duplicates: u64,
    pub(super) misfits: u64,
    pub(super) unwritable: u64,
}

/// One family of a prepared page: where in its text things are.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) name: Range<usize>,
    pub(super) help: Range<usize>,
    pub(super) unit: Range<usize>,
    pub(super) lines: Lines,
    pub(super) kind: MetricType,
    /// In `lines`, without the odd ones.
    pub(super) samples: u64,
    /// What `OpenMetrics` has in `lines`, in `Prepared::patches`.
    pub(super) patches: Range<usize>,
    pub(super) open: Open,
}

/// Sample lines: first those that every reader can take, then those with names outside the old
/// character set, quoted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    pub(super) start: usize,
    pub(super) odd: usize,
    pub(super) end: usize,
}

/// What `OpenMetrics` has in one line of a block that classic text has not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch {
    /// Bytes from the beginning of the block's lines.
    pub(super) at: u32,
    /// Where in `Prepared::put` the bytes are that come, and how many.
    pub(super) put: u32,
    pub(super) len: u16,
    /// Bytes that go.
    pub(super) skip: u8,
    /// An exemplar, for which only some types have a place; else the form of a bound.
    pub(super) exemplar: bool,
}

/// A block in `OpenMetrics`. (An untyped `x_total` is seen as a counter.)
#[derive(Clone, Debug)]
pub(super) enum Open {
    /// The same lines, patched.
    Same,
    /// These lines, as those of others are among them.
    Own(Lines),
    /// Its samples can't be in a family of its type.
    Untyped,
    /// Its samples are among those of the family they say something of, which has its own lines.
    Companion,
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

    /// The same, of the families only whose name in classic text `keep` wants (`x_total` for a
    /// counter; `x` for a histogram with all its series).
    #[must_use]
    pub fn filtered(
        page: &Page<'_>,
        label: Option<(&str, &str)>,
        keep: &dyn Fn(&str) -> bool,
    ) -> Prepared {
        let label = label.map(|(name, value)| (writable_label(name), value.to_owned()));
        Builder::new(page, label).build(keep)
    }

    /// Samples that it holds for every reader.
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

    /// Samples whose metric or label names are outside the old character set: only readers that ask
    /// for an [`Escaping`](super::Escaping) get them.
    #[must_use]
    pub fn unwritable(&self) -> u64 {
        self.unwritable
    }

    /// Bytes that it holds in memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lists =
            self.blocks.len() * size_of::<Block>() + self.patches.len() * size_of::<Patch>();
        self.text.len() + self.put.len() + lists
    }

    pub(super) fn label(&self) -> Option<(&str, &str)> {
        self.label.as_ref().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}

// === impl Block ===

impl Block {
    pub(super) fn name<'p>(&self, page: &'p Prepared) -> &'p str {
        &page.text[self.name.clone()]
    }

    /// Escaped for classic text; may be empty.
    pub(super) fn help<'p>(&self, page: &'p Prepared) -> &'p str {
        &page.text[self.help.clone()]
    }

    /// May be empty; not checked against name and type.
    pub(super) fn unit<'p>(&self, page: &'p Prepared) -> &'p str {
        &page.text[self.unit.clone()]
    }

    /// The patches for `lines`.
    pub(super) fn patches<'p>(&self, page: &'p Prepared) -> &'p [Patch] {
        &page.patches[self.patches.clone()]
    }

    /// The lines of `OpenMetrics` with their patches, where its samples can be in a family of type
    /// `kind` and that type has rules of its own.
    pub(super) fn open_lines<'p>(
        &self,
        page: &'p Prepared,
        kind: MetricType,
    ) -> Option<(Lines, &'p [Patch])> {
        let counts = self.kind == MetricType::Unknown && kind == MetricType::Counter;
        if kind.is_free() || !(self.kind == kind || counts) {
            return None;
        }
        match &self.open {
            Open::Same => Some((self.lines, self.patches(page))),
            Open::Own(lines) => Some((*lines, &[])),
            Open::Untyped | Open::Companion => None,
        }
    }

    /// Whether its lines in `OpenMetrics` are others than in classic text.
    pub(super) fn has_open_lines(&self) -> bool {
        matches!(self.open, Open::Own(_)) || !self.patches.is_empty()
    }

    pub(super) fn has_odd_lines(&self) -> bool {
        self.lines.end > self.lines.odd
    }
}

// === impl Lines ===

impl Lines {
    /// Each with its newline.
    pub(super) fn plain(self, page: &Prepared) -> &str {
        &page.text[self.start..self.odd]
    }

    /// Those with names in quotes.
    pub(super) fn odd(self, page: &Prepared) -> &str {
        &page.text[self.odd..self.end]
    }
}
