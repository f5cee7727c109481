//! Odd pages: what is kept, what is dropped, and how it is said.

use super::kit::check_in;
use super::kit::forms::Form;
use super::{LIMITS, check, error, merge_texts, prepare, read, strict};
use kvgauge::exposition::{
    DROP_REASONS, Format, Limits, MetricType, Page, PageError, Prepared, TextWriter,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines that are samples, and what is read from them.
#[test]
fn sample_lines() {
    type Labels = &'static [(&'static str, &'static str)];
    let table: &[(&str, &str, Labels, f64)] = &[
        ("a 1", "a", &[], 1.0),
        ("a{} 1", "a", &[], 1.0),
        ("a{ } 1", "a", &[], 1.0),
        ("  a 1", "a", &[], 1.0),
        ("\ta\t1\t", "a", &[], 1.0),
        ("a\t{b=\"c\"}\t1", "a", &[("b", "c")], 1.0),
        ("a{b=\"c\"}1", "a", &[("b", "c")], 1.0),
        ("a{b=\"c\",} 1", "a", &[("b", "c")], 1.0),
        (
            "a{b=\"c\" , d = \"e\" , } 1",
            "a",
            &[("b", "c"), ("d", "e")],
            1.0,
        ),
        ("a{b=\"\"} 1", "a", &[("b", "")], 1.0),
        ("a{b=\"\\\"\"} 1", "a", &[("b", "\"")], 1.0),
        ("a{b=\"\\\\\"} 1", "a", &[("b", "\\")], 1.0),
        ("a{b=\"\\\\n\"} 1", "a", &[("b", "\\n")], 1.0),
        ("a{b=\"x\\ny\"} 1", "a", &[("b", "x\ny")], 1.0),
        ("a{b=\"\\d\"} 1", "a", &[("b", "\\d")], 1.0),
        ("a{b=\"} 2\"} 1", "a", &[("b", "} 2")], 1.0),
        ("a{b=\"# {}\"} 1", "a", &[("b", "# {}")], 1.0),
        ("a{b=\"日本\"} 1", "a", &[("b", "日本")], 1.0),
        (
            "a{b=\"longer than the thirty-two bytes that are looked at one by one \\\"\"} 1",
            "a",
            &[(
                "b",
                "longer than the thirty-two bytes that are looked at one by one \"",
            )],
            1.0,
        ),
        ("s:a_b:c 1", "s:a_b:c", &[], 1.0),
        (":a 1", ":a", &[], 1.0),
        ("a 1 1700000000000", "a", &[], 1.0),
        ("a 1 -5", "a", &[], 1.0),
        ("a 1 1700000000.123", "a", &[], 1.0),
        ("a{b=\"c\"} 1 # {t=\"x\"} 0.5", "a", &[("b", "c")], 1.0),
        (
            "a{b=\"c\"} 1 17 # {t=\"x\"} 0.5 17.5",
            "a",
            &[("b", "c")],
            1.0,
        ),
        ("a 1 # {} 0.5", "a", &[], 1.0),
        ("{\"a\"} 1", "a", &[], 1.0),
        ("{\"a.b\",c=\"d\"} 1", "a.b", &[("c", "d")], 1.0),
        ("{ c=\"d\" , \"a b\" } 1", "a b", &[("c", "d")], 1.0),
        ("{\"a\",\"x.y\"=\"d\"} 1", "a", &[("x.y", "d")], 1.0),
        (
            "a{\"x.y\"=\"d\",z=\"e\"} 1",
            "a",
            &[("x.y", "d"), ("z", "e")],
            1.0,
        ),
        ("a 1e3", "a", &[], 1000.0),
        ("a .5", "a", &[], 0.5),
        ("a 5.", "a", &[], 5.0),
        ("a +5", "a", &[], 5.0),
        ("a -0.0", "a", &[], 0.0),
        ("a +Inf", "a", &[], f64::INFINITY),
        ("a Inf", "a", &[], f64::INFINITY),
        ("a -inf", "a", &[], f64::NEG_INFINITY),
    ];
    for (line, name, labels, value) in table {
        let page = read(line.as_bytes());
        assert!(page.dropped().is_empty(), "{line}");
        let sample = page
            .all_samples()
            .next()
            .unwrap_or_else(|| panic!("{line}"));
        assert_eq!(sample.name(), *name, "{line}");
        assert_eq!(sample.value(), *value, "{line}");
        let seen: Vec<(&str, String)> = sample.labels().map(|(n, v)| (n, v.into_owned())).collect();
        let expected: Vec<(&str, String)> =
            labels.iter().map(|(n, v)| (*n, (*v).to_owned())).collect();
        assert_eq!(seen, expected, "{line}");
        // With a good line before and after it, it reads the same.
        let between = format!("z{{q=\"1\"}} 1\r\n{line}\r\nz{{q=\"2\"}} 2");
        assert_eq!(read(between.as_bytes()).sample_count(), 3, "{line}");
        // Merged, it says the same where classic text can say it at all.
        let (_, checked) = merge_texts(&[("s", line.as_bytes())]);
        if let Some(merged) = checked.get(*name) {
            let mut expected: BTreeMap<String, String> = expected
                .into_iter()
                .map(|(n, v)| (n.to_owned(), v))
                .collect();
            expected.insert("source".into(), "s".into());
            assert_eq!(merged.samples[0].labels, expected, "{line}");
        } else {
            assert!(
                line.contains("\"a.b\"") || line.contains("\"a b\"") || line.contains("x.y"),
                "{line}"
            );
        }
    }
    assert!(
        read(b"a NaN")
            .all_samples()
            .next()
            .unwrap()
            .value()
            .is_nan()
    );
}

#[test]
fn bad_lines_are_dropped_by_reason_and_cost_nothing_else() {
    let table = [
        ("a", "name"),
        ("a ", "value"),
        ("9a 1", "name"),
        ("a-b 1", "name"),
        ("é 1", "name"),
        ("a{b=\"c\"", "labels"),
        ("a{b=\"c} 1", "labels"),
        ("a{b=\"c\\\"} 1", "labels"),
        ("a{b=\"c\"d=\"e\"} 1", "labels"),
        ("a{b=\"c\" left\"} 1", "labels"),
        ("a{b=c} 1", "labels"),
        ("a{b} 1", "labels"),
        ("a{,} 1", "labels"),
        ("a{b=\"c\",,d=\"e\"} 1", "labels"),
        ("a{9b=\"c\"} 1", "labels"),
        ("a{b:c=\"c\"} 1", "labels"),
        ("a{__name__=\"c\"} 1", "labels"),
        ("a{b=\"c\",__meta=\"d\"} 1", "labels"),
        ("a{\"__meta.x\"=\"d\"} 1", "labels"),
        ("a{b=\"1\",c=\"2\",b=\"1\"} 1", "repeated_label"),
        ("a{b=\"1\" ,b=\"2\"} 1", "repeated_label"),
        ("{b=\"c\"} 1", "name"),
        ("a{\"b\"} 1", "name"),
        ("{\"a\",\"b\"} 1", "name"),
        ("{\"\"} 1", "labels"),
        ("a{b=\"c\"}", "value"),
        ("a{b=\"c\"} x", "value"),
        ("a 1x", "value"),
        ("a 1_000", "value"),
        ("a 0x10", "value"),
        ("a 1e400", "value"),
        ("a --1", "value"),
        ("a 1 x", "timestamp"),
        ("a 1 NaN", "timestamp"),
        ("a 1 2 3", "timestamp"),
        ("a 1 # x", "exemplar"),
        ("a 1 # {b=\"c\"}", "exemplar"),
        ("a 1 # {b=\"c} 1", "exemplar"),
        ("a 1 # {b=\"c\"} 1 2 3", "exemplar"),
        ("# TYPE", "comment"),
        ("# HELP 9x y", "comment"),
        ("# TYPE \"x gauge", "comment"),
        ("# TYPE x gorge", "type"),
        ("# TYPE x", "type"),
        ("# TYPE good counter", "type"),
    ];
    for (line, reason) in table {
        assert!(DROP_REASONS.contains(&reason));
        let text =
            format!("# TYPE good gauge\ngood{{b=\"c\"}} 1\n{line}\n{line}\ngood{{b=\"d\"}} 2\n");
        let page = read(text.as_bytes());
        let dropped: Vec<_> = page
            .dropped()
            .iter()
            .map(|d| (d.reason, d.count, d.line))
            .collect();
        assert_eq!(dropped, [(reason, 2, 3)], "{line}");
        assert_eq!(page.sample_count(), 2, "{line}");
        let (_, checked) = merge_texts(&[("s", text.as_bytes())]);
        assert_eq!(checked["good"].samples.len(), 2, "{line}");
    }
}

#[test]
fn a_line_that_is_no_utf8_is_dropped_alone() {
    let page = read(b"a 1\nb{c=\"\xff\"} 2\nd{e=\"\xc3\xa9\"} 3\n");
    assert_eq!(page.dropped()[0].reason, "encoding");
    assert_eq!(page.dropped()[0].line, 2);
    assert_eq!(page.sample_count(), 2);
    assert_eq!(
        page.samples("d").next().unwrap().label("e").as_deref(),
        Some("é")
    );
}

#[test]
fn lines_that_say_nothing_are_no_error() {
    let page = read(
        b"\xef\xbb\xbf\n\r\n   \n# a remark\n#\n#HELP a A.\n  # TYPE a gauge\na 1\n# EOF\n\nb 2",
    );
    assert!(page.dropped().is_empty(), "{:?}", page.dropped());
    let a = page.family("a").unwrap();
    assert_eq!(
        (a.help(), a.kind(), a.sample_count()),
        (Some("A."), MetricType::Gauge, 1)
    );
    assert_eq!(
        page.samples("b").next().unwrap().value(),
        2.0,
        "no newline at the end, and after # EOF"
    );
    assert_eq!(read(b"").sample_count(), 0);
    assert_eq!(read(b"\n\n").families().len(), 0);
}

#[test]
fn a_page_that_is_something_else_is_an_error_that_says_what() {
    let html = PageError::NotMetrics { looks_like: "HTML" };
    assert_eq!(error(b"<!DOCTYPE html>\n<p>Version 3\nVersion 3\n"), html);
    assert_eq!(error(b"\n  <html>"), html);
    let json = PageError::NotMetrics { looks_like: "JSON" };
    assert_eq!(error(b"{\"iterLatencyMS\": 5}"), json);
    assert_eq!(error(b"[{\n\"a\": 1\n}]\n"), json);
    assert_eq!(
        error(b"404 page not found\n"),
        PageError::NotMetrics {
            looks_like: "plain text"
        }
    );
    assert_eq!(error(b"\x1f\x8b\x08\x00\xff\xfe\n\xff"), PageError::NotText);
    assert!(error(b"<html>").to_string().contains("looks like HTML"));
    // A quoted name looks like JSON at first sight, and is not.
    assert_eq!(read(b"{\"a.b\"} 1\n").sample_count(), 1);
}

#[test]
fn a_page_over_a_limit_is_an_error_as_a_whole() {
    let limits = Limits {
        max_series: 2,
        max_label_bytes: 10,
        max_families: 2,
    };
    let read = |text: &'static str| Page::read(text.as_bytes(), &limits).map(|p| p.sample_count());
    assert_eq!(read("a 1\nb 1\n"), Ok(2));
    assert_eq!(
        read("a 1\na 1\na 1\n"),
        Err(PageError::TooManySeries { limit: 2 })
    );
    assert_eq!(read("a{b=\"12345\"} 1\n"), Ok(1));
    assert_eq!(
        read("a 1\na{b=\"123456\"} 1\n"),
        Err(PageError::LabelsTooLong { limit: 10, line: 2 })
    );
    assert_eq!(
        read("# TYPE a gauge\n# TYPE b gauge\n# TYPE c gauge\n"),
        Err(PageError::TooManyFamilies { limit: 2 })
    );
    assert_eq!(
        read("# TYPE c gauge\na 1\nb 1\n"),
        Err(PageError::TooManyFamilies { limit: 2 })
    );
    assert_eq!(read("# TYPE a histogram\na_sum 1\na_count 1\n"), Ok(2));
}

#[test]
fn samples_find_their_family_wherever_its_type_stands() {
    let text = b"h_bucket{le=\"1\"} 1\nother 5\nh_sum 2\n# TYPE h histogram\nh_count 1\n# HELP h H.\n# TYPE s summary\n\
        s{quantile=\"0.5\"} 1\ns_sum 2\nh_created 7\nc_total 1\n# TYPE c counter\n# TYPE g gauge\ng{le=\"high\"} 1\ng_sum 3\n";
    let page = read(text);
    let families: Vec<_> = page
        .families()
        .iter()
        .map(|f| (f.name(), f.kind(), f.sample_count()))
        .collect();
    let expected = [
        ("h", MetricType::Histogram, 4),
        ("other", MetricType::Unknown, 1),
        ("s", MetricType::Summary, 2),
        ("c", MetricType::Counter, 1),
        ("g", MetricType::Gauge, 1),
        ("g_sum", MetricType::Unknown, 1),
    ];
    assert_eq!(families, expected);
    assert_eq!(page.family("h").unwrap().help(), Some("H."));
    assert!(page.family("h_bucket").is_none());
    let names: Vec<_> = page
        .family_samples(page.family("h").unwrap())
        .map(|s| s.name())
        .collect();
    assert_eq!(names, ["h_bucket", "h_sum", "h_count", "h_created"]);
    let (_, checked) = merge_texts(&[("s", text)]);
    assert_eq!(checked["h"].samples.len(), 3);
    assert_eq!(checked["h_created"].kind, "gauge");
    assert_eq!(checked["c_total"].kind, "counter");
    assert_eq!(checked["g"].samples[0].label("le"), Some("high"));
}

#[test]
fn of_help_and_type_the_first_is_kept() {
    let page = read(
        b"# HELP a one\n# HELP a two\n# TYPE a gauge\n# TYPE a gauge\n# TYPE a counter\na 1\n",
    );
    assert_eq!(
        page.family("a").map(|f| (f.help(), f.kind())),
        Some((Some("one"), MetricType::Gauge))
    );
    assert_eq!(page.dropped().len(), 1);
}

#[test]
fn half_respelled_pages_keep_names_and_get_types() {
    let text = b"# HELP s:h Seconds.\n# TYPE s:h histogram\ns_h_bucket{le=\"+Inf\"} 1\ns_h_count 1\ns_h_sum 1\n\
        # TYPE s:c counter\ns_c_total 5\n# TYPE s:g gauge\ns_g 1\n# EOF\n";
    let (_, checked) = merge_texts(&[("s", text)]);
    let kinds: Vec<_> = checked
        .iter()
        .map(|(n, f)| (n.as_str(), f.kind.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("s_c_total", "counter"),
            ("s_g", "gauge"),
            ("s_h", "histogram")
        ]
    );
    assert_eq!(checked["s_h"].help.as_deref(), Some("Seconds."));
    // Where both spellings have samples, nothing is guessed.
    let (_, checked) = merge_texts(&[("s", b"# TYPE s:g gauge\ns:g 1\ns_g 2\n")]);
    assert_eq!(checked["s_g"].kind, "untyped");
}

#[test]
fn of_a_series_that_is_there_twice_the_first_is_kept() {
    let text = b"a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\na{x=\"1\", y=\"2\"} 3\na{x=\"1\",y=\"2\",z=\"\"} 4\nb 1\nb 2\nb{c=\"\\\\d\"} 1\nb{c=\"\\d\"} 2\n";
    let page = prepare(text, "s");
    assert_eq!((page.duplicates(), page.sample_count()), (5, 3));
    let (_, checked) = check(&[page], 0);
    assert_eq!(checked["a"].samples[0].value, "1");
    assert_eq!(checked["b"].samples[0].value, "1");
}

#[test]
fn samples_that_their_type_has_no_place_for_are_left_out() {
    let text = b"# TYPE h histogram\nh 1\nh_bucket 1\nh_bucket{le=\"x\"} 1\nh_bucket{le=\"1\"} 1\nh_sum{le=\"y\"} 1\nh_count 1\n\
        # TYPE s summary\ns 1\ns{quantile=\"q\"} 1\ns{quantile=\"0.5\"} 1\ns_count{quantile=\"1\"} 1\n";
    let page = prepare(text, "s");
    assert_eq!((page.misfits(), page.sample_count()), (6, 4));
    check(&[page], 0);
}

#[test]
fn a_label_of_our_name_is_exported() {
    let text = b"a{source=\"x\"} 1\na{source=\"x\",exported_source=\"y\"} 2\n\
        a{exported_source=\"z\"} 3\na{exported_exported_source=\"q\",source=\"x\",exported_source=\"y\"} 4\n";
    let (_, checked) = merge_texts(&[("ours", text)]);
    let a = &checked["a"].samples;
    assert!(a.iter().all(|s| s.label("source") == Some("ours")));
    assert_eq!(a[0].label("exported_source"), Some("x"));
    assert_eq!(
        (
            a[1].label("exported_source"),
            a[1].label("exported_exported_source")
        ),
        (Some("y"), Some("x"))
    );
    assert_eq!(
        (a[2].label("exported_source"), a[2].labels.len()),
        (Some("z"), 2)
    );
    assert_eq!(a[3].label("exported_exported_source"), Some("q"));
    assert_eq!(a[3].label("exported_exported_exported_source"), Some("x"));
}

#[test]
fn an_odd_source_label_still_gives_a_valid_page() {
    for (name, value) in [
        ("source", "a\"b\\c\nd"),
        ("", "x"),
        ("9 a", ""),
        ("__name__", "y"),
        ("le", "x"),
        ("quantile", "x"),
    ] {
        let page = Prepared::new(
            &read(b"# TYPE h histogram\nh_bucket{le=\"1\"} 1\ng 2\n"),
            Some((name, value)),
        );
        let (_, checked) = check(&[page], 0);
        assert_eq!(strict::sample_count(&checked), 2, "{name}");
    }
    let (_, checked) = merge_texts(&[("a\"b\\c\nd", b"a 1\n")]);
    assert_eq!(checked["a"].samples[0].label("source"), Some("a\"b\\c\nd"));
}

#[test]
fn untyped_samples_agree_with_any_type() {
    let (merged, checked) = merge_texts(&[
        ("a", b"g 1\nh_count 5\nh_bucket{x=\"1\"} 3\n"),
        (
            "b",
            b"# TYPE g gauge\ng 2\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_count 2\n",
        ),
    ]);
    assert_eq!(
        (checked["g"].kind.as_str(), checked["g"].samples.len()),
        ("gauge", 2)
    );
    assert_eq!(checked["h"].samples.len(), 3);
    // A bucket without `le` can't be in the histogram.
    assert_eq!(merged.conflicts.len(), 1);
    assert_eq!(merged.conflicts[0].dropped, [(0, MetricType::Unknown, 1)]);
}

#[test]
fn a_name_that_a_histogram_reserves_is_decided() {
    let gauge: &[u8] = b"# TYPE x_count gauge\nx_count 5\n";
    let histogram: &[u8] = b"# TYPE x histogram\nx_bucket{le=\"+Inf\"} 1\nx_sum 1\nx_count 1\n";
    let (merged, checked) = merge_texts(&[("a", gauge), ("b", histogram)]);
    assert_eq!(
        checked.keys().collect::<Vec<_>>(),
        ["x"],
        "as many sources have each: the histogram stays"
    );
    assert_eq!(merged.conflicts[0].family, "x_count");
    assert_eq!(merged.conflicts[0].dropped, [(0, MetricType::Gauge, 1)]);
    let (merged, checked) = merge_texts(&[("a", gauge), ("b", histogram), ("c", gauge)]);
    assert_eq!(
        checked.keys().collect::<Vec<_>>(),
        ["x_count"],
        "more sources have the gauge"
    );
    assert_eq!(merged.conflicts[0].dropped, [(1, MetricType::Histogram, 3)]);
    let (_, checked) = check(&[prepare(gauge, "a"), prepare(histogram, "b")], 1);
    assert_eq!(
        checked.keys().collect::<Vec<_>>(),
        ["x_count"],
        "kvgauge's own stays"
    );
    // On one page the name is the histogram's, and nothing is lost.
    let both = [histogram, b"# TYPE x_count gauge\nx_count{y=\"1\"} 2\n"].concat();
    let (merged, checked) = merge_texts(&[("a", &both)]);
    assert_eq!((checked["x"].samples.len(), merged.conflicts.len()), (4, 0));
}

#[test]
fn own_pages_and_sources_that_share_a_label_stay_valid() {
    let own = Prepared::new(
        &read(b"# TYPE p gauge\np{source=\"d\"} 1\np{source=\"kvgauge\"} 2\n"),
        None,
    );
    let (merged, checked) = check(
        &[
            own,
            prepare(b"p 3\n", "d"),
            prepare(b"p 4\n", "e"),
            prepare(b"p 5\n", "e"),
        ],
        1,
    );
    let values: Vec<_> = checked["p"]
        .samples
        .iter()
        .map(|s| s.value.as_str())
        .collect();
    assert_eq!(values, ["1", "2", "4"]);
    assert_eq!(merged.duplicates, 2);
}

#[test]
fn help_texts_leave_with_the_escapes_of_classic_text() {
    let (_, checked) = merge_texts(&[(
        "s",
        b"# HELP a say \\\"hi\\\" c:\\dir \\\\ \\n end\n# TYPE a gauge\na 1\n",
    )]);
    assert_eq!(
        checked["a"].help.as_deref(),
        Some("say \"hi\" c:\\\\dir \\\\ \\n end")
    );
}

#[test]
fn what_classic_text_cannot_name_is_counted() {
    let page = prepare(
        b"{\"a.b\",c=\"d\"} 1\nx{\"y.z\"=\"1\"} 2\n{\"plain\",c=\"d\"} 3\n",
        "s",
    );
    assert_eq!((page.unwritable(), page.sample_count()), (2, 1));
    let (_, checked) = check(&[page], 0);
    assert_eq!(checked["plain"].samples[0].label("c"), Some("d"));
}

#[test]
fn exemplars_can_be_read() {
    let page = read(b"a 1\nb_bucket{le=\"1\"} 2 # {trace_id=\"x\"} 0.5 17.5\nc 3\n");
    let exemplars: Vec<_> = page.all_samples().map(|s| s.exemplar()).collect();
    assert_eq!(exemplars, [None, Some("{trace_id=\"x\"} 0.5 17.5"), None]);
}

#[test]
fn own_families_are_written_right() {
    let mut own = TextWriter::new();
    own.family("x_seconds", MetricType::Histogram, "A \\ and\na line.");
    own.sample("_bucket", &[("le", "+Inf")], 3.0);
    own.sample("_sum", &[], 0.25);
    own.sample("_count", &[], 3.0);
    own.family("y", MetricType::Gauge, "");
    for (i, value) in [
        1.0,
        -2.0,
        0.1,
        1e300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        9_007_199_254_740_992.0,
        1e-7,
    ]
    .into_iter()
    .enumerate()
    {
        own.sample("", &[("i", &i.to_string()), ("odd", "a\"\\\n")], value);
    }
    let text = own.finish();
    let page = strict::check(&text, strict::Names::Legacy).unwrap();
    assert_eq!(
        page["x_seconds"].help.as_deref(),
        Some("A \\\\ and\\na line.")
    );
    let values: Vec<_> = page["y"].samples.iter().map(|s| s.value.as_str()).collect();
    assert_eq!(
        values,
        [
            "1",
            "-2",
            "0.1",
            "1e+300",
            "NaN",
            "+Inf",
            "-Inf",
            "9007199254740992",
            "1e-7"
        ]
    );
    assert_eq!(page["y"].samples[0].label("odd"), Some("a\"\\\n"));
    // And merged without a label it is the same page.
    let merged =
        kvgauge::exposition::merge(&[&Prepared::new(&read(&text), None)], 1, Format::CLASSIC);
    assert_eq!(
        String::from_utf8(merged.text).unwrap(),
        String::from_utf8(text).unwrap()
    );
}

#[test]
fn a_merge_of_nothing_is_an_empty_page() {
    assert!(
        kvgauge::exposition::merge(&[], 0, Format::CLASSIC)
            .text
            .is_empty()
    );
    let page = Page::read(b"", &LIMITS).unwrap();
    assert!(
        kvgauge::exposition::merge(&[&Prepared::new(&page, None)], 1, Format::CLASSIC)
            .text
            .is_empty()
    );
}

#[test]
fn a_prepared_page_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Prepared>();
}

