//! The alerts of `config/prometheus`, whatever the intervals: pages scraped each 5 s to each minute, rules
//! evaluated each 15 s to each minute (`tests/rules` has 5 s), and ranges that hold their first moment
//! (Prometheus 2) or leave it out (3). What each of them is about stands in `tests/rules`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use kvgauge::engine;
use kvgauge::exposition::{Limits, Page};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use support::program::to_the_end;

const RULES: [&str; 2] = ["kvgauge.rules.yml", "kvgauge.alerts.yml"];
/// How often pages are scraped and rules evaluated, in seconds: as the groups say, and as others may set.
const INTERVALS: [(u32, u32); 7] = [
    (5, 15),
    (15, 15),
    (30, 15),
    (60, 15),
    (30, 30),
    (60, 60),
    (5, 60),
];

/// Trouble begins and ends, and the last moment, in seconds.
const BEGIN: u32 = 5 * 60;
const END: u32 = 35 * 60;
const LAST: u32 = 48 * 60;
/// Prometheus misses a page of each kvgauge.
const MISSED: u32 = 28 * 60;

// === what is on the pages ===

/// What a series says at a moment: of the trouble it is said whether it is there.
type Says = fn(u32, bool) -> Option<f64>;

fn one(_: u32, _: bool) -> Option<f64> {
    Some(1.0)
}

fn zero(_: u32, _: bool) -> Option<f64> {
    Some(0.0)
}

/// 45 s up, 30 s down.
fn comes_and_goes(at: u32, trouble: bool) -> Option<f64> {
    Some(f64::from(u8::from(!trouble || at % 75 < 45)))
}

/// A counter that grows by one a minute.
fn grows(at: u32, _: bool) -> Option<f64> {
    Some(f64::from(at.clamp(BEGIN, END) / 60))
}

/// Deployment, the alerts that are meant for it, and the series of its kvgauge (and of a second one).
struct Case {
    deployment: &'static str,
    alerts: &'static [&'static str],
    series: &'static [(&'static str, Says)],
}

const USAGE: &str = "kvgauge_kv_usage_ratio{role='decode',model='m'}";
const FULLEST: &str = "kvgauge_kv_usage_max_ratio{role='decode',model='m'}";
const QUEUED: &str = "kvgauge_engine_requests_queued{role='decode',model='m'}";
const UP: &str = "up{job='kvgauge'}";

