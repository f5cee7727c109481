//! What the kernel says of a running process.

use std::fs;
use std::time::Duration;

/// The kernel's unit of processor time for programs, the same on every machine that runs the tests.
const TICKS_PER_SECOND: u64 = 100;

/// Resident memory, in bytes.
pub(crate) fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() * 1024
}

/// Processor time used so far, in its own code and in the kernel's.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name in brackets come the state and ten numbers before these two.
    let behind = stat.rsplit_once(')').unwrap().1;
    let ticks = behind.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|n| n.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// Open descriptors.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
