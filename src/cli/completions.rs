//! `kvgauge completions SHELL`: what a shell needs to complete kvgauge's commands.

use super::args::{self, Completions};
use std::io::Write as _;
use std::process::ExitCode;

/// Runs the subcommand.
#[must_use]
pub fn run(args: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "kvgauge", &mut script);
    // Whoever closed the pipe does not want to read it.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}
