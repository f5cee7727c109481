//! Metric types, and which sample names belong to a family of each type.

use std::fmt;

/// The type of a family, in the words of `OpenMetrics` 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricType {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, sum and count.
    Histogram,
    /// A histogram whose buckets may go down (`OpenMetrics` only).
    GaugeHistogram,
    /// Quantiles, sum and count.
    Summary,
    /// Facts in labels, value 1 (`OpenMetrics` only).
    Info,
    /// One of several states (`OpenMetrics` only).
    StateSet,
    /// No type given, or `untyped`, `unknown`.
    Unknown,
}

impl MetricType {
    /// The type named by the last word of a TYPE line, in any letter case.
    pub(super) fn from_word(word: &str) -> Option<MetricType> {
        const WORDS: [(&str, MetricType); 9] = [
            ("counter", MetricType::Counter),
            ("gauge", MetricType::Gauge),
            ("histogram", MetricType::Histogram),
            ("gaugehistogram", MetricType::GaugeHistogram),
            ("summary", MetricType::Summary),
            ("info", MetricType::Info),
            ("stateset", MetricType::StateSet),
            ("unknown", MetricType::Unknown),
            ("untyped", MetricType::Unknown),
        ];
        WORDS
            .iter()
            .find(|(w, _)| word.eq_ignore_ascii_case(w))
            .map(|(_, kind)| *kind)
    }

    /// The word of `OpenMetrics`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::GaugeHistogram => "gaugehistogram",
            MetricType::Summary => "summary",
            MetricType::Info => "info",
            MetricType::StateSet => "stateset",
            MetricType::Unknown => "unknown",
        }
    }

    /// The type that classic text has for it: there, an info and a state set are gauges, and a gauge
    /// histogram is a histogram.
    #[must_use]
    pub const fn in_text(self) -> MetricType {
        match self {
            MetricType::Info | MetricType::StateSet => MetricType::Gauge,
            MetricType::GaugeHistogram => MetricType::Histogram,
            other => other,
        }
    }

    /// The word on a TYPE line of classic text.
    #[must_use]
    pub const fn text_word(self) -> &'static str {
        match self.in_text() {
            MetricType::Unknown => "untyped",
            other => other.as_str(),
        }
    }

    /// The label that tells the samples of one metric of a family apart: of a histogram and a summary
    /// it must be a number.
    pub(super) const fn split_label(self, family: &str) -> Option<&str> {
        match self {
            MetricType::Histogram | MetricType::GaugeHistogram => Some("le"),
            MetricType::Summary => Some("quantile"),
            MetricType::StateSet => Some(family),
            _ => None,
        }
    }

    /// Whether any sample can be in a family of this type.
    pub(super) const fn is_free(self) -> bool {
        matches!(self, MetricType::Gauge | MetricType::Unknown)
    }

    /// The name that `OpenMetrics` has for a family of this type which classic text calls `name`.
    pub(super) fn open_name(self, name: &str) -> &str {
        let suffix = match self {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        name.strip_suffix(suffix).unwrap_or(name)
    }

    /// Whether a metric of this type is more than one sample.
    pub(super) const fn is_grouped(self) -> bool {
        self.split_label("").is_some()
    }

    /// Whether `OpenMetrics` has exemplars on some of its samples.
    pub(super) const fn has_exemplars(self) -> bool {
        use MetricType::{Counter, GaugeHistogram, Histogram};
        matches!(self, Counter | Histogram | GaugeHistogram)
    }
}

impl fmt::Display for MetricType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The end of a sample name that may belong to a family of a shorter name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    Bucket,
    Sum,
    Count,
    Total,
    Created,
    Info,
    GaugeSum,
    GaugeCount,
}

/// How a family claims a sample name with a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Reserved in classic text too: even a family typed by the sample's own name yields.
    Strong,
    /// A family typed by the sample's own name comes first.
    Weak,
}

impl Suffix {
    /// Splits a sample name into family name and suffix.
    pub(super) fn split(name: &str) -> Option<(&str, Suffix)> {
        let at = memchr::memrchr(b'_', name.as_bytes())?;
        let suffix = match &name[at..] {
            "_bucket" => Suffix::Bucket,
            "_sum" => Suffix::Sum,
            "_count" => Suffix::Count,
            "_total" => Suffix::Total,
            "_created" => Suffix::Created,
            "_info" => Suffix::Info,
            "_gsum" => Suffix::GaugeSum,
            "_gcount" => Suffix::GaugeCount,
            _ => return None,
        };
        (at > 0).then(|| (&name[..at], suffix))
    }

    /// Whether and how a family of type `kind` claims names with this suffix.
    pub(super) const fn claim(self, kind: MetricType) -> Option<Claim> {
        use MetricType::{Counter, GaugeHistogram, Histogram, Info, Summary};
        match (kind, self) {
            (Histogram, Suffix::Bucket | Suffix::Sum | Suffix::Count)
            | (GaugeHistogram, Suffix::Bucket)
            | (Summary, Suffix::Sum | Suffix::Count) => Some(Claim::Strong),
            (Histogram | Summary, Suffix::Created)
            | (Counter, Suffix::Total | Suffix::Created)
            | (GaugeHistogram, Suffix::GaugeSum | Suffix::GaugeCount | Suffix::Created)
            | (Info, Suffix::Info) => Some(Claim::Weak),
            _ => None,
        }
    }

    /// The endings of what [`is_companion_of`](Suffix::is_companion_of) a family of type `kind`.
    pub(super) const fn companions(kind: MetricType) -> &'static [&'static str] {
        use MetricType::{Counter, GaugeHistogram, Histogram, Summary};
        match kind {
            Counter | Histogram | Summary => &["_created"],
            GaugeHistogram => &["_gsum", "_gcount"],
            _ => &[],
        }
    }

    /// Whether `OpenMetrics` has samples with this suffix in a family of type `kind` that classic text
    /// has as families of their own.
    pub(super) const fn is_companion_of(self, kind: MetricType) -> bool {
        use MetricType::{Counter, GaugeHistogram, Histogram, Summary};
        matches!(
            (kind, self),
            (Counter | Histogram | Summary, Suffix::Created)
                | (GaugeHistogram, Suffix::GaugeSum | Suffix::GaugeCount)
        )
    }

    /// Whether classic text reserves this suffix beside a family of type `kind`, so that no family
    /// may be called so. A gauge histogram is written as a histogram, which reserves all three.
    pub(super) const fn reserved_in_text(self, kind: MetricType) -> bool {
        matches!(self.claim(kind.in_text()), Some(Claim::Strong))
    }
}

/// Whether classic text lets a sample be in a family of type `kind`: what its name adds to the
/// family's, and whether its label `le` or `quantile` is a number
/// (`None`: not at all). A reader like Go's `expfmt` refuses a whole page over a `le` that is none.
pub(super) const fn fits_in_text(
    kind: MetricType,
    suffix: Option<Suffix>,
    split: Option<bool>,
) -> bool {
    match (kind.in_text(), suffix) {
        (MetricType::Histogram, Some(Suffix::Bucket)) | (MetricType::Summary, None) => {
            matches!(split, Some(true))
        }
        (MetricType::Histogram | MetricType::Summary, Some(Suffix::Sum | Suffix::Count)) => {
            !matches!(split, Some(false))
        }
        (MetricType::Histogram | MetricType::Summary, _) => false,
        _ => true,
    }
}
