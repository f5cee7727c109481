//! Bad lines on a source's page: what is left out, what is told of it, and that it costs no neighbour.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use support::page::Behaviour;
use support::{Kvgauge, Page, Setup, Upstream, eventually, get, strict};

/// What `/sources` says of the source at this place.
fn source(kvgauge: &Kvgauge, at: usize) -> Value {
    get(kvgauge.admin, "/sources").json()["sources"][at].clone()
}

/// How many diagnostics have all these words.
fn told(kvgauge: &Kvgauge, words: &[&str]) -> usize {
    let text = kvgauge.diagnostics.text();
    let with_all = |line: &&str| words.iter().all(|word| line.contains(word));
    text.lines().filter(with_all).count()
}

/// Waits until the page has been read so often from now on.
fn reads(page: &Page, more: usize) {
    let now = page.asked();
    eventually("more reads", || (page.asked() >= now + more).then_some(()));
}

#[test]
fn b02_a_bad_line_is_told_once_for_each_target_and_costs_no_neighbour() {
    let upstream = Upstream::ok();
    let bad = support::data::case("b02.prom");
    let decode = Page::case("b02.prom");
    let prefill = Page::text("# TYPE ok gauge\nok 1\n");
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"20ms\"\n")
        .source("decode", "decode", &decode)
        .source("prefill", "prefill", &prefill)
        .start();
    let said = kvgauge.says("decode: line 4 of ");
    assert!(said.contains("WARN"), "{said}");
    let line = r#"kv_probe_days{name="screen 24" left",id="7"} -3"#;
    let wanted = format!(
        "decode: line 4 of {} is left out (labels: its labels are broken): `{line}`",
        decode.url()
    );
    assert!(said.ends_with(&wanted), "{said}");

    // It stays for many reads: counted each time, told once, and of its own target only.
    reads(&decode, 20);
    reads(&prefill, 2);
    let dropped = |name: &str| {
        let labels = [("source", name), ("reason", "labels")];
        kvgauge
            .metrics()
            .sum("kvgauge_source_dropped_samples_total", &labels)
    };
    assert!(dropped("decode") >= 20.0);
    assert_eq!(dropped("prefill"), 0.0);
    assert_eq!(told(&kvgauge, &["is left out"]), 1);
    let shown = source(&kvgauge, 0);
    let labels = serde_json::json!([
        {"reason": "labels", "count": 1, "line": 4, "excerpt": line},
    ]);
    assert_eq!(shown["left_out"], labels, "{shown}");
    assert_eq!(shown["state"], "up");
    assert_eq!(source(&kvgauge, 1)["left_out"], serde_json::json!([]));

    // The neighbours are there, and the value is known.
    let page = kvgauge.metrics_text();
    strict::check(&page);
    let metrics = kvgauge.metrics();
    let of = |name: &str| metrics.value(name, &[("source", "decode")]);
    assert_eq!(of("sglang:token_usage"), Some(0.42));
    assert_eq!(of("sglang:num_running_reqs"), Some(3.0));
    assert!(!page.contains("screen"), "{page}");
    let role = [("role", "decode")];
    assert_eq!(metrics.value("kvgauge_kv_usage_ratio", &role), Some(0.42));

    // Mended, and bad again: /sources follows, the log does not repeat it so soon.
    let bad = String::from_utf8(bad).unwrap();
    decode.set(Behaviour::Text(bad.replace(line, "kv_probe_days 5")));
    eventually("nothing is left out", || {
        (source(&kvgauge, 0)["left_out"] == serde_json::json!([])).then_some(())
    });
    decode.set(Behaviour::Text(bad.clone()));
    eventually("the line is left out again", || {
        (source(&kvgauge, 0)["left_out"] == labels).then_some(())
    });
    reads(&decode, 5);
    assert_eq!(told(&kvgauge, &["is left out"]), 1);

    // Another fault is news.
    decode.set(Behaviour::Text(format!("{bad}kv_probe_days five\n")));
    let said = kvgauge.says("decode: line 7 of ");
    assert!(
        said.contains("(value: its value is no number): `kv_probe_days five`"),
        "{said}"
    );
    reads(&decode, 5);
    assert_eq!(told(&kvgauge, &["is left out"]), 2);
}

