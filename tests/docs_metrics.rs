//! That `docs/metrics.md` lists kvgauge's own families as they are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::{Page, Setup, Upstream, get};

/// Type and labels of each family of the table.
fn listed() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = read("docs/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `kvgauge_"));
    let mut families = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, about, _] = cells[..] else {
            continue;
        };
        assert!(!about.is_empty(), "{row}");
        let labels = labels.split(", ").map(|l| l.trim_matches('`').to_owned());
        let labels = labels.filter(|l| !l.is_empty()).collect();
        let name = name.trim_matches('`').to_owned();
        let twice = families.insert(name, (kind.to_owned(), labels));
        assert_eq!(twice, None, "{row}");
    }
    families
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_list_is_that_of_the_code() {
    let code = read("src/telemetry/names.rs");
    let in_code: BTreeSet<String> = code
        .split('"')
        .filter(|text| text.starts_with("kvgauge_"))
        .map(str::to_owned)
        .collect();
    let in_docs: BTreeSet<String> = listed().into_keys().collect();
    assert!(in_code.len() > 20, "{in_code:?}");
    assert_eq!(in_docs, in_code);
}

#[test]
fn types_and_labels_are_those_of_the_page() {
    let upstream = Upstream::ok();
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    assert_eq!(get(kvgauge.listen, "/v1/models").status(), 200);
    let page = get(kvgauge.admin, "/metrics").text();
    let listed = listed();
    let mut seen = 0;
    for line in page.lines().filter(|l| l.starts_with("# TYPE kvgauge_")) {
        let [_, _, name, kind] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let (wanted_kind, wanted) = listed.get(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(kind, wanted_kind, "{name}");
        let suffixes = ["", "_bucket", "_sum", "_count"];
        for sample in support::Samples::parse(&page).0 {
            let of_family = suffixes.iter().any(|s| sample.name == format!("{name}{s}"));
            if !of_family {
                continue;
            }
            let labels = sample.labels.iter().map(|l| l.0.clone());
            let labels: BTreeSet<String> = labels.filter(|l| l != "le").collect();
            assert_eq!(&labels, wanted, "{sample:?}");
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} samples of kvgauge's own");
}
