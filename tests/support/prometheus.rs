//! A real Prometheus.

use super::client::get;
use super::program::{Program, free_port};
use super::wait::eventually;
use serde_json::Value;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A running Prometheus; ended when dropped.
pub(crate) struct Prometheus {
    program: Program,
    address: SocketAddr,
    _folder: TempDir,
}

impl Prometheus {
    /// Its only job is kvgauge.
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        Self::scraping_all(&[target])
    }

    pub(crate) fn scraping_all(targets: &[SocketAddr]) -> Self {
        Self::scraping_with(targets, "")
    }

    /// `job`: further lines of the job.
    pub(crate) fn scraping_with(targets: &[SocketAddr], job: &str) -> Self {
        let targets: Vec<_> = targets.iter().map(|target| format!("'{target}'")).collect();
        let targets = targets.join(", ");
        Self::with(
            &format!(
                "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: kvgauge\n    \
                 static_configs:\n      - targets: [{targets}]\n{job}"
            ),
            &[],
        )
    }

    /// With this configuration, and copies of these files beside it.
    pub(crate) fn with(settings: &str, files: &[&Path]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, settings).unwrap();
        for one in files {
            std::fs::copy(one, folder.path().join(one.file_name().unwrap())).unwrap();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let data = folder.path().join("data");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage");
        let mut program = Program::start("prometheus", &mut command);
        program.until_ready(address, "/-/ready");
        Self {
            program,
            address,
            _folder: folder,
        }
    }

    /// Standard error so far.
    pub(crate) fn errors(&self) -> String {
        self.program.errors()
    }

    pub(crate) fn ask(&self, target: &str) -> Value {
        let answer = get(self.address, target);
        assert_eq!(answer.status(), 200, "{target}: {}", answer.text());
        answer.json()["data"].clone()
    }

    /// The result of an instant query: labels and value of each series.
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let data = self.ask(&format!("/api/v1/query?query={}", escaped(query)));
        let one = |one: &Value| {
            let value = one["value"][1].as_str().unwrap();
            (one["metric"].clone(), value.parse().unwrap())
        };
        data["result"].as_array().unwrap().iter().map(one).collect()
    }

    /// Waits for a query to answer.
    pub(crate) fn answer(&self, query: &str) -> Vec<(Value, f64)> {
        eventually(query, || {
            Some(self.query(query)).filter(|found| !found.is_empty())
        })
    }
}

/// As part of a query string.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
