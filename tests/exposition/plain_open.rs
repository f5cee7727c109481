//! `OpenMetrics` written the simplest way from what classic text says, to know what can be said there
//! at all: which families can keep their type.

use super::strict::{Checked, Family, Labels, Names, Sample};
use super::strict_open::{self, canonical};
use std::fmt::Write;

/// A classic family alone, as `OpenMetrics`: its samples as they are, metric by metric. `None` where
/// it would break a rule of its type, so that it has none.
pub(crate) fn typed(name: &str, family: &Family) -> Option<(String, String)> {
    let (name, kind) = match family.kind.as_str() {
        "counter" => (name.strip_suffix("_total")?, "counter"),
        "untyped" => (name, "unknown"),
        kind => (name, kind),
    };
    let split = match kind {
        "histogram" => "le",
        "summary" => "quantile",
        _ => "",
    };
    let mut text = format!("# TYPE {} {kind}\n", quoted_name(name));
    if let Some(help) = &family.help {
        let help = help.replace('"', "\\\"");
        let _ = writeln!(text, "# HELP {} {help}", quoted_name(name));
    }
    let mut metrics: Vec<(Labels, Vec<&Sample>)> = Vec::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.remove(split);
        match metrics.iter_mut().find(|(seen, _)| *seen == labels) {
            Some((_, samples)) => samples.push(sample),
            None => metrics.push((labels, vec![sample])),
        }
    }
    for sample in metrics.iter().flat_map(|(_, samples)| samples) {
        text.push_str(&line(sample, split));
    }
    strict_open::check(format!("{text}# EOF\n").as_bytes(), Names::Utf8).ok()?;
    Some((name.to_owned(), text))
}

/// The same without a type: a family for each sample name.
fn untyped(family: &Family) -> String {
    let mut names: Vec<&str> = family.samples.iter().map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = String::new();
    for name in names {
        let _ = writeln!(text, "# TYPE {} unknown", quoted_name(name));
        for sample in family.samples.iter().filter(|s| s.name == name) {
            text.push_str(&line(sample, ""));
        }
    }
    text
}

/// A whole page. Where names of families clash it is not valid.
pub(crate) fn page(classic: &Checked) -> String {
    let mut text = String::new();
    for (name, family) in classic {
        match typed(name, family) {
            Some((_, block)) => text.push_str(&block),
            None => text.push_str(&untyped(family)),
        }
    }
    text + "# EOF\n"
}

fn line(sample: &Sample, split: &str) -> String {
    let legacy = super::strict::is_name(&sample.name, true);
    let mut parts = Vec::new();
    if !legacy {
        parts.push(quoted_name(&sample.name));
    }
    for (label, value) in &sample.labels {
        let value = match value.parse::<f64>() {
            Ok(number) if label == split => canonical(number),
            _ => value.clone(),
        };
        let name = if super::strict::is_name(label, false) {
            label.clone()
        } else {
            format!("\"{}\"", escaped(label))
        };
        parts.push(format!("{name}=\"{}\"", escaped(&value)));
    }
    let name = if legacy { sample.name.as_str() } else { "" };
    if parts.is_empty() {
        format!("{name} {}\n", sample.value)
    } else {
        format!("{name}{{{}}} {}\n", parts.join(","), sample.value)
    }
}

fn quoted_name(name: &str) -> String {
    if super::strict::is_name(name, true) {
        name.to_owned()
    } else {
        format!("\"{}\"", escaped(name))
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
