//! What a process does about a signal, as `/proc/PID/status` says it.

use rustix::process::Signal;

/// A line of `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Whether the process has a handler for the signal.
pub(super) fn waits_for(status: &str, signal: Signal) -> bool {
    is_in(status, "SigCgt:", signal)
}

/// Whether the process lets the signal pass.
pub(super) fn ignores(status: &str, signal: Signal) -> bool {
    is_in(status, "SigIgn:", signal)
}

fn is_in(status: &str, set: &str, signal: Signal) -> bool {
    let mask = field(status, set).and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_read_off_the_masks() {
        let status = "Name:\tkvgauge\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000200\n";
        assert_eq!(field(status, "Name:"), Some("kvgauge"));
        assert!(waits_for(status, Signal::USR1));
        assert!(!waits_for(status, Signal::TERM));
        assert!(!waits_for("Name:\tkvgauge\n", Signal::USR1));
        assert!(ignores(status, Signal::HUP));
        assert!(!ignores(status, Signal::USR1));
    }
}
