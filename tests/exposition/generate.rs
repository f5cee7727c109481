//! Pages for property tests: odd ones, whose lines are put together at random; tidy ones of
//! `OpenMetrics`; and worn ones, which are tidy ones after an accident.
//!
//! What the prometheus client reads wrongly is not made here: exemplars with escaped quotes (it counts
//! every quote), `-0` (its integer is 0), exemplar times below zero with a fraction (it loses the
//! sign), labels in double underscores (it refuses the page).

use super::strict_open::canonical;
use proptest::prelude::*;

/// Few names, so that families meet, and all the suffixes that mean something.
fn name() -> impl Strategy<Value = String> {
    let base = prop::sample::select(vec!["a", "b", "a:b", "a_b", "a_count", "_"]);
    let suffix = prop::sample::select(vec![
        "", "", "", "_bucket", "_sum", "_count", "_total", "_created", "_info", "_gsum", "_gcount",
    ]);
    (base, suffix).prop_map(|(base, suffix)| format!("{base}{suffix}"))
}

fn label() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "le",
        "quantile",
        "source",
        "exported_source",
        "exported_exported_source",
        "x",
        "\"x\"",
        "\"x.y\"",
        "__name__",
        "9",
    ]);
    let value = prop_oneof![
        4 => prop::sample::select(vec!["", "1", "1.0", "+Inf", "0.5", "x", "\\\\", "\\\"", "\\n", "\\d", "}", "{,=", "é", "\r", "\t# "])
            .prop_map(str::to_owned),
        1 => any::<String>().prop_map(|s| s.replace(['"', '\\', '\n'], "")),
        1 => any::<String>(),
    ];
    let blank = prop::sample::select(vec!["", "", "", " ", "\t"]);
    (name, value, blank)
        .prop_map(|(name, value, blank)| format!("{blank}{name}{blank}={blank}\"{value}\"{blank}"))
}

fn sample() -> impl Strategy<Value = String> {
    let labels = prop_oneof![
        1 => Just(String::new()),
        4 => (prop::collection::vec(label(), 0..4), prop::sample::select(vec!["", "", ","]))
            .prop_map(|(labels, end)| format!("{{{}{end}}}", labels.join(","))),
    ];
    let value = prop::sample::select(vec![
        "1", "0.5", "NaN", "+Inf", "-inf", "1e3", "1e400", "-7", "x", "", "0x1",
    ]);
    let end = prop::sample::select(vec![
        "",
        "",
        "",
        " ",
        " 17",
        " 17.5",
        " # {t=\"x\"} 1",
        " x",
        "\r",
        "\t\r",
    ]);
    (name(), labels, value, end)
        .prop_map(|(name, labels, value, end)| format!("{name}{labels} {value}{end}"))
}

