//! `kvgauge drain`: tells a running `kvgauge serve` to drain.

use super::args::Drain;
use super::disposition::{field, waits_for};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Runs the subcommand: who was told on standard output, or why nobody was on standard error.
#[must_use]
pub fn run(args: &Drain) -> ExitCode {
    // Whoever closed the pipe does not want to read it.
    match tell(args.pid) {
        Ok(()) => {
            let told = format!("kvgauge (process {}) has been told to drain.", args.pid);
            let _ = writeln!(io::stdout(), "{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Why nobody was told.
#[derive(Debug, thiserror::Error)]
enum Untold {
    #[error(
        "/proc can't be read ({0}), so that kvgauge drain can't say who is who: mount it, or send SIGTERM"
    )]
    Blind(io::Error),
    #[error("There is no process {0}: name that of a running kvgauge serve with --pid")]
    Nobody(i32),
    #[error("Process {0} can't be looked at ({1}): run this as the user that it runs as")]
    Hidden(i32, io::Error),
    #[error(
        "Process {0} is '{1}' and not kvgauge, and has been told nothing: name that of a running kvgauge \
         serve with --pid"
    )]
    Stranger(i32, String),
    #[error(
        "Process {0} is kvgauge, but does not serve, or not yet, and has been told nothing: name that of a \
         running kvgauge serve with --pid"
    )]
    Deaf(i32),
    #[error(
        "kvgauge (process {0}) can't be told to drain ({1}): run this as the user that it runs as"
    )]
    Refused(i32, Errno),
}

fn tell(number: i32) -> Result<(), Untold> {
    let own = fs::read_to_string("/proc/self/status").map_err(Untold::Blind)?;
    let status = fs::read_to_string(format!("/proc/{number}/status"));
    let status = status.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Untold::Nobody(number),
        _ => Untold::Hidden(number, error),
    })?;
    if field(&status, "Name:") != field(&own, "Name:") {
        let name = field(&status, "Name:").unwrap_or_default();
        return Err(Untold::Stranger(number, name.escape_debug().to_string()));
    }
    // It would end whoever does not wait for it.
    if !waits_for(&status, Signal::USR1) {
        return Err(Untold::Deaf(number));
    }
    let pid = Pid::from_raw(number).ok_or(Untold::Nobody(number))?;
    kill_process(pid, Signal::USR1).map_err(|error| match error {
        Errno::SRCH => Untold::Nobody(number),
        _ => Untold::Refused(number, error),
    })
}
