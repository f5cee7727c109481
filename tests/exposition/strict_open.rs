//! A strict reader of `OpenMetrics` 1.0.0: slow, simple, and shares no code with the room it checks.
//!
//! Refuses what `prometheus_client` 0.26 (`openmetrics/parser.py`) and Prometheus's own parser refuse
//! (a property test and a table hold it against the first), and what the specification says beyond:
//! metadata in the order TYPE, UNIT, HELP, canonical `le` and `quantile`, only the three escapes, no
//! bare quote in HELP, a total in every metric of a counter. And what kvgauge promises beyond that:
//! each family has a TYPE and a sample, no sample has a timestamp.

use super::strict::{
    Checked, Exemplar, Family, Labels, Names, Sample, family_name, label_block, number, series,
    without_empty,
};
use std::collections::BTreeSet;

const KINDS: [&str; 8] = [
    "counter",
    "gauge",
    "histogram",
    "gaugehistogram",
    "summary",
    "info",
    "stateset",
    "unknown",
];

/// What a sample's name may add to that of its family.
pub(crate) fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total", "_created"],
        "summary" => &["", "_count", "_sum", "_created"],
        "histogram" => &["_count", "_sum", "_bucket", "_created"],
        "gaugehistogram" => &["_gcount", "_gsum", "_bucket"],
        "info" => &["_info"],
        _ => &[""],
    }
}

/// A page of `OpenMetrics`.
pub(crate) fn check(text: &[u8], names: Names) -> Result<Checked, String> {
    let text = std::str::from_utf8(text).map_err(|e| format!("not UTF-8: {e}"))?;
    let lines = text
        .strip_suffix("# EOF\n")
        .filter(|lines| lines.is_empty() || lines.ends_with('\n'))
        .ok_or("no # EOF at the end")?;
    let mut reader = Reader {
        names,
        page: Checked::new(),
        current: None,
        series: BTreeSet::new(),
    };
    for (n, line) in lines.split_terminator('\n').enumerate() {
        let read = match line {
            "" => Err("blank line".to_owned()),
            "# EOF" => Err("# EOF before the end".to_owned()),
            line if line.starts_with('#') => reader.metadata(line),
            line => reader.sample(line),
        };
        read.map_err(|e| format!("line {}: {e}: {line}", n + 1))?;
    }
    reader.close()?;
    clashes(&reader.page)?;
    Ok(reader.page)
}

struct Reader {
    names: Names,
    page: Checked,
    current: Option<Current>,
    series: BTreeSet<(String, Labels)>,
}

/// The family whose block is being read.
struct Current {
    name: String,
    family: Family,
    /// The metrics so far: labels without those that tell samples of one metric apart.
    groups: Vec<(Labels, Vec<Sample>)>,
    seen: BTreeSet<Labels>,
}

// === impl Reader ===

