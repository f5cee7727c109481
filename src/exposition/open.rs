//! The rules of `OpenMetrics` 1.0.0 that classic text does not have.
//!
//! Readers of `OpenMetrics` refuse a whole page over one histogram that does not add up, so what is
//! written as a histogram has to be one. Held against the specification and against the reader of
//! Python's prometheus-client 0.26, the strictest there is.

use super::MetricType;
use super::kind::Suffix;
use super::labels::{RawLabels, unescape};
use super::scan::number;
use super::writer::push_foreign_value;

/// Characters of names and values that an exemplar's labels may have together.
const MOST_EXEMPLAR_CHARS: usize = 128;

/// Quantiles of one metric; nobody has more, and they are held against each other.
const MOST_QUANTILES: usize = 256;

/// What has to be known of one sample of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) suffix: Option<Suffix>,
    /// Equal for the samples of one metric: its labels, without the one that splits it.
    pub(super) metric: u64,
    /// The value of the label that splits the family; NaN where there is none.
    pub(super) split: f64,
    pub(super) value: f64,
}

/// Whether the samples, metric by metric, may stand in a family of this type under their names.
pub(super) fn follows_rules(kind: MetricType, mut samples: impl Iterator<Item = Facts>) -> bool {
    match kind {
        MetricType::Gauge | MetricType::Unknown => true,
        MetricType::Counter => {
            samples.all(|s| s.suffix == Some(Suffix::Created) || counts(s.value))
        }
        MetricType::Info => samples.all(|s| s.value == 1.0),
        MetricType::StateSet => {
            // The state is there, and is on or off.
            samples.all(|s| !s.split.is_nan() && (s.value == 0.0 || s.value == 1.0))
        }
        MetricType::Summary => summaries(samples),
        MetricType::Histogram | MetricType::GaugeHistogram => histograms(samples),
    }
}

fn summaries(samples: impl Iterator<Item = Facts>) -> bool {
    let mut metric = None;
    // Of one metric: two spellings of a quantile become one.
    let mut quantiles: Vec<f64> = Vec::new();
    for sample in samples {
        if metric != Some(sample.metric) {
            metric = Some(sample.metric);
            quantiles.clear();
        }
        let good = match sample.suffix {
            // A quantile that is not known is NaN, and is none below zero.
            None => {
                let once = quantiles.len() < MOST_QUANTILES && !quantiles.contains(&sample.split);
                quantiles.push(sample.split);
                once && (0.0..=1.0).contains(&sample.split) && !is_below_zero(sample.value)
            }
            Some(Suffix::Count) => sample.split.is_nan() && counts_whole(sample.value),
            Some(Suffix::Sum) => sample.split.is_nan() && counts(sample.value),
            _ => sample.split.is_nan(),
        };
        if !good {
            return false;
        }
    }
    true
}

/// A value that a counter can have.
fn counts(value: f64) -> bool {
    value >= 0.0
}

fn counts_whole(value: f64) -> bool {
    value >= 0.0 && value.fract() == 0.0
}

fn is_below_zero(value: f64) -> bool {
    value < 0.0
}

/// One histogram, while its samples go by.
#[derive(Default)]
struct Histogram {
    last: Option<(f64, f64)>,
    below_zero: bool,
    count: Option<f64>,
    sum: Option<f64>,
    gauge_sum: bool,
}

fn histograms(samples: impl Iterator<Item = Facts>) -> bool {
    let mut metric = None;
    let mut histogram = Histogram::default();
    for sample in samples {
        if metric != Some(sample.metric) {
            if metric.is_some() && !histogram.adds_up() {
                return false;
            }
            metric = Some(sample.metric);
            histogram = Histogram::default();
        }
        if !histogram.take(&sample) {
            return false;
        }
    }
    metric.is_none() || histogram.adds_up()
}

// === impl Histogram ===

impl Histogram {
    /// `false` where the sample can't be part of any histogram.
    fn take(&mut self, sample: &Facts) -> bool {
        if sample.suffix != Some(Suffix::Bucket) && !sample.split.is_nan() {
            return false;
        }
        match sample.suffix {
            Some(Suffix::Bucket) => {
                let after = self
                    .last
                    .is_none_or(|(le, value)| le < sample.split && value <= sample.value);
                self.last = Some((sample.split, sample.value));
                self.below_zero |= sample.split < 0.0;
                after && !sample.split.is_nan() && counts_whole(sample.value)
            }
            Some(Suffix::Count | Suffix::GaugeCount) => {
                self.count = Some(sample.value);
                counts_whole(sample.value)
            }
            Some(Suffix::Sum) => {
                self.sum = Some(sample.value);
                counts(sample.value)
            }
            Some(Suffix::GaugeSum) => {
                self.sum = Some(sample.value);
                self.gauge_sum = true;
                !sample.value.is_nan()
            }
            _ => true,
        }
    }

