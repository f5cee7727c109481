//! Instructions a byte of page, counted by valgrind and held against the file `limits`: they hardly
//! differ from run to run, so they can fail a build where times can't.
//!
//! ```text
//! instructions            counts, and fails where a limit is passed
//! instructions --write    writes the limits anew, from what it counts
//! ```

#[path = "../../support/mod.rs"]
mod support;

use kvgauge::exposition::{Format, Prepared, merge};
use std::fmt::Write;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use support::{five_pages, generated_page, prepare, read, real_page, visit};

/// A name, and work that gives the bytes of page that it went through.
type Case = (&'static str, fn() -> usize);

/// What is counted.
const CASES: [Case; 6] = [
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

/// Head room of a new limit over what was counted.
const HEAD_ROOM: f64 = 1.05;
/// Where so much less was counted than the limit allows, the limit no longer guards anything.
const SLACK: f64 = 0.80;

fn merge_four(format: Format) -> usize {
    let text = real_page();
    let pages = five_pages(&text);
    let pages: Vec<&Prepared> = pages.iter().collect();
    measured(|| merge(&pages, 1, format));
    4 * text.len()
}

/// Valgrind counts while it is in here, and knows the place by this name.
#[inline(never)]
fn counted_by_valgrind<T>(work: &mut impl FnMut() -> T) -> T {
    black_box(work())
}

/// Does the work twice, counted once: what is set up at first use is not counted.
fn measured<T>(mut work: impl FnMut() -> T) {
    drop(black_box(work()));
    drop(black_box(counted_by_valgrind(&mut work)));
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare(),
        ["--write"] => write_limits(),
        // What valgrind runs.
        ["--case", name] => run(name),
        _ => Err(format!("it takes nothing or --write, not {args:?}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str) -> Result<(), String> {
    let case = CASES.iter().find(|(n, _)| *n == name);
    let (_, case) = case.ok_or_else(|| format!("no case {name}"))?;
    println!("{}", case());
    Ok(())
}

fn compare() -> Result<(), String> {
    let limits = limits()?;
    let mut over = Vec::new();
    println!("| what | instructions a byte | limit |\n| --- | --- | --- |");
    for (name, _) in CASES {
        let limit = limits.iter().find(|(n, _)| n == name).map(|(_, l)| *l);
        let limit = limit.ok_or_else(|| format!("{}: no limit for {name}", file().display()))?;
        let found = count(name)?;
        println!("| {name} | {found:.3} | {limit:.3} |");
        if found > limit {
            over.push(format!(
                "{name} takes {found:.3} instructions a byte of page; the limit is {limit:.3}"
            ));
        } else if found < limit * SLACK {
            println!("({name} has become much faster: lower its limit, so that it stays so)");
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    let (then, now) = (limits_rustc()?, rustc()?);
    let compiler = if then == now {
        String::new()
    } else {
        format!("The limits were set with {then}, and this is {now}: try with that first.\n")
    };
    Err(format!(
        "{}\n{compiler}What has become slower, and does it have to be? CONTRIBUTING.md says how a limit is raised.",
        over.join("\n")
    ))
}

/// `rustc 1.95.0`: another compiler makes other instructions.
fn rustc() -> Result<String, String> {
    let run = Command::new("rustc").arg("--version").output();
    let run = run.map_err(|error| format!("rustc can't be run: {error}"))?;
    let version = String::from_utf8_lossy(&run.stdout);
    let words: Vec<&str> = version.split(' ').take(2).collect();
    Ok(words.join(" "))
}

fn limits_rustc() -> Result<String, String> {
    let text = std::fs::read_to_string(file()).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix(SET_WITH));
    Ok(line.unwrap_or("an unknown compiler").to_owned())
}

fn write_limits() -> Result<(), String> {
    let mut text = format!("{HEAD}{SET_WITH}{}\n", rustc()?);
    for (name, _) in CASES {
        let found = count(name)?;
        writeln!(text, "{name} {:.3}", found * HEAD_ROOM).unwrap();
        println!("{name} {found:.3}");
    }
    std::fs::write(file(), text).map_err(|error| format!("{}: {error}", file().display()))
}

const HEAD: &str = "\
# Instructions a byte of page, at most: five per cent above what was counted when the limit was set.
# CONTRIBUTING.md says when and how a limit is raised.
";

/// What stands in the limits before the compiler that they were set with.
const SET_WITH: &str = "# Set with ";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("limits")
}

fn limits() -> Result<Vec<(String, f64)>, String> {
    let text = std::fs::read_to_string(file())
        .map_err(|error| format!("{}: {error}", file().display()))?;
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, limit) = line.split_once(' ').ok_or("no limit")?;
            let limit = limit.parse().map_err(|_| "the limit is no number")?;
            Ok((name.to_owned(), limit))
        })
        .collect::<Result<_, &str>>()
        .map_err(|error| format!("{}: {error}", file().display()))
}

/// Instructions that one case takes, a byte of page.
fn count(name: &str) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args([
            "--collect-atstart=no",
            "--toggle-collect=*counted_by_valgrind*",
        ])
        .arg(program)
        .args(["--case", name])
        .output()
        .map_err(|error| {
            format!("valgrind can't be run ({error}); Debian's package is valgrind")
        })?;
    let report = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() {
        return Err(format!("valgrind failed on {name}:\n{report}"));
    }
    let bytes: usize = String::from_utf8_lossy(&run.stdout)
        .trim()
        .parse()
        .map_err(|_| format!("{name} did not say how many bytes it went through"))?;
    // `==1== Collected : 1234567`
    let collected: u64 = report
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse().ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("valgrind counted nothing in {name}:\n{report}"))?;
    Ok(collected as f64 / bytes as f64)
}
