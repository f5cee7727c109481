//! Reading, preparing and merging pages, in time.
//!
//! `cargo bench --bench exposition`

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;
#[path = "support/theirs.rs"]
mod theirs;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvgauge::exposition::{Format, Prepared, merge};
use std::hint::black_box;
use support::{five_pages, generated_page, prepare, read, real_page, visit, without_colons};
use theirs::prometheus_parse;

/// The real page, read by us and by the parser that many programs use.
fn reading(c: &mut Criterion) {
    let text = real_page();
    let plain = without_colons(&text);
    assert_eq!(
        prometheus_parse(&plain).0,
        read(&text).sample_count(),
        "both have to see every sample"
    );
    let mut group = c.benchmark_group("read a real page");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("nothing visited", |b| {
        b.iter(|| read(black_box(&text)).sample_count());
    });
    group.bench_function("every label and value", |b| {
        b.iter(|| visit(&read(black_box(&text))));
    });
    group.bench_function("prometheus-parse, without colons", |b| {
        b.iter(|| prometheus_parse(black_box(&plain)));
    });
    group.finish();
}

/// The real page, from four sources.
fn merging(c: &mut Criterion) {
    let text = real_page();
    let page = read(&text);
    let mut group = c.benchmark_group("merge real pages");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("prepare one", |b| {
        b.iter(|| prepare(black_box(&page)).sample_count());
    });
    let pages = five_pages(&text);
    let pages: Vec<&Prepared> = pages.iter().collect();
    group.throughput(Throughput::Bytes(4 * text.len() as u64));
    for (name, format) in [
        ("four and our own, classic", Format::CLASSIC),
        ("four and our own, OpenMetrics", Format::OPEN_METRICS),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| merge(black_box(&pages), 1, format).text.len());
        });
    }
    group.finish();
}

/// A page of 100,000 series.
fn large(c: &mut Criterion) {
    let text = generated_page(100_000);
    let page = read(&text);
    let mut group = c.benchmark_group("a page of 100,000 series");
    group.sample_size(30);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("read, every label and value", |b| {
        b.iter(|| visit(&read(black_box(&text))));
    });
    group.bench_function("prepare", |b| {
        b.iter(|| prepare(black_box(&page)).sample_count());
    });
    group.finish();
}

criterion_group!(benches, reading, merging, large);
criterion_main!(benches);
