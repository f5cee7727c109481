//! `config/prometheus` and `config/grafana` in a real Prometheus: every expression of dashboard, rules
//! and alerts is taken from the files and must answer, so that a renamed metric fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::demo::Demo;
use support::page::Behaviour;
use support::program::{free_port, python, script, to_the_end};
use support::prometheus::{Prometheus, escaped};
use support::wait::within;
use support::{Kvgauge, Page, Setup, Upstream, data, get, pause};

/// How long Prometheus may take to see everything: it scrapes every other second, and the engine of the
/// scenario `hung` has stood still for a minute 75 s after its start.
const SOON: Duration = Duration::from_secs(220);

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

// === what stands in the files ===

const RULES: &str = "config/prometheus/kvgauge.rules.yml";
const ALERTS: &str = "config/prometheus/kvgauge.alerts.yml";

fn dashboard() -> Value {
    serde_json::from_str(&text("config/grafana/kvgauge.json")).unwrap()
}

/// The panels that show something, with their titles.
fn panels() -> Vec<(String, Value)> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let panels = panels.filter(|panel| panel["type"] != "row");
    panels
        .map(|panel| (panel["title"].as_str().unwrap().to_owned(), panel.clone()))
        .collect()
}

/// Every expression of the dashboard, with the panel it stands in.
fn expressions() -> Vec<(String, String)> {
    let of_panel = |(title, panel): (String, Value)| {
        let targets = panel["targets"].as_array().unwrap().clone();
        targets.into_iter().map(move |target| {
            let place = format!("{title} {}", target["refId"].as_str().unwrap());
            (place, target["expr"].as_str().unwrap().to_owned())
        })
    };
    panels().into_iter().flat_map(of_panel).collect()
}

/// Selector and label of each variable that asks for values.
fn variables() -> Vec<(String, String, String)> {
    let dashboard = dashboard();
    let all = dashboard["templating"]["list"].as_array().unwrap().clone();
    let asking = all.iter().filter(|one| one["type"] == "query");
    asking
        .map(|one| {
            let query = one["query"]["query"].as_str().unwrap();
            let inner = query.strip_prefix("label_values(").unwrap();
            let (selector, label) = inner.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
            let name = one["name"].as_str().unwrap();
            (name.to_owned(), selector.to_owned(), label.to_owned())
        })
        .collect()
}

/// As Grafana fills in variables: everything chosen, but what is named here.
fn filled(query: &str, chosen: &[(&str, &str)]) -> String {
    let mut query = query.replace("$__rate_interval", "20s");
    for (name, value) in chosen {
        query = query.replace(&format!("\"${name}\""), &format!("\"{value}\""));
    }
    for name in ["deployment", "instance", "role", "model", "source"] {
        query = query.replace(&format!("\"${name}\""), "\".*\"");
    }
    assert!(!query.contains('$'), "a variable is left: {query}");
    query
}

/// One rule of the files, as Prometheus reads it.
struct Rule {
    name: String,
    expression: String,
    alert: bool,
}

fn rules(prometheus: &Prometheus) -> Vec<Rule> {
    let groups = prometheus.ask("/api/v1/rules")["groups"].clone();
    let groups = groups.as_array().unwrap().clone();
    let of_group = |group: &Value| group["rules"].as_array().unwrap().clone();
    let rules = groups.iter().flat_map(of_group);
    let rules: Vec<Rule> = rules
        .map(|rule| Rule {
            name: rule["name"].as_str().unwrap().to_owned(),
            expression: rule["query"].as_str().unwrap().to_owned(),
            alert: rule["type"] == "alerting",
        })
        .collect();
    let count = |file: &str, what: &str| text(file).matches(what).count();
    let alerts = rules.iter().filter(|rule| rule.alert).count();
    assert_eq!(alerts, count(ALERTS, "- alert: "));
    assert_eq!(rules.len() - alerts, count(RULES, "- record: "));
    rules
}