    fn adds_up(&self) -> bool {
        let Some((le, all)) = self.last else {
            return false;
        };
        let sum_fits = match self.sum {
            Some(sum) if self.gauge_sum => sum >= 0.0 || self.below_zero,
            Some(_) => !self.below_zero,
            None => true,
        };
        le == f64::INFINITY
            && self.count.is_none_or(|count| count == all)
            && self.count.is_some() == self.sum.is_some()
            && sum_fits
    }
}

/// Appends an exemplar with what stands before it, if `OpenMetrics` has a place for it here; `raw` is
/// from its opening brace on, as it was checked when the page was read.
pub(super) fn push_exemplar(out: &mut String, raw: &str) {
    let at = out.len();
    if push_checked_exemplar(out, raw).is_none() {
        out.truncate(at);
    }
}

fn push_checked_exemplar(out: &mut String, raw: &str) -> Option<()> {
    let close = super::line::label_block_end(raw)?;
    let labels = RawLabels::new(&raw[1..close], false);
    let mut chars = 0;
    out.push_str(" # {");
    for (i, label) in labels.enumerate() {
        if !super::scan::is_label_name(label.name) {
            return None;
        }
        let value = unescape(label.value);
        // Prometheus's reader takes it for the end of the page there, and only there.
        if value.contains('\0') {
            return None;
        }
        chars += label.name.len() + value.chars().count();
        if i > 0 {
            out.push(',');
        }
        super::relabel::push_all(out, &[label.name, "=\""]);
        super::writer::push_escaped(out, &value);
        out.push('"');
    }
    if chars > MOST_EXEMPLAR_CHARS {
        return None;
    }
    out.push_str("} ");
    let mut numbers = raw[close + 1..].split_ascii_whitespace();
    let text = numbers.next()?;
    push_foreign_value(out, number(text.as_bytes())?, text);
    if let Some(time) = numbers.next() {
        number(time.as_bytes()).filter(|t| t.is_finite())?;
        super::relabel::push_all(out, &[" ", time]);
    }
    Some(())
}

/// Whether a UNIT line may say this of a family of this name and type.
pub(super) fn unit_fits(unit: &str, name: &str, kind: MetricType) -> bool {
    let legal = unit
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
    let suffix = name
        .strip_suffix(unit)
        .is_some_and(|rest| rest.ends_with('_'));
    !unit.is_empty() && legal && suffix && !matches!(kind, MetricType::Info | MetricType::StateSet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(suffix: Suffix, split: f64, value: f64) -> Facts {
        Facts {
            suffix: Some(suffix),
            metric: 1,
            split,
            value,
        }
    }

    #[test]
    fn a_histogram_has_to_add_up() {
        use Suffix::{Bucket, Count, Sum};
        let inf = f64::INFINITY;
        let good = vec![
            fact(Bucket, 1.0, 2.0),
            fact(Bucket, inf, 3.0),
            fact(Count, f64::NAN, 3.0),
            fact(Sum, f64::NAN, 4.5),
        ];
        let rules = |facts: &[Facts]| follows_rules(MetricType::Histogram, facts.iter().copied());
        assert!(rules(&good));
        assert!(rules(&good[..2]));
        assert!(rules(&[]));
        let mut other = good[..2].to_vec();
        other.iter_mut().for_each(|f| f.metric = 2);
        assert!(rules(&[good.clone(), other].concat()));
        let with = |at: usize, fact: Facts| {
            let mut facts = good.clone();
            facts[at] = fact;
            facts
        };
        for bad in [
            good[1..3].to_vec(),
            good[..3].to_vec(),
            good[2..].to_vec(),
            good[..1].to_vec(),
            with(0, fact(Bucket, inf, 2.0)),
            with(0, fact(Bucket, 1.0, 4.0)),
            with(0, fact(Bucket, 1.0, 0.5)),
            with(0, fact(Bucket, f64::NAN, 0.0)),
            with(0, fact(Bucket, -1.0, 0.0)),
            with(2, fact(Count, f64::NAN, 4.0)),
            with(3, fact(Sum, f64::NAN, -1.0)),
            with(3, fact(Sum, f64::NAN, f64::NAN)),
        ] {
            assert!(!rules(&bad), "{bad:?}");
        }
    }
}
