//! Pages of `OpenMetrics` that are refused, and why; and some that are not.

/// Pages that every reader takes.
pub(crate) const GOOD: &[&str] = &[
    "# TYPE h_seconds histogram\n# UNIT h_seconds seconds\n# HELP h_seconds A \\\"B\\\" \\\\ \\n.\n\
     h_seconds_bucket{le=\"0.5\"} 1 # {t=\"x # {y} z\"} 0.5 1.5\nh_seconds_bucket{le=\"+Inf\"} 2\nh_seconds_sum 3.5\n\
     h_seconds_count 2\nh_seconds_created 5.5\n# TYPE c counter\nc_total{x=\"1\"} 1 # {} 1\nc_created{x=\"1\"} 5\nc_total 2\n\
     # TYPE g gauge\ng{x=\"\\\\ \\\" \\n }\"} -1e-05\ng NaN\n# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE s stateset\n\
     s{s=\"on\"} 1\ns{s=\"off\"} 0\n# TYPE q summary\nq{quantile=\"0.5\"} NaN\nq_sum +Inf\nq_count 2\n\
     # TYPE gh gaugehistogram\ngh_bucket{le=\"-1.0\"} 1\ngh_bucket{le=\"+Inf\"} 1\ngh_gsum -2\ngh_gcount 1\n\
     # TYPE u unknown\nu{le=\"x\"} -Inf\n# EOF\n",
    "# EOF\n",
    // No sum and count, no buckets but one, or no quantiles.
    "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\n# TYPE q summary\nq_count 1\n# EOF\n",
    "# TYPE a_total gauge\na_total 1\n# TYPE b_bucket unknown\nb_bucket{le=\"1\"} 0.5\n# EOF\n",
    QUOTED,
];

/// Names in quotes, which are allowed only where the scraper has said so.
pub(crate) const QUOTED: &str = "# TYPE \"a.é_s\" counter\n# UNIT \"a.é_s\" s\n# HELP \"a.é_s\" A.\n{\"a.é_s_total\",\"x.y\"=\"1\",z=\"2\"} 1 # {\"t.u\"=\"v\"} 1\n\
     {\"a.é_s_total\"} 1\n# TYPE p gauge\np{\"x y\"=\"1\"} 1\n# EOF\n";

