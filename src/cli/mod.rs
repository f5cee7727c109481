//! Arguments, one file per subcommand.

pub mod demo;
pub mod sim;

use clap::Parser as _;
use std::process::ExitCode;

#[derive(clap::Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(hide = true)]
    Sim(sim::SimArgs),
}

/// Runs the program with the process's arguments.
#[must_use]
pub fn run() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Sim(args) => sim::sim(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvgauge: {error:#}");
            ExitCode::FAILURE
        }
    }
}