// === who is scraped ===

/// A page whose counters have grown so many times.
fn grown(page: &str, times: u32) -> String {
    let mut counters = BTreeSet::new();
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        if let Some(about) = line.strip_prefix("# TYPE ") {
            let (name, kind) = about.split_once(' ').unwrap();
            match kind {
                "counter" => drop(counters.insert(name.to_owned())),
                "histogram" | "summary" => counters
                    .extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}"))),
                _ => {}
            }
        }
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        match line.rsplit_once(' ') {
            Some((series, value)) if counters.contains(name) => {
                let value: f64 = value.parse().unwrap();
                let _ = writeln!(out, "{series} {}", value * f64::from(times));
            }
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// A page whose text is changed; each change must find something.
fn changed(page: &str, changes: &[(&str, &str)]) -> String {
    let mut page = data::page(page);
    for (from, to) in changes {
        assert!(page.contains(from), "{from}");
        page = page.replace(from, to);
    }
    page
}

/// Of `kvgauge demo`.
const SCENARIOS: [&str; 6] = [
    "calm",
    "full",
    "hot-rank",
    "decode-restart",
    "metrics-off",
    "hung",
];

/// Everybody that is scraped: a deployment for each state that a rule speaks of.
struct Fleet {
    targets: Vec<(&'static str, SocketAddr)>,
    /// Pages whose counters grow, as they came.
    growing: Vec<(String, Page)>,
    times: u32,
    kvgauges: BTreeMap<&'static str, Kvgauge>,
    upstream: Upstream,
    _demos: Vec<Demo>,
    _still: Vec<Page>,
    _folder: tempfile::TempDir,
}

impl Fleet {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut fleet = Self {
            targets: Vec::new(),
            growing: Vec::new(),
            times: 1,
            kvgauges: BTreeMap::new(),
            upstream: Upstream::ok(),
            _demos: Vec::new(),
            _still: Vec::new(),
            _folder: tempfile::tempdir().unwrap(),
        };

        for scenario in SCENARIOS {
            let demo = Demo::start(scenario);
            fleet.targets.push((scenario, demo.admin));
            fleet._demos.push(demo);
        }

        // Full (1.0), with 14 requests that wait, and preemptions.
        let preempting = [(
            "vllm:num_preemptions_total{engine=\"0\",model_name=\"/models/tiny\"} 0.0",
            "vllm:num_preemptions_total{engine=\"0\",model_name=\"/models/tiny\"} 3.0",
        )];
        let vllm = changed("vllm-0.32.0-loaded", &preempting);
        fleet.grow("vllm", |setup, page| setup.source("vllm", "", page), vllm);

        // SGLang 0.5.5, whose transfer metrics are gauges; a bad line, and a value that can't be.
        let old = changed(
            "sglang-0.5.5-prefill-tp4-busy",
            &[
                (
                    "\nsglang:gen_throughput{",
                    "\nsglang:gen_throughput{ 1\nsglang:gen_throughput{",
                ),
                (
                    "sglang:cache_hit_rate{engine_type=\"prefill\",model_name=\"/models/tiny\",pp_rank=\"0\",tp_rank=\"0\"} 0.182",
                    "sglang:cache_hit_rate{engine_type=\"prefill\",model_name=\"/models/tiny\",pp_rank=\"0\",tp_rank=\"0\"} 7.5",
                ),
            ],
        );
        let found = at("found.json");
        let elsewhere = Page::real("sglang-0.5.10-prefill-tp4-busy");
        let list = format!("[{{\"targets\": [\"{}\"]}}]", elsewhere.address());
        std::fs::write(&found, list).unwrap();
        let discovering = format!(
            "scrape.interval = \"100ms\"\n[discovery]\nfile_sd = [\"{}\"]\n",
            found.display()
        );
        fleet.grow(
            "older",
            |setup, page| setup.settings(&discovering).source("older", "", page),
            old,
        );
        fleet._still.push(elsewhere);

        // One of two engines is gone, and a list of sources is none.
        let broken = at("broken.json");
        std::fs::write(&broken, "[{").unwrap();
        let broken = format!(
            "scrape.interval = \"100ms\"\n[discovery]\nfile_sd = [\"{}\"]\n",
            broken.display()
        );
        fleet.still(
            "partly",
            |setup, page| {
                let there = format!("http://127.0.0.1:{}", free_port());
                let setup = setup.settings(&broken).source("decode-1", "decode", page);
                setup.source_at("decode-2", "decode", &there)
            },
            Page::real("sglang-0.5.23-decode-tp4-busy"),
        );
        // A router and no engine.
        fleet.still(
            "nobody",
            |setup, page| setup.source("router", "", page),
            Page::real("sglang-router-0.3.2-pd-after-traffic"),
        );
        // Two kvgauges before one engine, both with its series.
        let page = Page::real("sglang-0.5.23-decode-tp4-allranks-busy");
        for name in ["twice", "twice again"] {
            let setup = Setup::new(fleet.upstream.address()).source("decode", "decode", &page);
            let kvgauge = setup.start();
            fleet.targets.push(("twice", kvgauge.admin));
            fleet.kvgauges.insert(name, kvgauge);
        }
        fleet._still.push(page);
        // Whose log goes to a full disk.
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        fleet.still(
            "dropping",
            |setup, page| setup.log_to(full).source("decode", "decode", page),
            Page::real("sglang-0.5.23-decode-tp4-busy"),
        );
        fleet
            .targets
            .push(("gone", SocketAddr::from(([127, 0, 0, 1], free_port()))));
        fleet._folder = folder;
        fleet
    }

    fn grow(&mut self, name: &'static str, set: impl FnOnce(Setup, &Page) -> Setup, text: String) {
        let page = Page::text(text.clone());
        self.add(name, set, &page);
        self.growing.push((text, page));
    }

    fn still(&mut self, name: &'static str, set: impl FnOnce(Setup, &Page) -> Setup, page: Page) {
        self.add(name, set, &page);
        self._still.push(page);
    }

    fn add(&mut self, name: &'static str, set: impl FnOnce(Setup, &Page) -> Setup, page: &Page) {
        let kvgauge = set(Setup::new(self.upstream.address()), page).start();
        self.targets.push((name, kvgauge.admin));
        self.kvgauges.insert(name, kvgauge);
    }

    /// What happens in a while: counters grow, and requests come.
    fn goes_on(&mut self) {
        self.times += 1;
        for (text, page) in &self.growing {
            page.set(Behaviour::Text(grown(text, self.times)));
        }
        assert_eq!(
            get(self.kvgauges["dropping"].listen, "/v1/models").status(),
            200
        );
        pause(Duration::from_millis(500));
    }

    /// The configuration that is shipped, with these targets and a quicker pace.
    fn prometheus(&self) -> Prometheus {
        let shipped = text("config/prometheus/prometheus.yml");
        let target = "      - targets: [\"127.0.0.1:30090\"]\n";
        assert!(shipped.contains(target));
        let mut targets = String::new();
        for (deployment, address) in &self.targets {
            let _ = writeln!(
                targets,
                "      - targets: [\"{address}\"]\n        labels: {{deployment: {deployment}}}"
            );
        }
        let (before, after) = shipped.split_once(target).unwrap();
        // The labels of the target that was there.
        let after = after.split_once("          deployment: main\n").unwrap().1;
        let settings = format!("{before}{targets}{after}").replace(": 5s", ": 2s");
        Prometheus::with(&settings, &[&file(RULES), &file(ALERTS)])
    }
}

/// Asks until each has answered with a number; which stays silent is told.
fn all_answer(fleet: &mut Fleet, prometheus: &Prometheus, mut queries: Vec<(String, String)>) {
    let start = std::time::Instant::now();
    loop {
        queries.retain(|(_, query)| {
            let found = prometheus.query(query);
            found.iter().all(|(_, value)| value.is_nan())
        });
        if queries.is_empty() {
            return;
        }
        assert!(start.elapsed() < SOON, "these never answered: {queries:#?}");
        fleet.goes_on();
    }
}

/// For each alert the deployments that it is meant for, scenarios of `kvgauge demo` where there is one.
const MEANT_FOR: [(&str, &[&str]); 12] = [
    ("KvCacheNearlyFull", &["full", "hot-rank", "vllm"]),
    ("KvCacheFullAndQueueing", &["full", "hot-rank", "vllm"]),
    (
        "KvCacheUnknown",
        &["decode-restart", "metrics-off", "nobody"],
    ),
    ("KvCachePartlyUnknown", &["partly"]),
    ("KvPoolHot", &["hot-rank"]),
    ("KvRetractionsRising", &["full", "vllm"]),
    ("KvSourceDown", &["decode-restart", "metrics-off", "partly"]),
    ("KvPageUnchanged", &["hung"]),
    ("KvDiscoveryDown", &["partly"]),
    ("KvgaugeDown", &["gone"]),
    ("KvEngineSeriesTwice", &["twice"]),
    ("KvgaugeLogLinesDropped", &["dropping"]),
];

/// Every name of a metric in these expressions.
fn names<'a>(expressions: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for expression in expressions {
        let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let words = expression.split(part);
        let beginnings = [
            "kvgauge_",
            "sglang:",
            "vllm:",
            "role:",
            "source:",
            "deployment:",
            "process_",
        ];
        let named = words.filter(|word| beginnings.iter().any(|start| word.starts_with(start)));
        names.extend(named.map(str::to_owned));
    }
    names
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn every_expression_answers_in_the_deployment_meant_for_it() {
    let mut fleet = Fleet::start();
    let prometheus = fleet.prometheus();
    let rules = rules(&prometheus);

    let panels = expressions().into_iter();
    let mut queries: Vec<(String, String)> = panels
        .map(|(place, query)| (format!("panel {place}"), filled(&query, &[])))
        .collect();
    assert!(queries.len() > 80);
    for rule in rules.iter().filter(|rule| !rule.alert) {
        queries.push((format!("rule {}", rule.name), rule.expression.clone()));
        // And what it records.
        queries.push((format!("series {}", rule.name), rule.name.clone()));
    }

    let mut without: BTreeSet<&str> = rules
        .iter()
        .filter(|rule| rule.alert)
        .map(|rule| rule.name.as_str())
        .collect();
    for (name, deployments) in MEANT_FOR {
        let rule = rules.iter().find(|rule| rule.name == name).unwrap();
        without.remove(name);
        let expression = &rule.expression;
        for deployment in deployments {
            let only = format!(
                "({expression}) and on (deployment) \
                 label_replace(vector(0), \"deployment\", \"{deployment}\", \"\", \"\")"
            );
            queries.push((format!("alert {name} of {deployment}"), only));
        }
    }
    without.remove("KvgaugeAbsent");
    assert!(without.is_empty(), "no test of {without:?}");
    // Of `A or B` each: a name that is gone would go unnoticed beside the other.
    let written = queries.iter().map(|(_, query)| query.as_str());
    let names = names(written);
    assert!(names.len() > 70, "{names:?}");
    for name in names {
        queries.push((format!("name {name}"), format!("count({name})")));
    }
    all_answer(&mut fleet, &prometheus, queries);

    // Where nothing is wrong nothing is said. (On a busy machine a scrape may fail now and then.)
    for rule in rules.iter().filter(|rule| rule.alert) {
        within(SOON, &format!("{} is quiet", rule.name), || {
            let found = prometheus.query(&rule.expression);
            let mut found = found.iter();
            let calm = found.all(|(labels, _)| labels["deployment"] != "calm");
            calm.then_some(())
        });
    }
    // A Prometheus that knows no kvgauge.
    let absent = rules
        .iter()
        .find(|rule| rule.name == "KvgaugeAbsent")
        .unwrap();
    assert!(prometheus.query(&absent.expression).is_empty());
    let other = Prometheus::with("global: {scrape_interval: 1s}\n", &[]);
    assert_eq!(other.query(&absent.expression)[0].1, 1.0);

    texts_are_whole(&prometheus);
    variables_answer(&prometheus);
    the_role_counts(&prometheus);
    replicas_count_once(&prometheus);
}

