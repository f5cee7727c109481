//! A strict reader of classic text 0.0.4 and 1.0.0: slow, simple, and refuses whatever Prometheus,
//! Go's expfmt or a careful reader could stumble over. Shares no code with the room it checks. The
//! one for `OpenMetrics` is `strict_open.rs`.

use std::collections::{BTreeMap, BTreeSet};

/// Which names may stand on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// `[a-zA-Z_:][a-zA-Z0-9_:]*`, and nothing in quotes: text 0.0.4.
    Legacy,
    /// Any, in quotes: text 1.0.0 with `escaping=allow-utf-8`.
    Utf8,
}

/// A sample: name, labels (unescaped), value as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) value: String,
    /// `OpenMetrics` only.
    pub(crate) exemplar: Option<Exemplar>,
}

pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exemplar {
    pub(crate) labels: Labels,
    pub(crate) value: String,
    pub(crate) timestamp: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) kind: String,
    /// Escapes as written.
    pub(crate) help: Option<String>,
    /// `OpenMetrics` only.
    pub(crate) unit: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

/// Families by name.
pub(crate) type Checked = BTreeMap<String, Family>;

/// Every sample called `name`.
pub(crate) fn samples<'c>(page: &'c Checked, name: &str) -> Vec<&'c Sample> {
    page.values()
        .flat_map(|f| &f.samples)
        .filter(|s| s.name == name)
        .collect()
}

pub(crate) fn sample_count(page: &Checked) -> usize {
    page.values().map(|f| f.samples.len()).sum()
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self) -> f64 {
        self.value.parse().unwrap()
    }
}

/// A page of classic text.
pub(crate) fn check(text: &[u8], names: Names) -> Result<Checked, String> {
    let text = std::str::from_utf8(text).map_err(|e| format!("not UTF-8: {e}"))?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("no newline at the end".into());
    }
    let mut page = Checked::new();
    let mut series = BTreeSet::new();
    let mut current: Option<String> = None;
    let mut help: Option<(String, String)> = None;
    for (n, line) in text.split_terminator('\n').enumerate() {
        let at = |what: &str| format!("line {}: {what}: {line}", n + 1);
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = family_name(rest, names).map_err(|e| at(&e))?;
            if help.is_some() {
                return Err(at("HELP out of place"));
            }
            check_escapes(text, "\\n").map_err(|e| at(&e))?;
            help = Some((name, text.into()));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family_name(rest, names).map_err(|e| at(&e))?;
            if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
                return Err(at("no type of classic text"));
            }
            if page.contains_key(&name) {
                return Err(at("family a second time"));
            }
            let help = match help.take() {
                Some((of, text)) if of == name => Some(text),
                Some(_) => return Err(at("HELP of another family before it")),
                None => None,
            };
            let family = Family {
                kind: kind.into(),
                help,
                unit: None,
                samples: Vec::new(),
            };
            page.insert(name.clone(), family);
            current = Some(name);
        } else {
            let sample = sample(line, names).map_err(|e| at(&e))?;
            let name = current
                .as_ref()
                .filter(|_| help.is_none())
                .ok_or_else(|| at("sample before a TYPE"))?;
            let family = page.get_mut(name).unwrap();
            belongs(&sample, name, &family.kind).map_err(|e| at(&e))?;
            if !series.insert((sample.name.clone(), without_empty(&sample.labels))) {
                return Err(at("series a second time"));
            }
            family.samples.push(sample);
        }
    }
    if help.is_some() {
        return Err("HELP without a TYPE at the end".into());
    }
    for (name, family) in &page {
        if family.samples.is_empty() {
            return Err(format!("family {name} without samples"));
        }
        // expfmt takes `# TYPE x_count …` for a second TYPE of the histogram `x`.
        let reserved: &[&str] = match family.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["_sum", "_count"],
            _ => &[],
        };
        for suffix in reserved {
            if page.contains_key(&format!("{name}{suffix}")) {
                return Err(format!(
                    "{name}{suffix} is reserved by the {} {name}",
                    family.kind
                ));
            }
        }
    }
    Ok(page)
}

fn belongs(sample: &Sample, family: &str, kind: &str) -> Result<(), String> {
    let suffix = sample
        .name
        .strip_prefix(family)
        .ok_or("sample of another family")?;
    let split = match kind {
        "histogram" => "le",
        "summary" => "quantile",
        _ => "",
    };
    if let Some(value) = sample.label(split) {
        // As a label it is spelled as it came; it has to be a number for Go.
        if !value
            .parse::<f64>()
            .is_ok_and(|n| n.is_finite() || !value.contains(|c: char| c.is_ascii_digit()))
        {
            return Err(format!("{split}: no number: {value}"));
        }
    }
    let good = match (kind, suffix) {
        ("histogram", "_bucket") | ("summary", "") => sample.label(split).is_some(),
        ("histogram" | "summary", "_sum" | "_count") => true,
        (_, suffix) => split.is_empty() && suffix.is_empty(),
    };
    if good {
        Ok(())
    } else {
        Err(format!("no sample of a {kind} {family}"))
    }
}