/// A line for each reason, with the number of the first, how many, and what is shown of it.
const LINES: [(&str, u64, u64, &str); 9] = [
    ("name", 3, 1, "9name 1"),
    ("labels", 4, 2, "a{b=\"\\u{1b}[31m\" 1"),
    ("repeated_label", 6, 1, "a{b=\"c\",b=\"d\"} 1"),
    ("value", 7, 3, "a{x=\"1\"} one"),
    ("timestamp", 10, 1, "a{x=\"1\"} 1 soon"),
    ("exemplar", 11, 1, "a{x=\"1\"} 1 # {y"),
    ("comment", 12, 1, "# TYPE"),
    ("type", 13, 1, "# TYPE b gage"),
    ("encoding", 14, 1, "a{x=\"\\xff\"} 1"),
];

/// Good lines that can't stand on the unified page.
const SAMPLES: [(&str, u64); 3] = [("duplicate", 2), ("misfit", 1), ("unwritable_name", 1)];

const EVERY_KIND: &[u8] = b"# TYPE sglang:token_usage gauge
sglang:token_usage 0.5
9name 1
a{b=\"\x1b[31m\" 1
a{b 1
a{b=\"c\",b=\"d\"} 1
a{x=\"1\"} one
a{x=\"1\"} two
a{x=\"1\"} three
a{x=\"1\"} 1 soon
a{x=\"1\"} 1 # {y
# TYPE
# TYPE b gage
a{x=\"\xff\"} 1
twice 1
twice 2
twice 3
# TYPE h histogram
h_bucket{le=\"x\"} 1
h_bucket{le=\"+Inf\"} 1
h_sum 1
h_count 1
{\"my.name\"} 1
# TYPE clash counter
clash 1
last 7
";

fn answer(text: &[u8]) -> Behaviour {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
    Behaviour::Raw([head.as_bytes(), text].concat())
}

#[test]
fn every_reason_is_counted_shown_and_told() {
    let upstream = Upstream::ok();
    let first = Page::text("# TYPE clash gauge\nclash 1\n");
    let decode = Page::new(answer(EVERY_KIND));
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"20ms\"\n")
        .source("first", "", &first)
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("first");
    kvgauge.until_up("decode");
    let dropped = |reason: &str| {
        let labels = [("source", "decode"), ("reason", reason)];
        kvgauge
            .metrics()
            .sum("kvgauge_source_dropped_samples_total", &labels)
    };
    eventually("a clash is counted", || {
        (dropped("type_conflict") > 0.0).then_some(())
    });
    reads(&decode, 10);

    let shown = source(&kvgauge, 1);
    let mut left = shown["left_out"].as_array().unwrap().clone();
    for (reason, line, count, excerpt) in LINES {
        let wanted = serde_json::json!(
            {"reason": reason, "count": count, "line": line, "excerpt": excerpt}
        );
        assert_eq!(left.remove(0), wanted);
        let total = dropped(reason);
        assert!(
            total >= 10.0 && total % count as f64 == 0.0,
            "{reason}: {total}"
        );
        let line = format!("decode: line {line} of ");
        let why = format!("({reason}: ");
        let shown = format!("): `{excerpt}`");
        assert_eq!(
            told(&kvgauge, &["WARN", &line, &why, &shown]),
            1,
            "{reason}"
        );
    }
    for (reason, count) in SAMPLES {
        let wanted = serde_json::json!(
            {"reason": reason, "count": count, "line": null, "excerpt": null}
        );
        assert_eq!(left.remove(0), wanted);
        assert!(dropped(reason) >= 10.0, "{reason}");
        let words = format!("({reason}: ");
        assert_eq!(told(&kvgauge, &["INFO", "decode: ", &words]), 1, "{reason}");
    }
    assert_eq!(left, Vec::<Value>::new());
    assert_eq!(shown["type_conflicts"][0]["family"], "clash", "{shown}");
    assert_eq!(told(&kvgauge, &["3 lines like it on this page"]), 1);
    assert_eq!(told(&kvgauge, &["is left out"]), LINES.len());
    // What a page says can't move the terminal of whoever reads the log.
    assert!(!kvgauge.diagnostics.text().contains('\u{1b}'));

    // All others are there.
    let page = kvgauge.metrics_text();
    strict::check(&page);
    let metrics = kvgauge.metrics();
    for (name, value) in [
        ("sglang:token_usage", Some(0.5)),
        ("twice", Some(1.0)),
        ("h_count", Some(1.0)),
        ("last", Some(7.0)),
        ("clash", None),
        ("a", None),
    ] {
        let seen = metrics.value(name, &[("source", "decode")]);
        assert_eq!(seen, value, "{name}");
    }
}
