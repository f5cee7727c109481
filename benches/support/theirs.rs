//! The reader that ours is measured against.

use prometheus_parse::{Scrape, Value};

/// Reads a page with `prometheus-parse` and adds up every number, so that nothing is left undone.
/// Gives the number of samples, buckets and quantiles counted one by one.
#[allow(
    clippy::disallowed_methods,
    reason = "the reader that ours is measured against"
)]
pub(crate) fn prometheus_parse(text: &str) -> (usize, f64) {
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    let (mut count, mut sum) = (0, 0.0);
    for sample in Scrape::parse(lines).unwrap().samples {
        match sample.value {
            Value::Counter(v) | Value::Gauge(v) | Value::Untyped(v) => {
                count += 1;
                sum += v;
            }
            Value::Histogram(buckets) => {
                count += buckets.len();
                sum += buckets.iter().map(|b| b.count).sum::<f64>();
            }
            Value::Summary(quantiles) => {
                count += quantiles.len();
                sum += quantiles.iter().map(|q| q.count).sum::<f64>();
            }
        }
    }
    (count, sum)
}
