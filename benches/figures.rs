//! The figures of docs/performance.md: prints its table for this machine.
//!
//! `cargo bench --bench figures`

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/counting.rs"]
mod counting;
mod support;
#[path = "support/theirs.rs"]
mod theirs;

use counting::{Asked, counted};
use kvgauge::exposition::{Format, Prepared, merge};
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::{five_pages, generated_page, prepare, read, real_page, visit, without_colons};
use theirs::prometheus_parse;

/// How often each job is done. By turns, so that what slows the machine down slows all of them.
const ROUNDS: usize = 51;
const SERIES: usize = 100_000;

/// Something to measure: what it is called, the bytes it goes through, and the work.
struct Job<'a> {
    name: &'a str,
    bytes: usize,
    work: Box<dyn Fn() + 'a>,
}

fn main() {
    // `cargo test --benches` and `cargo bench -- --test` only try whether it runs.
    let measured = std::env::args().any(|arg| arg == "--bench")
        && !std::env::args().any(|arg| arg == "--test");
    let rounds = if measured { ROUNDS } else { 1 };

    let real = real_page();
    let plain = without_colons(&real);
    assert_eq!(
        prometheus_parse(&plain).0,
        read(&real).sample_count(),
        "both have to see every sample"
    );
    let real_read = read(&real);
    let pages = five_pages(&real);
    let pages: Vec<&Prepared> = pages.iter().collect();
    let large = generated_page(SERIES);
    let large_read = read(&large);
    assert_eq!(large_read.sample_count(), SERIES);

    let four = 4 * real.len();
    let jobs = [
        job("read a real page, every label and value", &real, || {
            visit(&read(&real))
        }),
        job("the same with `prometheus-parse` 0.2.5", &real, || {
            prometheus_parse(&plain)
        }),
        job("prepare it", &real, || prepare(&real_read)),
        Job {
            bytes: four,
            ..job("merge four and our own, classic", &real, || {
                merge(&pages, 1, Format::CLASSIC)
            })
        },
        Job {
            bytes: four,
            ..job("merge four and our own, OpenMetrics", &real, || {
                merge(&pages, 1, Format::OPEN_METRICS)
            })
        },
        job("read 100,000 series, every label and value", &large, || {
            visit(&read(&large))
        }),
        job("prepare them", &large, || prepare(&large_read)),
    ];
    let times = medians(&jobs, rounds);
    println!("| what | page | time | rate |\n| --- | --- | --- | --- |");
    for (job, time) in jobs.iter().zip(&times) {
        println!(
            "| {} | {} | {} | {:.0} MB/s |",
            job.name,
            kilobytes(job.bytes),
            short(*time),
            job.bytes as f64 / 1e6 / time.as_secs_f64(),
        );
    }
    let faster = times[1].as_secs_f64() / times[0].as_secs_f64();
    println!("\nreading: {faster:.1} times as fast as `prometheus-parse`\n");

    println!("| what | page | allocations | peak, page included | times the page |");
    println!("| --- | --- | --- | --- | --- |");
    let respelled = bounds_as_go_spells_them(&large);
    for (name, text) in [
        ("a real page", &real),
        ("100,000 series", &large),
        ("the same, bounds as Go spells them", &respelled),
    ] {
        let (page, asked) = counted(|| read(text));
        print_asked(&format!("read {name}"), text, asked);
        drop(page);
        let (kept, asked) = counted(|| prepare(&read(text)));
        print_asked("read and prepare it", text, asked);
        drop(kept);
    }
}

/// `le="2"` for `le="2.0"`: the lines of `OpenMetrics` then differ from those of classic text.
fn bounds_as_go_spells_them(page: &[u8]) -> Vec<u8> {
    let page = std::str::from_utf8(page).unwrap();
    page.replace(".0\"}", "\"}").into_bytes()
}

fn job<'a, T>(name: &'a str, text: &'a [u8], work: impl Fn() -> T + 'a) -> Job<'a> {
    Job {
        name,
        bytes: text.len(),
        work: Box::new(move || {
            black_box(work());
        }),
    }
}

fn medians(jobs: &[Job<'_>], rounds: usize) -> Vec<Duration> {
    let mut times = vec![Vec::with_capacity(rounds); jobs.len()];
    for _ in 0..rounds {
        for (job, times) in jobs.iter().zip(&mut times) {
            // Once before, so that it finds the caches as it left them, not as another job did.
            (job.work)();
            let start = Instant::now();
            (job.work)();
            times.push(start.elapsed());
        }
    }
    times
        .iter_mut()
        .map(|times| {
            times.sort_unstable();
            times[times.len() / 2]
        })
        .collect()
}

fn print_asked(name: &str, text: &[u8], asked: Asked) {
    let peak = asked.peak + text.len();
    println!(
        "| {name} | {} | {} | {} | {:.2} |",
        kilobytes(text.len()),
        asked.allocations,
        kilobytes(peak),
        peak as f64 / text.len() as f64
    );
}

fn kilobytes(bytes: usize) -> String {
    if bytes < 1_000_000 {
        format!("{:.0} kB", bytes as f64 / 1e3)
    } else {
        format!("{:.1} MB", bytes as f64 / 1e6)
    }
}

fn short(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1000.0 {
        format!("{micros:.0} µs")
    } else {
        format!("{:.1} ms", micros / 1e3)
    }
}
