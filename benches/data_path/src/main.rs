//! Instructions of the data path, counted by valgrind and held against the file `limits`: of each of its
//! pieces (`benches/support/pieces.rs`), and of `kvgauge serve` for a request and for a chunk of a stream.
//!
//! ```text
//! data-path            counts, and fails where a limit is passed
//! data-path --write    writes the limits anew, from what it counts
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "it measures")]

#[path = "../../instructions/src/limits.rs"]
mod limits;
#[path = "../../support/pieces.rs"]
mod pieces;
mod whole;

use limits::{Case, Held, USUAL, counted, counted_by_valgrind};
use pieces::Measure;
use std::cell::OnceCell;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;

/// The allocator finds room now sooner, now later: over so many rounds that evens out.
const ROUNDS: usize = 10;

/// A block that grows is moved, or stays where it is, as the allocator finds room.
const GROWS: f64 = 1.10;

/// A whole request hardly differs either, but what may become slower is a small part of it.
const WHOLE: [Case; 2] = [
    Case {
        name: "whole-request",
        head_room: 1.03,
    },
    Case {
        name: "whole-chunk",
        head_room: 1.04,
    },
];

fn main() -> ExitCode {
    if std::env::args()
        .nth(1)
        .is_some_and(|first| first == "serve")
    {
        return kvgauge::run();
    }
    let mut names = Names::default();
    pieces::all(&mut names);
    let piece = |name| Case {
        name,
        head_room: if name == "log-line" { GROWS } else { USUAL },
    };
    let pieces = names.0.into_iter().map(piece);
    let held = Held {
        file: Path::new(env!("CARGO_MANIFEST_DIR")).join("limits"),
        unit: "each",
        cases: pieces.chain(WHOLE).collect(),
    };
    let wholes = OnceCell::new();
    held.main(
        |name| {
            let Some(which) = WHOLE.iter().position(|whole| whole.name == name) else {
                return each(name);
            };
            let counts = wholes.get_or_init(whole::count).clone()?;
            Ok(counts[which])
        },
        run,
    )
}

/// Instructions that doing a piece once takes.
fn each(name: &str) -> Result<f64, String> {
    let (instructions, said) = counted(name)?;
    let times: u64 = said
        .trim()
        .parse()
        .map_err(|_| format!("{name} did not say how often it was done"))?;
    Ok(instructions as f64 / times as f64)
}

fn run(name: &str) -> Result<(), String> {
    let mut one = One { name, times: None };
    pieces::all(&mut one);
    let times = one.times.ok_or_else(|| format!("no case {name}"))?;
    println!("{times}");
    Ok(())
}

/// Asks for the names alone.
#[derive(Default)]
struct Names(Vec<&'static str>);

impl Measure for Names {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn piece<I, O>(
        &mut self,
        name: &'static str,
        _: usize,
        _: impl FnMut() -> I,
        _: impl FnMut(I) -> O,
    ) {
        self.0.push(name);
    }
}

/// Does one piece, counted from the second time on: what is set up at first use is not counted.
struct One<'a> {
    name: &'a str,
    times: Option<usize>,
}

impl Measure for One<'_> {
    /// What others set up would change where the allocator finds room.
    fn wants(&self, group: &str) -> bool {
        self.name.starts_with(group)
    }

    fn piece<I, O>(
        &mut self,
        name: &'static str,
        times: usize,
        mut prepare: impl FnMut() -> I,
        mut work: impl FnMut(I) -> O,
    ) {
        if name != self.name {
            return;
        }
        drop(black_box(work(prepare())));
        for _ in 0..ROUNDS {
            let input = prepare();
            drop(black_box(counted_by_valgrind(|| work(black_box(input)))));
        }
        self.times = Some(ROUNDS * times);
    }
}
