//! Whatever comes in, the merged page is valid and nothing panics.

use super::{LIMITS, check, read, strict};
use kvgauge::exposition::{Page, Prepared};
use proptest::prelude::*;
use std::collections::BTreeSet;

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

fn line() -> impl Strategy<Value = String> {
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

fn page() -> impl Strategy<Value = String> {
    prop::collection::vec(line(), 0..24).prop_map(|lines| lines.join("\n"))
}

/// A line much like others of its kind.
fn similar() -> impl Strategy<Value = String> {
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

type Seen = (String, Vec<(String, String)>, String);

fn seen(text: &str) -> Vec<Seen> {
    let page = Page::read(text.as_bytes(), &LIMITS);
    let samples = page.iter().flat_map(Page::all_samples);
    samples
        .map(|s| {
            let labels = s
                .labels()
                .map(|(n, v)| (n.to_owned(), v.into_owned()))
                .collect();
            (s.name().to_owned(), labels, s.value_text().to_owned())
        })
        .collect()
}

/// Reads and prepares whatever can be read.
fn prepared(texts: &[impl AsRef<[u8]>]) -> Vec<Prepared> {
    let mut pages = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        if let Ok(page) = Page::read(text.as_ref(), &LIMITS) {
            let source = i.to_string();
            // The first page has no label, and two have the same, so that series can meet.
            let label = (i > 0).then_some(("source", if i == 3 { "2" } else { source.as_str() }));
            pages.push(Prepared::new(&page, label));
        }
    }
    pages
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn odd_pages_merge_into_a_valid_one_and_every_sample_is_accounted_for(
        texts in prop::collection::vec(page(), 1..5),
        pinned in 0usize..2,
    ) {
        let pages = prepared(&texts);
        let (merged, checked) = check(&pages, pinned);
        let before: u64 = pages.iter().map(|p| p.sample_count() as u64).sum();
        let conflicts: u64 = merged.conflicts.iter().flat_map(|c| &c.dropped).map(|d| d.2).sum();
        let after = strict::sample_count(&checked) as u64;
        prop_assert_eq!(after + conflicts + merged.duplicates, before);
        // Read and merged once more it is the same, to the byte.
        let again = Prepared::new(&read(&merged.text), None);
        let (again, _) = check(&[again], 0);
        prop_assert_eq!(String::from_utf8(again.text).unwrap(), String::from_utf8(merged.text).unwrap());
    }

    #[test]
    fn no_sample_of_a_page_vanishes_uncounted(text in page()) {
        if let Ok(page) = Page::read(text.as_bytes(), &LIMITS) {
            let prepared = Prepared::new(&page, Some(("source", "s")));
            let kept = prepared.sample_count() as u64;
            let left_out = prepared.duplicates() + prepared.misfits() + prepared.unwritable();
            prop_assert_eq!(kept + left_out, page.sample_count() as u64);
            let in_families: usize = page.families().iter().map(|f| page.family_samples(f).count()).sum();
            prop_assert_eq!(in_families, page.sample_count());
            let names: BTreeSet<&str> = page.all_samples().map(|s| s.name()).collect();
            let by_name: usize = names.iter().map(|n| page.samples(n).count()).sum();
            prop_assert_eq!(by_name, page.sample_count());
        }
    }

    #[test]
    fn the_order_of_sources_changes_only_the_order(texts in prop::collection::vec(page(), 3)) {
        let mut pages = Vec::new();
        for (source, text) in ["a", "b", "c"].iter().zip(&texts) {
            // At a tie of types the first in order wins, so take away what can differ.
            let text: String = text.lines().filter(|l| !l.starts_with("# TYPE")).map(|l| format!("{l}\n")).collect();
            if let Ok(page) = Page::read(text.as_bytes(), &LIMITS) {
                pages.push(Prepared::new(&page, Some(("source", source))));
            }
        }
        let sorted = |pages: &[Prepared]| {
            let (_, checked) = check(pages, 0);
            checked.into_iter().map(|(name, f)| (name, f.kind, f.samples.into_iter().collect::<BTreeSet<_>>())).collect::<Vec<_>>()
        };
        let forward = sorted(&pages);
        pages.reverse();
        prop_assert_eq!(sorted(&pages), forward);
    }

    /// The reader holds a line against the one before it, which must not show.
    #[test]
    fn a_line_is_read_the_same_whatever_stands_before_it(
        lines in prop::collection::vec(prop_oneof![5 => similar(), 1 => line()], 1..30),
    ) {
        // A line that makes the page HTML is not the matter here, nor are breaks within one.
        let lines: Vec<String> = lines.into_iter().map(|l| l.replace(['\n', '<'], "")).collect();
        let alone: Vec<Seen> = lines.iter().flat_map(|line| seen(line)).collect();
        prop_assert_eq!(seen(&lines.join("\n")), alone);
    }

    #[test]
    fn any_bytes_do(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4)) {
        check(&prepared(&texts), 0);
    }

    #[test]
    fn a_good_line_survives_any_neighbours(before in ".*", after in ".*") {
        let text = format!("a 1\n{}\ngood{{x=\"1\"}} 7\n{}", before.replace('\n', ""), after);
        if let Ok(page) = Page::read(text.as_bytes(), &LIMITS) {
            prop_assert!(page.samples("good").any(|s| s.value() == 7.0));
        }
    }

    /// Real lines with a byte changed, dropped or put in.
    #[test]
    fn damaged_pages_do(at in 0usize..100_000, byte in any::<u8>(), what in 0u8..3) {
        let mut text = b"# HELP s:h Some text.\n# TYPE s:h histogram\ns:h_bucket{le=\"0.1\",m=\"a\\\\b\"} 1.0\ns:h_bucket{le=\"+Inf\",m=\"x\"} 2.0\n\
            s:h_sum{m=\"x\"} 0.5\ns:h_count{m=\"x\"} 2.0\n# TYPE g gauge\ng 1e-05\n".to_vec();
        let at = at % text.len();
        match what {
            0 => text[at] = byte,
            1 => { text.remove(at); }
            _ => text.insert(at, byte),
        }
        let pages = prepared(&[text]);
        let (_, checked) = check(&pages, 0);
        // One damaged byte costs one line, or splits one in two, or takes a family's type away.
        prop_assert!(strict::sample_count(&checked) + pages.iter().map(|p| (p.misfits() + p.unwritable()) as usize).sum::<usize>() >= 3);
    }
}
