//! Reading, preparing and merging the real pages of `tests/data`.
//!
//! `cargo bench --bench exposition`

#![allow(clippy::unwrap_used, clippy::panic)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvgauge::exposition::{Format, Limits, Page, Prepared, merge};
use std::hint::black_box;
use std::path::PathBuf;

const LIMITS: Limits = Limits {
    max_series: 1_000_000,
    max_label_bytes: 16 * 1024,
    max_families: 100_000,
};

/// A real page of 260 kB.
fn page() -> Vec<u8> {
    let base = std::env::var_os("KVGAUGE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data"),
        PathBuf::from,
    );
    let path = base.join("expositions/sglang-0.5.23-decode-dpattn4-busy.prom");
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(text: &[u8]) -> Page<'_> {
    Page::read(text, &LIMITS).unwrap()
}

/// Every label name and value and every number of a page.
fn visit(page: &Page<'_>) -> (usize, f64) {
    let (mut bytes, mut sum) = (0, 0.0);
    for sample in page.all_samples() {
        for (name, value) in sample.labels() {
            bytes += name.len() + value.len();
        }
        sum += sample.value();
    }
    (bytes, sum)
}

fn exposition(c: &mut Criterion) {
    let text = page();
    let mut group = c.benchmark_group("exposition");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("read", |b| b.iter(|| read(black_box(&text)).sample_count()));
    group.bench_function("read, every label visited", |b| {
        b.iter(|| visit(&read(black_box(&text))));
    });
    let page = read(&text);
    group.bench_function("prepare", |b| {
        b.iter(|| Prepared::new(black_box(&page), Some(("source", "decode"))).sample_count());
    });

    let mut own = kvgauge::exposition::TextWriter::new();
    for i in 0..40 {
        own.family(
            &format!("kvgauge_family_{i}"),
            kvgauge::exposition::MetricType::Gauge,
            "One of our own.",
        );
        for source in ["router", "prefill", "decode"] {
            own.sample("", &[("source", source), ("role", "decode")], 0.25);
        }
    }
    let own = own.finish();
    let mut pages = vec![Prepared::new(&read(&own), None)];
    for source in ["a", "b", "c", "d"] {
        pages.push(Prepared::new(&page, Some(("source", source))));
    }
    let pages: Vec<&Prepared> = pages.iter().collect();
    group.throughput(Throughput::Bytes(4 * text.len() as u64));
    group.bench_function("merge four pages and our own", |b| {
        b.iter(|| merge(black_box(&pages), 1, Format::CLASSIC).text.len());
    });
    group.finish();
}

criterion_group!(benches, exposition);
criterion_main!(benches);