/// All rules are evaluated without a complaint, and what the alerts say has no hole in it.
fn texts_are_whole(prometheus: &Prometheus) {
    let all = || {
        let groups = prometheus.ask("/api/v1/rules")["groups"].clone();
        let groups = groups.as_array().unwrap().clone();
        let of_group = |group: &Value| group["rules"].as_array().unwrap().clone();
        groups.iter().flat_map(of_group).collect::<Vec<_>>()
    };
    // Rule by rule: on a busy machine Prometheus 2.42 evaluates a group twice for one moment now and
    // then, and calls that a fault of the rules it was about.
    let mut ill: BTreeSet<String> = all().iter().map(|rule| rule["name"].to_string()).collect();
    within(SOON, "each rule is well", || {
        for rule in all().iter().filter(|rule| rule["health"] == "ok") {
            ill.remove(&rule["name"].to_string());
        }
        ill.is_empty().then_some(())
    });
    let mut said = 0;
    for rule in all() {
        for active in rule["alerts"].as_array().unwrap_or(&Vec::new()) {
            let annotations = active["annotations"].as_object().unwrap();
            for name in ["summary", "description", "runbook"] {
                let text = annotations[name].as_str().unwrap();
                let whole = !text.contains("<no value>") && !text.contains("<error");
                let whole = whole && !text.contains("  ") && text.len() > 10;
                assert!(whole, "{name}: {text}");
                said += 1;
            }
        }
    }
    assert!(said > 20, "only {said} texts");
}