pub(crate) fn line() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec![
        "counter",
        "gauge",
        "histogram",
        "summary",
        "untyped",
        "info",
        "stateset",
        "gaugehistogram",
        "unknown",
        "gorge",
    ]);
    prop_oneof![
        8 => sample(),
        4 => (name(), kind).prop_map(|(name, kind)| format!("# TYPE {name} {kind}")),
        1 => (name(), any::<String>()).prop_map(|(name, help)| format!("# HELP {name} {}", help.replace('\n', ""))),
        1 => prop::sample::select(vec!["# EOF", "", "#", "# UNIT a seconds", "{\"a.b\"} 1", "{\"a\",x=\"1\"} 1", "<p>"])
            .prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

pub(crate) fn page() -> impl Strategy<Value = String> {
    prop::collection::vec(line(), 0..24).prop_map(|lines| lines.join("\n"))
}

/// A line much like others of its kind.
pub(crate) fn similar() -> impl Strategy<Value = String> {
    let value = || {
        prop::sample::select(vec![
            "",
            "1",
            "22",
            "a\\\\",
            "a\\\"",
            "a\\n",
            "\\d",
            "long enough to be more than sixteen bytes",
            "é",
        ])
    };
    let end = prop::sample::select(vec!["", "", "", ",d=\"\"", ",a=\"2\"", ",", " "]);
    let after = prop::sample::select(vec!["} 1", "} 1", "} 0.25 17", "}1", "} x", "}", ""]);
    let name = prop::sample::select(vec!["m", "m", "m_bucket", "n"]);
    let first = prop::sample::select(vec!["a", "a", "aa", "b"]);
    (name, first, value(), value(), value(), end, after).prop_map(
        |(name, first, a, b, c, end, after)| {
            format!("{name}{{{first}=\"{a}\",b_label=\"{b}\",c=\"{c}\"{end}{after}")
        },
    )
}

/// A family of `OpenMetrics` that breaks no rule.
#[derive(Clone, Debug)]
pub(crate) struct Tidy {
    name: &'static str,
    kind: &'static str,
    unit: bool,
    help: Option<String>,
    /// Of each metric, as written; none twice.
    labels: Vec<&'static str>,
    counts: Vec<u32>,
    exemplars: Vec<Option<String>>,
    created: bool,
    sums: bool,
    spelling: usize,
}

/// Names of which none reserves another's; the quoted ones are left out where names may not be.
const NAMES: [&str; 9] = [
    "a", "b:c", "d_e", "f_total", "g_count", "_h", "\"i.j\"", "\"k l\"", "\"é\"",
];

const KINDS: [&str; 8] = [
    "counter",
    "gauge",
    "histogram",
    "gaugehistogram",
    "summary",
    "info",
    "stateset",
    "unknown",
];

fn tidy_family(name: &'static str) -> impl Strategy<Value = Tidy> {
    let labels = prop::sample::subsequence(
        vec![
            "",
            "x=\"1\"",
            "x=\"2\"",
            "x=\"\\\\\"",
            "x=\"\\\"} 1 # {\"",
            "x=\"a\\nb\",y=\"é\"",
            "\"x.y\"=\"1\"",
            "source=\"s\"",
            "x=\"le=1,\u{85}\u{2028}\"",
        ],
        1..4,
    );
    let help = prop::option::of(prop::sample::select(vec![
        "A.",
        "say \\\"hi\\\"",
        "c:\\\\dir \\n end",
        "é \u{85} # {",
        "a  b",
    ]));
    let exemplar = prop_oneof![
        2 => Just(None),
        1 => prop::sample::select(vec![
            "{} 1", "{t=\"1\"} 0.5 1700000000.5", "{t=\"x # {y} z\",u=\"é\"} 1e-05", "{\"t.u\"=\"1\"} 3 17",
        ]).prop_map(|text| Some(text.to_owned())),
        // Just as long as it may be.
        1 => Just(Some(format!("{{t=\"{}\"}} 1", "é".repeat(127)))),
    ];
    (
        prop::sample::select(KINDS.to_vec()),
        any::<bool>(),
        help.prop_map(|help| help.map(str::to_owned)),
        labels,
        prop::collection::vec(0u32..2000, 4),
        prop::collection::vec(exemplar, 4),
        any::<bool>(),
        any::<bool>(),
        0usize..3,
    )
        .prop_map(
            move |(kind, unit, help, labels, counts, exemplars, created, sums, spelling)| Tidy {
                name,
                kind,
                unit: unit && name == "d_e" && !matches!(kind, "info" | "stateset"),
                help,
                labels,
                counts,
                exemplars,
                created,
                sums,
                spelling,
            },
        )
}

/// Families of a page; no name twice.
pub(crate) fn tidy() -> impl Strategy<Value = Vec<Tidy>> {
    prop::sample::subsequence(NAMES.to_vec(), 1..5)
        .prop_flat_map(|names| names.into_iter().map(tidy_family).collect::<Vec<_>>())
}

/// The text of a page; `canonical_splits` spells `le` and `quantile` as `OpenMetrics` wants them.
pub(crate) fn tidy_text(families: &[Tidy], canonical_splits: bool) -> String {
    let blocks = families
        .iter()
        .map(|f| f.lines(canonical_splits).join("\n") + "\n");
    blocks.collect::<String>() + "# EOF\n"
}

impl Tidy {
    fn lines(&self, canonical_splits: bool) -> Vec<String> {
        let name = self.name;
        let mut lines = vec![format!("# TYPE {name} {}", self.kind)];
        if self.unit {
            lines.push(format!("# UNIT {name} e"));
        }
        if let Some(help) = &self.help {
            lines.push(format!("# HELP {name} {help}"));
        }
        let split = |number: f64| match self.spelling {
            _ if canonical_splits => canonical(number),
            0 => format!("{number}").replace("inf", "+Inf"),
            1 if number.is_finite() => format!("{number:e}"),
            _ => canonical(number),
        };
        for labels in &self.labels {
            let mut put = |suffix: &str, extra: &str, value: String, exemplar: usize| {
                let exemplar = self.exemplars[exemplar % 4]
                    .as_ref()
                    .filter(|_| exemplar < 9);
                let end = exemplar.map_or(String::new(), |e| format!(" # {e}"));
                lines.push(self.series(suffix, labels, extra) + " " + &value + &end);
            };
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| self.counts[i]);
            match self.kind {
                "counter" => put("_total", "", format!("{a}"), 0),
                "info" => put("_info", "", "1.0".into(), 9),
                "stateset" => {
                    // As a label it may hold no colon without quotes.
                    let label = name.replace("b:c", "\"b:c\"");
                    let state = |of: &str| format!("{label}=\"{of}\"");
                    put("", &state("on"), (a % 2).to_string(), 9);
                    put("", &state("off"), (b % 2).to_string(), 9);
                }
                "histogram" | "gaugehistogram" => {
                    let bounds = [f64::from(a) / 100.0, 2e6, f64::INFINITY];
                    for (i, bound) in bounds.into_iter().enumerate() {
                        let count = [b, b + c, b + c + d][i];
                        put(
                            "_bucket",
                            &format!("le=\"{}\"", split(bound)),
                            format!("{count}.0"),
                            i,
                        );
                    }
                    let (sum, count) = if self.kind == "histogram" {
                        ("_sum", "_count")
                    } else {
                        ("_gsum", "_gcount")
                    };
                    if self.sums {
                        put(sum, "", "1.5e+03".into(), 9);
                        put(count, "", format!("{}", b + c + d), 9);
                    }
                }
                "summary" => {
                    for quantile in [0.0, 0.5, 1.0] {
                        let value = if a % 3 == 0 {
                            "NaN".into()
                        } else {
                            format!("{b}")
                        };
                        put("", &format!("quantile=\"{}\"", split(quantile)), value, 9);
                    }
                    if self.sums {
                        put("_sum", "", format!("{c}e-1"), 9);
                        put("_count", "", format!("{d}"), 9);
                    }
                }
                _ => {
                    let value = [
                        "NaN",
                        "-Inf",
                        "+Inf",
                        "-1e-05",
                        "9007199254740993",
                        ".5",
                        "5.",
                    ];
                    put("", "", value[a as usize % 7].into(), 9);
                }
            }
            if self.created && matches!(self.kind, "counter" | "histogram" | "summary") {
                put("_created", "", format!("17{d}.25"), 9);
            }
        }
        lines
    }

    fn series(&self, suffix: &str, labels: &str, extra: &str) -> String {
        let mut parts = vec![];
        let name = match self.name.strip_suffix('"') {
            Some(open) => {
                parts.push(format!("{open}{suffix}\""));
                String::new()
            }
            None => format!("{}{suffix}", self.name),
        };
        parts.extend(
            [labels, extra]
                .iter()
                .filter(|p| !p.is_empty())
                .map(|p| (*p).to_owned()),
        );
        if parts.is_empty() {
            name
        } else {
            format!("{name}{{{}}}", parts.join(","))
        }
    }
}

