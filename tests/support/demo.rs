//! `kvgauge demo`, started on free ports and ended with the test.

use super::client::get;
use super::http::Response;
use super::lines::Lines;
use super::wait::{PATIENCE, within};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Demo {
    child: Child,
    lines: Lines,
    /// Where clients connect.
    pub(crate) listen: SocketAddr,
    /// Where operators connect.
    pub(crate) admin: SocketAddr,
}

impl Demo {
    pub(crate) fn start(scenario: &str) -> Self {
        Self::start_at(scenario, "127.0.0.1:0")
    }

    /// With this operators' listener.
    pub(crate) fn start_at(scenario: &str, admin: &str) -> Self {
        let arguments = [
            "demo",
            "--scenario",
            scenario,
            "--listen",
            "127.0.0.1:0",
            "--admin",
            admin,
        ];
        let mut child = Command::new(super::kvgauge::program())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let address = |path: &str| {
            lines
                .wait(PATIENCE, |lines, _| {
                    let text = String::from_utf8_lossy(&lines.join(&b'\n')).into_owned();
                    text.split_whitespace().find_map(|word| {
                        let address = word.strip_prefix("http://")?.strip_suffix(path)?;
                        address.parse().ok()
                    })
                })
                .unwrap_or_else(|| panic!("the demo did not say where its {path} is"))
        };
        let (listen, admin) = (address("/v1/chat/completions"), address("/kv"));
        Self {
            child,
            lines,
            listen,
            admin,
        }
    }

    /// What it has printed.
    pub(crate) fn text(&self) -> String {
        self.lines.text()
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        get(self.admin, path)
    }

    /// A role as `/kv` has it.
    pub(crate) fn role(&self, role: &str) -> Value {
        let kv = self.get("/kv").json();
        let roles = kv["roles"].as_array().unwrap();
        let found = roles.iter().find(|one| one["role"] == role);
        found.unwrap_or_else(|| panic!("no {role} in {kv}")).clone()
    }

    /// A source as `/sources` has it.
    pub(crate) fn source(&self, name: &str) -> Value {
        let sources = self.get("/sources").json();
        let all = sources["sources"].as_array().unwrap();
        let found = all.iter().find(|one| one["name"] == name);
        found
            .unwrap_or_else(|| panic!("no {name} in {sources}"))
            .clone()
    }

    /// Waits until a role is as `look` wants it.
    pub(crate) fn until(
        &self,
        limit: Duration,
        what: &str,
        role: &str,
        look: impl Fn(&Value) -> bool,
    ) -> Value {
        within(limit, what, || {
            let state = self.role(role);
            look(&state).then_some(state)
        })
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }
}