/// Reads one sample line without timestamp or exemplar.
pub(crate) fn sample(line: &str, names: Names) -> Result<Sample, String> {
    let (name, labels, rest) = series(line, names)?;
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    number(value)?;
    Ok(Sample {
        name,
        labels,
        value: value.into(),
        exemplar: None,
    })
}

/// The name and labels that a sample line begins with, and what follows them.
pub(crate) fn series(line: &str, names: Names) -> Result<(String, Labels, &str), String> {
    if names == Names::Utf8
        && let Some(block) = line.strip_prefix("{\"")
    {
        let (name, rest) = quoted(block)?;
        if name.is_empty() {
            return Err("no metric name".into());
        }
        if let Some(block) = rest.strip_prefix(',') {
            let (labels, rest) = label_block(block, names)?;
            return Ok((name, labels, rest));
        }
        let rest = rest.strip_prefix('}').ok_or("no end of labels")?;
        return Ok((name, Labels::new(), rest));
    }
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err("no metric name".into());
    }
    match rest.strip_prefix('{') {
        Some(block) if block.starts_with('}') => Err("empty braces".into()),
        Some(block) => {
            let (labels, rest) = label_block(block, names)?;
            Ok((name.into(), labels, rest))
        }
        None => Ok((name.into(), Labels::new(), rest)),
    }
}

/// Reads labels, at least one, up to the closing brace; gives them and what follows it.
pub(crate) fn label_block(mut block: &str, names: Names) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    loop {
        let (label, after) = match block.strip_prefix('"') {
            Some(inside) if names == Names::Utf8 => {
                let (label, after) = quoted(inside)?;
                (label, after.strip_prefix("=\"").ok_or("no label")?)
            }
            _ => {
                let (label, after) = block.split_once("=\"").ok_or("no label")?;
                if !is_name(label, false) {
                    return Err(format!("no label name: {label}"));
                }
                (label.to_owned(), after)
            }
        };
        if label.is_empty() || label == "__name__" {
            return Err(format!("no label name: {label}"));
        }
        let (value, after) = quoted(after)?;
        if labels.insert(label.clone(), value).is_some() {
            return Err(format!("label {label} a second time"));
        }
        if let Some(next) = after.strip_prefix(',') {
            block = next;
        } else {
            let rest = after.strip_prefix('}').ok_or("no end of labels")?;
            return Ok((labels, rest));
        }
    }
}

/// The family that a HELP, TYPE or UNIT line names, and what follows it.
pub(crate) fn family_name(text: &str, names: Names) -> Result<(String, &str), String> {
    match text.strip_prefix('"') {
        Some(inside) if names == Names::Utf8 => {
            let (name, rest) = quoted(inside)?;
            let rest = rest.strip_prefix(' ').ok_or("no text after the name")?;
            if name.is_empty() {
                return Err("no family name".into());
            }
            Ok((name, rest))
        }
        _ => {
            let (name, rest) = text.split_once(' ').ok_or("no text after the name")?;
            if !is_name(name, true) {
                return Err("no family name".into());
            }
            Ok((name.into(), rest))
        }
    }
}

/// What makes a series: a label with an empty value is none.
pub(crate) fn without_empty(labels: &Labels) -> Labels {
    let full = labels.iter().filter(|(_, value)| !value.is_empty());
    full.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Reads up to the closing quote; gives the unescaped text and what follows.
pub(crate) fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((out, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some(c @ ('\\' | '"')) => out.push(c),
                other => return Err(format!("escape {other:?}")),
            },
            c => out.push(c),
        }
    }
    Err("no closing quote".into())
}

pub(crate) fn check_escapes(text: &str, allowed: &str) -> Result<(), String> {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && !chars.next().is_some_and(|c| allowed.contains(c)) {
            return Err("escape in HELP".into());
        }
    }
    Ok(())
}

pub(crate) fn is_name(name: &str, colon: bool) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colon && c == ':');
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(good)
}

/// What Go's ParseFloat takes in decimal, without overflow.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    if ["NaN", "+Inf", "-Inf"].contains(&text) {
        return Ok(text.parse().unwrap());
    }
    let value: f64 = text.parse().map_err(|_| format!("no number: {text}"))?;
    if value.is_finite()
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
    {
        Ok(value)
    } else {
        Err(format!("no number as it should be spelled: {text}"))
    }
}