impl Reader {
    fn metadata(&mut self, line: &str) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family_name(rest, self.names)?;
            self.close()?;
            if !KINDS.contains(&kind) {
                return Err("no type of OpenMetrics".into());
            }
            if self.page.contains_key(&name) {
                return Err("family a second time".into());
            }
            let family = Family {
                kind: kind.into(),
                help: None,
                unit: None,
                samples: Vec::new(),
            };
            self.current = Some(Current {
                name,
                family,
                groups: Vec::new(),
                seen: BTreeSet::new(),
            });
            return Ok(());
        }
        let (what, rest) = line
            .strip_prefix("# ")
            .and_then(|rest| rest.split_once(' '))
            .ok_or("a comment")?;
        if !matches!(what, "UNIT" | "HELP") {
            return Err("a comment".into());
        }
        let (name, text) = family_name(rest, self.names)?;
        let current = self
            .current
            .as_mut()
            .filter(|current| current.name == name)
            .ok_or_else(|| format!("{what} of a family without a TYPE before it"))?;
        let family = &mut current.family;
        if !current.groups.is_empty() {
            return Err(format!("{what} after samples"));
        }
        if what == "HELP" {
            if family.help.is_some() {
                return Err("HELP a second time".into());
            }
            check_help(text)?;
            family.help = Some(text.into());
            return Ok(());
        }
        if family.unit.is_some() {
            return Err("UNIT a second time".into());
        }
        if family.help.is_some() {
            return Err("UNIT after HELP".into());
        }
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if text.is_empty() || !text.chars().all(good) {
            return Err("no unit".into());
        }
        if !name.ends_with(&format!("_{text}")) {
            return Err("the name does not end with the unit".into());
        }
        if matches!(family.kind.as_str(), "info" | "stateset") {
            return Err("no unit for this type".into());
        }
        family.unit = Some(text.into());
        Ok(())
    }

    fn sample(&mut self, line: &str) -> Result<(), String> {
        let sample = read_sample(line, self.names)?;
        let current = self.current.as_mut().ok_or("sample before a TYPE")?;
        let suffix = sample
            .name
            .strip_prefix(current.name.as_str())
            .ok_or("sample of another family")?;
        let kind = current.family.kind.as_str();
        if !suffixes(kind).contains(&suffix) {
            return Err(format!("no sample of a {kind} {}", current.name));
        }
        check_value(&sample, kind, suffix)?;
        check_split(&sample, &current.name, kind, suffix)?;
        let with_exemplar = matches!(
            (kind, suffix),
            ("counter", "_total") | ("histogram" | "gaugehistogram", "_bucket")
        );
        if sample.exemplar.is_some() && !with_exemplar {
            return Err("exemplar out of place".into());
        }
        if !self
            .series
            .insert((sample.name.clone(), without_empty(&sample.labels)))
        {
            return Err("series a second time".into());
        }
        let mut group = sample.labels.clone();
        match (kind, suffix) {
            ("histogram" | "gaugehistogram", "_bucket") => group.remove("le"),
            ("summary", "") => group.remove("quantile"),
            ("stateset", _) => group.remove(&current.name),
            _ => None,
        };
        current.family.samples.push(sample.clone());
        let last = current
            .groups
            .last()
            .is_some_and(|(last, _)| *last == group);
        if !last {
            if !current.seen.insert(group.clone()) {
                return Err("a metric in two places".into());
            }
            current.groups.push((group, Vec::new()));
        }
        if let Some((_, samples)) = current.groups.last_mut() {
            samples.push(sample);
        }
        Ok(())
    }

    /// Ends the family that is open.
    fn close(&mut self) -> Result<(), String> {
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let name = current.name;
        if current.groups.is_empty() {
            return Err(format!("family {name} without samples"));
        }
        for (_, samples) in &current.groups {
            match current.family.kind.as_str() {
                "histogram" | "gaugehistogram" => check_histogram(&name, samples)
                    .map_err(|e| format!("histogram {name}: {e}: {samples:?}"))?,
                "counter" if !samples.iter().any(|s| s.name.ends_with("_total")) => {
                    return Err(format!("counter {name} without a total: {samples:?}"));
                }
                _ => {}
            }
        }
        self.page.insert(name, current.family);
        Ok(())
    }
}

/// A sample line: `name{labels} value`, perhaps with ` # {labels} value [timestamp]`.
fn read_sample(line: &str, names: Names) -> Result<Sample, String> {
    let (name, labels, rest) = series(line, names)?;
    if labels.keys().any(|label| label.starts_with("__")) {
        return Err("a reserved label".into());
    }
    let rest = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let (value, exemplar) = match rest.split_once(" # ") {
        Some((value, exemplar)) => (value, Some(read_exemplar(exemplar, names)?)),
        None => (rest, None),
    };
    if value.contains(' ') {
        return Err("a timestamp, or a blank too many".into());
    }
    number(value)?;
    Ok(Sample {
        name,
        labels,
        value: value.into(),
        exemplar,
    })
}

fn read_exemplar(text: &str, names: Names) -> Result<Exemplar, String> {
    let block = text.strip_prefix('{').ok_or("exemplar without labels")?;
    let (labels, rest) = match block.strip_prefix('}') {
        Some(rest) => (Labels::new(), rest),
        None => label_block(block, names).map_err(|e| format!("exemplar: {e}"))?,
    };
    let chars = |(name, value): (&String, &String)| name.chars().count() + value.chars().count();
    if labels.iter().map(chars).sum::<usize>() > 128 {
        return Err("exemplar of more than 128 characters".into());
    }
    if labels.keys().any(|label| label.starts_with("__")) {
        return Err("exemplar with a reserved label".into());
    }
    // Prometheus 2.42 takes it for the end of the page here, and nowhere else.
    if labels.values().any(|value| value.contains('\0')) {
        return Err("exemplar with a null character".into());
    }
    let rest = rest.strip_prefix(' ').ok_or("exemplar without a value")?;
    let (value, timestamp) = match rest.split_once(' ') {
        Some((value, timestamp)) => (value, Some(timestamp)),
        None => (rest, None),
    };
    number(value).map_err(|e| format!("exemplar: {e}"))?;
    if let Some(timestamp) = timestamp
        && !number(timestamp).is_ok_and(f64::is_finite)
    {
        return Err(format!("exemplar's timestamp: {timestamp}"));
    }
    Ok(Exemplar {
        labels,
        value: value.into(),
        timestamp: timestamp.map(Into::into),
    })
}

