//! What the kernel says of a process: memory, descriptors, threads, connections.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// The kernel's unit of processor time for programs, the same on every machine that runs the tests.
const TICKS_PER_SECOND: u64 = 100;

/// A process that is looked at from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn new(pid: u32) -> Self {
        Self(pid)
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most resident memory so far in KiB.
    pub(crate) fn peak_kib(self) -> u64 {
        self.status("VmHWM:")
    }

    pub(crate) fn threads(self) -> u64 {
        self.status("Threads:")
    }

    /// Processor time used so far, in its own code and in the kernel's.
    pub(crate) fn processor_time(self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
        // Behind the name in brackets come the state and ten numbers before these two.
        let behind = stat.rsplit_once(')').unwrap().1;
        let ticks = behind.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|n| n.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    /// Open descriptors.
    pub(crate) fn descriptors(self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0))
            .unwrap()
            .count()
    }

    /// Sets the limit of open descriptors that holds, not the one up to which it may be raised; the
    /// one before.
    pub(crate) fn limit_descriptors(self, most: u64) -> u64 {
        let pid = Pid::from_raw(i32::try_from(self.0).unwrap());
        let limit = Rlimit {
            current: Some(most),
            maximum: self.hard_limit(),
        };
        let old = prlimit(pid, Resource::Nofile, limit).unwrap();
        old.current.unwrap_or(u64::MAX)
    }

    fn status(self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Up to which the limit of open descriptors may be raised; none where it may be anything.
    pub(crate) fn hard_limit(self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/limits", self.0)).unwrap();
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let hard = line.unwrap().split_whitespace().nth(4).unwrap();
        hard.parse().ok()
    }
}

/// Connections of this machine that have an end at this address and are not over: listening sockets
/// and those that only wait out their time (`TIME_WAIT`) are left out.
pub(crate) fn connections_at(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else {
        panic!("an IPv4 address");
    };
    let octets = u32::from_ne_bytes(address.ip().octets());
    let end = format!("{octets:08X}:{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let open = table.lines().skip(1).filter(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote, state) = (words.next(), words.next(), words.next());
        let ours = local == Some(end.as_str()) || remote == Some(end.as_str());
        // 06 is TIME_WAIT, 0A is LISTEN.
        ours && !matches!(state, Some("06" | "0A"))
    });
    open.count()
}
