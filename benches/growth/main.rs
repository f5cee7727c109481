//! How kvgauge's cost grows with streams, sources, series and scrapers: the tables and plots of
//! docs/performance.md, each with its exponent. Ends with 1 where one grows faster than linearly, or
//! where scraping costs more than docs/design.md promises.
//!
//! `cargo bench --bench growth`, with options behind `--`: `--quick` (a minute, coarser), `--write`
//! (puts tables and plots into docs/), `--kvgauge PATH` (another build), and names of sections
//! (`streams`, `sources`, `series`, `scrapers`, `beside`, `workers`) to measure those alone.
//!
//! Processor time is that of kvgauge's process alone, by thread, as the kernel's scheduler counts it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod beside;
mod crowd;
mod growth;
mod machine;
#[path = "../support/mod.rs"]
mod pages;
mod plot;
#[path = "../../tests/support/process.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod process;
mod scale;
mod scrapers;
mod scraping;
mod series;
mod served;
mod sources;
mod streams;
mod upstream;
mod workers;

use growth::Section;
use process::Process;
use scale::Scale;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// What each section is called, and how it is measured.
type Measure = fn(&Scale, &Path) -> Section;
const SECTIONS: [(&str, Measure); 6] = [
    ("streams", streams::measure),
    ("sources", sources::measure),
    ("series", series::measure),
    ("scrapers", scrapers::measure),
    ("beside", beside::measure),
    ("workers", workers::measure),
];

struct Options {
    scale: Scale,
    write: bool,
    kvgauge: PathBuf,
    only: Vec<String>,
}

fn main() -> ExitCode {
    let options = options();
    // Both ends of each stream that are not kvgauge's are held here.
    let own = Process::new(std::process::id());
    own.limit_descriptors(own.hard_limit().unwrap_or(1 << 20));
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let sections: Vec<Section> = SECTIONS
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, measure)| {
            eprintln!("measuring {name}");
            let start = Instant::now();
            let section = measure(&options.scale, &options.kvgauge);
            eprintln!("took {} s", start.elapsed().as_secs());
            println!("{}", section.text());
            section
        })
        .collect();
    if options.write {
        growth::write(Path::new(env!("CARGO_MANIFEST_DIR")), &sections);
    }
    let broken: Vec<&String> = sections.iter().flat_map(|s| &s.broken).collect();
    for what in &broken {
        eprintln!("not held: {what}");
    }
    // What is only tried says nothing of times.
    if broken.is_empty() || options.scale.is_trial {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn options() -> Options {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options {
        scale: Scale::full(),
        write: false,
        kvgauge: env!("CARGO_BIN_EXE_kvgauge").into(),
        only: Vec::new(),
    };
    let mut measured = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Given by cargo. `cargo test --benches` and `cargo bench -- --test` only try whether it runs.
            "--bench" => measured = true,
            "--test" => options.scale = Scale::trial(),
            "--quick" => options.scale = Scale::quick(),
            "--write" => options.write = true,
            "--kvgauge" => options.kvgauge = arguments.next().expect("a path").into(),
            name if SECTIONS.iter().any(|(section, _)| *section == name) => {
                options.only.push(argument);
            }
            other => panic!("{other}: no such option or section"),
        }
    }
    if !measured {
        options.scale = Scale::trial();
    }
    options
}
