//! A page, read: rows that borrow from its text.

use super::MetricType;
use super::group::group;
use super::labels::{Labels, RawLabels, unescape};
use super::line::{Bad, Comment, DROP_REASONS, comment, sample};
use super::series::hash;
use hashbrown::HashTable;
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
    /// One of [`DROP_REASONS`].
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
    /// Indices of `rows`, family by family.
    pub(super) order: Vec<u32>,
    /// Row and exemplar, in order.
    exemplars: Vec<(u32, &'t str)>,
    dropped: Vec<Dropped>,
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
    /// The label block is in canonical form.
    pub(super) plain: bool,
}

/// A name on the page: of samples, of HELP and TYPE lines, or both.
#[derive(Clone, Debug)]
pub(super) struct Name<'t> {
    pub(super) text: &'t str,
    pub(super) kind: Option<MetricType>,
    pub(super) help: Option<&'t str>,
    pub(super) unit: Option<&'t str>,
    /// Samples of exactly this name.
    pub(super) rows: u32,
    /// Index of the family that its samples are in; [`NONE`] until the page is read.
    pub(super) family: u32,
    /// Index of the family called so; [`NONE`] if there is none.
    pub(super) own: u32,
}

/// No family.
pub(super) const NONE: u32 = u32::MAX;

/// The names of a page, each once, in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct Names<'t> {
    pub(super) list: Vec<Name<'t>>,
    table: HashTable<u32>,
}

/// A sample of a page.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'p, 't> {
    page: &'p Page<'t>,
    index: u32,
}

struct Reader<'t> {
    limits: Limits,
    rows: Vec<Row<'t>>,
    names: Names<'t>,
    exemplars: Vec<(u32, &'t str)>,
    /// The name of the last sample: most samples repeat it.
    last: (&'t str, u32),
    line: u64,
    /// Names of HELP, TYPE and UNIT lines.
    declared: usize,
    /// By reason: lines, and the first one.
    dropped: [(u64, u64); DROP_REASONS.len()],
}

// === impl Page ===

impl<'t> Page<'t> {
    /// Reads a page. Bad lines are dropped and counted; see the head of the module.
    ///
    /// # Errors
    /// When a limit is passed, or when nothing on the page is a metric.
    pub fn read(text: &'t [u8], limits: &Limits) -> Result<Page<'t>, PageError> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let first = text.iter().copied().find(|b| !b.is_ascii_whitespace());
        if first == Some(b'<') {
            // A line of prose on a web page can look like a sample, so don't even try.
            return Err(PageError::NotMetrics { looks_like: "HTML" });
        }
        let mut reader = Reader::new(*limits, text);
        if let Ok(text) = std::str::from_utf8(text) {
            let mut at = 0;
            for end in memchr::memchr_iter(b'\n', text.as_bytes()) {
                reader.line(&text[at..end])?;
                at = end + 1;
            }
            reader.line(&text[at..])?;
        } else {
            for line in text.split(|b| *b == b'\n') {
                match std::str::from_utf8(line) {
                    Ok(line) => reader.line(line)?,
                    Err(_) => reader.bad_encoding(),
                }
            }
        }
        reader.finish(first)
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

    /// Samples on the page, dropped ones left out.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        self.rows.len()
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
    pub fn labels(&self) -> Labels<'t> {
        Labels(RawLabels::new(self.row().labels, self.row().plain))
    }

    /// The value of one label. `None` where the sample does not have it.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<Cow<'t, str>> {
        let mut labels = RawLabels::new(self.row().labels, self.row().plain);
        labels.find(|l| l.name == name).map(|l| unescape(l.value))
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
        let all = &self.page.exemplars;
        let at = all
            .binary_search_by_key(&self.index, |(row, _)| *row)
            .ok()?;
        Some(all[at].1)
    }
}

// === impl Names ===

impl<'t> Names<'t> {
    #[inline]
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        let same = |id: &u32| self.list[*id as usize].text == name;
        self.table.find(hash(name.as_bytes()), same).copied()
    }

    /// The index of a name, which is added if it is new.
    pub(super) fn intern(&mut self, name: &'t str) -> u32 {
        if let Some(id) = self.find(name) {
            return id;
        }
        // Names are never more than samples and comments, which are limited to what u32 can count.
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(Name {
            text: name,
            kind: None,
            help: None,
            unit: None,
            rows: 0,
            family: NONE,
            own: NONE,
        });
        let list = &self.list;
        self.table.insert_unique(hash(name.as_bytes()), id, |id| {
            hash(list[*id as usize].text.as_bytes())
        });
        id
    }
}

impl Name<'_> {
    pub(super) fn is_declared(&self) -> bool {
        self.kind.is_some() || self.help.is_some() || self.unit.is_some()
    }
}

// === impl Reader ===

