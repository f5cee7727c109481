//! The simulated router's metrics page, in the format of sglang-router 0.3.2: no HELP, a blank line
//! after each family, integers without a point, any order.

use crate::sim::page::escape;
use crate::sim::rng::Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The values so far. A family exists from its first value on.
#[derive(Debug, Default)]
pub(super) struct RouterPage {
    families: BTreeMap<&'static str, Family>,
}

#[derive(Debug)]
struct Family {
    kind: &'static str,
    /// By the labels as text.
    series: BTreeMap<String, Value>,
}

#[derive(Debug, Default)]
struct Value {
    number: f64,
    count: u64,
    min: f64,
    max: f64,
    buckets: [u64; BOUNDS.len()],
}

/// Upper bounds of the router's duration histograms in seconds.
const BOUNDS: [&str; 20] = [
    "0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "15",
    "30", "45", "60", "90", "120", "180", "240",
];

const QUANTILES: [&str; 7] = ["0", "0.5", "0.9", "0.95", "0.99", "0.999", "1"];

/// Series of one family; more are not begun.
const MAX_SERIES: usize = 512;

pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl RouterPage {
    pub(super) fn add(&mut self, name: &'static str, labels: Labels<'_>, value: f64) {
        if let Some(series) = self.series(name, "counter", labels) {
            series.number += value;
        }
    }

    pub(super) fn set(&mut self, name: &'static str, labels: Labels<'_>, value: f64) {
        if let Some(series) = self.series(name, "gauge", labels) {
            series.number = value;
        }
    }

    /// Adds to a gauge.
    pub(super) fn shift(&mut self, name: &'static str, labels: Labels<'_>, by: f64) {
        if let Some(series) = self.series(name, "gauge", labels) {
            series.number += by;
        }
    }

    pub(super) fn observe(&mut self, name: &'static str, labels: Labels<'_>, value: f64) {
        self.sample(name, "histogram", labels, value);
    }

    pub(super) fn summarize(&mut self, name: &'static str, labels: Labels<'_>, value: f64) {
        self.sample(name, "summary", labels, value);
    }

    fn sample(&mut self, name: &'static str, kind: &'static str, labels: Labels<'_>, value: f64) {
        let Some(series) = self.series(name, kind, labels) else {
            return;
        };
        let first = series.count == 0;
        series.min = if first { value } else { series.min.min(value) };
        series.max = if first { value } else { series.max.max(value) };
        series.number += value;
        series.count += 1;
        for (bound, n) in BOUNDS.iter().zip(&mut series.buckets) {
            if bound.parse().is_ok_and(|bound: f64| value <= bound) {
                *n += 1;
            }
        }
    }

    fn series(
        &mut self,
        name: &'static str,
        kind: &'static str,
        labels: Labels<'_>,
    ) -> Option<&mut Value> {
        let family = self.families.entry(name).or_insert_with(|| Family {
            kind,
            series: BTreeMap::new(),
        });
        let mut key = String::new();
        for (name, value) in labels {
            let _ = write!(key, "{}{name}=\"", if key.is_empty() { "" } else { "," });
            escape(&mut key, value);
            key.push('"');
        }
        if family.series.len() >= MAX_SERIES && !family.series.contains_key(&key) {
            return None;
        }
        Some(family.series.entry(key).or_default())
    }

    /// The page as text; `order` decides the order of families and series.
    pub(super) fn render(&self, order: &mut Rng) -> String {
        let mut out = String::new();
        let mut families: Vec<_> = self.families.iter().collect();
        order.shuffle(&mut families);
        for (name, family) in families {
            let _ = writeln!(out, "# TYPE {name} {}", family.kind);
            let mut series: Vec<_> = family.series.iter().collect();
            order.shuffle(&mut series);
            for (labels, value) in series {
                value.write(&mut out, name, family.kind, labels);
            }
            out.push('\n');
        }
        out
    }
}

impl Value {
    fn write(&self, out: &mut String, name: &str, kind: &str, labels: &str) {
        match kind {
            "histogram" => {
                for (bound, n) in BOUNDS.iter().zip(self.buckets) {
                    line(out, name, "_bucket", labels, Some(("le", bound)), n as f64);
                }
                let count = self.count as f64;
                line(out, name, "_bucket", labels, Some(("le", "+Inf")), count);
            }
            "summary" => {
                for quantile in QUANTILES {
                    let value = match quantile {
                        "0" => self.min,
                        "0.5" => self.number / self.count.max(1) as f64,
                        _ => self.max,
                    };
                    line(out, name, "", labels, Some(("quantile", quantile)), value);
                }
            }
            _ => return line(out, name, "", labels, None, self.number),
        }
        line(out, name, "_sum", labels, None, self.number);
        line(out, name, "_count", labels, None, self.count as f64);
    }
}

fn line(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &str,
    last: Option<(&str, &str)>,
    value: f64,
) {
    out.push_str(name);
    out.push_str(suffix);
    let more = last.map(|(name, value)| format!("{name}=\"{value}\""));
    let parts: Vec<&str> = [Some(labels), more.as_deref()]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    if !parts.is_empty() {
        let _ = write!(out, "{{{}}}", parts.join(","));
    }
    let _ = writeln!(out, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_like_the_real_routers_page() {
        let mut page = RouterPage::default();
        page.set("smg_http_connections_active", &[], 0.0);
        let worker = [("worker", "http://127.0.0.1:1")];
        page.set("smg_worker_health", &worker, 1.0);
        page.summarize("smg_worker_retry_backoff_seconds", &[("attempt", "1")], 0.5);
        page.observe(
            "smg_http_request_duration_seconds",
            &[("method", "GET")],
            0.02,
        );
        let text = page.render(&mut Rng::new(1));
        assert!(!text.contains("# HELP"));
        for block in [
            "# TYPE smg_http_connections_active gauge\nsmg_http_connections_active 0\n\n",
            "smg_worker_health{worker=\"http://127.0.0.1:1\"} 1\n\n",
            "smg_worker_retry_backoff_seconds{attempt=\"1\",quantile=\"0.999\"} 0.5\n",
            "smg_http_request_duration_seconds_bucket{method=\"GET\",le=\"0.01\"} 0\n",
            "smg_http_request_duration_seconds_bucket{method=\"GET\",le=\"0.025\"} 1\n",
            "smg_http_request_duration_seconds_count{method=\"GET\"} 1\n",
        ] {
            assert!(text.contains(block), "{block}\nin\n{text}");
        }
    }
}
