//! How an engine that kvgauge does not know is to be read: what an operator writes, checked.
//!
//! A mapping names the gauge, and its unit, for each value. Nothing is guessed: a gauge without a unit
//! can't be written. The engine room reads by it.

use super::error::quote;
use std::fmt;
use std::str::FromStr;
use toml::de::DeValue;

/// The keys of a mapping.
pub(super) const KEYS: [&str; 10] = [
    "usage",
    "used",
    "capacity",
    "fill",
    "running",
    "queued",
    "hit_rate",
    "block_size",
    "model",
    "rank",
];

/// The most bytes of a selector. A metric's name and a few labels have some hundred.
const MOST_BYTES: usize = 1024;

/// What a mapped gauge counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappedUnit {
    /// A share from 0 to 1.
    Fraction,
    /// A share from 0 to 100.
    Percent,
    /// Tokens.
    Tokens,
    /// Blocks of [`MappingSpec::block_size`] tokens.
    Blocks,
    /// Requests.
    Requests,
}

/// A gauge, and the samples of it that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedGauge {
    name: Box<str>,
    /// Every one of these labels must have this value.
    only: Vec<(Box<str>, Box<str>)>,
    unit: MappedUnit,
}

/// How many tokens a block has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// This many.
    Tokens(u64),
    /// What this gauge says; the largest value on the page.
    Gauge(MappedGauge),
}

/// A mapping as it is written, not checked yet: [`Mapping::new`] does that. A section of settings has
/// a key for each field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingSpec {
    /// Share of the pool held by running requests (fraction, percent).
    pub usage: Option<MappedGauge>,
    /// Held by running requests (tokens, blocks).
    pub used: Option<MappedGauge>,
    /// What fits (tokens, blocks).
    pub capacity: Option<MappedGauge>,
    /// Share that is physically occupied (fraction, percent).
    pub fill: Option<MappedGauge>,
    /// Requests running.
    pub running: Option<MappedGauge>,
    /// Requests in the queue.
    pub queued: Option<MappedGauge>,
    /// Prefix cache hit rate (fraction, percent).
    pub hit_rate: Option<MappedGauge>,
    /// Tokens a block has, where something is counted in blocks.
    pub block_size: Option<BlockSize>,
    /// The label that names the model.
    pub model: Option<Box<str>>,
    /// The label that tells data-parallel ranks, or other separate pools, apart.
    pub rank: Option<Box<str>>,
}

/// A mapping that can be read by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping(MappingSpec);

/// Why a mapping can't be read by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// A text is no metric's name with labels.
    #[error("{text:?} {problem}; write a metric's name, or name{{label=\"value\"}}")]
    Selector {
        /// The beginning of the text.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A unit that a value can't have.
    #[error("`{value}` can't be counted in {unit}; it is counted in {allowed}")]
    Unit {
        /// The value.
        value: &'static str,
        /// Its unit.
        unit: MappedUnit,
        /// The units that it may have.
        allowed: &'static str,
    },
    /// Neither a usage, nor what it could be made of.
    #[error("it gives no usage: name `usage`, or `used` and `capacity` in the same unit")]
    NoUsage,
    /// A block size of 0.
    #[error("`block_size` is 0")]
    NoBlockSize,
    /// A label that can't be one.
    #[error("`{field}` is {label:?}, which is no label's name")]
    Label {
        /// `model` or `rank`.
        field: &'static str,
        /// What it is.
        label: String,
    },
}

// === impl MappingError ===

impl MappingError {
    /// The key that is wrong, where it is a single one.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self {
            MappingError::Selector { .. } | MappingError::NoUsage => None,
            MappingError::Unit { value, .. } => Some(value),
            MappingError::NoBlockSize => Some("block_size"),
            MappingError::Label { field, .. } => Some(field),
        }
    }
}

// === impl MappingSpec ===

/// How a gauge is written.
const GAUGE: &str = "write { metric = \"a metric's name\", unit = \"fraction, percent, tokens, blocks or requests\" }";