/// Page, a part of the error, and whether `prometheus_client` refuses it too.
pub(crate) const BAD: &[(&str, &str, bool)] = &[
    // The end.
    ("", "no # EOF", true),
    ("# TYPE a gauge\na 1\n", "no # EOF", true),
    ("# TYPE a gauge\na 1# EOF\n", "no # EOF", true),
    ("# EOF", "no # EOF", false),
    ("# EOF\n# EOF\n", "# EOF before the end", true),
    (
        "# EOF\n# TYPE a gauge\na 1\n# EOF\n",
        "# EOF before the end",
        true,
    ),
    ("# EOF\n\n", "no # EOF", true),
    // Lines.
    ("\n# EOF\n", "blank line", true),
    ("# TYPE a gauge\na 1\n\n# EOF\n", "blank line", true),
    ("# TYPE a gauge\r\na 1\r\n# EOF\n", "no type", true),
    ("# a remark\n# EOF\n", "a comment", true),
    ("#TYPE a gauge\na 1\n# EOF\n", "a comment", true),
    ("# INFO a b\n# EOF\n", "a comment", true),
    ("#\n# EOF\n", "a comment", true),
    // Metadata.
    ("# TYPE a untyped\na 1\n# EOF\n", "no type", true),
    ("# TYPE a Gauge\na 1\n# EOF\n", "no type", true),
    ("# TYPE a gauge \na 1\n# EOF\n", "no type", true),
    ("# TYPE a\n# EOF\n", "no text after the name", true),
    ("# TYPE 9 gauge\n9 1\n# EOF\n", "no family name", true),
    ("# TYPE a.b gauge\n# EOF\n", "no family name", true),
    (
        "# HELP a A.\n# TYPE a gauge\na 1\n# EOF\n",
        "without a TYPE before it",
        false,
    ),
    (
        "# TYPE a gauge\n# HELP a A.\n# UNIT a A.\na 1\n# EOF\n",
        "UNIT after HELP",
        true,
    ),
    (
        "# TYPE a_s gauge\n# HELP a_s A.\n# UNIT a_s s\na_s 1\n# EOF\n",
        "UNIT after HELP",
        false,
    ),
    (
        "# TYPE a gauge\na 1\n# HELP a A.\n# EOF\n",
        "HELP after samples",
        true,
    ),
    (
        "# TYPE a_s gauge\na_s 1\n# UNIT a_s s\n# EOF\n",
        "UNIT after samples",
        true,
    ),
    (
        "# TYPE a gauge\na 1\n# TYPE a gauge\na{x=\"1\"} 1\n# EOF\n",
        "second time",
        true,
    ),
    (
        "# TYPE a gauge\n# TYPE a gauge\na 1\n# EOF\n",
        "without samples",
        true,
    ),
    (
        "# TYPE a gauge\n# HELP a A.\n# HELP a A.\na 1\n# EOF\n",
        "HELP a second time",
        true,
    ),
    (
        "# TYPE a_s gauge\n# UNIT a_s s\n# UNIT a_s s\na_s 1\n# EOF\n",
        "UNIT a second time",
        true,
    ),
    (
        "# TYPE a gauge\n# HELP b B.\na 1\n# EOF\n",
        "without a TYPE before it",
        true,
    ),
    (
        "# TYPE a gauge\n# UNIT a s\na 1\n# EOF\n",
        "end with the unit",
        true,
    ),
    (
        "# TYPE as gauge\n# UNIT as s\nas 1\n# EOF\n",
        "end with the unit",
        true,
    ),
    (
        "# TYPE s gauge\n# UNIT s s\ns 1\n# EOF\n",
        "end with the unit",
        true,
    ),
    (
        "# TYPE a_s counter\n# UNIT a_s total\na_s_total 1\n# EOF\n",
        "end with the unit",
        true,
    ),
    (
        "# TYPE a_s gauge\n# UNIT a_s \na_s 1\n# EOF\n",
        "no unit",
        false,
    ),
    (
        "# TYPE a_s gauge\n# UNIT a_s s \na_s 1\n# EOF\n",
        "no unit",
        true,
    ),
    (
        "# TYPE a_s info\n# UNIT a_s s\na_s_info 1\n# EOF\n",
        "no unit for this type",
        true,
    ),
    (
        "# TYPE a_s stateset\n# UNIT a_s s\na_s{a_s=\"x\"} 1\n# EOF\n",
        "no unit for this type",
        true,
    ),
    (
        "# TYPE a gauge\n# HELP a\na 1\n# EOF\n",
        "no text after the name",
        true,
    ),
    (
        "# TYPE a gauge\n# HELP a say \"hi\"\na 1\n# EOF\n",
        "escape in HELP",
        false,
    ),
    (
        "# TYPE a gauge\n# HELP a \\d\na 1\n# EOF\n",
        "escape in HELP",
        false,
    ),
    (
        "# TYPE a gauge\n# HELP a \\\na 1\n# EOF\n",
        "escape in HELP",
        false,
    ),
    ("# TYPE a gauge\n# EOF\n", "without samples", false),
    // Samples.
    ("a 1\n# EOF\n", "sample before a TYPE", false),
    ("# TYPE a gauge\na\n# EOF\n", "no value", true),
    ("# TYPE a gauge\na \n# EOF\n", "no number", true),
    ("# TYPE a gauge\na  1\n# EOF\n", "a blank too many", true),
    ("# TYPE a gauge\na 1 \n# EOF\n", "a blank too many", true),
    ("# TYPE a gauge\n a 1\n# EOF\n", "no metric name", true),
    ("# TYPE a gauge\na\t1\n# EOF\n", "no value", true),
    ("# TYPE a gauge\na{} 1\n# EOF\n", "empty braces", false),
    (
        "# TYPE a gauge\na{x=\"1\"}1\n# EOF\n",
        "no blank before the value",
        true,
    ),
    ("# TYPE a gauge\na{x=\"1\",} 1\n# EOF\n", "no label", true),
    ("# TYPE a gauge\na{,x=\"1\"} 1\n# EOF\n", "no label", true),
    (
        "# TYPE a gauge\na{x=\"1\" } 1\n# EOF\n",
        "no end of labels",
        false,
    ),
    (
        "# TYPE a gauge\na{x=\"1\", y=\"1\"} 1\n# EOF\n",
        "no label name",
        false,
    ),
    ("# TYPE a gauge\na{x=1} 1\n# EOF\n", "no label", true),
    (
        "# TYPE a gauge\na{x=\"1} 1\n# EOF\n",
        "no closing quote",
        true,
    ),
    ("# TYPE a gauge\na{x=\"\\d\"} 1\n# EOF\n", "escape", false),
    (
        "# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n# EOF\n",
        "a second time",
        true,
    ),
    (
        "# TYPE a gauge\na{x.y=\"1\"} 1\n# EOF\n",
        "no label name",
        true,
    ),
    (
        "# TYPE a gauge\na{9=\"1\"} 1\n# EOF\n",
        "no label name",
        true,
    ),
    // Its label names may hold a colon, for it tests them as metric names.
    (
        "# TYPE a gauge\na{x:y=\"1\"} 1\n# EOF\n",
        "no label name",
        false,
    ),
    (
        "# TYPE a gauge\na{__name__=\"a\"} 1\n# EOF\n",
        "no label name",
        true,
    ),
    (
        "# TYPE a gauge\na{__x=\"1\"} 1\n# EOF\n",
        "reserved label",
        true,
    ),
    ("# TYPE a gauge\na x\n# EOF\n", "no number", true),
    ("# TYPE a gauge\na 1_0\n# EOF\n", "no number", true),
    ("# TYPE a gauge\na 0x1\n# EOF\n", "no number", true),
    ("# TYPE a gauge\na 1e400\n# EOF\n", "no number", false),
    ("# TYPE a gauge\na inf\n# EOF\n", "no number", false),
    (
        "# TYPE a gauge\na 1 1700000000\n# EOF\n",
        "timestamp",
        false,
    ),
    (
        "# TYPE a gauge\na 1\na 2\n# EOF\n",
        "series a second time",
        false,
    ),
    (
        "# TYPE a gauge\na{x=\"\"} 1\na 2\n# EOF\n",
        "series a second time",
        false,
    ),
    (
        "# TYPE a gauge\na{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1\n# EOF\n",
        "series a second time",
        false,
    ),
    // Families and metrics in one place each.
    (
        "# TYPE a gauge\nb 1\n# EOF\n",
        "sample of another family",
        false,
    ),
    (
        "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na{x=\"1\"} 1\n# EOF\n",
        "sample of another family",
        true,
    ),
    (
        "# TYPE c counter\nc 1\n# EOF\n",
        "no sample of a counter",
        true,
    ),
    (
        "# TYPE c_total counter\nc_total 1\n# EOF\n",
        "no sample of a counter",
        true,
    ),
    (
        "# TYPE g gauge\ng_total 1\n# EOF\n",
        "no sample of a gauge",
        false,
    ),
    ("# TYPE i info\ni 1\n# EOF\n", "no sample of a info", true),
    (
        "# TYPE h histogram\nh 1\n# EOF\n",
        "no sample of a histogram",
        true,
    ),
    (
        "# TYPE q summary\nq_bucket{le=\"1.0\"} 1\n# EOF\n",
        "no sample of a summary",
        false,
    ),
    (
        "# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_sum 1\ngh_count 1\n# EOF\n",
        "no sample of a gaugehistogram",
        false,
    ),
    (
        "# TYPE c counter\nc_total{x=\"1\"} 1\nc_total{x=\"2\"} 1\nc_created{x=\"1\"} 1\n# EOF\n",
        "a metric in two places",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\",x=\"1\"} 1\nh_bucket{le=\"+Inf\",x=\"2\"} 1\nh_sum{x=\"1\"} 1\nh_count{x=\"1\"} 1\n# EOF\n",
        "a metric in two places",
        true,
    ),
    (
        "# TYPE q summary\nq{quantile=\"0.5\"} 1\nq{quantile=\"0.5\",x=\"1\"} 1\nq_sum 1\n# EOF\n",
        "a metric in two places",
        true,
    ),
    (
        "# TYPE s stateset\ns{s=\"a\"} 1\ns{s=\"a\",x=\"1\"} 1\ns{s=\"b\"} 1\n# EOF\n",
        "a metric in two places",
        true,
    ),
    // Names that clash.
    (
        "# TYPE a counter\na_total 1\n# TYPE a_total gauge\na_total{x=\"1\"} 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    (
        "# TYPE a counter\na_total 1\n# TYPE a_created gauge\na_created 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    (
        "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\n# TYPE a_sum gauge\na_sum 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    (
        "# TYPE a summary\na_count 1\n# TYPE a_sum unknown\na_sum 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    (
        "# TYPE a info\na_info 1\n# TYPE a_info gauge\na_info{x=\"1\"} 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    (
        "# TYPE a gaugehistogram\na_bucket{le=\"+Inf\"} 1\n# TYPE a_gsum gauge\na_gsum 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    (
        "# TYPE a counter\na_total 1\n# TYPE a_total counter\na_total_total 1\n# EOF\n",
        "reserved by two",
        true,
    ),
    // Counters.
    ("# TYPE c counter\nc_total -1\n# EOF\n", "below zero", true),
    ("# TYPE c counter\nc_total NaN\n# EOF\n", "NaN", true),
    (
        "# TYPE c counter\nc_created 1\n# EOF\n",
        "without a total",
        false,
    ),
    // Infos and state sets.
    ("# TYPE i info\ni_info 2\n# EOF\n", "an info", true),
    ("# TYPE s stateset\ns{s=\"a\"} 2\n# EOF\n", "a state", true),
    (
        "# TYPE s stateset\ns{s=\"a\"} NaN\n# EOF\n",
        "a state",
        true,
    ),
    (
        "# TYPE s stateset\ns{x=\"a\"} 1\n# EOF\n",
        "no label s",
        true,
    ),
    // Summaries.
    ("# TYPE q summary\nq 1\n# EOF\n", "no label quantile", true),
    (
        "# TYPE q summary\nq{quantile=\"x\"} 1\n# EOF\n",
        "no number",
        true,
    ),
    (
        "# TYPE q summary\nq{quantile=\"1\"} 1\n# EOF\n",
        "not canonical",
        false,
    ),
    (
        "# TYPE q summary\nq{quantile=\"5e-1\"} 1\n# EOF\n",
        "not canonical",
        false,
    ),
    (
        "# TYPE q summary\nq{quantile=\"1.5\"} 1\n# EOF\n",
        "not from 0 to 1",
        true,
    ),
    (
        "# TYPE q summary\nq{quantile=\"-0.5\"} 1\n# EOF\n",
        "not from 0 to 1",
        true,
    ),
    (
        "# TYPE q summary\nq{quantile=\"0.5\"} -1\n# EOF\n",
        "a quantile below zero",
        true,
    ),
    ("# TYPE q summary\nq_sum -1\n# EOF\n", "below zero", true),
    (
        "# TYPE q summary\nq_count 0.5\n# EOF\n",
        "whole number",
        true,
    ),
    ("# TYPE q summary\nq_count NaN\n# EOF\n", "NaN", true),
    (
        "# TYPE q summary\nq_count{quantile=\"0.5\"} 1\n# EOF\n",
        "quantile on a _count",
        false,
    ),
    // Histograms.
    (
        "# TYPE h histogram\nh_bucket 1\n# EOF\n",
        "no label le",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"x\"} 1\n# EOF\n",
        "no number",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"NaN\"} 1\n# EOF\n",
        "not canonical",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"Inf\"} 1\n# EOF\n",
        "not canonical",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\n# EOF\n",
        "not canonical",
        false,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"1e0\"} 1\nh_bucket{le=\"+Inf\"} 1\n# EOF\n",
        "not canonical",
        false,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"1000000.0\"} 1\nh_bucket{le=\"+Inf\"} 1\n# EOF\n",
        "not canonical",
        false,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\n# EOF\n",
        "no bucket +Inf",
        true,
    ),
    (
        "# TYPE h histogram\nh_sum 1\nh_count 1\n# EOF\n",
        "no bucket +Inf",
        true,
    ),
    (
        "# TYPE h histogram\nh_created 1\n# EOF\n",
        "no bucket +Inf",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"2.0\"} 1\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 1\n# EOF\n",
        "out of order",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_bucket{le=\"1.0\"} 1\n# EOF\n",
        "out of order",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"1.0\"} 2\nh_bucket{le=\"+Inf\"} 1\n# EOF\n",
        "do not add up",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 0.5\n# EOF\n",
        "whole number",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} +Inf\n# EOF\n",
        "whole number",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} -1\n# EOF\n",
        "below zero",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} NaN\n# EOF\n",
        "NaN",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum -1\nh_count 1\n# EOF\n",
        "below zero",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum NaN\nh_count 1\n# EOF\n",
        "NaN",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n# EOF\n",
        "not the bucket",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\n# EOF\n",
        "only one",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\n# EOF\n",
        "only one",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"-1.0\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n# EOF\n",
        "buckets below zero",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum{le=\"+Inf\"} 1\nh_count{le=\"+Inf\"} 1\n# EOF\n",
        "le on a _sum",
        true,
    ),
    (
        "# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_gsum -1\ngh_gcount 1\n# EOF\n",
        "a sum below zero",
        true,
    ),
    (
        "# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_gsum 1\ngh_gcount 2\n# EOF\n",
        "not the bucket",
        true,
    ),
    (
        "# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_gsum 1\n# EOF\n",
        "only one",
        true,
    ),
    (
        "# TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_gsum NaN\ngh_gcount 1\n# EOF\n",
        "NaN",
        true,
    ),
    (
        "# TYPE gh gaugehistogram\ngh_bucket{le=\"1.0\"} 2\ngh_bucket{le=\"+Inf\"} 1\n# EOF\n",
        "do not add up",
        true,
    ),
    // Exemplars.
    ("# TYPE g gauge\ng 1 # {} 1\n# EOF\n", "out of place", true),
    (
        "# TYPE c counter\nc_total 1\nc_created 1 # {} 1\n# EOF\n",
        "out of place",
        true,
    ),
    (
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1 # {} 1\n# EOF\n",
        "out of place",
        true,
    ),
    (
        "# TYPE u unknown\nu 1 # {} 1\n# EOF\n",
        "out of place",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # t 1\n# EOF\n",
        "without labels",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {}\n# EOF\n",
        "without a value",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {} x\n# EOF\n",
        "no number",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {} 1 x\n# EOF\n",
        "timestamp",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {} 1 NaN\n# EOF\n",
        "timestamp",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {} 1 \n# EOF\n",
        "timestamp",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {} 1 2 3\n# EOF\n",
        "timestamp",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {x=1} 1\n# EOF\n",
        "no label",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {x=\"1\",x=\"1\"} 1\n# EOF\n",
        "a second time",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {__x=\"1\"} 1\n# EOF\n",
        "reserved label",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {x=\"1\"}1\n# EOF\n",
        "without a value",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 #{} 1\n# EOF\n",
        "a blank too many",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {a=\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"} 1\n# EOF\n",
        "more than 128",
        true,
    ),
    (
        "# TYPE c counter\nc_total 1 # {a=\"é23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"} 1\n# EOF\n",
        "more than 128",
        true,
    ),
    // Quoted names.
    (
        "# TYPE \"a.b\" gauge\na.b 1\n# EOF\n",
        "no metric name",
        true,
    ),
    (
        "# TYPE \"a.b\" gauge\n{\"a.b\",} 1\n# EOF\n",
        "no label",
        true,
    ),
    (
        "# TYPE \"a.b\" gauge\n{x=\"1\",\"a.b\"} 1\n# EOF\n",
        "no metric name",
        false,
    ),
    (
        "# TYPE \"a.b\" gauge\n{\"a.b\" } 1\n# EOF\n",
        "no end of labels",
        false,
    ),
    ("# TYPE \"a.b gauge\n# EOF\n", "no closing quote", true),
];
