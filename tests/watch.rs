//! `kvgauge status --watch` where standard output is no terminal: lines and JSON, until it is ended.
//! The view in a terminal is in `real_terminal.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use support::lines::Lines;
use support::page::Behaviour;
use support::wait::{PATIENCE, eventually};
use support::{Next, Page, Setup, Upstream};

/// Watches; ended with the test.
struct Watch {
    child: Child,
    lines: Option<Lines>,
}

impl Watch {
    fn start(arguments: &[&str]) -> Self {
        let mut watch = Self::unread(arguments);
        let output = watch.child.stdout.take().unwrap();
        watch.lines = Some(Lines::of(output));
        watch
    }

    /// Whose output the test reads itself.
    fn unread(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_kvgauge"))
            .args(["status", "--watch"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self { child, lines: None }
    }

    /// Waits for lines that `look` finds something in.
    fn until<T>(&self, what: &str, look: impl Fn(&[String]) -> Option<T>) -> T {
        let lines = self.lines.as_ref().unwrap();
        let found = lines.wait(PATIENCE, |lines, _| {
            let lines: Vec<String> = lines
                .iter()
                .map(|line| String::from_utf8_lossy(line).into_owned())
                .collect();
            look(&lines)
        });
        found.unwrap_or_else(|| panic!("no {what} in\n{}", lines.text()))
    }

    fn line_with(&self, words: &str) -> String {
        let find = |lines: &[String]| lines.iter().find(|line| line.contains(words)).cloned();
        self.until(words, find)
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BUSY: &str = "12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  transfer 1  prealloc 2";

#[test]
fn pages_are_said_a_line_a_role_each_second_with_the_time() {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let watch = Watch::start(&[&decode.url()]);
    let line = watch.until("three lines", |lines| lines.get(2).cloned());
    let (time, said) = line.split_once("  ").unwrap();
    let time: jiff::Timestamp = time.parse().unwrap();
    assert!(time.as_second() > 0);
    assert_eq!(said, format!("decode  {BUSY}"));
    assert_eq!(watch.end(Signal::TERM), Some(0));
}

#[test]
fn problems_are_told_when_they_come_and_when_they_go() {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let watch = Watch::start(&[&format!("decode={}", decode.url())]);
    watch.line_with(BUSY);
    decode.set(Behaviour::Status(404));
    watch.line_with("decode  usage unknown: ");
    let told = watch.line_with("decode answered 404");
    watch.until("three unknown lines", |lines| {
        let unknown = lines.iter().filter(|line| line.contains("usage unknown"));
        (unknown.count() > 2).then_some(())
    });
    let times = watch.until("lines", |lines| {
        Some(
            lines
                .iter()
                .filter(|line| line.ends_with(told.split_once("  ").unwrap().1))
                .count(),
        )
    });
    assert_eq!(times, 1, "a problem that stays is told once");
    decode.set(Behaviour::Text(support::data::page(
        "sglang-0.5.23-decode-tp4-busy",
    )));
    watch.line_with("all sources are well again");
    assert_eq!(watch.end(Signal::INT), Some(0));
}

#[test]
fn json_is_an_object_a_line() {
    let hot = Page::real("sglang-0.5.23-decode-tp4-hot");
    let watch = Watch::start(&["--json", &hot.url()]);
    let lines = watch.until("two lines", |lines| {
        (lines.len() > 1).then(|| lines.to_vec())
    });
    for line in lines {
        let json: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["status"], "warning");
        assert_eq!(json["roles"][0]["level"], "warning");
        assert_eq!(json["roles"][0]["role"], "decode");
        assert_eq!(json["traffic"], Value::Null, "of which pages say nothing");
        assert_eq!(json["pools"][0]["role"], "decode");
    }
}

/// Whoever has read enough ends it, without a word.
#[test]
fn a_closed_pipe_ends_it_well() {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let mut watch = Watch::unread(&[&decode.url()]);
    let mut output = BufReader::new(watch.child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    drop(output);
    let status = eventually("the end", || watch.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn where_nobody_ever_answers_it_ends_with_3() {
    let nobody = Page::refusing();
    let url = format!("http://{}", nobody.address());
    let watch = Watch::start(&[&url]);
    let line = watch.line_with("no connection: ");
    assert!(line.contains("refused the connection"), "{line}");
    assert!(line.contains("; next try in 1 s"), "{line}");
    assert_eq!(watch.end(Signal::TERM), Some(3));
    let watch = Watch::start(&["--json", &url]);
    let line = watch.line_with("{");
    let json: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(json["status"], "unknown");
    assert_eq!(json["exit_code"], 3);
    assert_eq!(json["sources"][0]["state"], "down");
    // A page.
    let watch = Watch::start(&[&format!("decode={}", nobody.url())]);
    watch.line_with("decode  usage unknown: the server refuses");
    assert_eq!(watch.end(Signal::TERM), Some(3));
}

/// A real one, by its stream.
#[test]
fn a_kvgauge_is_followed_through_its_end() {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    let url = format!("http://{}", kvgauge.admin);
    let lines = Watch::start(&[&url]);
    let json = Watch::start(&["--json", &url]);
    lines.line_with(BUSY);
    let line = json.line_with("\"traffic\":{");
    let json: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(json["traffic"]["window_s"], 60);
    drop(kvgauge);
    lines.line_with("no connection: ");
    assert_eq!(lines.end(Signal::TERM), Some(0));
}

/// What a stream says that is not understood is told, and does no harm.
#[test]
fn a_stream_that_is_none_is_told() {
    let odd = Upstream::new(|connection| {
        connection.request()?;
        connection.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
        )?;
        connection.send("data: {\"roles\": 7}\n\n")?;
        Ok(Next::Close)
    });
    let watch = Watch::start(&[&format!("http://{}", odd.address())]);
    watch.line_with("what kvgauge sends is not understood");
    assert_eq!(watch.end(Signal::TERM), Some(3));
}

/// Signals that the process has a handler for, by its own account.
fn hears(child: &Child, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (signal.as_raw() - 1)) != 0
}

/// Nothing fits in there any more.
fn fill(to: &File) {
    rustix::io::ioctl_fionbio(to, true).unwrap();
    for size in [4096, 1] {
        while rustix::io::write(to, &vec![b'x'; size]).is_ok() {}
    }
    rustix::io::ioctl_fionbio(to, false).unwrap();
}

fn ends_though_nobody_reads(output: File, term: &str) {
    fill(&output);
    let mut watch = Watch {
        child: Command::new(env!("CARGO_BIN_EXE_kvgauge"))
            .args(["status", "--watch", "http://127.0.0.1:1"])
            .env("TERM", term)
            .stdin(Stdio::null())
            .stdout(output)
            .spawn()
            .unwrap(),
        lines: None,
    };
    eventually("a handler of SIGTERM", || {
        hears(&watch.child, Signal::TERM).then_some(())
    });
    kill_process(Pid::from_child(&watch.child), Signal::TERM).unwrap();
    let ended = eventually("its end", || watch.child.try_wait().unwrap());
    // By itself, not by the signal.
    assert!(ended.code().is_some(), "{ended}");
}

/// As over a connection that hangs, or in a pager.
#[test]
fn a_signal_ends_it_on_a_terminal_or_pipe_that_nobody_reads() {
    for term in ["xterm", "dumb"] {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = File::options().read(true).write(true).open(name);
        let terminal = terminal.unwrap();
        ends_though_nobody_reads(terminal, term);
        drop(master);
    }
    let (reads, writes) = std::io::pipe().unwrap();
    ends_though_nobody_reads(File::from(OwnedFd::from(writes)), "xterm");
    drop(reads);
}