/// `OpenMetrics` has rules for what is in a family of a type; where a page breaks one, its samples
/// are there without the type.
#[test]
fn families_that_break_a_rule_of_open_metrics_lose_their_type_and_no_sample() {
    let table: &[(&str, &str)] = &[
        ("# TYPE a counter\na 1\n", "a"),
        ("# TYPE a counter\na_total -1\n", "a_total"),
        ("# TYPE a counter\na_total NaN\n", "a_total"),
        (
            "# TYPE a_total counter\na_total{x=\"1\"} 1\na_created{x=\"2\"} 1\n",
            "a_total",
        ),
        ("# TYPE a info\na_info 2\n", "a_info"),
        ("# TYPE a stateset\na{a=\"x\"} 2\n", "a"),
        ("# TYPE a stateset\na{x=\"1\"} 1\n", "a"),
        ("# TYPE a summary\na{quantile=\"2\"} 1\n", "a"),
        ("# TYPE a summary\na{quantile=\"0.5\"} -1\n", "a"),
        (
            "# TYPE a summary\na{quantile=\"1\"} 1\na{quantile=\"1.0\"} 2\n",
            "a",
        ),
        (
            "# TYPE a summary\na{quantile=\"1\"} 1\na_count{quantile=\"1\"} 2\n",
            "a",
        ),
        ("# TYPE a summary\na_count 0.5\n", "a_count"),
        ("# TYPE a histogram\na_sum 1\na_count 1\n", "a_sum"),
        ("# TYPE a histogram\na_bucket{le=\"1\"} 1\n", "a_bucket"),
        (
            "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\n",
            "a_bucket",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"1.0\"} 1\na_bucket{le=\"+Inf\"} 1\n",
            "a_bucket",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 1\n",
            "a_bucket",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 2\n",
            "a_bucket",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_sum{le=\"1\"} 1\na_count{le=\"1\"} 1\n",
            "a_bucket",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"-1\"} 1\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
            "a_bucket",
        ),
        (
            "# TYPE a gaugehistogram\na_bucket{le=\"+Inf\"} 1\na_gsum -1\na_gcount 1\n",
            "a_bucket",
        ),
    ];
    for (text, name) in table {
        let pages = [prepare(text.as_bytes(), "s")];
        check(&pages, 0);
        let (_, open) = check_in(&pages, 0, Form::OPEN);
        // What classic text has for an info and a state set can be said.
        let kind = open[*name].kind.as_str();
        let gauges = text.contains(" info") || text.contains(" stateset");
        assert!(
            kind == "unknown" || (gauges && kind == "gauge"),
            "{text}: {kind}"
        );
    }
}

#[test]
fn exemplars_stand_where_open_metrics_has_a_place_for_them() {
    let just = "x".repeat(127);
    let text = format!(
        "# TYPE c counter\nc_total{{n=\"1\"}} 1 # {{t=\"a\"}} 1 17.5\nc_total{{n=\"2\"}} 1 # {{t=\"{just}\"}} 1\n\
         c_total{{n=\"3\"}} 1 # {{t=\"{just}x\"}} 1\nc_total{{n=\"4\"}} 1 # {{\"t.u\"=\"a\"}} 1\n\
         c_total{{n=\"5\"}} 1 # {{}} NaN\n# TYPE h histogram\nh_bucket{{le=\"1\"}} 1 # {{t=\"a\\\\b\"}} 0.5\n\
         h_bucket{{le=\"+Inf\"}} 2\nh_sum 1 # {{t=\"a\"}} 1\nh_count 2 # {{t=\"a\"}} 1\n\
         # TYPE g gauge\ng 1 # {{t=\"a\"}} 1\n# TYPE d counter\nd 1 # {{t=\"a\"}} 1\nu 1 # {{t=\"a\"}} 1\n"
    );
    let pages = [prepare(text.as_bytes(), "s")];
    check(&pages, 0);
    let (_, open) = check_in(&pages, 0, Form::OPEN);
    assert_eq!(strict::sample_count(&open), 12);
    let with: Vec<_> = open
        .values()
        .flat_map(|f| &f.samples)
        .filter_map(|s| Some((s.label("n").unwrap_or(&s.name), s.exemplar.as_ref()?)))
        .map(|(which, e)| {
            (
                which,
                e.labels.get("t").map(String::as_str),
                &*e.value,
                e.timestamp.as_deref(),
            )
        })
        .collect();
    let expected = [
        ("1", Some("a"), "1", Some("17.5")),
        ("2", Some(just.as_str()), "1", None),
        ("5", None, "NaN", None),
        ("h_bucket", Some("a\\b"), "0.5", None),
    ];
    assert_eq!(with, expected);
}

/// `a_created` says when the counter of `a_total` began; `a_total_created` is a name like any other.
#[test]
fn names_that_only_look_like_samples_of_a_counter_are_families_of_their_own() {
    for text in [
        "# TYPE a counter\na_total 1\na_total_created 3\n",
        "# TYPE a counter\na_total 1\na_created 2\na_total_created 3\n",
        "# TYPE a_total counter\na_total 1\na_total_created 3\n",
        "# TYPE a_total counter\na_total_total 1\na_total_created 2\na_total_total_created 3\n",
    ] {
        let pages = [prepare(text.as_bytes(), "s")];
        check(&pages, 0);
        let (_, open) = check_in(&pages, 0, Form::OPEN);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(strict::sample_count(&open), samples.count(), "{text}");
    }
}

#[test]
fn names_that_meet_when_they_are_respelled_leave_a_valid_page() {
    for text in [
        "# TYPE a counter\na_total 1\n{\"a.created\"} 2\n",
        "# TYPE a counter\na_total 1\n{\"a.total\"} 2\n",
        "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\n{\"a.sum\"} 2\n",
        "# TYPE a info\na_info 1\n# TYPE \"a.info\" gauge\n{\"a.info\"} 2\n",
        "# TYPE \"a.b\" counter\n{\"a.b_total\"} 1\n# TYPE a_b gauge\na_b 2\n{\"a.b_created\"} 3\n",
        "{\"a.b\"} 1\n{\"a b\"} 2\na_b 3\nc{\"x.y\"=\"1\",x_y=\"2\"} 1\n",
    ] {
        check(
            &[prepare(text.as_bytes(), "s"), prepare(text.as_bytes(), "t")],
            0,
        );
    }
}

/// Else a histogram of one source that does not add up would give the series of all others new names.
#[test]
fn a_bound_is_spelled_the_same_whatever_becomes_of_the_type() {
    let good = "# TYPE h histogram\nh_bucket{le=\"1\"} 1 # {t=\"a\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n\
        # TYPE s summary\ns{quantile=\"1\"} 1\n";
    let bad = "# TYPE h histogram\nh_bucket{le=\"1000000\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 3\n\
        # TYPE s summary\ns{quantile=\"1\"} 1\ns{quantile=\"2\"} 1\n";
    let bounds = |pages: &[Prepared]| {
        check(pages, 0);
        let (merged, open) = check_in(pages, 0, Form::OPEN);
        let text = String::from_utf8(merged.text).unwrap();
        let of_a = |name: &str| {
            let samples = strict::samples(&open, name).into_iter();
            let of_a = samples.filter(|s| s.label("source") == Some("a"));
            let bound =
                |s: &strict::Sample| s.label("le").or(s.label("quantile")).map(str::to_owned);
            of_a.map(bound).collect::<Vec<_>>()
        };
        (of_a("h_bucket"), of_a("s"), text)
    };
    let (alone_h, alone_s, text) = bounds(&[prepare(good.as_bytes(), "a")]);
    assert_eq!(alone_h, [Some("1.0".to_owned()), Some("+Inf".to_owned())]);
    assert_eq!(alone_s, [Some("1.0".to_owned())]);
    assert!(text.contains("# {t="), "{text}");
    let both = [prepare(good.as_bytes(), "a"), prepare(bad.as_bytes(), "b")];
    let (beside_h, beside_s, text) = bounds(&both);
    assert_eq!((beside_h, beside_s), (alone_h, alone_s), "{text}");
    assert!(text.contains("# TYPE h_bucket unknown\n"), "{text}");
    assert!(text.contains("le=\"1e+06\""), "{text}");
    // An exemplar has no place there.
    assert!(!text.contains("# {t="), "{text}");
    // Where one spelling would make two series one, they stay as they came.
    let twice = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"1.0\"} 2\nh_bucket{le=\"+Inf\"} 2\n";
    let (h, _, _) = bounds(&[prepare(twice.as_bytes(), "a")]);
    assert_eq!(h.len(), 3);
    assert!(h.contains(&Some("1".to_owned())) && h.contains(&Some("1.0".to_owned())));
}

#[test]
fn an_exemplar_with_a_null_character_is_left_out() {
    let text = "# TYPE c counter\nc_total{x=\"\0\"} 1 # {t=\"\0\"} 1\n";
    let (merged, _) = check_in(&[prepare(text.as_bytes(), "a")], 0, Form::OPEN);
    let text = String::from_utf8(merged.text).unwrap();
    assert!(
        text.contains("c_total{source=\"a\",x=\"\0\"} 1\n"),
        "{text}"
    );
}

/// Python's reader of classic text takes the ending off a counter's name, and refuses what is left.
#[test]
fn a_counter_that_is_called_total_has_no_type() {
    let (merged, _) = check(&[prepare(b"# TYPE _total counter\n_total 1\n", "a")], 0);
    let text = String::from_utf8(merged.text).unwrap();
    assert_eq!(text, "# TYPE _total untyped\n_total{source=\"a\"} 1\n");
}

#[test]
fn a_series_that_another_page_has_is_counted_by_source() {
    let own = Prepared::new(&read(b"# TYPE up gauge\nup{source=\"a\"} 1\n"), None);
    let pages = [
        own,
        prepare(b"up 0\nelse 1\n", "a"),
        prepare(b"up 0\n", "b"),
    ];
    let (merged, _) = check(&pages, 1);
    assert_eq!(
        (merged.duplicates, &*merged.duplicates_of),
        (1, &[(1, 1)][..])
    );
}

/// A label of our name is renamed, and may meet one that has the new name already.
#[test]
fn a_renamed_series_that_is_there_already_is_left_out() {
    let text = "# TYPE f gauge\nf{source=\"v\"} 1\nf{b=\"1\"} 1\nf{exported_source=\"v\"} 2\n\
        # TYPE h histogram\nh_bucket{source=\"v\",le=\"+Inf\"} 1\nh_bucket{exported_source=\"v\",le=\"+Inf\"} 2\n";
    let page = prepare(text.as_bytes(), "a");
    assert_eq!((page.sample_count(), page.duplicates()), (3, 2));
    let (_, checked) = check(&[page], 0);
    let kept = strict::samples(&checked, "f");
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[0].label("exported_source"), Some("v"));
    assert_eq!(kept[0].value, "1");
}