/// What the value of a sample may be.
fn check_value(sample: &Sample, kind: &str, suffix: &str) -> Result<(), String> {
    let value = sample.number();
    let counts = matches!(suffix, "_total" | "_sum" | "_count" | "_bucket" | "_gcount");
    if (counts || suffix == "_gsum") && value.is_nan() {
        return Err("a count that is NaN".into());
    }
    if counts && value < 0.0 {
        return Err("a count below zero".into());
    }
    // Infinity is no whole number either.
    if matches!(suffix, "_bucket" | "_count" | "_gcount") && value.fract() != 0.0 {
        return Err("a count that is no whole number".into());
    }
    match kind {
        "stateset" if value != 0.0 && value != 1.0 => Err("a state that is not 0 or 1".into()),
        "info" if value != 1.0 => Err("an info that is not 1".into()),
        "summary" if suffix.is_empty() && value < 0.0 => Err("a quantile below zero".into()),
        _ => Ok(()),
    }
}

/// The label that tells the samples of one metric apart.
fn check_split(sample: &Sample, family: &str, kind: &str, suffix: &str) -> Result<(), String> {
    let split = match kind {
        "histogram" | "gaugehistogram" => "le",
        "summary" => "quantile",
        "stateset" => family,
        _ => return Ok(()),
    };
    let value = sample.label(split);
    if !matches!(suffix, "_bucket" | "") {
        return match value {
            Some(_) => Err(format!("{split} on a {suffix}")),
            None => Ok(()),
        };
    }
    let value = value.ok_or_else(|| format!("no label {split}"))?;
    if kind == "stateset" {
        return Ok(());
    }
    let number: f64 = value
        .parse()
        .map_err(|_| format!("{split}: no number: {value}"))?;
    if number.is_nan() || canonical(number) != value {
        return Err(format!(
            "{split}: not canonical: {value}, {}",
            canonical(number)
        ));
    }
    if split == "quantile" && !(0.0..=1.0).contains(&number) {
        return Err(format!("quantile: not from 0 to 1: {value}"));
    }
    Ok(())
}

/// The samples of one metric of a histogram or gauge histogram.
fn check_histogram(name: &str, samples: &[Sample]) -> Result<(), &'static str> {
    let of = |suffix: &str| {
        let wanted = format!("{name}{suffix}");
        samples.iter().filter(move |s| s.name == wanted)
    };
    let buckets: Vec<(f64, f64)> = of("_bucket")
        .map(|s| (s.label("le").unwrap().parse().unwrap(), s.number()))
        .collect();
    if buckets.windows(2).any(|pair| pair[1].0 <= pair[0].0) {
        return Err("buckets out of order");
    }
    if buckets.windows(2).any(|pair| pair[1].1 < pair[0].1) {
        return Err("buckets that do not add up");
    }
    let Some((f64::INFINITY, all)) = buckets.last() else {
        return Err("no bucket +Inf");
    };
    let first = |suffix| of(suffix).next().map(Sample::number);
    let count = first("_count").or(first("_gcount"));
    let (sum, gauge_sum) = (first("_sum"), first("_gsum"));
    if count.is_some_and(|count| count != *all) {
        return Err("a count that is not the bucket +Inf");
    }
    if count.is_some() != (sum.is_some() || gauge_sum.is_some()) {
        return Err("of sum and count only one");
    }
    let negative = buckets.iter().any(|(bound, _)| *bound < 0.0);
    if negative && sum.is_some() {
        return Err("a sum beside buckets below zero");
    }
    if !negative && gauge_sum.is_some_and(|sum| sum < 0.0) {
        return Err("a sum below zero without buckets there");
    }
    Ok(())
}

/// No name that a family or its samples may have is another's too.
fn clashes(page: &Checked) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (name, family) in page {
        let own = suffixes(&family.kind).iter().chain(&[""]);
        let names: BTreeSet<String> = own.map(|suffix| format!("{name}{suffix}")).collect();
        for name in names {
            if seen.contains(&name) {
                return Err(format!("{name} is reserved by two families"));
            }
            seen.insert(name);
        }
    }
    Ok(())
}

/// A help text: `\\`, `\n` and `\"` are its escapes, and a quote needs one.
fn check_help(text: &str) -> Result<(), String> {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let good = match c {
            '\\' => chars.next().is_some_and(|c| "\\n\"".contains(c)),
            c => c != '"',
        };
        if !good {
            return Err("escape in HELP".into());
        }
    }
    Ok(())
}

/// A number as `le` and `quantile` are spelled: Go's shortest `%g`, with `.0` where there is neither
/// a point nor an exponent.
pub(crate) fn canonical(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    // Rust's `{:e}` has the shortest digits too: `-1.5e-7`.
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if (-4..6).contains(&exponent) {
        let text = format!("{number}");
        return if text.contains('.') {
            text
        } else {
            format!("{text}.0")
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
