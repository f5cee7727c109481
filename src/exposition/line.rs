//! One line of a page: a sample, a comment that says something, or nothing.

use super::MetricType;
use super::labels::{Item, item};
use super::plain::{Previous, plain_block_end, plain_sample};
use super::scan::{
    is_metric_name, metric_name_end, number, overflowed, skip_blanks, string_end, token_end,
};

/// Why a line was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Bad {
    Name,
    Labels,
    RepeatedLabel,
    Value,
    Timestamp,
    Exemplar,
    Comment,
    Type,
    Encoding,
}

/// Every reason for which a line can be dropped, for counters that exist from the start: a metric
/// name that is none, a broken label block, a label twice in one sample, a value that is no number,
/// a timestamp that is none, a broken exemplar, a HELP, TYPE or UNIT line without a name, a type that
/// is unknown or contradicts an earlier one, bytes that are no UTF-8.
pub const DROP_REASONS: [&str; 9] = [
    "name",
    "labels",
    "repeated_label",
    "value",
    "timestamp",
    "exemplar",
    "comment",
    "type",
    "encoding",
];

/// A sample line, sliced.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSample<'t> {
    pub(super) name: &'t str,
    /// It has been seen that the name is that of the sample before.
    pub(super) repeats: bool,
    /// Between the braces.
    pub(super) labels: &'t str,
    /// The values of the labels are where [`Previous`] has them.
    pub(super) sliced: bool,
    pub(super) value_text: &'t str,
    pub(super) value: f64,
    /// The label block is in canonical form: unquoted names, no blanks, no comma at the end, only the
    /// three escapes. It can be copied to a page as it is.
    pub(super) plain: bool,
    /// From `{` to the end of the line.
    pub(super) exemplar: Option<&'t str>,
}

impl RawSample<'_> {
    /// Bytes of name and labels, as written. (A quoted name stands among the labels.)
    #[inline]
    pub(super) fn label_bytes(&self) -> usize {
        let quoted = self
            .labels
            .as_bytes()
            .as_ptr_range()
            .contains(&self.name.as_ptr());
        self.labels.len() + if quoted { 0 } else { self.name.len() }
    }
}

/// A comment that says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comment<'t> {
    Help(&'t str, &'t str),
    Type(&'t str, MetricType),
    Unit(&'t str, &'t str),
    /// `# EOF`, or a remark.
    Nothing,
}

/// Reads a sample line.
#[inline]
pub(super) fn sample<'t>(line: &'t str, previous: &mut Previous<'t>) -> Result<RawSample<'t>, Bad> {
    match plain_sample(line, previous) {
        Some(sample) => Ok(sample),
        None => odd_sample(line),
    }
}

/// Everything a sample line may hold.
#[cold]
fn odd_sample(line: &str) -> Result<RawSample<'_>, Bad> {
    let b = line.as_bytes();
    let start = skip_blanks(b, 0);
    let end = metric_name_end(b, start);
    let mut name = (end > start).then(|| &line[start..end]);
    let mut at = skip_blanks(b, end);
    let mut labels = "";
    let mut plain = true;
    if b.get(at) == Some(&b'{') {
        let start = at + 1;
        let plain_end = plain_block_end(b, start);
        plain = plain_end.is_some();
        let block = match plain_end {
            Some(end) => Block { name: None, end },
            None => block(line, start)?,
        };
        if let Some(quoted) = block.name {
            if name.is_some() {
                return Err(Bad::Name);
            }
            name = Some(quoted);
        }
        labels = &line[start..block.end];
        at = block.end + 1;
    } else if at == end {
        // A name runs up to a blank or a brace.
        return Err(Bad::Name);
    }
    let name = name.ok_or(Bad::Name)?;
    let value_at = skip_blanks(b, at);
    let value_end = token_end(b, value_at);
    let value_text = &line[value_at..value_end];
    let value = number(value_text.as_bytes()).ok_or(Bad::Value)?;
    let exemplar = after_value(line, value_end)?;
    Ok(RawSample {
        name,
        repeats: false,
        labels,
        sliced: false,
        value_text,
        value,
        plain,
        exemplar,
    })
}

/// Where the label block that begins `text` with its brace ends.
pub(super) fn label_block_end(text: &str) -> Option<usize> {
    Some(block(text, 1).ok()?.end)
}

