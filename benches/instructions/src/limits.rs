//! Counts held against a file of limits, and the limits written anew. The counts are valgrind's.

use std::fmt::Write;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What is counted, and where its limits stand.
pub(crate) struct Held {
    /// The file of limits.
    pub(crate) file: PathBuf,
    /// What a count is of, as in "instructions a byte of page".
    pub(crate) unit: &'static str,
    pub(crate) cases: Vec<Case>,
}

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Head room of a new limit over what was counted, as a factor.
    pub(crate) head_room: f64,
}

/// The head room of what hardly differs from run to run.
pub(crate) const USUAL: f64 = 1.05;

/// Where so much less was counted than the limit allows, the limit no longer guards anything.
const SLACK: f64 = 0.80;

/// What stands in the limits before the compiler that they were set with.
const SET_WITH: &str = "# Set with ";

// === impl Held ===

impl Held {
    /// Does what the arguments ask for. `count` gives the count of a case, `run` does its work: it is
    /// what valgrind runs.
    pub(crate) fn main(
        &self,
        count: impl Fn(&str) -> Result<f64, String>,
        run: impl Fn(&str) -> Result<(), String>,
    ) -> ExitCode {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let outcome = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => self.compare(count),
            ["--write"] => self.write(count),
            ["--case", name] => run(name),
            _ => Err(format!("it takes nothing or --write, not {args:?}")),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", program());
                ExitCode::FAILURE
            }
        }
    }

    fn compare(&self, count: impl Fn(&str) -> Result<f64, String>) -> Result<(), String> {
        let limits = self.limits()?;
        let unit = self.unit;
        let mut over = Vec::new();
        println!("| what | instructions {unit} | limit |\n| --- | --- | --- |");
        for Case { name, .. } in &self.cases {
            let limit = limits.iter().find(|(n, _)| n == name).map(|(_, l)| *l);
            let limit = limit.ok_or_else(|| format!("{}: no limit for {name}", self.shown()))?;
            let found = count(name)?;
            println!("| {name} | {} | {} |", short(found), short(limit));
            if found > limit {
                over.push(format!(
                    "{name} takes {} instructions {unit}; the limit is {}",
                    short(found),
                    short(limit)
                ));
            } else if found < limit * SLACK {
                println!("({name} has become much faster: lower its limit, so that it stays so)");
            }
        }
        if over.is_empty() {
            return Ok(());
        }
        let (then, now) = (self.limits_rustc()?, rustc()?);
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

    fn write(&self, count: impl Fn(&str) -> Result<f64, String>) -> Result<(), String> {
        let mut text = format!(
            "# Instructions {}, at most: so many per cent above what was counted when the limit was set.\n\
             # CONTRIBUTING.md says when and how a limit is raised.\n{SET_WITH}{}\n",
            self.unit,
            rustc()?
        );
        for Case { name, head_room } in &self.cases {
            let found = count(name)?;
            let per_cent = (head_room - 1.0) * 100.0;
            writeln!(text, "{name} {} +{per_cent:.0}%", short(found * head_room)).unwrap();
            println!("{name} {}", short(found));
        }
        std::fs::write(&self.file, text).map_err(|error| format!("{}: {error}", self.shown()))
    }

    fn limits(&self) -> Result<Vec<(String, f64)>, String> {
        let text = self.text()?;
        text.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let mut words = line.split(' ');
                let (name, limit) = (words.next(), words.next());
                let (name, limit) = name.zip(limit).ok_or("no limit")?;
                let limit = limit.parse().map_err(|_| "the limit is no number")?;
                Ok((name.to_owned(), limit))
            })
            .collect::<Result<_, &str>>()
            .map_err(|error| format!("{}: {error}", self.shown()))
    }

    fn limits_rustc(&self) -> Result<String, String> {
        let text = self.text()?;
        let line = text.lines().find_map(|line| line.strip_prefix(SET_WITH));
        Ok(line.unwrap_or("an unknown compiler").to_owned())
    }

    fn text(&self) -> Result<String, String> {
        std::fs::read_to_string(&self.file).map_err(|error| format!("{}: {error}", self.shown()))
    }

    fn shown(&self) -> std::path::Display<'_> {
        self.file.display()
    }
}

/// Numbers of any size, so that a thousandth can be told.
fn short(number: f64) -> String {
    match number {
        n if n < 100.0 => format!("{n:.3}"),
        n if n < 10_000.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

fn program() -> String {
    let program = std::env::args().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// `rustc 1.95.0`: another compiler makes other instructions.
fn rustc() -> Result<String, String> {
    let run = Command::new("rustc").arg("--version").output();
    let run = run.map_err(|error| format!("rustc can't be run: {error}"))?;
    let version = String::from_utf8_lossy(&run.stdout);
    let words: Vec<&str> = version.split(' ').take(2).collect();
    Ok(words.join(" "))
}

// === counting ===

/// Valgrind counts while it is in here, and knows the place by this name.
#[inline(never)]
pub(crate) fn counted_by_valgrind<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// The instructions of what this program's `--case name` has [counted](counted_by_valgrind), and what
/// it said.
pub(crate) fn counted(name: &str) -> Result<(u64, String), String> {
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
        .map_err(no_valgrind)?;
    let report = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() {
        return Err(format!("valgrind failed on {name}:\n{report}"));
    }
    // `==1== Collected : 1234567`
    let collected: u64 = report
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse().ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("valgrind counted nothing in {name}:\n{report}"))?;
    Ok((collected, String::from_utf8_lossy(&run.stdout).into_owned()))
}

pub(crate) fn no_valgrind(error: impl std::fmt::Display) -> String {
    format!("valgrind can't be run ({error}); Debian's package is valgrind")
}
