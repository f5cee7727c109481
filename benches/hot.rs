//! The pieces of the data path, in time. `benches/data_path` counts the instructions of the same.
//!
//! `cargo bench --bench hot`

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/pieces.rs"]
mod pieces;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

struct Timed<'a>(&'a mut Criterion);

impl pieces::Measure for Timed<'_> {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn piece<I, O>(
        &mut self,
        name: &'static str,
        times: usize,
        mut prepare: impl FnMut() -> I,
        mut work: impl FnMut(I) -> O,
    ) {
        let mut group = self.0.benchmark_group("data path");
        group.throughput(Throughput::Elements(times as u64));
        group.bench_function(name, |b| {
            b.iter_batched(&mut prepare, &mut work, BatchSize::SmallInput);
        });
        group.finish();
    }
}

fn hot(c: &mut Criterion) {
    pieces::all(&mut Timed(c));
}

criterion_group!(benches, hot);
criterion_main!(benches);
