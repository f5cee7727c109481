//! The form that nearly every sample line has, `name{a="b",c="d"} 1`, read fast.
//!
//! Consecutive samples differ little: the name repeats, and of the labels a value or two change
//! (`le`, a rank). So a label block is held against the one before: where the bytes are the same,
//! what was found there holds here too, and only the values that differ are looked at. Where that
//! does not work out, the labels are read one by one.

use super::line::RawSample;
use super::scan::{common_prefix, label_name_end, metric_name_end, quote_or_backslash, string_end};

/// What the sample before had.
#[derive(Debug, Default)]
pub(super) struct Previous<'t> {
    /// Kept up by whoever reads the page.
    pub(super) name: &'t str,
    /// Its line from behind the opening brace on.
    rest: &'t [u8],
    /// Where in `rest` the closing brace is.
    close: usize,
    /// Where in `rest` the label values are; without labels, none.
    pub(super) values: Vec<Span>,
    /// `values` has changed; taken back by whoever has noted it.
    pub(super) moved: bool,
}

/// Where a label value is in its block, from behind the quote to the closing quote. Longer lines are
/// not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u16,
    pub(super) end: u16,
}

/// Reads a line in the plain form. `None` for anything else, good or bad.
#[inline]
pub(super) fn plain_sample<'t>(
    line: &'t str,
    previous: &mut Previous<'t>,
) -> Option<RawSample<'t>> {
    let b = line.as_bytes();
    let repeat = previous.name.len();
    let repeats = repeat > 0
        && b.starts_with(previous.name.as_bytes())
        && matches!(b.get(repeat), Some(b'{' | b' '));
    let name_end = if repeats {
        repeat
    } else {
        metric_name_end(b, 0)
    };
    if name_end == 0 {
        return None;
    }
    let (labels, after) = if *b.get(name_end)? == b'{' {
        let close = previous.block(&b[name_end + 1..])?;
        (&line[name_end + 1..][..close], name_end + close + 2)
    } else {
        ("", name_end)
    };
    if b.get(after) != Some(&b' ') {
        return None;
    }
    let tail = &line[after + 1..];
    let (value, len) = fast_float2::parse_partial::<f64, _>(tail).ok()?;
    if value.is_infinite() || (len != tail.len() && !is_timestamp(&tail.as_bytes()[len..])) {
        return None;
    }
    Some(RawSample {
        name: &line[..name_end],
        repeats,
        labels,
        sliced: !labels.is_empty(),
        value_text: &tail[..len],
        value,
        plain: true,
        exemplar: None,
    })
}

/// A blank and milliseconds.
fn is_timestamp(b: &[u8]) -> bool {
    b.len() > 1 && b[0] == b' ' && b[1..].iter().all(u8::is_ascii_digit)
}

// === impl Previous ===

impl<'t> Previous<'t> {
    /// The closing brace of the label block in canonical form that begins `rest`. `None` where it is
    /// not canonical.
    #[inline]
    fn block(&mut self, rest: &'t [u8]) -> Option<usize> {
        if rest.len() > usize::from(u16::MAX) {
            return None;
        }
        let close = if let Some(close) = self.follow(rest) {
            close
        } else {
            // Should it fail, nothing may be held against what is left here.
            (self.rest, self.close) = (&[], usize::MAX);
            self.moved = true;
            self.values.clear();
            plain_block(rest, |start, end| {
                self.values.push(Span {
                    start: start as u16,
                    end: end as u16,
                });
            })?
        };
        (self.rest, self.close) = (rest, close);
        Some(close)
    }

    /// Walks along the block before: same labels in the same order, whatever their values. On success
    /// `values` are those of `rest`; else they are worth nothing.
    #[inline]
    fn follow(&mut self, rest: &[u8]) -> Option<usize> {
        // The same place in both: `before`, and `here`.
        let (mut before, mut here) = (0, 0);
        let mut values = self.values.iter_mut();
        loop {
            let same = before + common_prefix(self.rest.get(before..)?, rest.get(here..)?);
            let ahead = (here as u16).wrapping_sub(before as u16);
            let differs = loop {
                match values.next() {
                    Some(value) if usize::from(value.end) < same => *value = value.shifted(ahead),
                    other => break other,
                }
            };
            let Some(value) = differs else {
                // All values are behind: the end has to be the same.
                return (same > self.close).then(|| self.close + here - before);
            };
            if same < usize::from(value.start) {
                return None;
            }
            let found = value.shifted(ahead);
            before = usize::from(value.end);
            here = plain_value_end(rest, usize::from(found.start))?;
            *value = Span {
                end: here as u16,
                ..found
            };
            self.moved |= here != before;
        }
    }
}

impl Span {
    #[inline]
    fn shifted(self, by: u16) -> Span {
        Span {
            start: self.start.wrapping_add(by),
            end: self.end.wrapping_add(by),
        }
    }
}

/// Labels of one sample that are looked at here: what follows holds each against those before it. More
/// are read one by one.
const MOST_LABELS: usize = 64;

/// The closing brace of a label block in canonical form that begins `b`. `None` where it is not
/// canonical. Tells of each label value where it begins and ends.
#[inline]
fn plain_block(b: &[u8], mut value: impl FnMut(usize, usize)) -> Option<usize> {
    if b.first() == Some(&b'}') {
        return Some(0);
    }
    let mut seen = [0u64; 4];
    let mut at = 0;
    for _ in 0..MOST_LABELS {
        let end = label_name_end(b, at);
        let name = &b[at..end];
        // Names in double underscores are reserved, `__name__` is refused: look at them closely.
        if name.is_empty() || name.starts_with(b"__") || b.get(end..end + 2) != Some(b"=\"") {
            return None;
        }
        // A small filter: nearly always it shows at once that no label is there twice.
        let bit = name_bit(name);
        let word = &mut seen[usize::from(bit >> 6)];
        if *word & (1 << (bit & 63)) != 0 && has_name(&b[..at], name) {
            return None;
        }
        *word |= 1 << (bit & 63);
        let start = end + 2;
        at = plain_value_end(b, start)?;
        value(start, at);
        match b.get(at + 1)? {
            b',' => at += 2,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
    None
}

/// The closing brace of a label block in canonical form that begins at `at`.
pub(super) fn plain_block_end(b: &[u8], at: usize) -> Option<usize> {
    Some(at + plain_block(b.get(at..)?, |_, _| {})?)
}

/// The closing quote of a label value that has no escapes but the three that there are.
#[inline]
fn plain_value_end(b: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = quote_or_backslash(b, at)?;
        if b[at] == b'"' {
            return Some(at);
        }
        if !matches!(b.get(at + 1), Some(b'\\' | b'"' | b'n')) {
            return None;
        }
        at += 2;
    }
}

/// A byte that differs between most label names.
#[inline]
fn name_bit(name: &[u8]) -> u8 {
    let (len, at) = (name.len(), |i: usize| u32::from(name[i]));
    let mixed = at(0) | at(len / 2) << 8 | at(len - 1) << 16 | (len as u32) << 24;
    (mixed.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// Whether a label called `name` stands in the canonical `block`, which ends behind a comma.
fn has_name(block: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    while at < block.len() {
        let equals = label_name_end(block, at);
        if &block[at..equals] == name {
            return true;
        }
        let Some(quote) = string_end(block, equals + 2) else {
            return false;
        };
        at = quote + 2;
    }
    false
}