/// What the lists at the dashboard's head offer.
fn variables_answer(prometheus: &Prometheus) {
    let variables = variables();
    let names: Vec<&str> = variables.iter().map(|(name, _, _)| name.as_str()).collect();
    assert_eq!(names, ["deployment", "instance", "role", "model", "source"]);
    let values = |name: &str, chosen: &[(&str, &str)]| -> BTreeSet<String> {
        let (_, selector, label) = variables.iter().find(|(one, _, _)| one == name).unwrap();
        let matching = escaped(&filled(selector, chosen));
        let found = prometheus.ask(&format!("/api/v1/label/{label}/values?match[]={matching}"));
        let found = found.as_array().unwrap().iter();
        found.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let is = |name: &str, chosen: &[(&str, &str)], wanted: &[&str]| {
        let found = values(name, chosen);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, wanted, "{name} {chosen:?}");
    };
    is(
        "deployment",
        &[],
        &[
            "calm",
            "decode-restart",
            "dropping",
            "full",
            "hot-rank",
            "hung",
            "metrics-off",
            "nobody",
            "older",
            "partly",
            "twice",
            "vllm",
        ],
    );
    assert_eq!(values("instance", &[]).len(), 13);
    is("role", &[], &["decode", "prefill", "unified"]);
    is("role", &[("deployment", "calm")], &["decode", "prefill"]);
    is("model", &[("deployment", "vllm")], &["/models/tiny"]);
    is(
        "source",
        &[("deployment", "calm")],
        &["decode", "prefill", "router"],
    );
    is(
        "source",
        &[("deployment", "calm"), ("role", "decode")],
        &["decode"],
    );
    // A role of which nothing is known can be chosen all the same.
    is(
        "role",
        &[("deployment", "metrics-off")],
        &["decode", "prefill"],
    );
}

