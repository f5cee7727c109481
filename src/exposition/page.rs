//! A page, read: rows that borrow from its text.

use super::MetricType;
use super::labels::{Labels, RowLabels};
use super::names::Names;
use super::plain::Span;
use super::reader::read;
use super::series::{hash, mix, series_hash};
use std::borrow::Cow;

/// What a page may hold. Its bytes are limited by whoever fetches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Samples.
    pub max_series: usize,
    /// Bytes of name and labels of one sample, as written.
    pub max_label_bytes: usize,
    /// Families, with or without samples.
    pub max_families: usize,
}

/// Why a text is not read as a page at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// More samples than allowed.
    #[error("the page has more than {limit} series; raise the limit on series if that is right")]
    TooManySeries {
        /// The limit.
        limit: usize,
    },
    /// A sample with more bytes of labels than allowed.
    #[error(
        "line {line} has more than {limit} bytes of name and labels; raise the limit on label bytes if that is right"
    )]
    LabelsTooLong {
        /// The limit in bytes.
        limit: usize,
        /// The line, counted from 1.
        line: u64,
    },
    /// More families than allowed.
    #[error("the page has more than {limit} metric families")]
    TooManyFamilies {
        /// The limit.
        limit: usize,
    },
    /// No line could be read, and there are bytes that are no UTF-8 (compressed, or protobuf).
    #[error("the page is not text: no line could be read, and it holds bytes that are no UTF-8")]
    NotText,
    /// No line could be read, and it looks like something else.
    #[error("the page holds no metrics: it looks like {looks_like}; check the path")]
    NotMetrics {
        /// `HTML`, `JSON` or `plain text`.
        looks_like: &'static str,
    },
}

/// Lines dropped for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// One of [`DROP_REASONS`](super::DROP_REASONS).
    pub reason: &'static str,
    /// Lines.
    pub count: u64,
    /// The first of them, counted from 1.
    pub line: u64,
}

/// A page of metrics that borrows from its text.
#[derive(Debug)]
pub struct Page<'t> {
    pub(super) rows: Vec<Row<'t>>,
    pub(super) names: Names<'t>,
    pub(super) families: Vec<Family<'t>>,
    /// Where the label values of rows are.
    pub(super) spans: Vec<Span>,
    /// There is a backslash on the page, so there may be escapes.
    pub(super) escapes: bool,
    /// Indices of `rows`, family by family.
    pub(super) order: Vec<u32>,
    /// Row and exemplar, in order.
    pub(super) exemplars: Vec<(u32, &'t str)>,
    pub(super) dropped: Vec<Dropped>,
}

/// A family: its name, what the page says of it, and its samples.
#[derive(Clone, Debug)]
pub struct Family<'t> {
    pub(super) name: &'t str,
    pub(super) kind: MetricType,
    pub(super) help: Option<&'t str>,
    pub(super) unit: Option<&'t str>,
    /// Where in `Page::order` its samples are.
    pub(super) start: u32,
    pub(super) end: u32,
}

/// One sample line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'t> {
    /// What stands between the braces.
    pub(super) labels: &'t str,
    pub(super) value_text: &'t str,
    pub(super) value: f64,
    /// Index in `Names`.
    pub(super) name: u32,
    /// The first of its label values in `Page::spans`; of many rows it is the same.
    pub(super) spans: u32,
    /// How many there are; none where the labels have to be sliced when they are asked for.
    pub(super) span_count: u16,
    /// The label block is in canonical form.
    pub(super) plain: bool,
}

/// A sample of a page.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'p, 't> {
    page: &'p Page<'t>,
    index: u32,
}

// === impl Page ===

impl<'t> Page<'t> {
    /// Reads a page. Bad lines are dropped and counted; see the head of the module.
    ///
    /// # Errors
    /// When a limit is passed, or when nothing on the page is a metric.
    pub fn read(text: &'t [u8], limits: &Limits) -> Result<Page<'t>, PageError> {
        read(text, limits)
    }

    /// The families, in order of first appearance; also those that have no samples. Samples without
    /// a TYPE line are a family of unknown type by their own name.
    #[must_use]
    pub fn families(&self) -> &[Family<'t>] {
        &self.families
    }

    /// The family of this name. (`x_bucket` is no family where `x` is a histogram.)
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&Family<'t>> {
        let id = self.names.find(name)?;
        self.families.get(self.names.list[id as usize].own as usize)
    }

