//! A sample's labels: slicing a label block, and undoing escapes.

use super::scan::{label_name_end, skip_blanks, string_end};
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
    /// From name to closing quote.
    pub(super) whole: &'t str,
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
    let (value, whole) = (&text[quote + 1..end], &text[at..=end]);
    Some((Item::Label(RawLabel { name, value, whole }), end + 1))
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
        let equals = label_name_end(b, start);
        let value = equals + 2;
        let end = string_end(b, value)?;
        self.at = end + 2;
        Some(RawLabel {
            name: self.block.get(start..equals)?,
            value: self.block.get(value..end)?,
            whole: self.block.get(start..=end)?,
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

/// The labels of a sample, in the order of the page: name, and value with its escapes undone.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'t>(pub(super) RawLabels<'t>);

impl<'t> Iterator for Labels<'t> {
    type Item = (&'t str, Cow<'t, str>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|l| (l.name, unescape(l.value)))
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
