//! A real Prometheus with one scrape job, `promtool`, and Python's `prometheus-client` read the
//! unified page: Prometheus, by default, in `OpenMetrics`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use kvgauge::exposition::{self, Format, Limits, Prepared};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::page::Behaviour;
use support::program::script;
use support::prometheus::{Prometheus, escaped};
use support::{Kvgauge, Page, Samples, Setup, Upstream, eventually, fetch, get};

/// What Prometheus 2.42 sends.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// kvgauge in front of a deployment of these pages.
struct Deployment {
    kvgauge: Kvgauge,
    _upstream: Upstream,
    _pages: Vec<Page>,
}

impl Deployment {
    fn of(sources: &[(&str, &str, &str)]) -> Self {
        let sources = sources.iter();
        Self::with(sources.map(|(name, role, page)| (*name, *role, Page::real(page))))
    }

    fn with<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str, Page)>) -> Self {
        let upstream = Upstream::ok();
        let mut setup = Setup::new(upstream.address());
        let (mut names, mut pages) = (Vec::new(), Vec::new());
        for (name, role, page) in sources {
            setup = setup.source(name, role, &page);
            names.push(name);
            pages.push(page);
        }
        let kvgauge = setup.start();
        for name in names {
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

    /// The page as Prometheus asks for it.
    fn open_metrics(&self) -> String {
        let admin = self.kvgauge.admin;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: k\r\nAccept: {ACCEPT}\r\n\r\n");
        let page = fetch(admin, request);
        let content_type = page.head.get("content-type").unwrap();
        let expected = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert_eq!(content_type, expected);
        page.text()
    }
}

/// Samples on a page in any text format.
fn sample_count(page: &str) -> usize {
    let sample = |line: &&str| !line.is_empty() && !line.starts_with('#');
    page.lines().filter(sample).count()
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
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn prometheus_brings_the_operators_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let upstream = Upstream::ok();
    let settings = format!("admin.bearer_file = \"{}\"\n", token.display());
    std::fs::write(&token, "one").unwrap();
    let kvgauge = Setup::new(upstream.address()).settings(&settings).start();
    // As in the README.
    let job = format!(
        "    authorization: {{credentials_file: {}}}\n",
        token.display()
    );
    let prometheus = Prometheus::scraping_with(&[kvgauge.admin], &job);
    assert_eq!(prometheus.answer("up == 1")[0].1, 1.0);
    // Renewed in the file that both read.
    std::fs::write(&token, "two").unwrap();
    let renewed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let since = renewed.as_secs_f64();
    prometheus.answer(&format!("timestamp(up == 1) > {since}"));
    let stranger = Prometheus::scraping(kvgauge.admin);
    stranger.answer("up == 0");
    let found = stranger.ask("/api/v1/targets?state=active");
    let error = found["activeTargets"][0]["lastError"].as_str().unwrap();
    assert!(error.contains("401 Unauthorized"), "{error}");
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn prometheus_takes_every_sample_of_its_default_format() {
    let deployments = DEPLOYMENTS.map(Deployment::of);
    let targets = deployments.each_ref().map(|one| one.kvgauge.admin);
    let prometheus = Prometheus::scraping_all(&targets);
    for (deployment, sources) in deployments.iter().zip(DEPLOYMENTS) {
        let of_target = format!("{{instance=\"{}\"}}", deployment.kvgauge.admin);
        // More than one scrape: what was taken once can still clash with what comes then.
        prometheus.answer(&format!("sum_over_time(up{of_target}[1m]) >= 3"));
        let newest = |name: &str| Some(prometheus.query(&format!("{name}{of_target}")).first()?.1);
        eventually("as many samples as the page has", || {
            let page = sample_count(&deployment.open_metrics()) as f64;
            let scraped = newest("scrape_samples_scraped")?;
            let kept = newest("scrape_samples_post_metric_relabeling")?;
            (scraped == page && kept == page).then_some(())
        });
        assert_eq!(newest("up"), Some(1.0), "{sources:?}");
    }
    let found = prometheus.ask("/api/v1/targets?state=active");
    let found = found["activeTargets"].as_array().unwrap();
    assert_eq!(found.len(), targets.len());
    for target in found {
        assert_eq!(target["health"], "up", "{target}");
        assert_eq!(target["lastError"], "", "{target}");
    }
    // In OpenMetrics a counter's family has no suffix; in classic text it has.
    let metadata = |name: &str| {
        let found = prometheus.ask(&format!("/api/v1/targets/metadata?metric={name}"));
        found.as_array().unwrap().clone()
    };
    let counters = metadata("kvgauge_requests");
    assert_eq!(counters.len(), targets.len(), "{counters:?}");
    assert!(counters.iter().all(|one| one["type"] == "counter"));
    assert!(metadata("kvgauge_requests_total").is_empty());
    // Neither what could not be parsed nor what could not be kept goes without a word.
    let log = prometheus.errors();
    let complains = |line: &&str| line.contains("level=warn") || line.contains("level=error");
    let complaints: Vec<_> = log.lines().filter(complains).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn exemplars_of_a_source_reach_prometheus() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let at = |before: u64| (now - Duration::from_secs(before)).as_secs();
    let (first, second) = (at(9), at(4));
    let page = format!(
        "# TYPE probe_jobs counter\n# HELP probe_jobs Jobs.\n\
         probe_jobs_total{{kind=\"a\"}} 17 # {{trace_id=\"4bf92f3577b34da6\"}} 1 {first}.25\n\
         probe_jobs_total{{kind=\"b\"}} 3\n\
         # TYPE probe_wait_seconds histogram\n# UNIT probe_wait_seconds seconds\n\
         probe_wait_seconds_bucket{{le=\"1.0\"}} 3 # {{trace_id=\"a3ce929d0e0e4736\",span_id=\"00f0\"}} 0.5 {second}.5\n\
         probe_wait_seconds_bucket{{le=\"+Inf\"}} 5\n\
         probe_wait_seconds_count 5\nprobe_wait_seconds_sum 7.5\n# EOF\n"
    );
    let page = Page::new(Behaviour::OpenMetrics(page));
    let deployment = Deployment::with([("probe", "", page)]);
    let prometheus = Prometheus::scraping(deployment.kvgauge.admin);
    let bucket = "probe_wait_seconds_bucket{source=\"probe\",le=\"1.0\"}";
    assert_eq!(prometheus.answer(bucket)[0].1, 3.0);
    for (query, labels, value, time) in [
        (
            "probe_jobs_total{source=\"probe\",kind=\"a\"}",
            serde_json::json!({"trace_id": "4bf92f3577b34da6"}),
            "1",
            first as f64 + 0.25,
        ),
        (
            bucket,
            serde_json::json!({"trace_id": "a3ce929d0e0e4736", "span_id": "00f0"}),
            "0.5",
            second as f64 + 0.5,
        ),
    ] {
        let target = format!(
            "/api/v1/query_exemplars?query={}&start={}&end={}",
            escaped(query),
            at(60),
            at(0) + 60
        );
        let found = eventually(query, || {
            let found = prometheus.ask(&target);
            found
                .as_array()
                .is_some_and(|all| !all.is_empty())
                .then_some(found)
        });
        assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
        let exemplars = &found[0]["exemplars"];
        // Once, however often the page with it was scraped.
        assert_eq!(exemplars.as_array().unwrap().len(), 1, "{found}");
        assert_eq!(exemplars[0]["labels"], labels, "{found}");
        assert_eq!(exemplars[0]["value"], value, "{found}");
        assert_eq!(exemplars[0]["timestamp"].as_f64(), Some(time), "{found}");
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

/// Name and text of each `*.prom` of a folder of `tests/data`.
fn pages_of(folder: &str) -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(folder);
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "prom")
        })
        .map(|file| {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(file).unwrap())
        })
        .collect();
    pages.sort();
    pages
}

