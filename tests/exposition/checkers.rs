//! The checkers refuse what they should: a check that takes everything would pass every test.

use super::kit::strict::{Names, sample_count};
use super::kit::{bad_open, strict, strict_open};

#[test]
fn classic_text_refuses_what_it_should() {
    let good = "# HELP a A.\n# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 2\nh_count 1\n";
    assert_eq!(
        sample_count(&strict::check(good.as_bytes(), Names::Legacy).unwrap()),
        5
    );
    let bad = [
        ("a 1\n", "sample before a TYPE"),
        ("# TYPE a gauge\na 1", "no newline"),
        (
            "# TYPE a gauge\na 1\n# TYPE a gauge\na{b=\"1\"} 1\n",
            "second time",
        ),
        (
            "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na{b=\"1\"} 1\n",
            "another family",
        ),
        (
            "# TYPE a gauge\na{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1\n",
            "series a second time",
        ),
        ("# TYPE a gauge\na{x=\"\"} 1\na 1\n", "series a second time"),
        ("# TYPE a gauge\na 1 5\n", "no number"),
        ("# TYPE a gauge\na 1e400\n", "no number"),
        ("# TYPE a gauge\na{x=\"\\d\"} 1\n", "escape"),
        ("# TYPE a gauge\na{x=\"1\" } 1\n", "end of labels"),
        ("# TYPE a gauge\na{x=\"1\",x=\"1\"} 1\n", "a second time"),
        ("# TYPE a gauge\r\na 1\r\n", "no type"),
        ("# TYPE a info\na 1\n", "no type"),
        ("# TYPE a histogram\na 1\n", "no sample of"),
        ("# TYPE a histogram\na_bucket{le=\"x\"} 1\n", "le"),
        ("# TYPE a summary\na_bucket{le=\"1\"} 1\n", "no sample of"),
        (
            "# TYPE a histogram\na_sum 1\n# TYPE a_count gauge\na_count 1\n",
            "reserved",
        ),
        ("# EOF\n", "no metric name"),
        ("\n", "no value"),
        ("# TYPE a gauge\n", "without samples"),
        ("# HELP a A.\n", "HELP without a TYPE"),
        (
            "# HELP a A.\n# HELP a A.\n# TYPE a gauge\na 1\n",
            "out of place",
        ),
        (
            "# HELP b A.\n# TYPE a gauge\na 1\n",
            "another family before it",
        ),
        ("# HELP a \\d\n# TYPE a gauge\na 1\n", "escape in HELP"),
        ("# TYPE a gauge\n{\"a\"} 1\n", "no metric name"),
        ("# TYPE \"a\" gauge\na 1\n", "no family name"),
        ("# TYPE a gauge\na{\"b\"=\"1\"} 1\n", "no label name"),
    ];
    for (text, why) in bad {
        let error = strict::check(text.as_bytes(), Names::Legacy).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn classic_text_with_quoted_names_does_too() {
    let good = "# HELP \"a.b\" A.\n# TYPE \"a.b\" histogram\n{\"a.b_bucket\",\"x.y\"=\"1\",le=\"+Inf\"} 1\n\
        {\"a.b_sum\"} 1\n# TYPE \"q\\\"\\\\\\n{}\" gauge\n{\"q\\\"\\\\\\n{}\"} 1\n# TYPE c gauge\nc{\"é\"=\"1\",d=\"2\"} 1\n";
    let page = strict::check(good.as_bytes(), Names::Utf8).unwrap();
    assert_eq!(sample_count(&page), 4);
    let first = &page["a.b"].samples[0];
    assert_eq!(
        (first.name.as_str(), first.label("x.y")),
        ("a.b_bucket", Some("1"))
    );
    assert_eq!(page["q\"\\\n{}"].samples.len(), 1);
    strict::check(good.as_bytes(), Names::Legacy).expect_err("quotes in text 0.0.4");
    let bad = [
        ("# TYPE a.b gauge\n{\"a.b\"} 1\n", "no family name"),
        ("# TYPE \"a.b\" gauge\na.b 1\n", "no metric name"),
        ("# TYPE \"a.b\" gauge\n{\"a.b\",} 1\n", "no label"),
        ("# TYPE \"a.b\" gauge\n{\"a.b\" } 1\n", "end of labels"),
        (
            "# TYPE \"a.b\" gauge\n{\"a.b\",x.y=\"1\"} 1\n",
            "no label name",
        ),
        (
            "# TYPE \"a.b\" gauge\n{\"a.b\",\"\"=\"1\"} 1\n",
            "no label name",
        ),
        (
            "# TYPE \"a.b\" gauge\n{\"a.b\",\"x\"=\"1\",x=\"1\"} 1\n",
            "a second time",
        ),
        ("# TYPE \"a.b\" gauge\n{\"a\\.b\"} 1\n", "escape"),
        ("# TYPE \"a.b\" gauge\n{\"a.b} 1\n", "no closing quote"),
        ("# TYPE \"a.b\" gauge\n{\"\"} 1\n", "no metric name"),
        ("# TYPE \"\" gauge\n{\"a\"} 1\n", "no family name"),
        ("# TYPE \"a\" gauge\n{\"b\"} 1\n", "another family"),
        (
            "# TYPE \"a\" gauge\na 1\n# TYPE a gauge\na{x=\"1\"} 1\n",
            "a second time",
        ),
        ("# TYPE a gauge\na 1\n{\"a\"} 1\n", "series a second time"),
    ];
    for (text, why) in bad {
        let error = strict::check(text.as_bytes(), Names::Utf8).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn open_metrics_refuses_what_it_should() {
    for text in bad_open::GOOD {
        strict_open::check(text.as_bytes(), Names::Utf8).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    let page = strict_open::check(bad_open::GOOD[0].as_bytes(), Names::Legacy).unwrap();
    let bucket = &page["h_seconds"].samples[0];
    assert_eq!(page["h_seconds"].unit.as_deref(), Some("seconds"));
    let exemplar = bucket.exemplar.as_ref().unwrap();
    assert_eq!(exemplar.labels["t"], "x # {y} z");
    assert_eq!(
        (exemplar.value.as_str(), exemplar.timestamp.as_deref()),
        ("0.5", Some("1.5"))
    );
    for (text, why, _) in bad_open::BAD {
        let error = strict_open::check(text.as_bytes(), Names::Utf8).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    strict_open::check(bad_open::QUOTED.as_bytes(), Names::Legacy).expect_err("quoted names");
}

#[test]
fn canonical_numbers_are_those_of_the_specification() {
    let table: [(f64, &str); 26] = [
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.002, "0.002"),
        (0.01, "0.01"),
        (0.1, "0.1"),
        (0.9, "0.9"),
        (0.95, "0.95"),
        (0.99, "0.99"),
        (0.999, "0.999"),
        (1.0, "1.0"),
        (1.7, "1.7"),
        (10.0, "10.0"),
        (1e-10, "1e-10"),
        (1e-9, "1e-09"),
        (1e-5, "1e-05"),
        (0.0001, "0.0001"),
        (100_000.0, "100000.0"),
        (1e6, "1e+06"),
        (1e10, "1e+10"),
        (2_581_504.0, "2.581504e+06"),
        (123_456.5, "123456.5"),
        (1e100, "1e+100"),
        (-0.5, "-0.5"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (5e-324, "5e-324"),
    ];
    for (number, text) in table {
        assert_eq!(strict_open::canonical(number), text);
    }
}
