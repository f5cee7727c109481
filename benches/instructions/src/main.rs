//! Instructions a byte of page, counted by valgrind and held against the file `limits`: they hardly
//! differ from run to run, so they can fail a build where times can't.
//!
//! ```text
//! instructions            counts, and fails where a limit is passed
//! instructions --write    writes the limits anew, from what it counts
//! ```

mod limits;
#[path = "../../support/mod.rs"]
mod support;

use kvgauge::exposition::{Format, Prepared, merge};
use limits::{Case, Held, USUAL, counted, counted_by_valgrind};
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use support::{five_pages, generated_page, prepare, read, real_page, visit};

/// A name, and work that gives the bytes of page that it went through.
type Work = (&'static str, fn() -> usize);

/// What is counted.
const CASES: [Work; 6] = [
    ("read", || {
        let text = real_page();
        measured(|| read(&text));
        text.len()
    }),
    ("read-visit", || {
        let text = real_page();
        measured(|| visit(&read(&text)));
        text.len()
    }),
    ("prepare", || {
        let text = real_page();
        let page = read(&text);
        measured(|| prepare(&page));
        text.len()
    }),
    ("merge-classic", || merge_four(Format::CLASSIC)),
    ("merge-openmetrics", || merge_four(Format::OPEN_METRICS)),
    ("read-100000-series", || {
        let text = generated_page(100_000);
        measured(|| visit(&read(&text)));
        text.len()
    }),
];

fn merge_four(format: Format) -> usize {
    let text = real_page();
    let pages = five_pages(&text);
    let pages: Vec<&Prepared> = pages.iter().collect();
    measured(|| merge(&pages, 1, format));
    4 * text.len()
}

/// Does the work twice, counted once: what is set up at first use is not counted.
fn measured<T>(mut work: impl FnMut() -> T) {
    drop(black_box(work()));
    drop(black_box(counted_by_valgrind(&mut work)));
}

fn main() -> ExitCode {
    let cases = CASES.map(|(name, _)| Case {
        name,
        head_room: USUAL,
    });
    let held = Held {
        file: Path::new(env!("CARGO_MANIFEST_DIR")).join("limits"),
        unit: "a byte of page",
        cases: cases.to_vec(),
    };
    held.main(a_byte, run)
}

fn run(name: &str) -> Result<(), String> {
    let case = CASES.iter().find(|(n, _)| *n == name);
    let (_, work) = case.ok_or_else(|| format!("no case {name}"))?;
    println!("{}", work());
    Ok(())
}

/// Instructions that one case takes, a byte of page.
fn a_byte(name: &str) -> Result<f64, String> {
    let (instructions, said) = counted(name)?;
    let bytes: u64 = said
        .trim()
        .parse()
        .map_err(|_| format!("{name} did not say how many bytes it went through"))?;
    Ok(instructions as f64 / bytes as f64)
}