/// Good or broken, it is read in time that grows with its length: a page may have it at every scrape.
#[test]
fn a_line_of_very_many_labels_is_soon_read_timed() {
    let labels = |n: usize| (0..n).fold(String::new(), |all, i| all + &format!("l{i:x}=\"v\","));
    let broken = format!("x{{{}%bad}} 1\ngood 1\n", labels(60_000));
    let start = Instant::now();
    assert_eq!(read(broken.as_bytes()).sample_count(), 1);
    let limit = Duration::from_secs(5);
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    // Below the limit on labels, in an order that no line shares with the one before.
    let line = |n: usize| {
        let labels = labels(1_500);
        let at = labels.match_indices(',').nth(n % 1_500).unwrap().0 + 1;
        format!("m{{{}{}}} {n}\n", &labels[at..], &labels[..at])
    };
    let page: String = (0..100).map(line).collect();
    let start = Instant::now();
    let prepared = prepare(page.as_bytes(), "a");
    assert_eq!((prepared.sample_count(), prepared.duplicates()), (1, 99));
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
}

#[test]
fn a_quoted_name_counts_once_against_the_limit() {
    let limits = Limits {
        max_label_bytes: 20,
        ..LIMITS
    };
    let text = "{\"seventeen.letters\"} 1\n";
    assert_eq!(
        Page::read(text.as_bytes(), &limits).unwrap().sample_count(),
        1
    );
    let text = "{\"seventeen.letters.and.more\"} 1\n";
    assert!(Page::read(text.as_bytes(), &limits).is_err());
}

/// Two pages under one source name: a bound in two spellings is two series, in every form.
#[test]
fn spellings_stay_where_they_tell_series_of_two_pages_apart() {
    let page = |le: &str, n: u32| {
        let text = format!(
            "# TYPE h histogram\nh_bucket{{\"x.y\"=\"1\",le=\"{le}\"}} {n}\nh_bucket{{\"x.y\"=\"1\",le=\"+Inf\"}} {n}\n"
        );
        prepare(text.as_bytes(), "a")
    };
    let (merged, _) = check(&[page("2000000", 1), page("2e+06", 1)], 0);
    assert_eq!(merged.duplicates, 0);
}