/// A choice at the dashboard's head reaches the panels.
fn the_role_counts(prometheus: &Prometheus) {
    let mut by_role = 0;
    for (place, query) in expressions() {
        if !query.contains("\"$role\"") {
            continue;
        }
        by_role += 1;
        let query = filled(&query, &[("role", "prefill")]);
        for (labels, _) in prometheus.query(&query) {
            assert_eq!(labels["role"], "prefill", "{place}");
        }
    }
    assert!(by_role > 12, "only {by_role}");
}

/// Two kvgauges before one engine, four ranks that all speak: each panel by role or source has its
/// series once, with the value of one.
fn replicas_count_once(prometheus: &Prometheus) {
    let chosen = [("deployment", "twice")];
    let mut compared = 0;
    let one = prometheus.query("min(kvgauge_build_info{deployment=\"twice\"}) by (instance)");
    assert_eq!(one.len(), 2);
    let first = one[0].0["instance"].as_str().unwrap();
    for (place, query) in expressions() {
        // Of what each kvgauge counts for itself, or sees of a source, there are two, by intent.
        let of_engines = ["\"$role\"", "sglang:", "vllm:"];
        let of_engines = of_engines.iter().any(|word| query.contains(word));
        if !of_engines || query.contains("kvgauge_source_") {
            continue;
        }
        let both = prometheus.query(&filled(&query, &chosen));
        // The engines' series are not chosen by kvgauge's instance.
        let all = "deployment=~\"twice\"";
        let of_one = format!("{all},instance=\"{first}\"");
        let single = filled(&query, &chosen).replace(all, &of_one);
        let single = prometheus.query(&single);
        assert_eq!(both.len(), single.len(), "{place}");
        for (labels, value) in single {
            let found = both.iter().find(|(other, _)| *other == labels).unwrap();
            let same = found.1 == value || (found.1.is_nan() && value.is_nan());
            assert!(same, "{place}: {value} of one, {} of two", found.1);
            compared += 1;
        }
    }
    assert!(compared > 10, "only {compared}");
}

