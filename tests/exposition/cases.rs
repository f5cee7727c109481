//! Cases from public reports, by their id.

use super::{case, check, merge_texts, prepare, read, strict};
use kvgauge::exposition::MetricType;

#[test]
fn b01_label_values_stay_whole() {
    let text = case("b01.prom");
    let (_, page) = merge_texts(&[("p", &text)]);
    let samples = strict::samples(&page, "kv_probe_requests_total");
    assert_eq!(samples.len(), 2);
    let first = samples[0];
    assert_eq!(first.number(), 4.0);
    assert_eq!(first.label("route"), Some("/items/{id}/size"));
    assert_eq!(first.label("set"), Some("{a,b}"));
    assert_eq!(first.label("filter"), Some("x=1,y=2"));
    assert_eq!(first.label("note"), Some("say \"hi\" } 9"));
    assert_eq!(first.label("source"), Some("p"));
    assert_eq!((first.labels.len(), samples[1].labels.len()), (5, 5));
    assert_eq!(samples[1].number(), 1.0);
    // The reader gives the same without a merge.
    let sample = read(&text)
        .samples("kv_probe_requests_total")
        .next()
        .map(|s| s.label("note").unwrap().into_owned());
    assert_eq!(sample.as_deref(), Some("say \"hi\" } 9"));
}

#[test]
fn b02_a_bad_line_costs_only_itself() {
    let text = case("b02.prom");
    let page = read(&text);
    assert_eq!(
        page.samples("sglang:token_usage").next().unwrap().value(),
        0.42
    );
    assert_eq!(
        page.samples("sglang:num_running_reqs")
            .next()
            .unwrap()
            .value(),
        3.0
    );
    let dropped = page.dropped();
    assert_eq!(dropped.len(), 1);
    assert_eq!(
        (dropped[0].reason, dropped[0].count, dropped[0].line),
        ("labels", 1, 4)
    );
    let good = b"# TYPE kv_probe_days gauge\nkv_probe_days 5\n";
    let (merged, page) = merge_texts(&[("d", &text), ("r", good)]);
    assert_eq!(strict::sample_count(&page), 3);
    assert!(!String::from_utf8(merged.text).unwrap().contains("screen"));
}

#[test]
fn b03_names_and_digits_leave_as_they_came() {
    let text = case("b03.prom");
    let (_, page) = merge_texts(&[("p", &text)]);
    let written = |name| {
        let samples = strict::samples(&page, name);
        assert_eq!(samples.len(), 1, "{name}");
        samples[0].value.clone()
    };
    assert_eq!(written("sglang:max_total_num_tokens"), "2.581504e+06");
    assert_eq!(written("vllm:tiny_ratio"), "1e-05");
    assert_eq!(written("kv_probe_upper"), "1E3");
    assert_eq!(written("kv_probe_limit"), "+Inf");
    assert_eq!(written("kv_probe_zero"), "0");
    assert_eq!(written("kv_probe_big"), "9007199254740993");
    assert_eq!(page.len(), 6);
}

#[test]
fn b04_a_timestamp_is_not_a_value_and_is_left_out() {
    let text = case("b04.prom");
    assert_eq!(
        read(&text)
            .samples("sglang:token_usage")
            .next()
            .unwrap()
            .value(),
        0.5
    );
    let (merged, page) = merge_texts(&[("d", &text)]);
    assert_eq!(strict::sample_count(&page), 3);
    assert!(
        !String::from_utf8(merged.text)
            .unwrap()
            .contains("1700000000000")
    );
}

#[test]
fn b05_a_family_is_one_block_whoever_has_it() {
    let (r, p, d) = (case("b05-r.prom"), case("b05-p.prom"), case("b05-d.prom"));
    let (_, page) = merge_texts(&[("r", &r), ("p", &p), ("d", &d)]);
    let cpu = &page["process_cpu_seconds_total"];
    let seen: Vec<_> = cpu
        .samples
        .iter()
        .map(|s| (s.label("source").unwrap(), s.number()))
        .collect();
    assert_eq!(seen, [("r", 11.5), ("p", 22.5), ("d", 33.5)]);
    assert_eq!(
        cpu.help.as_deref(),
        Some("CPU time."),
        "the first help text is kept"
    );
    assert_eq!(page["sglang:token_usage"].samples.len(), 2);
}