impl MappingSpec {
    /// Sets one of [`KEYS`] from the value in the file. The error is a whole sentence; a key that is
    /// none is passed over.
    pub(super) fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        let place = match key {
            "usage" => &mut self.usage,
            "used" => &mut self.used,
            "capacity" => &mut self.capacity,
            "fill" => &mut self.fill,
            "running" => &mut self.running,
            "queued" => &mut self.queued,
            "hit_rate" => &mut self.hit_rate,
            "block_size" => {
                self.block_size = Some(block_size(value)?);
                return Ok(());
            }
            "model" | "rank" => {
                let label = value.as_str().ok_or("is the name of a label, in quotes")?;
                let place = if key == "model" {
                    &mut self.model
                } else {
                    &mut self.rank
                };
                *place = Some(label.into());
                return Ok(());
            }
            _ => return Ok(()),
        };
        *place = Some(gauge(value)?);
        Ok(())
    }

    /// All that is wrong with it, each key for itself, then the whole.
    pub(super) fn faults(&self) -> Vec<MappingError> {
        use MappedUnit::{Blocks, Fraction, Percent, Requests, Tokens};
        let mut faults = Vec::new();
        let shares = (&[Fraction, Percent][..], "fraction or percent");
        let amounts = (&[Tokens, Blocks][..], "tokens or blocks");
        let numbers = (&[Requests][..], "requests");
        for (value, gauge, (allowed, names)) in [
            ("usage", &self.usage, shares),
            ("fill", &self.fill, shares),
            ("hit_rate", &self.hit_rate, shares),
            ("used", &self.used, amounts),
            ("capacity", &self.capacity, amounts),
            ("running", &self.running, numbers),
            ("queued", &self.queued, numbers),
        ] {
            if let Some(gauge) = gauge
                && !allowed.contains(&gauge.unit)
            {
                faults.push(MappingError::Unit {
                    value,
                    unit: gauge.unit,
                    allowed: names,
                });
            }
        }
        match &self.block_size {
            Some(BlockSize::Tokens(0)) => faults.push(MappingError::NoBlockSize),
            Some(BlockSize::Gauge(gauge)) if gauge.unit != Tokens => {
                faults.push(MappingError::Unit {
                    value: "block_size",
                    unit: gauge.unit,
                    allowed: "tokens",
                });
            }
            _ => {}
        }
        for (field, label) in [("model", &self.model), ("rank", &self.rank)] {
            if let Some(label) = label
                && !is_name(label, false)
            {
                faults.push(MappingError::Label {
                    field,
                    label: label.chars().take(80).collect(),
                });
            }
        }
        let quotient = match (&self.used, &self.capacity) {
            (Some(used), Some(capacity)) => used.unit == capacity.unit || self.block_size.is_some(),
            _ => false,
        };
        if self.usage.is_none() && !quotient {
            faults.push(MappingError::NoUsage);
        }
        faults
    }
}

fn gauge(value: &DeValue<'_>) -> Result<MappedGauge, String> {
    let DeValue::Table(table) = value else {
        return Err(format!("a metric and its unit are needed; {GAUGE}"));
    };
    let (mut metric, mut unit) = (None, None);
    for (key, value) in table {
        let text = value.get_ref().as_str();
        match (&**key.get_ref(), text) {
            ("metric", Some(text)) => metric = Some(text),
            ("unit", Some(text)) => unit = Some(text),
            ("metric" | "unit", None) => {
                return Err(format!("`{}` is no text; {GAUGE}", key.get_ref()));
            }
            (other, _) => return Err(format!("unknown key {}; {GAUGE}", quote(other))),
        }
    }
    let (Some(metric), Some(unit)) = (metric, unit) else {
        let missing = if metric.is_none() { "metric" } else { "unit" };
        return Err(format!("`{missing}` is missing; {GAUGE}"));
    };
    let unit = unit
        .parse()
        .map_err(|()| format!("{} is no unit; {GAUGE}", quote(unit)))?;
    MappedGauge::new(metric, unit).map_err(|error| error.to_string())
}

/// A number of tokens, or the metric that says it.
fn block_size(value: &DeValue<'_>) -> Result<BlockSize, String> {
    const ALLOWED: &str = "write a number of tokens, or the name of the metric that says it";
    match value {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
            .map(BlockSize::Tokens)
            .map_err(|_| {
                format!(
                    "{} is no number of tokens; {ALLOWED}",
                    quote(number.as_str())
                )
            }),
        DeValue::String(metric) => MappedGauge::new(metric, MappedUnit::Tokens)
            .map(BlockSize::Gauge)
            .map_err(|error| error.to_string()),
        _ => Err(format!("is neither; {ALLOWED}")),
    }
}

// === impl MappedUnit ===

impl MappedUnit {
    /// Every unit.
    pub const ALL: [MappedUnit; 5] = [
        MappedUnit::Fraction,
        MappedUnit::Percent,
        MappedUnit::Tokens,
        MappedUnit::Blocks,
        MappedUnit::Requests,
    ];

