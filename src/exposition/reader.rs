//! From text to a page, line by line.

use super::group::group;
use super::line::{Bad, Comment, DROP_REASONS, comment, sample};
use super::names::Names;
use super::page::{Dropped, Limits, Page, PageError, Row};
use super::plain::{Previous, Span};

/// Its own and those with an ending, at most.
const NAMES_A_FAMILY: usize = 9;

struct Reader<'t> {
    limits: Limits,
    rows: Vec<Row<'t>>,
    names: Names<'t>,
    spans: Vec<Span>,
    escapes: bool,
    exemplars: Vec<(u32, &'t str)>,
    /// The last sample: most repeat its name.
    previous: Previous<'t>,
    /// The index of its name.
    name: u32,
    line: u64,
    /// Names of HELP, TYPE and UNIT lines.
    declared: usize,
    /// By reason: lines, and the first one.
    dropped: [(u64, u64); DROP_REASONS.len()],
}

/// See [`Page::read`].
pub(super) fn read<'t>(text: &'t [u8], limits: &Limits) -> Result<Page<'t>, PageError> {
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
            spans: Vec::new(),
            escapes: memchr::memchr(b'\\', text).is_some(),
            exemplars: Vec::new(),
            previous: Previous::default(),
            name: 0,
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
        let found = match sample(line, &mut self.previous) {
            Ok(found) => found,
            Err(bad) => return Ok(Err(bad)),
        };
        if self.rows.len() >= self.limits.max_series {
            return Err(PageError::TooManySeries {
                limit: self.limits.max_series,
            });
        }
        if found.label_bytes() > self.limits.max_label_bytes {
            return Err(PageError::LabelsTooLong {
                limit: self.limits.max_label_bytes,
                line: self.line,
            });
        }
        if !found.repeats {
            self.previous.name = found.name;
            self.name = self.names.intern(found.name);
            // No family has more names than that, so there are too many for sure.
            if self.names.list.len() / NAMES_A_FAMILY > self.limits.max_families {
                return Err(PageError::TooManyFamilies {
                    limit: self.limits.max_families,
                });
            }
        }
        let name = self.name;
        self.names.list[name as usize].rows += 1;
        if let Some(exemplar) = found.exemplar {
            let row = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
            self.exemplars.push((row, exemplar));
        }
        let (spans, span_count) = if found.sliced { self.spans() } else { (0, 0) };
        self.rows.push(Row {
            labels: found.labels,
            value_text: found.value_text,
            value: found.value,
            name,
            spans,
            span_count,
            plain: found.plain,
        });
        Ok(Ok(()))
    }

    /// Where the values of the previous sample's labels are, which are noted if they are elsewhere
    /// than those of the one before.
    #[inline]
    fn spans(&mut self) -> (u32, u16) {
        let values = &self.previous.values;
        if self.previous.moved {
            self.previous.moved = false;
            self.spans.extend_from_slice(values);
        }
        // Where there are more than can be counted, the labels are sliced when they are asked for.
        match u32::try_from(self.spans.len() - values.len()) {
            Ok(first) => (first, values.len() as u16),
            Err(_) => (0, 0),
        }
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
                entry.kind = Some(kind);
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
            spans: self.spans,
            escapes: self.escapes,
            names: self.names,
            families,
            order,
            exemplars: self.exemplars,
            dropped,
        })
    }
}