#[test]
fn b06_a_family_keeps_one_type_and_the_other_source_is_named() {
    let (p, d) = (case("b06-p.prom"), case("b06-d.prom"));
    let (merged, page) = merge_texts(&[("p", &p), ("d", &d)]);
    assert_eq!(
        page["kv_probe_wait_seconds"].kind, "summary",
        "a tie: the first in order"
    );
    assert_eq!(page["kv_probe_ok"].samples.len(), 2);
    assert_eq!(merged.conflicts.len(), 1);
    let conflict = &merged.conflicts[0];
    assert_eq!(
        (conflict.family.as_str(), conflict.kept),
        ("kv_probe_wait_seconds", MetricType::Summary)
    );
    assert_eq!(conflict.dropped, [(1, MetricType::Histogram, 4)]);
    // A third source makes a majority.
    let (merged, page) = merge_texts(&[("p", &p), ("d", &d), ("d2", &d)]);
    assert_eq!(page["kv_probe_wait_seconds"].kind, "histogram");
    assert_eq!(merged.conflicts[0].dropped, [(0, MetricType::Summary, 3)]);
    // Unless the first is kvgauge's own.
    let pages = [prepare(&p, "p"), prepare(&d, "d"), prepare(&d, "d2")];
    let (_, page) = check(&pages, 1);
    assert_eq!(page["kv_probe_wait_seconds"].kind, "summary");
}

#[test]
fn b07_open_metrics_in_gives_classic_text_out() {
    let (p, d) = (case("b07-p.prom"), case("b07-d.prom"));
    let (_, page) = merge_texts(&[("p", &p), ("d", &d)]);
    let kinds: Vec<_> = page
        .iter()
        .map(|(name, f)| (name.as_str(), f.kind.as_str()))
        .collect();
    let expected = [
        ("kv_probe_build_info", "gauge"),
        ("kv_probe_hits_total", "counter"),
        ("kv_probe_tail", "gauge"),
        ("kv_probe_thing", "untyped"),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        strict::samples(&page, "kv_probe_build_info")[0].label("version"),
        Some("1.2")
    );
    assert_eq!(
        strict::samples(&page, "kv_probe_hits_total")[0].number(),
        17.0
    );
    assert_eq!(strict::samples(&page, "kv_probe_thing")[0].number(), 4.0);
    assert_eq!(strict::samples(&page, "kv_probe_tail")[0].number(), 1.0);
}

#[test]
fn b08_line_ends_tabs_and_blanks_are_read_in_full() {
    let text = case("b08.prom");
    assert!(text.contains(&b'\r') && text.contains(&b'\t'));
    let page = read(&text);
    assert!(page.dropped().is_empty());
    assert_eq!(
        page.samples("sglang:token_usage").next().unwrap().value(),
        0.25
    );
    assert_eq!(
        page.family("sglang:token_usage").unwrap().help(),
        Some("Usage.")
    );
    let (merged, page) = merge_texts(&[("p", &text)]);
    assert!(!merged.text.contains(&b'\r'));
    assert_eq!(strict::sample_count(&page), 3);
    let odd = strict::samples(&page, "kv_probe_sp")[0];
    assert_eq!(
        (odd.label("a"), odd.label("b"), odd.number()),
        (Some("1"), Some("2"), 7.0)
    );
    assert_eq!(strict::samples(&page, "kv_probe_t")[0].number(), 8.0);
}

#[test]
fn b12_label_sets_may_differ() {
    let (p, d) = (case("b12-p.prom"), case("b12-d.prom"));
    let (_, page) = merge_texts(&[("p", &p), ("d", &d)]);
    let samples = &page["sglang:num_running_reqs"].samples;
    let seen: Vec<_> = samples
        .iter()
        .map(|s| (s.label("source").unwrap(), s.label("dp_rank"), s.number()))
        .collect();
    assert_eq!(
        seen,
        [
            ("p", None, 4.0),
            ("d", Some("0"), 7.0),
            ("d", Some("1"), 9.0)
        ]
    );
}

#[test]
fn b13_a_family_without_samples_is_known_but_has_none() {
    let text = case("b13-p.prom");
    let page = read(&text);
    let gauge = page.family("sglang:token_usage").unwrap();
    assert_eq!((gauge.kind(), gauge.sample_count()), (MetricType::Gauge, 0));
    assert!(page.samples("sglang:token_usage").next().is_none());
}

#[test]
fn b50_both_spellings_are_two_names() {
    let (colon, under) = (case("b50-colon.prom"), case("b50-under.prom"));
    let (_, page) = merge_texts(&[("a", &colon), ("b", &under)]);
    assert_eq!(
        strict::samples(&page, "sglang:token_usage")[0].number(),
        0.4
    );
    assert_eq!(
        strict::samples(&page, "sglang_token_usage")[0].number(),
        0.5
    );
}
