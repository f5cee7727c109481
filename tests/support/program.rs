//! Other people's programs: `sglang-router`, Prometheus, Python with the `openai` client. They are
//! there when `tests/run` has installed them.

use super::client::Client;
use super::lines::Lines;
use super::wait::{pause, within};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a program may take to start, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
pub(crate) struct Program {
    name: &'static str,
    child: Child,
    output: Lines,
    errors: Lines,
}

impl Program {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {name}: {error}; tests/run installs it"));
        let output = Lines::of(child.stdout.take().unwrap());
        let errors = Lines::of(child.stderr.take().unwrap());
        Self {
            name,
            child,
            output,
            errors,
        }
    }

    /// Waits until a GET of this path is answered with 200.
    pub(crate) fn until_ready(&mut self, address: SocketAddr, path: &str) {
        let what = format!("{} is ready", self.name);
        within(START, &what, || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{} ended with {status}: {}", self.name, self.output.text());
            }
            pause(Duration::from_millis(50));
            let mut client = Client::try_connect(address).ok()?;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            client.try_send(request).ok()?;
            let answer = client.try_response("GET").ok()?;
            (answer.status() == 200).then_some(())
        });
    }

    /// Standard error so far.
    pub(crate) fn errors(&self) -> String {
        self.errors.text()
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for its end; none where a signal has ended it.
    pub(crate) fn exit_code(&mut self, limit: Duration) -> Option<i32> {
        let what = format!("{} ends", self.name);
        within(limit, &what, || self.child.try_wait().unwrap()).code()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!(
                "--- the output of {}\n{}\n{}\n---",
                self.name,
                self.output.text(),
                self.errors.text()
            );
        }
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Python with the packages of `tests/py/requirements.txt`.
pub(crate) fn python() -> PathBuf {
    std::env::var_os("KVGAUGE_PYTHON")
        .map_or_else(|| here().join(".venv/bin/python"), PathBuf::from)
}

/// Runs a script of `tests/py` to its end; its output. Panics where it fails.
pub(crate) fn script<I, S>(name: &str, arguments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(python());
    command.arg(here().join("tests/py").join(name));
    to_the_end(name, command.args(arguments))
}

/// Runs a script of `tests/node` to its end, with the packages of its `package.json`; its output.
/// Panics where it fails.
pub(crate) fn node_script<I, S>(name: &str, arguments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    with_node("tests/node", name, arguments)
}

/// The same with a script of `tests/page`, which also needs Chromium.
pub(crate) fn page_script<I, S>(name: &str, arguments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    with_node("tests/page", name, arguments)
}

fn with_node<I, S>(folder: &str, name: &str, arguments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new("node");
    let packages = std::env::var_os("KVGAUGE_NODE")
        .map_or_else(|| here().join("target/tools/node"), PathBuf::from);
    command.env("KVGAUGE_NODE", packages);
    command.arg(here().join(folder).join(name));
    to_the_end(name, command.args(arguments))
}

/// Runs a program to its end; its output. Panics where it fails.
pub(crate) fn to_the_end(name: &str, command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("starting {name}: {error}; tests/run installs it"));
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{name}: {}\n{text}\n{errors}",
        output.status
    );
    text.into_owned()
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