/// What happens to a page: two numbers say to which lines.
#[derive(Clone, Copy, Debug)]
enum Accident {
    Lose,
    Swap,
    Repeat,
    /// Another value.
    Value(&'static str),
    /// Another `le`.
    Bound(&'static str),
    /// Another type.
    Type(&'static str),
    Suffix(&'static str),
}

/// A tidy page after up to four accidents.
pub(crate) fn worn_page() -> impl Strategy<Value = String> {
    let accident = prop_oneof![
        Just(Accident::Lose),
        Just(Accident::Swap),
        Just(Accident::Repeat),
        prop::sample::select(vec!["-1", "0.5", "NaN", "+Inf", "2", "1e400"])
            .prop_map(Accident::Value),
        prop::sample::select(vec!["1", "1.0", "1e0", "-1", "+Inf", "Inf", "x", "NaN", ""])
            .prop_map(Accident::Bound),
        prop::sample::select(KINDS.to_vec()).prop_map(Accident::Type),
        prop::sample::select(vec!["_total", "_sum", "_bucket", "_created", ""])
            .prop_map(Accident::Suffix),
    ];
    let accidents = prop::collection::vec((accident, any::<u16>(), any::<u16>()), 0..5);
    (tidy(), accidents).prop_map(|(families, accidents)| {
        let text = tidy_text(&families, false);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (accident, at, to) in accidents {
            let (at, to) = (usize::from(at) % lines.len(), usize::from(to) % lines.len());
            happen(&mut lines, accident, at, to);
            if lines.is_empty() {
                break;
            }
        }
        lines.join("\n")
    })
}

fn happen(lines: &mut Vec<String>, accident: Accident, at: usize, to: usize) {
    match accident {
        Accident::Lose => drop(lines.remove(at)),
        Accident::Swap => lines.swap(at, to),
        Accident::Repeat => {
            let line = lines[at].clone();
            lines.insert(to, line);
        }
        Accident::Value(value) => {
            if let Some((series, _)) = lines[at].rsplit_once(' ') {
                lines[at] = format!("{series} {value}");
            }
        }
        Accident::Bound(bound) => {
            // From the line on, so that most accidents meet one.
            let found = lines.iter().skip(at).position(|l| l.contains("le=\""));
            if let Some(line) = found.map(|n| at + n)
                && let Some((before, rest)) = lines[line].split_once("le=\"")
                && let Some((_, after)) = rest.split_once('"')
            {
                lines[line] = format!("{before}le=\"{bound}\"{after}");
            }
        }
        Accident::Type(kind) => {
            let found = lines.iter().skip(at).position(|l| l.starts_with("# TYPE"));
            if let Some(line) = found.map(|n| at + n)
                && let Some((before, _)) = lines[line].rsplit_once(' ')
            {
                lines[line] = format!("{before} {kind}");
            }
        }
        Accident::Suffix(suffix) => {
            if let Some((name, rest)) = lines[at].split_once('{')
                && !name.is_empty()
                && !name.starts_with('#')
            {
                lines[at] = format!("{name}{suffix}{{{rest}");
            }
        }
    }
}
