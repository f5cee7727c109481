//! A strict reader of classic text 0.0.4: slow, simple, and refuses whatever Prometheus, Go's expfmt
//! or a careful reader could stumble over. Shares no code with the room it checks.

use std::collections::{BTreeMap, BTreeSet};

/// A sample: name, labels (unescaped), value as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: Option<String>,
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

pub(crate) fn check(text: &[u8]) -> Result<Checked, String> {
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
            let (name, text) = rest
                .split_once(' ')
                .ok_or_else(|| at("HELP without text"))?;
            if help.is_some() || !is_name(name, true) {
                return Err(at("HELP out of place"));
            }
            check_escapes(text, "\\n").map_err(|e| at(&e))?;
            help = Some((name.into(), text.into()));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest
                .split_once(' ')
                .ok_or_else(|| at("TYPE without type"))?;
            if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
                return Err(at("no type of classic text"));
            }
            if !is_name(name, true) || page.contains_key(name) {
                return Err(at("family a second time, or no name"));
            }
            let help = match help.take() {
                Some((of, text)) if of == name => Some(text),
                Some(_) => return Err(at("HELP of another family before it")),
                None => None,
            };
            page.insert(
                name.into(),
                Family {
                    kind: kind.into(),
                    help,
                    samples: Vec::new(),
                },
            );
            current = Some(name.into());
        } else {
            let sample = sample(line).map_err(|e| at(&e))?;
            let name = current
                .as_ref()
                .filter(|_| help.is_none())
                .ok_or_else(|| at("sample before a TYPE"))?;
            let family = page.get_mut(name).unwrap();
            belongs(&sample, name, &family.kind).map_err(|e| at(&e))?;
            let labels: Vec<_> = sample
                .labels
                .clone()
                .into_iter()
                .filter(|(_, v)| !v.is_empty())
                .collect();
            if !series.insert((sample.name.clone(), labels)) {
                return Err(at("series a second time"));
            }
            family.samples.push(sample);
        }
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
pub(crate) fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err("no metric name".into());
    }
    let mut labels = BTreeMap::new();
    if let Some(mut block) = rest.strip_prefix('{') {
        if block.starts_with('}') {
            return Err("empty braces".into());
        }
        loop {
            let (label, after) = block.split_once("=\"").ok_or("no label")?;
            if !is_name(label, false) || label == "__name__" {
                return Err(format!("no label name: {label}"));
            }
            let (value, after) = quoted(after)?;
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(format!("label {label} a second time"));
            }
            if let Some(next) = after.strip_prefix(',') {
                block = next;
            } else {
                rest = after.strip_prefix('}').ok_or("no end of labels")?;
                break;
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    number(value)?;
    Ok(Sample {
        name: name.into(),
        labels,
        value: value.into(),
    })
}

/// Reads up to the closing quote; gives the unescaped text and what follows.
fn quoted(text: &str) -> Result<(String, &str), String> {
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

fn check_escapes(text: &str, allowed: &str) -> Result<(), String> {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && !chars.next().is_some_and(|c| allowed.contains(c)) {
            return Err("escape in HELP".into());
        }
    }
    Ok(())
}

fn is_name(name: &str, colon: bool) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colon && c == ':');
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(good)
}

/// What Go's ParseFloat takes in decimal, without overflow.
fn number(text: &str) -> Result<f64, String> {
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

#[test]
fn refuses_what_it_should() {
    let good = "# HELP a A.\n# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 2\nh_count 1\n";
    assert_eq!(sample_count(&check(good.as_bytes()).unwrap()), 5);
    let bad = [
        ("a 1\n", "sample before a TYPE"),
        ("# TYPE a gauge\na 1", "no newline"),
        (
            "# TYPE a gauge\na 1\n# TYPE a gauge\na{b=\"1\"} 1\n",
            "second time",
        ),
        (
            "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na{b=\"1\"} 1\n",
            "another family",
        ),
        (
            "# TYPE a gauge\na{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1\n",
            "series a second time",
        ),
        ("# TYPE a gauge\na{x=\"\"} 1\na 1\n", "series a second time"),
        ("# TYPE a gauge\na 1 5\n", "no number"),
        ("# TYPE a gauge\na 1e400\n", "no number"),
        ("# TYPE a gauge\na{x=\"\\d\"} 1\n", "escape"),
        ("# TYPE a gauge\na{x=\"1\" } 1\n", "end of labels"),
        ("# TYPE a gauge\na{x=\"1\",x=\"1\"} 1\n", "a second time"),
        ("# TYPE a gauge\r\na 1\r\n", "no type"),
        ("# TYPE a info\na 1\n", "no type"),
        ("# TYPE a histogram\na 1\n", "no sample of"),
        ("# TYPE a histogram\na_bucket{le=\"x\"} 1\n", "le"),
        ("# TYPE a summary\na_bucket{le=\"1\"} 1\n", "no sample of"),
        (
            "# TYPE a histogram\na_sum 1\n# TYPE a_count gauge\na_count 1\n",
            "reserved",
        ),
        ("# EOF\n", "no metric name"),
        ("\n", "no value"),
        ("# TYPE a gauge\n", "without samples"),
    ];
    for (text, why) in bad {
        let error = check(text.as_bytes()).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}
