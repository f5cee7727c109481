//! A real Prometheus with one scrape job, `promtool`, and Python's `prometheus-client` read the
//! unified page.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use support::program::{Program, free_port, script};
use support::{Kvgauge, Page, Samples, Setup, Upstream, get};

/// kvgauge in front of a deployment of these pages.
struct Deployment {
    kvgauge: Kvgauge,
    _upstream: Upstream,
    _pages: Vec<Page>,
}

impl Deployment {
    fn of(sources: &[(&str, &str, &str)]) -> Self {
        let upstream = Upstream::ok();
        let mut setup = Setup::new(upstream.address());
        let mut pages = Vec::new();
        for (name, role, page) in sources {
            let page = Page::real(page);
            setup = setup.source(name, role, &page);
            pages.push(page);
        }
        let kvgauge = setup.start();
        for (name, ..) in sources {
            kvgauge.until_up(name);
        }
        // So that kvgauge's own families have something to say.
        for path in ["/v1/models", "/v1/chat/completions", "/else"] {
            assert_eq!(get(kvgauge.listen, path).status(), 200);
        }
        Self {
            kvgauge,
            _upstream: upstream,
            _pages: pages,
        }
    }
}

const BUSY: [(&str, &str, &str); 3] = [
    ("router", "", "sglang-router-0.3.2-pd-after-traffic"),
    ("prefill", "prefill", "sglang-0.5.23-prefill-tp4-busy"),
    ("decode", "decode", "sglang-0.5.23-decode-tp4-busy"),
];

/// Deployments that differ in names, types and ranks.
const DEPLOYMENTS: [&[(&str, &str, &str)]; 4] = [
    &BUSY,
    &[
        ("router", "", "sglang-router-0.3.2-pd-before-traffic"),
        ("prefill", "prefill", "sglang-0.5.23-prefill-tp4-fresh"),
        ("decode", "decode", "sglang-0.5.23-decode-tp4-fresh"),
    ],
    // The same name as gauge and as histogram.
    &[
        ("new", "decode", "sglang-0.5.23-decode-dpattn4-busy"),
        ("older", "prefill", "sglang-0.5.10-prefill-tp4-busy"),
        ("oldest", "prefill", "sglang-0.5.5-prefill-tp4-busy"),
    ],
    &[
        ("router", "", "sglang-router-0.3.2-plain-after-traffic"),
        (
            "a",
            "unified",
            "sglang-0.5.23-unified-priority-extralabels-busy",
        ),
        ("b", "unified", "sglang-0.4.6-unified-busy"),
        ("c", "unified", "sglang-0.5.23-unified-tp2-cpu-real-busy"),
    ],
];

/// A real Prometheus whose only job is kvgauge.
struct Prometheus {
    _program: Program,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn scraping(target: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prometheus.yml");
        let settings = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: kvgauge\n    \
             static_configs:\n      - targets: ['{target}']\n"
        );
        std::fs::write(&file, settings).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"));
        let mut program = Program::start("prometheus", &mut command);
        program.until_ready(address, "/-/ready");
        Self {
            _program: program,
            address,
            _folder: folder,
        }
    }

    fn ask(&self, target: &str) -> Value {
        let answer = get(self.address, target);
        assert_eq!(answer.status(), 200, "{target}: {}", answer.text());
        answer.json()["data"].clone()
    }

    /// The result of an instant query: labels and value of each series.
    fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let data = self.ask(&format!("/api/v1/query?query={}", escaped(query)));
        let series = data["result"].as_array().unwrap().iter();
        series
            .map(|one| {
                (
                    one["metric"].clone(),
                    one["value"][1].as_str().unwrap().parse().unwrap(),
                )
            })
            .collect()
    }

    /// Waits for a query to answer.
    fn answer(&self, query: &str) -> Vec<(Value, f64)> {
        support::eventually(query, || {
            Some(self.query(query)).filter(|found| !found.is_empty())
        })
    }
}