    /// The name in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            MappedUnit::Fraction => "fraction",
            MappedUnit::Percent => "percent",
            MappedUnit::Tokens => "tokens",
            MappedUnit::Blocks => "blocks",
            MappedUnit::Requests => "requests",
        }
    }
}

impl fmt::Display for MappedUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MappedUnit {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let mut all = MappedUnit::ALL.into_iter();
        all.find(|unit| unit.as_str() == s).ok_or(())
    }
}

// === impl MappedGauge ===

impl MappedGauge {
    /// From a metric's name, or a name with the labels that are meant:
    /// `blocks{type="used",device=gpu}`. Values may stand in quotes, with `\"` and `\\`.
    ///
    /// # Errors
    /// When the text is none of these.
    pub fn new(selector: &str, unit: MappedUnit) -> Result<MappedGauge, MappingError> {
        let refuse = |problem| MappingError::Selector {
            text: selector.chars().take(80).collect(),
            problem,
        };
        if selector.len() > MOST_BYTES {
            return Err(refuse("is too long"));
        }
        let text = selector.trim();
        let (name, labels) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => (
                name.trim_end(),
                rest.strip_suffix('}')
                    .ok_or_else(|| refuse("has no closing brace"))?,
            ),
        };
        if !is_name(name, true) {
            return Err(refuse("has no metric's name"));
        }
        let mut only = Vec::new();
        let mut rest = labels.trim();
        while !rest.is_empty() {
            let (label, value) = rest
                .split_once('=')
                .ok_or_else(|| refuse("has a label without a value"))?;
            let label = label.trim();
            if !is_name(label, false) {
                return Err(refuse("has a label's name that is none"));
            }
            let (value, after) =
                label_value(value.trim_start()).ok_or_else(|| refuse("has a broken value"))?;
            only.push((label.into(), value.into()));
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if after.is_empty() => after,
                None => return Err(refuse("has something behind a value")),
            };
        }
        Ok(MappedGauge {
            name: name.into(),
            only,
            unit,
        })
    }

    /// The metric's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit.
    #[must_use]
    pub fn unit(&self) -> MappedUnit {
        self.unit
    }

    /// The labels, and their values, of the samples that are meant; none for all samples.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.only.iter().map(|(label, value)| (&**label, &**value))
    }
}

impl fmt::Display for MappedGauge {
    /// For people: name and labels, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (n, (label, value)) in self.labels().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            write!(f, "{before}{label}={value:?}")?;
        }
        if !self.only.is_empty() {
            f.write_str("}")?;
        }
        Ok(())
    }
}

/// Whether this can be the name of a metric, or of a label (which has no colons).
fn is_name(text: &str, colons: bool) -> bool {
    let start = |b: u8| b.is_ascii_alphabetic() || b == b'_' || (colons && b == b':');
    let mut bytes = text.bytes();
    bytes.next().is_some_and(start) && bytes.all(|b| start(b) || b.is_ascii_digit())
}

/// A value in quotes, or up to the next comma; and what stands behind it.
fn label_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        let value = value.trim_end();
        return (!value.contains(['"', '{', '}'])).then(|| (value.to_owned(), after));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                c @ ('"' | '\\') => value.push(c),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    None
}

// === impl Mapping ===

impl Mapping {
    /// Checks what is written.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn new(spec: MappingSpec) -> Result<Mapping, MappingError> {
        match spec.faults().into_iter().next() {
            None => Ok(Mapping(spec)),
            Some(first) => Err(first),
        }
    }

    /// Whether a family of this name is one that the mapping reads.
    #[must_use]
    pub fn is_kv_family(&self, name: &str) -> bool {
        let size = match &self.0.block_size {
            Some(BlockSize::Gauge(gauge)) => Some(gauge),
            _ => None,
        };
        let mut gauges = self.gauges().filter_map(|(_, gauge)| gauge).chain(size);
        gauges.any(|gauge| *gauge.name == *name)
    }

    /// What was written.
    #[must_use]
    pub fn spec(&self) -> &MappingSpec {
        &self.0
    }

    /// Every value with its gauge, where it has one.
    pub fn gauges(&self) -> impl Iterator<Item = (&'static str, Option<&MappedGauge>)> {
        let spec = &self.0;
        [
            ("usage", &spec.usage),
            ("used", &spec.used),
            ("capacity", &spec.capacity),
            ("fill", &spec.fill),
            ("running", &spec.running),
            ("queued", &spec.queued),
            ("hit_rate", &spec.hit_rate),
        ]
        .into_iter()
        .map(|(value, gauge)| (value, gauge.as_ref()))
    }
}
