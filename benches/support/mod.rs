//! The pages that benches and measuring tests work on, and the work that they measure.

#![allow(dead_code, reason = "each of those who include this uses a part")]

use kvgauge::exposition::{Limits, MetricType, Page, Prepared, TextWriter};
use std::fmt::Write;

pub(crate) const LIMITS: Limits = Limits {
    max_series: 1_000_000,
    max_label_bytes: 16 * 1024,
    max_families: 100_000,
};

/// The real page that is measured: 260 kB of SGLang 0.5.23.
pub(crate) fn real_page() -> Vec<u8> {
    include_bytes!("../../tests/data/expositions/sglang-0.5.23-decode-dpattn4-busy.prom").to_vec()
}

/// The page with `_` for each colon of a metric name, for readers that know no colon there.
pub(crate) fn without_colons(page: &[u8]) -> String {
    let page = std::str::from_utf8(page).unwrap();
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        let name_at = if line.starts_with("# ") {
            "# HELP ".len()
        } else {
            0
        };
        let (before, rest) = line.split_at(name_at);
        let name_end = rest.find(['{', ' ']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end);
        for part in [before, &name.replace(':', "_"), after, "\n"] {
            out.push_str(part);
        }
    }
    out
}

/// A page of `series` samples, 120 bytes each: ten histogram families of 100 buckets over as many
/// label sets as that takes, and gauges for what is left over.
pub(crate) fn generated_page(series: usize) -> Vec<u8> {
    const FAMILIES: usize = 10;
    const BUCKETS: usize = 100;
    let sets = series / (FAMILIES * (BUCKETS + 2));
    let mut out = String::with_capacity(series * 122 + 4096);
    for family in 0..FAMILIES {
        let name = format!("generated:stage_{family}_latency_seconds");
        write!(
            out,
            "# HELP {name} Latency of a stage.\n# TYPE {name} histogram\n"
        )
        .unwrap();
        for set in 0..sets {
            let labels = format!(
                "engine_type=\"decode\",model_name=\"/models/a\",rank=\"{}\",shard=\"{:03}\"",
                set % 8,
                set / 8
            );
            let mut count = 0;
            for bucket in 1..=BUCKETS {
                let le = if bucket == BUCKETS {
                    "+Inf".to_owned()
                } else {
                    seconds(2 * bucket * bucket)
                };
                count += (bucket * 7 + set) % 13;
                writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {count}.0").unwrap();
            }
            writeln!(out, "{name}_sum{{{labels}}} {}.25", count * 3).unwrap();
            writeln!(out, "{name}_count{{{labels}}} {count}.0").unwrap();
        }
    }
    out.push_str("# TYPE generated:rest gauge\n");
    for rest in sets * FAMILIES * (BUCKETS + 2)..series {
        writeln!(out, "generated:rest{{number=\"{rest}\"}} 0.25").unwrap();
    }
    out.into_bytes()
}

/// Milliseconds as seconds, spelled as Python's client spells bounds: `0.05`, `2.0`.
fn seconds(milliseconds: usize) -> String {
    let (whole, fraction) = (milliseconds / 1000, milliseconds % 1000);
    let fraction = format!("{fraction:03}");
    let fraction = fraction.trim_end_matches('0');
    format!(
        "{whole}.{}",
        if fraction.is_empty() { "0" } else { fraction }
    )
}

/// Families as kvgauge writes of itself: 40, over three sources.
pub(crate) fn own_page() -> Vec<u8> {
    let mut own = TextWriter::new();
    for family in 0..40 {
        own.family(
            &format!("kvgauge_family_{family}"),
            MetricType::Gauge,
            "One of our own.",
        );
        for source in ["router", "prefill", "decode"] {
            own.sample("", &[("source", source), ("role", "decode")], 0.25);
        }
    }
    own.finish()
}

pub(crate) fn read(text: &[u8]) -> Page<'_> {
    Page::read(text, &LIMITS).unwrap()
}

/// Every label name and value and every number of a page: bytes of labels, and the sum.
pub(crate) fn visit(page: &Page<'_>) -> (usize, f64) {
    let (mut bytes, mut sum) = (0, 0.0);
    for sample in page.all_samples() {
        for (name, value) in sample.labels() {
            bytes += name.len() + value.len();
        }
        sum += sample.value();
    }
    (bytes, sum)
}

pub(crate) fn prepare(page: &Page<'_>) -> Prepared {
    Prepared::new(page, Some(("source", "decode")))
}

/// kvgauge's own page, which is pinned, and the same page from four sources.
pub(crate) fn five_pages(text: &[u8]) -> Vec<Prepared> {
    let page = read(text);
    let mut pages = vec![Prepared::new(&read(&own_page()), None)];
    for source in ["a", "b", "c", "d"] {
        pages.push(Prepared::new(&page, Some(("source", source))));
    }
    pages
}