    /// Every sample with exactly this name (`sglang:token_usage`, `x_bucket`), in order of the page.
    pub fn samples<'p>(&'p self, name: &str) -> impl Iterator<Item = Sample<'p, 't>> + use<'p, 't> {
        let id = self.names.find(name);
        let family = id.and_then(|id| {
            self.families
                .get(self.names.list[id as usize].family as usize)
        });
        let range = family.map_or(0..0, |f| f.start as usize..f.end as usize);
        self.order[range]
            .iter()
            .filter(move |row| Some(self.rows[**row as usize].name) == id)
            .map(|index| Sample {
                page: self,
                index: *index,
            })
    }

    /// Every sample of a family of this page, in order of the page.
    pub fn family_samples<'p>(
        &'p self,
        family: &Family<'t>,
    ) -> impl Iterator<Item = Sample<'p, 't>> + use<'p, 't> {
        let rows = self.order.get(family.start as usize..family.end as usize);
        rows.unwrap_or_default().iter().map(|index| Sample {
            page: self,
            index: *index,
        })
    }

    /// Every sample, in order of the page.
    pub fn all_samples(&self) -> impl Iterator<Item = Sample<'_, 't>> {
        (0u32..)
            .take(self.rows.len())
            .map(|index| Sample { page: self, index })
    }

    #[inline]
    pub(super) fn labels<'p>(&'p self, row: &Row<'t>) -> RowLabels<'p, 't> {
        let first = row.spans as usize;
        let spans = self.spans.get(first..first + usize::from(row.span_count));
        RowLabels::new(row, spans.unwrap_or_default(), self.escapes)
    }

    /// The exemplar of a row, as written.
    pub(super) fn exemplar(&self, row: u32) -> Option<&'t str> {
        let at = self.exemplars.binary_search_by_key(&row, |(row, _)| *row);
        Some(self.exemplars[at.ok()?].1)
    }

    /// Samples on the page, dropped ones left out.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        self.rows.len()
    }

    /// Equal for two pages with the same samples in any order, each written the same; timestamps and
    /// comments don't count. Comparable within one process.
    #[must_use]
    pub fn content_hash(&self) -> u64 {
        let names: Vec<u64> = self
            .names
            .list
            .iter()
            .map(|n| hash(n.text.as_bytes()))
            .collect();
        self.rows.iter().fold(0, |sum, row| {
            let series = series_hash(names[row.name as usize], hash(row.labels.as_bytes()));
            sum.wrapping_add(mix(series ^ hash(row.value_text.as_bytes())))
        })
    }

    /// The bad lines, by reason.
    #[must_use]
    pub fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }
}

// === impl Family ===

impl<'t> Family<'t> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &'t str {
        self.name
    }

    /// The type.
    #[must_use]
    pub fn kind(&self) -> MetricType {
        self.kind
    }

    /// The text of the first HELP line, escapes as written.
    #[must_use]
    pub fn help(&self) -> Option<&'t str> {
        self.help
    }

    /// The unit of an `OpenMetrics` UNIT line.
    #[must_use]
    pub fn unit(&self) -> Option<&'t str> {
        self.unit
    }

    /// Samples of the family.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        (self.end - self.start) as usize
    }
}

// === impl Sample ===

impl<'p, 't> Sample<'p, 't> {
    fn row(&self) -> &'p Row<'t> {
        &self.page.rows[self.index as usize]
    }

    /// The name as written, suffix included.
    #[must_use]
    pub fn name(&self) -> &'t str {
        self.page.names.list[self.row().name as usize].text
    }

    /// The labels, in the order of the page.
    #[must_use]
    pub fn labels(&self) -> Labels<'p, 't> {
        Labels(self.page.labels(self.row()))
    }

    /// The value of one label. `None` where the sample does not have it.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<Cow<'t, str>> {
        let mut labels = self.page.labels(self.row());
        labels.find(|l| l.name == name).map(|l| l.text())
    }

    /// The value; may be NaN or infinite.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.row().value
    }

    /// The value as written.
    #[must_use]
    pub fn value_text(&self) -> &'t str {
        self.row().value_text
    }

    /// The exemplar as written, from its opening brace on.
    #[must_use]
    pub fn exemplar(&self) -> Option<&'t str> {
        self.page.exemplar(self.index)
    }
}
