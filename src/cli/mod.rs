//! Arguments, one file per subcommand.

pub mod args;
pub mod check;
mod completions;
pub mod demo;
mod disposition;
pub mod doctor;
mod drain;
mod man;
mod role_line;
mod scenario;
pub mod serve;
pub mod sim;
pub mod status;
mod urls;

use args::Command;
use std::process::ExitCode;

/// Runs the program with the process's arguments.
#[must_use]
pub fn run() -> ExitCode {
    match args::parse() {
        Ok(Command::Serve(args)) => serve::run(&args),
        Ok(Command::Demo(args)) => demo::run(&args),
        Ok(Command::Sim(args)) => sim::run(&args),
        Ok(Command::Status(args)) => status::run(&args),
        Ok(Command::Doctor(args)) => doctor::run(&args),
        Ok(Command::Check(args)) => check::run(&args),
        Ok(Command::Drain(args)) => drain::run(&args),
        Ok(Command::Completions(args)) => completions::run(&args),
        Ok(Command::Man(args)) => man::run(&args),
        Err(code) => code,
    }
}
