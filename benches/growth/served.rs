//! The kvgauge that is measured: the release binary on free ports, its log thrown away.

use super::machine::Ran;
use super::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Stands in where no source is to be read: nobody listens on the discard port.
pub(crate) const NOBODY: &str = "http://127.0.0.1:9/metrics";

/// How it is started.
pub(crate) struct Setup<'a> {
    pub(crate) program: &'a Path,
    pub(crate) upstream: SocketAddr,
    pub(crate) sources: Vec<String>,
    pub(crate) settings: String,
    pub(crate) workers: usize,
}

/// Killed when dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) process: Process,
    _folder: TempDir,
}

impl<'a> Setup<'a> {
    /// One worker, and one source that refuses.
    pub(crate) fn new(program: &'a Path, upstream: SocketAddr) -> Self {
        Self {
            program,
            upstream,
            sources: vec![NOBODY.to_owned()],
            settings: String::new(),
            workers: 1,
        }
    }

    pub(crate) fn start(&self) -> Served {
        let mut settings = self.settings.clone();
        for (number, url) in self.sources.iter().enumerate() {
            write!(
                settings,
                "\n[[source]]\nname = \"s{number}\"\nurl = \"{url}\"\n"
            )
            .unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kvgauge.toml");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(self.program);
        command.arg("serve").arg("--config").arg(&file);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--upstream");
        command.arg(format!("http://{}", self.upstream));
        command.arg("--workers").arg(self.workers.to_string());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KVGAUGE_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut announced = |words: &str| {
            let mut seen = String::new();
            for line in lines.by_ref() {
                let line = line.unwrap();
                if let Some(address) = address_after(&line, words) {
                    return address;
                }
                seen += &format!("{line}\n");
            }
            panic!("kvgauge did not say '{words}' but\n{seen}");
        };
        let (listen, admin) = (announced("listening on "), announced("admin on "));
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.by_ref().for_each(drop));
        Served {
            process: Process::new(child.id()),
            child,
            listen,
            admin,
            _folder: folder,
        }
    }
}

impl Served {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ran(&self) -> Ran {
        Ran::now(self.pid())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_after(line: &str, words: &str) -> Option<SocketAddr> {
    let rest = &line[line.find(words)? + words.len()..];
    let end = rest.find([' ', ',']).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