struct Block<'t> {
    name: Option<&'t str>,
    /// Where the closing brace is.
    end: usize,
}

/// Reads a label block that begins at `at`, behind its brace.
fn block(line: &str, at: usize) -> Result<Block<'_>, Bad> {
    let b = line.as_bytes();
    let mut found = Block {
        name: None,
        end: skip_blanks(b, at),
    };
    let mut names = Vec::new();
    loop {
        if b.get(found.end) == Some(&b'}') {
            break;
        }
        let (item, after) = item(line, found.end).ok_or(Bad::Labels)?;
        match item {
            Item::MetricName(_) if found.name.is_some() => return Err(Bad::Name),
            Item::MetricName(name) => found.name = Some(name),
            // Reserved; readers refuse a whole page over one.
            Item::Label(label) if label.name.starts_with("__") => return Err(Bad::Labels),
            Item::Label(label) => names.push(label.name),
        }
        found.end = skip_blanks(b, after);
        match b.get(found.end) {
            Some(b',') => found.end = skip_blanks(b, found.end + 1),
            Some(b'}') => {}
            _ => return Err(Bad::Labels),
        }
    }
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Bad::RepeatedLabel);
    }
    Ok(found)
}

/// What may follow a value: a timestamp, then an exemplar.
fn after_value(line: &str, at: usize) -> Result<Option<&str>, Bad> {
    let b = line.as_bytes();
    let mut at = skip_blanks(b, at);
    if !matches!(b.get(at), None | Some(b'#')) {
        let end = token_end(b, at);
        number(&b[at..end])
            .filter(|t| t.is_finite())
            .ok_or(Bad::Timestamp)?;
        at = skip_blanks(b, end);
    }
    match b.get(at) {
        None => Ok(None),
        Some(b'#') => exemplar(line, skip_blanks(b, at + 1)).map(Some),
        Some(_) => Err(Bad::Timestamp),
    }
}

/// An exemplar, `{trace_id="…"} 0.5 1700000000.1`.
fn exemplar(line: &str, at: usize) -> Result<&str, Bad> {
    let b = line.as_bytes();
    if b.get(at) != Some(&b'{') {
        return Err(Bad::Exemplar);
    }
    let block = block(line, at + 1).map_err(|_| Bad::Exemplar)?;
    let mut numbers = line[block.end + 1..].split_ascii_whitespace();
    let good = |text: &str| number(text.as_bytes()).is_some();
    let whole = block.name.is_none()
        && numbers.next().is_some_and(good)
        && numbers.next().is_none_or(good)
        && numbers.next().is_none();
    if whole {
        Ok(&line[at..])
    } else {
        Err(Bad::Exemplar)
    }
}

/// Reads a line whose first byte that is no blank is `#`.
pub(super) fn comment(line: &str) -> Result<Comment<'_>, Bad> {
    let b = line.as_bytes();
    let word_at = skip_blanks(b, skip_blanks(b, 0) + 1);
    let word_end = token_end(b, word_at);
    let word = &line[word_at..word_end];
    if !matches!(word, "HELP" | "TYPE" | "UNIT") {
        return Ok(Comment::Nothing);
    }
    let at = skip_blanks(b, word_end);
    let (name, after) = if b.get(at) == Some(&b'"') {
        let end = string_end(b, at + 1).ok_or(Bad::Comment)?;
        (&line[at + 1..end], end + 1)
    } else {
        let end = token_end(b, at);
        let name = &line[at..end];
        if !is_metric_name(name) {
            return Err(Bad::Comment);
        }
        (name, end)
    };
    if name.is_empty() || name.contains('\\') || !matches!(b.get(after), None | Some(b' ' | b'\t'))
    {
        return Err(Bad::Comment);
    }
    let rest = &line[skip_blanks(b, after)..];
    match word {
        "HELP" => Ok(Comment::Help(name, rest)),
        "UNIT" => Ok(Comment::Unit(name, rest.trim_end())),
        _ => MetricType::from_word(rest.trim_end())
            .map(|kind| Comment::Type(name, kind))
            .ok_or(Bad::Type),
    }
}

/// Whether a value is spelled in a way that every reader takes, so that it can be copied as it is.
pub(super) fn copyable(value: f64, text: &str) -> bool {
    value.is_finite() && !overflowed(value, text.as_bytes())
}