fn cases() -> Vec<Case> {
    let case = |deployment, alerts, series| Case {
        deployment,
        alerts,
        series,
    };
    vec![
        case(
            "full",
            &["KvCacheNearlyFull", "KvCacheFullAndQueueing"],
            &[
                (UP, one),
                (USAGE, |_, trouble| Some(if trouble { 0.97 } else { 0.5 })),
                (FULLEST, |_, trouble| Some(if trouble { 0.98 } else { 0.6 })),
                (QUEUED, |_, _| Some(30.0)),
            ],
        ),
        case(
            "hot",
            &["KvCacheNearlyFull", "KvPoolHot"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (FULLEST, |_, trouble| Some(if trouble { 0.94 } else { 0.5 })),
            ],
        ),
        case(
            "unknown",
            &["KvCacheUnknown"],
            &[
                (UP, one),
                (USAGE, |_, trouble| (!trouble).then_some(0.4)),
                (FULLEST, |_, trouble| (!trouble).then_some(0.4)),
                (
                    "kvgauge_kv_unknown{role='decode',model='',reason='unreachable'}",
                    |_, trouble| trouble.then_some(1.0),
                ),
            ],
        ),
        case(
            "partly",
            &["KvCachePartlyUnknown"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (
                    "kvgauge_kv_missing{role='decode',model='m'}",
                    |_, trouble| Some(f64::from(u8::from(trouble))),
                ),
            ],
        ),
        case(
            "preempts",
            &["KvRetractionsRising"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (
                    "kvgauge_source_preempted_requests_total{source='vllm',rank='0'}",
                    grows,
                ),
            ],
        ),
        case(
            "retracts",
            &["KvRetractionsRising"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (
                    "sglang:num_retracted_reqs{source='decode'}",
                    |_, trouble| Some(f64::from(u8::from(trouble))),
                ),
            ],
        ),
        case(
            "down",
            &["KvSourceDown"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                ("kvgauge_source_up{source='decode'}", |_, trouble| {
                    Some(f64::from(u8::from(!trouble)))
                }),
            ],
        ),
        case(
            "loops",
            &["KvSourceDown"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                ("kvgauge_source_up{source='decode'}", comes_and_goes),
            ],
        ),
        case(
            "hung",
            &["KvPageUnchanged"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (
                    "kvgauge_source_unchanged_seconds{source='decode'}",
                    |at, trouble| Some(if trouble { f64::from(at - BEGIN) } else { 0.0 }),
                ),
                (
                    "kvgauge_source_requests_running{source='decode'}",
                    |_, _| Some(3.0),
                ),
            ],
        ),
        case(
            "stuck",
            &["KvPageUnchanged"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (
                    "kvgauge_source_unchanged_seconds{source='prefill'}",
                    |at, trouble| Some(if trouble { f64::from(at - BEGIN) } else { 0.0 }),
                ),
                ("kvgauge_source_requests_running{source='prefill'}", zero),
                (
                    "kvgauge_source_requests_waiting{source='prefill'}",
                    |_, _| Some(3.0),
                ),
            ],
        ),
        case(
            "listless",
            &["KvDiscoveryDown"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                ("kvgauge_discovery_up{discovery='dns'}", |_, trouble| {
                    Some(f64::from(u8::from(!trouble)))
                }),
            ],
        ),
        case(
            "gone",
            &["KvgaugeDown"],
            &[
                (UP, |_, trouble| Some(f64::from(u8::from(!trouble)))),
                (USAGE, |_, trouble| (!trouble).then_some(0.4)),
            ],
        ),
        case(
            "crashes",
            &["KvgaugeDown"],
            &[(UP, comes_and_goes), (USAGE, |_, _| Some(0.4))],
        ),
        case(
            "twice",
            &["KvEngineSeriesTwice"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (
                    "vllm:num_requests_running{job='kvgauge',source='vllm'}",
                    |_, trouble| trouble.then_some(3.0),
                ),
                (
                    "vllm:num_requests_running{job='kvgauge',source='vllm',instance='second'}",
                    |_, trouble| trouble.then_some(3.0),
                ),
            ],
        ),
        case(
            "dropping",
            &["KvgaugeLogLinesDropped"],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                ("kvgauge_log_lines_dropped_total{}", grows),
            ],
        ),
        // Peaks, and failures, of a moment.
        case(
            "calm",
            &[],
            &[
                (UP, one),
                (USAGE, |_, _| Some(0.4)),
                (FULLEST, |at, _| {
                    Some(if at % 420 == 0 { 0.99 } else { 0.5 })
                }),
                (QUEUED, |at, _| Some(if at % 360 == 0 { 90.0 } else { 0.0 })),
                ("kvgauge_kv_missing{role='decode',model='m'}", zero),
                ("kvgauge_source_up{source='decode'}", |at, _| {
                    Some(f64::from(u8::from(at % 660 != 0)))
                }),
                (
                    "kvgauge_source_unchanged_seconds{source='decode'}",
                    |at, _| Some(f64::from(at % 40)),
                ),
                (
                    "kvgauge_source_requests_running{source='decode'}",
                    |_, _| Some(3.0),
                ),
                (
                    "kvgauge_source_preempted_requests_total{source='decode',rank=''}",
                    |_, _| Some(7.0),
                ),
                ("kvgauge_log_lines_dropped_total{}", zero),
                (
                    "sglang:num_running_reqs{job='kvgauge',source='decode'}",
                    one,
                ),
            ],
        ),
    ]
}

// === what promtool is given ===

/// `name{labels}` with the labels of the target.
fn labelled(series: &str, deployment: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap();
    let labels = labels.trim_end_matches('}').replace('\'', "\"");
    let instance = match labels.contains("instance=") {
        true => String::new(),
        false => format!(",instance=\"{deployment}\""),
    };
    let comma = if labels.is_empty() { "" } else { "," };
    format!("{name}{{{labels}{comma}deployment=\"{deployment}\"{instance}}}")
}

fn values(case: &Case, series: &str, says: Says, every: u32) -> String {
    let mut text = String::new();
    let mut before = false;
    for at in (0..=LAST).step_by(every as usize) {
        let trouble = (BEGIN..END).contains(&at);
        let (_, up) = case.series[0];
        let scraped = at != MISSED && up(at, trouble) == Some(1.0);
        let value = match series == UP {
            true => Some(f64::from(u8::from(scraped))),
            false => says(at, trouble).filter(|_| scraped),
        };
        let _ = match (value, before) {
            (Some(value), _) => write!(text, "{value} "),
            (None, true) => write!(text, "stale "),
            (None, false) => write!(text, "_ "),
        };
        before = value.is_some();
    }
    text
}

fn asks(text: &mut String, query: &str, at: u32, found: &[(&str, &str)]) {
    let _ = writeln!(
        text,
        "      - expr: '{query}'\n        eval_time: {at}s\n        exp_samples:"
    );
    for (alert, deployment) in found {
        let labels = format!("{{alertname=\"{alert}\", deployment=\"{deployment}\"}}");
        let _ = writeln!(text, "          - {{labels: '{labels}', value: 1}}");
    }
}