impl<'t> Reader<'t> {
    fn new(limits: Limits, text: &[u8]) -> Reader<'t> {
        // Room for every line, unless lines are absurdly short, so that nothing is copied twice.
        let lines = memchr::memchr_iter(b'\n', text).count() + 1;
        let room = lines.min(text.len() / 24 + 1).min(limits.max_series);
        let max_series = limits.max_series.min(u32::MAX as usize / 2);
        let max_families = limits.max_families.min(u32::MAX as usize / 4);
        Reader {
            limits: Limits {
                max_series,
                max_families,
                ..limits
            },
            rows: Vec::with_capacity(room),
            names: Names::default(),
            exemplars: Vec::new(),
            last: ("", 0),
            line: 0,
            declared: 0,
            dropped: [(0, 0); DROP_REASONS.len()],
        }
    }

    #[inline]
    fn line(&mut self, line: &'t str) -> Result<(), PageError> {
        self.line += 1;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let read = match line.as_bytes().first() {
            None => return Ok(()),
            Some(b'#') => self.comment(line)?,
            Some(b' ' | b'\t') => match line.trim_start_matches([' ', '\t']) {
                "" => return Ok(()),
                rest if rest.starts_with('#') => self.comment(rest)?,
                rest => self.sample(rest)?,
            },
            Some(_) => self.sample(line)?,
        };
        if let Err(bad) = read {
            self.bad(bad);
        }
        Ok(())
    }

    #[inline]
    fn sample(&mut self, line: &'t str) -> Result<Result<(), Bad>, PageError> {
        let found = match sample(line, self.last.0) {
            Ok(found) => found,
            Err(bad) => return Ok(Err(bad)),
        };
        if self.rows.len() >= self.limits.max_series {
            return Err(PageError::TooManySeries {
                limit: self.limits.max_series,
            });
        }
        if found.name.len() + found.labels.len() > self.limits.max_label_bytes {
            return Err(PageError::LabelsTooLong {
                limit: self.limits.max_label_bytes,
                line: self.line,
            });
        }
        if found.name != self.last.0 {
            self.last = (found.name, self.names.intern(found.name));
        }
        let name = self.last.1;
        self.names.list[name as usize].rows += 1;
        if let Some(exemplar) = found.exemplar {
            let row = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
            self.exemplars.push((row, exemplar));
        }
        self.rows.push(Row {
            labels: found.labels,
            value_text: found.value_text,
            value: found.value,
            name,
            plain: found.plain,
        });
        Ok(Ok(()))
    }

    fn comment(&mut self, line: &'t str) -> Result<Result<(), Bad>, PageError> {
        let found = match comment(line) {
            Ok(found) => found,
            Err(bad) => return Ok(Err(bad)),
        };
        let name = match found {
            Comment::Nothing => return Ok(Ok(())),
            Comment::Help(name, _) | Comment::Type(name, _) | Comment::Unit(name, _) => name,
        };
        let id = self.names.intern(name);
        let entry = &mut self.names.list[id as usize];
        self.declared += usize::from(!entry.is_declared());
        let mut read = Ok(());
        match found {
            Comment::Help(_, help) => entry.help = entry.help.or(Some(help)),
            Comment::Unit(_, unit) => entry.unit = entry.unit.or(Some(unit)),
            Comment::Type(_, kind) if entry.kind.is_none_or(|k| k == kind) => {
                entry.kind = Some(kind)
            }
            Comment::Type(..) => read = Err(Bad::Type),
            Comment::Nothing => {}
        }
        if self.declared > self.limits.max_families {
            return Err(PageError::TooManyFamilies {
                limit: self.limits.max_families,
            });
        }
        Ok(read)
    }

    #[cold]
    fn bad(&mut self, bad: Bad) {
        let (count, first) = &mut self.dropped[bad as usize];
        *count += 1;
        if *first == 0 {
            *first = self.line;
        }
    }

    fn bad_encoding(&mut self) {
        self.line += 1;
        self.bad(Bad::Encoding);
    }

    fn finish(mut self, first: Option<u8>) -> Result<Page<'t>, PageError> {
        let dropped: Vec<Dropped> = DROP_REASONS
            .iter()
            .zip(self.dropped)
            .filter(|(_, (count, _))| *count > 0)
            .map(|(reason, (count, line))| Dropped {
                reason,
                count,
                line,
            })
            .collect();
        if self.rows.is_empty() && self.declared == 0 && !dropped.is_empty() {
            let not_text = self.dropped[Bad::Encoding as usize].0 > 0;
            return Err(match first {
                _ if not_text => PageError::NotText,
                Some(b'{' | b'[') => PageError::NotMetrics { looks_like: "JSON" },
                _ => PageError::NotMetrics {
                    looks_like: "plain text",
                },
            });
        }
        let (families, order) = group(&mut self.names, &self.rows);
        if families.len() > self.limits.max_families {
            return Err(PageError::TooManyFamilies {
                limit: self.limits.max_families,
            });
        }
        Ok(Page {
            rows: self.rows,
            names: self.names,
            families,
            order,
            exemplars: self.exemplars,
            dropped,
        })
    }
}
