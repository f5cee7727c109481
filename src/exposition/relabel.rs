//! Label blocks written anew: in canonical form, and with a source label among them.

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

/// Writes a label block in canonical form. `false` where classic text can't hold a name of it.
pub(super) fn canonical(out: &mut String, odd: &str) -> bool {
    out.clear();
    for label in RawLabels::new(odd, false) {
        if !is_label_name(label.name) {
            return false;
        }
        push_all(
            out,
            &[if out.is_empty() { "" } else { "," }, label.name, "=\""],
        );
        push_escaped(out, &label.text());
        out.push('"');
    }
    true
}

/// Appends a block that has a label called `ours`, under its new name.
pub(super) fn push_exported(out: &mut String, block: &str, ours: &str) {
    let mut theirs = format!("exported_{ours}");
    while RawLabels::new(block, true).any(|l| l.name == theirs) {
        theirs.insert_str(0, "exported_");
    }
    for label in RawLabels::new(block, true) {
        let name = if label.name == ours {
            &theirs
        } else {
            label.name
        };
        push_all(out, &[",", name, "=\"", label.value, "\""]);
    }
}

/// Appends all parts.
#[inline]
pub(super) fn push_all(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}