// === published dashboards ===

/// Each published query, and whether it holds a rate by itself, whose value depends on the moment.
fn published(section: &str) -> Vec<(String, bool)> {
    let text = data::beside_pages("dashboard-queries.txt");
    let (_, after) = text.split_once(&format!("# {section}")).unwrap();
    let lines = after.lines().skip(1);
    let lines = lines.take_while(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let query = line.replace("$i", "30s").replace("$m", "/models/tiny");
            // Of quotients of rates the moment cancels out.
            let quotient = query.starts_with("histogram_quantile") || query.contains(") / rate(");
            let moment = (query.contains("rate(") || query.contains("increase(")) && !quotient;
            (query, moment)
        })
        .collect()
}

/// The labels that kvgauge and the jobs add.
fn bare(labels: &Value) -> BTreeMap<String, Value> {
    let labels = labels.as_object().unwrap().iter();
    let added = ["source", "instance", "job"];
    let kept = labels.filter(|(name, _)| !added.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn published_queries_return_what_they_return_on_the_engines_own_page() {
    let mut lines = 0;
    for (section, page) in [
        ("SGLang", "sglang-0.5.23-unified-tp1-busy"),
        ("vLLM", "vllm-0.32.0-loaded"),
    ] {
        let upstream = Upstream::ok();
        let mut text = data::page(page);
        if section == "vLLM" {
            // The name before 0.11, which the published dashboard still asks for.
            let (new, old) = (
                "vllm:inter_token_latency_seconds",
                "vllm:time_per_output_token_seconds",
            );
            text += &text
                .replace(new, old)
                .lines()
                .filter(|line| line.contains(old))
                .fold(String::new(), |all, line| all + line + "\n");
        }
        let page = Page::text(text.clone());
        let setup = Setup::new(upstream.address()).source("engine", "", &page);
        let kvgauge = setup.start();
        kvgauge.until_up("engine");
        let through = Prometheus::scraping(kvgauge.admin);
        let direct = Prometheus::scraping(page.address());
        let queries = published(section);
        for (query, _) in &queries {
            let Some(labels) = query.strip_prefix("label_values: ") else {
                continue;
            };
            through.answer("sglang:num_running_reqs");
            direct.answer("sglang:num_running_reqs");
            for label in labels.split(", ") {
                let values = through.ask(&format!("/api/v1/label/{label}/values"));
                let known = direct.ask(&format!("/api/v1/label/{label}/values"));
                let known = known.as_array().unwrap();
                assert!(!known.is_empty(), "{label}");
                if label != "instance" {
                    assert_eq!(values.as_array().unwrap(), known, "{label}");
                }
            }
            lines += 1;
        }
        // One step that both have seen from below and from above.
        for prometheus in [&through, &direct] {
            prometheus.answer("count_over_time(up[30s]) >= 3");
        }
        page.set(Behaviour::Text(grown(&text, 3)));
        for prometheus in [&through, &direct] {
            let grown = "count({__name__=~\".*e2e_request_latency_seconds_count\"} \
                         > 2 * {__name__=~\".*e2e_request_latency_seconds_count\"} offset 6s)";
            within(SOON, grown, || {
                Some(prometheus.query(grown)).filter(|found| !found.is_empty())
            });
        }
        for (query, moment) in queries {
            if query.starts_with("label_values: ") {
                continue;
            }
            let (ours, theirs) = (through.query(&query), direct.query(&query));
            assert!(!theirs.is_empty(), "{query}");
            assert_eq!(ours.len(), theirs.len(), "{query}");
            for (labels, value) in &theirs {
                let labels = bare(labels);
                let found = ours.iter().find(|(own, _)| bare(own) == labels);
                let found = found.unwrap_or_else(|| panic!("{query}: no {labels:?}")).1;
                let most = if moment { 0.35 } else { 1e-9 };
                let far = (found - value).abs() / value.abs().max(f64::MIN_POSITIVE);
                let same = found == *value || (found.is_nan() && value.is_nan()) || far <= most;
                assert!(
                    same,
                    "{query} {labels:?}: {found} through kvgauge, {value} without"
                );
                assert!(!value.is_nan(), "{query}");
            }
            lines += 1;
        }
    }
    let text = data::beside_pages("dashboard-queries.txt");
    let all = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(lines, all.count());
}

// === promtool ===

fn promtool(arguments: &[&str]) -> String {
    let mut command = Command::new("promtool");
    let folder = file("config/prometheus");
    to_the_end("promtool", command.args(arguments).current_dir(folder))
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn promtool_takes_configuration_and_rules() {
    let said = promtool(&["check", "config", "prometheus.yml"]);
    assert!(said.contains("SUCCESS"), "{said}");
    let rules = ["check", "rules", "kvgauge.rules.yml", "kvgauge.alerts.yml"];
    let said = promtool(&rules);
    assert_eq!(said.matches("SUCCESS").count(), 2, "{said}");
}

/// Every file of `tests/rules`.
#[test]
#[ignore = "needs prometheus: tests/run"]
fn each_alert_fires_and_stays_quiet() {
    let mut tested = String::new();
    for entry in std::fs::read_dir(file("tests/rules")).unwrap() {
        let path = entry.unwrap().path();
        tested.push_str(&std::fs::read_to_string(&path).unwrap());
        let said = promtool(&["test", "rules", path.to_str().unwrap()]);
        assert!(said.contains("SUCCESS"), "{said}");
    }
    for line in text(ALERTS).lines() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            assert!(
                tested.contains(&format!("alertname=\"{name}\"")),
                "{name} has no test"
            );
        }
    }
}

/// Full for two minutes, unknown for two, then well: what Prometheus would say.
#[test]
#[ignore = "needs prometheus: tests/run"]
fn b51_full_and_unknown_are_two_alerts() {
    let path = file("tests/rules/b51.yml");
    let said = promtool(&["test", "rules", path.to_str().unwrap()]);
    assert!(said.contains("SUCCESS"), "{said}");
}

/// The same with kvgauge itself: the series that those rules stand on.
#[test]
#[ignore = "needs prometheus: tests/run"]
fn b51_a_gauge_of_nobody_is_neither_full_nor_empty() {
    let upstream = Upstream::ok();
    let page = |usage: &str| {
        let used = format!(" {usage}\n");
        Behaviour::Text(format!(
            "# TYPE sglang:token_usage gauge\nsglang:token_usage{{engine_type=\"decode\",model_name=\"m\",tp_rank=\"0\"}}{used}"
        ))
    };
    let decode = Page::new(page("0.95"));
    let setup = Setup::new(upstream.address()).source("decode", "decode", &decode);
    let kvgauge = setup.start();
    let prometheus = Prometheus::scraping(kvgauge.admin);
    let usage = "kvgauge_kv_usage_ratio{role=\"decode\"}";
    let unknown = "kvgauge_kv_unknown{role=\"decode\"}";
    let full = prometheus.answer(&format!("{usage} > 0.9"));
    assert_eq!(full[0].1, 0.95);
    assert!(prometheus.query(unknown).is_empty());

    decode.set(Behaviour::Refuse);
    let reason = prometheus.answer(unknown);
    assert_eq!(reason[0].0["reason"], "unreachable");
    for holds in [
        usage.to_owned(),
        format!("{usage} > 0.9"),
        format!("{usage} < 0.1"),
    ] {
        assert!(prometheus.query(&holds).is_empty(), "{holds}");
    }

    decode.set(page("0.2"));
    assert_eq!(prometheus.answer(usage)[0].1, 0.2);
    assert!(prometheus.query(unknown).is_empty());
}

// === the dashboard's form ===

#[test]
fn the_dashboard_is_described_and_says_unknown() {
    let panels = panels();
    assert!(panels.len() > 17);
    let described = |panel: &Value| panel["description"].as_str().unwrap_or_default().len() > 20;
    for (title, panel) in &panels {
        assert!(described(panel), "{title} has no description");
        let defaults = &panel["fieldConfig"]["defaults"];
        let nothing = defaults["noValue"].as_str().unwrap();
        assert!(nothing.ends_with("unknown"), "{title}: {nothing}");
        assert!(defaults["unit"].is_string(), "{title}");
        // A gap is drawn as a gap.
        assert_ne!(defaults["custom"]["spanNulls"], true, "{title}");
        assert!(
            !panel["targets"].to_string().contains("vector(0)"),
            "{title}"
        );
    }
    let rows = dashboard()["panels"].as_array().unwrap().clone();
    let rows = rows.iter().filter(|panel| panel["type"] == "row");
    assert_eq!(rows.count(), 5);
    let rules = text(RULES) + &text(ALERTS);
    let made_up = rules.lines().filter(|line| !line.trim().starts_with('#'));
    assert!(made_up.into_iter().all(|line| !line.contains("vector(")));
}

#[test]
#[ignore = "needs python: tests/run"]
fn the_dashboard_is_what_its_script_makes() {
    let mut command = Command::new(python());
    command
        .arg(file("config/grafana/generate.py"))
        .arg("--check");
    to_the_end("generate.py", &mut command);
}

#[test]
#[ignore = "needs grafana-foundation-sdk: tests/run"]
fn the_dashboard_fits_grafanas_schema() {
    let path = file("config/grafana/kvgauge.json");
    let said = script("dashboard_schema.py", [path]);
    assert!(said.contains("52 panels"), "{said}");
}