/// The classic page of these pages.
fn merged(pages: &[(String, String)]) -> String {
    let limits = Limits {
        max_series: 1_000_000,
        max_label_bytes: 16 * 1024,
        max_families: 100_000,
    };
    let prepared: Vec<Prepared> = pages
        .iter()
        .map(|(name, text)| {
            let page = exposition::Page::read(text.as_bytes(), &limits).unwrap();
            Prepared::new(&page, Some(("source", name)))
        })
        .collect();
    let page = exposition::merge(&prepared.iter().collect::<Vec<_>>(), 0, Format::CLASSIC);
    String::from_utf8(page.text).unwrap()
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn promtool_takes_all_real_pages_at_once() {
    let pages = pages_of("expositions");
    assert!(pages.len() > 40);
    let (code, text) = promtool(&merged(&pages));
    assert!(matches!(code, Some(0 | 3)), "{code:?} {text}");
}

/// What promtool refuses of the pages that the cases serve it takes once they are merged.
#[test]
#[ignore = "needs prometheus: tests/run"]
fn promtool_takes_what_is_made_of_pages_that_it_refuses() {
    let takes = |text: &str| matches!(promtool(text).0, Some(0 | 3));
    let mut refused = Vec::new();
    for (name, text) in pages_of("cases") {
        if !takes(&text) {
            refused.push(name.clone());
        }
        let page = merged(&[(name.clone(), text)]);
        assert!(takes(&page), "{name}: {:?}\n{page}", promtool(&page));
    }
    // A quote within a value, types of OpenMetrics, carriage returns.
    assert_eq!(refused, ["b02", "b07-p", "b08"]);
}

#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn prometheus_client_reads_the_same_samples() {
    for sources in DEPLOYMENTS {
        let page = Deployment::of(sources).kvgauge.metrics_text();
        same_samples(&page, None);
    }
}

#[test]
#[ignore = "needs prometheus-client: tests/run"]
fn prometheus_client_reads_the_same_samples_in_open_metrics() {
    for sources in DEPLOYMENTS {
        let page = Deployment::of(sources).open_metrics();
        same_samples(&page, Some("openmetrics"));
    }
}

/// `prometheus-client` finds on the page what we find.
fn same_samples(page: &str, format: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page");
    std::fs::write(&file, page).unwrap();
    let arguments = [Some(file.as_os_str()), format.map(OsStr::new)];
    let text = script("read_page.py", arguments.into_iter().flatten());
    let mut theirs: HashMap<Series, Vec<f64>> = HashMap::new();
    for line in text.lines() {
        let (name, labels, value): (String, Labels, String) = serde_json::from_str(line).unwrap();
        let values = theirs.entry((name, labels)).or_default();
        values.push(value.parse().unwrap());
    }
    let ours = Samples::parse(page).0;
    assert_eq!(theirs.values().map(Vec::len).sum::<usize>(), ours.len());
    for sample in ours {
        let mut labels = sample.labels.clone();
        labels.sort();
        let found = &theirs[&(sample.name.clone(), labels)];
        let same = found[0] == sample.value() || (found[0].is_nan() && sample.value().is_nan());
        assert!(found.len() == 1 && same, "{sample:?}: {found:?}");
    }
}
