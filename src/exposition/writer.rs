//! Writing classic text 0.0.4: escapes, numbers, and a small writer for own families.

use super::MetricType;
use super::labels::unescape;
use super::line::copyable;

/// Appends a label value with its escapes. Text without any is copied as a whole.
pub(super) fn push_escaped(out: &mut String, value: &str) {
    push_with(out, value, |b| match b {
        b'\\' => Some("\\\\"),
        b'"' => Some("\\\""),
        b'\n' => Some("\\n"),
        _ => None,
    });
}

/// Appends a help text with its escapes: in classic text a quote has none there.
pub(super) fn push_help(out: &mut String, help: &str) {
    push_with(out, help, |b| match b {
        b'\\' => Some("\\\\"),
        b'\n' => Some("\\n"),
        _ => None,
    });
}

fn push_with(out: &mut String, text: &str, escape: impl Fn(u8) -> Option<&'static str>) {
    let mut from = 0;
    for (at, b) in text.bytes().enumerate() {
        if let Some(escaped) = escape(b) {
            out.push_str(&text[from..at]);
            out.push_str(escaped);
            from = at + 1;
        }
    }
    out.push_str(&text[from..]);
}

/// Appends a help text as another page has written it.
pub(super) fn push_foreign_help(out: &mut String, raw: &str) {
    push_help(out, &unescape(raw));
}

/// Appends a value: shortest digits, no fraction where there is none.
pub(super) fn push_value(out: &mut String, value: f64) {
    // 2^53: beyond, neighbouring integers are no longer told apart, and the shortest form is honest.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value.fract() == 0.0 && value.abs() <= EXACT {
        out.push_str(itoa::Buffer::new().format(value as i64));
    } else {
        out.push_str(zmij::Buffer::new().format_finite(value));
    }
}

/// Appends a value as it came; only NaN and the infinities are spelled anew.
pub(super) fn push_foreign_value(out: &mut String, value: f64, text: &str) {
    if copyable(value, text) {
        out.push_str(text);
    } else {
        push_value(out, value);
    }
}

/// Appends a help text of classic text for `OpenMetrics`, where a quote needs an escape.
pub(super) fn push_quotes_escaped(out: &mut String, help: &str) {
    push_with(out, help, |b| (b == b'"').then_some("\\\""));
}

/// Appends `# TYPE` of classic text.
pub(super) fn push_type(out: &mut String, name: &str, kind: MetricType) {
    for part in ["# TYPE ", name, " ", kind.text_word(), "\n"] {
        out.push_str(part);
    }
}

/// Writes a page of own families in classic text. Names are the caller's to get right: each family
/// once, its samples directly after it, legacy characters only.
///
/// ```
/// use kvgauge::exposition::{MetricType, TextWriter};
/// let mut page = TextWriter::new();
/// page.family("kvgauge_source_up", MetricType::Gauge, "Whether the last attempt was good.");
/// page.sample("", &[("source", "decode")], 1.0);
/// assert!(page.finish().ends_with(b"kvgauge_source_up{source=\"decode\"} 1\n"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextWriter {
    out: String,
    family: String,
}

impl TextWriter {
    /// An empty page.
    #[must_use]
    pub fn new() -> TextWriter {
        TextWriter::default()
    }

    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: MetricType, help: &str) {
        if !help.is_empty() {
            for part in ["# HELP ", name, " "] {
                self.out.push_str(part);
            }
            push_help(&mut self.out, help);
            self.out.push('\n');
        }
        push_type(&mut self.out, name, kind);
        self.family.clear();
        self.family.push_str(name);
    }

    /// A sample of the family begun last; `suffix` is put behind its name (`_bucket`, or nothing).
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.out.push_str(&self.family);
        self.out.push_str(suffix);
        let mut before = '{';
        for (name, text) in labels {
            self.out.push(before);
            self.out.push_str(name);
            self.out.push_str("=\"");
            push_escaped(&mut self.out, text);
            self.out.push('"');
            before = ',';
        }
        self.out
            .push_str(if labels.is_empty() { " " } else { "} " });
        push_value(&mut self.out, value);
        self.out.push('\n');
    }

    /// The page.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.out.into_bytes()
    }
}