fn escaped(text: &str) -> String {
    let byte = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn one_scrape_job_has_it_all() {
    let deployment = Deployment::of(&BUSY);
    let prometheus = Prometheus::scraping(deployment.kvgauge.admin);
    assert_eq!(prometheus.answer("up == 1")[0].1, 1.0);
    for (query, value) in [
        (
            "sglang:num_running_reqs{source=\"decode\",tp_rank=\"0\"}",
            3.0,
        ),
        (
            "sglang:kv_used_tokens{source=\"decode\",tp_rank=\"0\"}",
            12_034.0,
        ),
        ("kvgauge_kv_used_tokens{role=\"decode\"}", 12_034.0),
        ("kvgauge_kv_capacity_tokens{role=\"decode\"}", 2_581_504.0),
        ("sum(kvgauge_source_up)", 3.0),
        ("count(kvgauge_build_info)", 1.0),
        ("sum(kvgauge_requests_total{code=\"200\"})", 3.0),
    ] {
        assert_eq!(prometheus.answer(query)[0].1, value, "{query}");
    }
    let usage = prometheus.answer("kvgauge_kv_usage_ratio{role=\"decode\"}")[0].1;
    assert!((usage - 12_034.0 / 2_581_504.0).abs() < 1e-9, "{usage}");
    assert!(
        prometheus
            .answer("{__name__=~\"smg_.*\",source=\"router\"}")
            .len()
            > 50
    );
    // Nothing of the page was refused.
    let page = deployment.kvgauge.metrics().0.len();
    let scraped = prometheus.answer("scrape_samples_scraped")[0].1;
    assert!(
        (scraped - page as f64).abs() < 20.0,
        "{scraped} of {page} samples"
    );
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn published_dashboards_answer() {
    let deployment = Deployment::of(&BUSY);
    let prometheus = Prometheus::scraping(deployment.kvgauge.admin);
    let text = support::data::beside_pages("dashboard-queries.txt");
    let (_, sglang) = text.split_once("# SGLang").unwrap();
    let (sglang, _) = sglang.split_once("# vLLM").unwrap();
    let queries: Vec<_> = sglang
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(queries.len(), 10);
    for query in queries {
        if let Some(labels) = query.strip_prefix("label_values: ") {
            for label in labels.split(", ") {
                let values = prometheus.ask(&format!("/api/v1/label/{label}/values"));
                assert!(!values.as_array().unwrap().is_empty(), "{label}");
            }
            continue;
        }
        prometheus.answer(&query.replace("$i", "30s").replace("$m", "/models/tiny"));
    }
}

type Labels = Vec<(String, String)>;
type Series = (String, Labels);

/// What `promtool check metrics` says: 0 fine, 3 lint only, 1 can't be parsed.
fn promtool(page: &str) -> (Option<i32>, String) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("starting promtool: {error}; tests/run installs it"));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn b48_promtool_finds_no_parse_error() {
    assert_eq!(
        promtool("a{ 1\n").0,
        Some(1),
        "that is what an error looks like"
    );
    for sources in DEPLOYMENTS {
        let page = Deployment::of(sources).kvgauge.metrics_text();
        support::strict::check(&page);
        let (code, text) = promtool(&page);
        assert!(matches!(code, Some(0 | 3)), "{sources:?}: {code:?} {text}");
    }
}

#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn prometheus_client_reads_the_same_samples() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page");
    for sources in DEPLOYMENTS {
        let page = Deployment::of(sources).kvgauge.metrics_text();
        std::fs::write(&file, &page).unwrap();
        let text = script("read_page.py", [file.as_os_str()]);
        let mut theirs: HashMap<Series, Vec<f64>> = HashMap::new();
        for line in text.lines() {
            let (name, labels, value): (String, Labels, String) =
                serde_json::from_str(line).unwrap();
            theirs
                .entry((name, labels))
                .or_default()
                .push(value.parse().unwrap());
        }
        let ours = Samples::parse(&page).0;
        assert_eq!(
            theirs.values().map(Vec::len).sum::<usize>(),
            ours.len(),
            "{sources:?}"
        );
        for sample in ours {
            let mut labels = sample.labels.clone();
            labels.sort();
            let found = &theirs[&(sample.name.clone(), labels)];
            let same = found[0] == sample.value() || (found[0].is_nan() && sample.value().is_nan());
            assert!(found.len() == 1 && same, "{sample:?}: {found:?}");
        }
    }
}