fn unit_test(scraped: u32, evaluated: u32) -> String {
    let cases = cases();
    let mut text = format!(
        "rule_files: [{}]\nevaluation_interval: {evaluated}s\ngroup_eval_order: [kvgauge-recorded-kv, \
         kvgauge-recorded-traffic, kvgauge-kv, kvgauge-sources, kvgauge-itself]\ntests:\n  - interval: {scraped}s\n    \
         input_series:\n",
        RULES.join(", ")
    );
    for case in &cases {
        for (series, says) in case.series {
            let values = values(case, series, *says, scraped);
            let series = labelled(series, case.deployment);
            let _ = writeln!(text, "      - {{series: '{series}', values: '{values}'}}");
        }
    }
    let meant: Vec<(&str, &str)> = cases
        .iter()
        .flat_map(|case| case.alerts.iter().map(|alert| (*alert, case.deployment)))
        .collect();
    text.push_str("    promql_expr_test:\n");
    let firing = "ALERTS{alertstate=\"firing\"}";
    let count = |what: &str| format!("count by (alertname, deployment) ({what})");
    asks(&mut text, &count(firing), BEGIN, &[]);
    // The last of them takes a quarter of an hour.
    asks(&mut text, &count(firing), BEGIN + 18 * 60, &meant);
    // Not a moment without, though a page was missed.
    let all = format!("count_over_time({firing}[10m]) >= {}", 600 / evaluated);
    asks(&mut text, &count(&all), END - 60, &meant);
    asks(&mut text, &count(firing), LAST, &[]);
    text
}

/// Ranges without their first moment: a millisecond shorter, which is the time's grain.
fn left_open(rules: &str) -> String {
    let range = regex_lite::Regex::new(r"\[(\d+)([smh])(?:(\d+)s)?\]").unwrap();
    let shorter = |found: &regex_lite::Captures<'_>| {
        let number = |n: usize| {
            found
                .get(n)
                .map_or(0, |n| n.as_str().parse::<u64>().unwrap())
        };
        let unit = match &found[2] {
            "s" => 1,
            "m" => 60,
            _ => 3600,
        };
        format!("[{}ms]", (number(1) * unit + number(3)) * 1000 - 1)
    };
    range.replace_all(rules, shorter).into_owned()
}

fn promtool(folder: &Path, file: &str) {
    let mut command = Command::new("promtool");
    let said = to_the_end(
        "promtool",
        command.args(["test", "rules", file]).current_dir(folder),
    );
    assert!(said.contains("SUCCESS"), "{file}: {said}");
}

#[test]
#[ignore = "needs prometheus: tests/run"]
fn each_alert_fires_and_ends_whatever_the_intervals() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus");
    for open in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        for name in RULES {
            let rules = std::fs::read_to_string(shipped.join(name)).unwrap();
            let rules = if open { left_open(&rules) } else { rules };
            assert_eq!(open, !rules.contains("[5m]"));
            std::fs::write(folder.path().join(name), rules).unwrap();
        }
        for (scraped, evaluated) in INTERVALS {
            let name = format!("scraped-{scraped}s-evaluated-{evaluated}s-open-{open}.yml");
            let test = unit_test(scraped, evaluated);
            std::fs::write(folder.path().join(&name), test).unwrap();
            promtool(folder.path(), &name);
        }
    }
}

/// The groups say how often, so that a Prometheus that is set to evaluate seldom does no harm.
#[test]
fn each_group_says_how_often_it_is_evaluated() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus");
    for name in RULES {
        let rules = std::fs::read_to_string(shipped.join(name)).unwrap();
        for group in rules.split("\n  - name: ").skip(1) {
            let (_, after) = group.split_once('\n').unwrap();
            assert!(after.starts_with("    interval: 15s\n"), "{name}: {group}");
        }
    }
}

/// Of each engine whose running requests kvgauge reads, `KvEngineSeriesTwice` sees a series.
#[test]
fn series_that_stand_twice_are_seen_of_each_engine() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let alerts = std::fs::read_to_string(here.join("config/prometheus/kvgauge.alerts.yml"));
    let alerts = alerts.unwrap();
    let (_, names) = alerts.split_once("__name__=~\"").unwrap();
    let (names, _) = names.split_once('"').unwrap();
    let names = regex_lite::Regex::new(&format!("^(?:{names})$")).unwrap();
    let limits = Limits {
        max_series: 1_000_000,
        max_label_bytes: 16 * 1024,
        max_families: 100_000,
    };
    let mut engines = BTreeSet::new();
    for entry in std::fs::read_dir(here.join("tests/data/expositions")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "prom") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let reading = engine::read(&Page::read(text.as_bytes(), &limits).unwrap());
        let (Some(engine), Some(_)) = (&reading.engine, reading.running()) else {
            continue;
        };
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let seen = lines.any(|line| names.is_match(line.split(['{', ' ']).next().unwrap()));
        assert!(seen, "{}", path.display());
        engines.insert(engine.to_string());
    }
    assert!(engines.len() > 6, "{engines:?}");
}
