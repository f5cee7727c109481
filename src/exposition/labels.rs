//! A sample's labels: slicing a label block, and undoing escapes.

use super::page::Row;
use super::plain::Span;
use super::scan::{equals_sign, label_name_end, quote_or_backslash, skip_blanks, string_end};
use std::borrow::Cow;

/// One item of a label block, not unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'t> {
    /// A quoted metric name: `{"a.b",…}`.
    MetricName(&'t str),
    Label(RawLabel<'t>),
}

/// A label as it stands on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawLabel<'t> {
    pub(super) name: &'t str,
    /// Between the quotes, escapes as written.
    pub(super) value: &'t str,
    /// There is a backslash in the value.
    pub(super) escaped: bool,
}

impl<'t> RawLabel<'t> {
    /// The value with its escapes undone.
    #[inline]
    pub(super) fn text(&self) -> Cow<'t, str> {
        if self.escaped {
            unescape(self.value)
        } else {
            Cow::Borrowed(self.value)
        }
    }
}

/// Reads one item at `at`, which is no blank. Gives the item and the position after it.
pub(super) fn item(text: &str, at: usize) -> Option<(Item<'_>, usize)> {
    let b = text.as_bytes();
    let (name, after, quoted) = if b.get(at) == Some(&b'"') {
        let end = string_end(b, at + 1)?;
        let name = &text[at + 1..end];
        // A name with an escape in it could not be borrowed; none has been seen in the wild.
        if name.is_empty() || name.contains('\\') {
            return None;
        }
        (name, end + 1, true)
    } else {
        let end = label_name_end(b, at);
        if end == at {
            return None;
        }
        (&text[at..end], end, false)
    };
    let equals = skip_blanks(b, after);
    if b.get(equals) != Some(&b'=') {
        return quoted.then_some((Item::MetricName(name), after));
    }
    let quote = skip_blanks(b, equals + 1);
    if b.get(quote) != Some(&b'"') {
        return None;
    }
    let end = string_end(b, quote + 1)?;
    let value = &text[quote + 1..end];
    let label = RawLabel {
        name,
        value,
        escaped: value.contains('\\'),
    };
    Some((Item::Label(label), end + 1))
}

/// Slices the labels of a block that was checked when the page was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawLabels<'t> {
    block: &'t str,
    at: usize,
    plain: bool,
}

impl<'t> RawLabels<'t> {
    /// `block` is what stands between the braces; `plain` says that it is in canonical form.
    pub(super) fn new(block: &'t str, plain: bool) -> RawLabels<'t> {
        RawLabels {
            block,
            at: 0,
            plain,
        }
    }

    #[inline]
    fn next_plain(&mut self) -> Option<RawLabel<'t>> {
        let (b, start) = (self.block.as_bytes(), self.at);
        let equals = equals_sign(b, start);
        let value = equals + 2;
        let first = quote_or_backslash(b, value)?;
        let escaped = b[first] == b'\\';
        let end = if escaped {
            string_end(b, first)?
        } else {
            first
        };
        self.at = end + 2;
        Some(RawLabel {
            name: self.block.get(start..equals)?,
            value: self.block.get(value..end)?,
            escaped,
        })
    }

    fn next_odd(&mut self) -> Option<RawLabel<'t>> {
        let b = self.block.as_bytes();
        loop {
            let at = skip_blanks(b, self.at);
            let (item, after) = item(self.block, at)?;
            let after = skip_blanks(b, after);
            self.at = after + usize::from(b.get(after) == Some(&b','));
            if let Item::Label(label) = item {
                return Some(label);
            }
        }
    }
}

impl<'t> Iterator for RawLabels<'t> {
    type Item = RawLabel<'t>;

    #[inline]
    fn next(&mut self) -> Option<RawLabel<'t>> {
        if self.at >= self.block.len() {
            None
        } else if self.plain {
            self.next_plain()
        } else {
            self.next_odd()
        }
    }
}

/// The labels of a row: sliced already when the page was read, or now.
#[derive(Clone, Debug)]
pub(super) struct RowLabels<'p, 't> {
    raw: RawLabels<'t>,
    spans: std::slice::Iter<'p, Span>,
    sliced: bool,
    escapes: bool,
}

impl<'p, 't> RowLabels<'p, 't> {
    /// `spans` says where the values are, or nothing; `escapes` that they may hold backslashes.
    #[inline]
    pub(super) fn new(row: &Row<'t>, spans: &'p [Span], escapes: bool) -> RowLabels<'p, 't> {
        RowLabels {
            raw: RawLabels::new(row.labels, row.plain),
            sliced: !spans.is_empty(),
            spans: spans.iter(),
            escapes,
        }
    }
}

impl<'t> Iterator for RowLabels<'_, 't> {
    type Item = RawLabel<'t>;

    #[inline]
    fn next(&mut self) -> Option<RawLabel<'t>> {
        if !self.sliced {
            return self.raw.next();
        }
        let span = self.spans.next()?;
        let (start, end) = (usize::from(span.start), usize::from(span.end));
        // Behind the name there are an equals sign and a quote, behind the value a quote and a comma.
        let (block, name) = (self.raw.block, self.raw.at);
        self.raw.at = end + 2;
        let value = block.get(start..end)?;
        Some(RawLabel {
            name: block.get(name..start.checked_sub(2)?)?,
            value,
            escaped: self.escapes && memchr::memchr(b'\\', value.as_bytes()).is_some(),
        })
    }
}

/// The labels of a sample, in the order of the page: name, and value with its escapes undone.
#[derive(Clone, Debug)]
pub struct Labels<'p, 't>(pub(super) RowLabels<'p, 't>);

impl<'t> Iterator for Labels<'_, 't> {
    type Item = (&'t str, Cow<'t, str>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|l| (l.name, l.text()))
    }
}

/// Undoes `\\`, `\"` and `\n`. A backslash before anything else stands for itself, as in Prometheus.
#[inline]
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let (put, skip) = match rest.as_bytes().get(at + 1) {
            Some(b'n') => ('\n', 2),
            Some(b'"') => ('"', 2),
            Some(b'\\') => ('\\', 2),
            _ => ('\\', 1),
        };
        out.push(put);
        rest = &rest[at + skip..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}
