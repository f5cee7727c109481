//! Label blocks written anew: in canonical form, and with a source label among them.

use super::bounds::push_float_form;
use super::labels::RawLabels;
use super::scan::is_label_name;
use super::writer::push_escaped;

/// The source label's name as it can be written. One that a reader of histograms or summaries would
/// take for theirs, or that is reserved, is put behind `source_`.
pub(super) fn writable_label(name: &str) -> String {
    let mut name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if !is_label_name(&name) || name.starts_with("__") || matches!(&*name, "le" | "quantile") {
        name.insert_str(0, "source_");
    }
    name
}

/// Writes a label block in canonical form: names outside the old character set in quotes, `false` where
/// there are such.
pub(super) fn canonical(out: &mut String, odd: &str) -> bool {
    out.clear();
    let mut legacy = true;
    for label in RawLabels::new(odd, false) {
        if !out.is_empty() {
            out.push(',');
        }
        legacy &= push_label_name(out, label.name);
        push_escaped(out, &label.text());
        out.push('"');
    }
    legacy
}

/// Appends a block in canonical form (`legacy`: none of its names is in quotes). A label called `ours` gets a new name, and the value of one called
/// `split` the form of a float.
pub(super) fn push_relabelled(
    out: &mut String,
    block: &str,
    legacy: bool,
    ours: Option<&str>,
    split: Option<&str>,
) {
    let labels = || RawLabels::new(block, legacy);
    let theirs = ours.map(|ours| {
        let mut theirs = format!("exported_{ours}");
        while labels().any(|l| l.name == theirs) {
            theirs.insert_str(0, "exported_");
        }
        theirs
    });
    for (i, label) in labels().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let renamed = theirs.as_deref().filter(|_| ours == Some(label.name));
        push_label_name(out, renamed.unwrap_or(label.name));
        if split == Some(label.name) {
            push_float_form(out, label.value);
        } else {
            out.push_str(label.value);
        }
        out.push('"');
    }
}

/// Appends what stands before a label's value. `false` where the name needs quotes.
fn push_label_name(out: &mut String, name: &str) -> bool {
    let legacy = is_label_name(name);
    let quote = if legacy { "" } else { "\"" };
    push_all(out, &[quote, name, quote, "=\""]);
    legacy
}

/// Appends all parts.
#[inline]
pub(super) fn push_all(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}
