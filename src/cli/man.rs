//! `kvgauge man [FOLDER]`: the manual pages, made of what `--help` is made of.

use super::args::{self, Man};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Runs the subcommand.
#[must_use]
pub fn run(args: &Man) -> ExitCode {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        // Writing to memory does not fail; whoever closed the pipe does not want to read it.
        let _ = clap_mangen::Man::new(args::command()).render(&mut page);
        let _ = io::stdout().write_all(&page);
        return ExitCode::SUCCESS;
    };
    match write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = folder.display();
            eprintln!(
                "The manual pages can't be written into {folder} ({error}): name a folder that can be"
            );
            ExitCode::FAILURE
        }
    }
}

/// `kvgauge.1`, and `kvgauge-serve.1` and so on for all commands that are not hidden.
fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(args::command(), folder)
}
