//! What every strict reader of classic text demands of a page.

use super::samples::Samples;
use std::collections::HashSet;

const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

/// Panics, naming the line, unless: every line is HELP, TYPE, a comment or a sample; each family
/// has one HELP and one TYPE at most, before its samples, in one block; no series stands twice;
/// no NUL, no CR, no timestamp; the last line ends.
pub(crate) fn check(page: &str) {
    assert!(page.ends_with('\n'), "the last line does not end");
    assert!(
        !page.contains('\r') && !page.contains('\0'),
        "CR or NUL on the page"
    );
    let mut closed = HashSet::new();
    let mut described = HashSet::new();
    let mut family = String::new();
    let mut kind = String::new();
    let mut has_samples = false;
    for line in page.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let name = match words.as_slice() {
            ["#", "HELP" | "TYPE", name, ..] => {
                let (what, name) = (words[1], (*name).to_owned());
                assert!(
                    described.insert((what, name.clone())),
                    "a second {what}: {line}"
                );
                assert!(
                    !(has_samples && family == name),
                    "{what} after samples: {line}"
                );
                if what == "TYPE" {
                    assert!(
                        TYPES.contains(&words[3]),
                        "a type of another format: {line}"
                    );
                }
                name
            }
            ["#", ..] | [""] => continue,
            _ => {
                let sample = Samples::parse(line).0.remove(0);
                assert!(!sample.text.contains(' '), "a timestamp: {line}");
                let _ = sample.value();
                family_of(&sample.name, &family, &kind)
            }
        };
        if name != family {
            assert!(
                closed.insert(name.clone()),
                "family {name} in two blocks: {line}"
            );
            family.clone_from(&name);
            kind.clear();
            has_samples = false;
        }
        match words.as_slice() {
            ["#", "TYPE", _, kind_here] => (*kind_here).clone_into(&mut kind),
            ["#", ..] => {}
            _ => has_samples = true,
        }
    }
    let mut series = HashSet::new();
    for sample in Samples::parse(page).0 {
        let mut labels = sample.labels.clone();
        labels.sort();
        let names: HashSet<_> = labels.iter().map(|label| &label.0).collect();
        assert_eq!(names.len(), labels.len(), "a label twice: {sample:?}");
        assert!(
            series.insert((sample.name.clone(), labels)),
            "a series twice: {sample:?}"
        );
    }
}

/// The family that a sample belongs to, where this one stands open.
fn family_of(sample: &str, open: &str, kind: &str) -> String {
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        "summary" => &["_sum", "_count"],
        _ => &[],
    };
    let inside = suffixes
        .iter()
        .any(|suffix| sample.strip_suffix(suffix) == Some(open));
    if inside { open } else { sample }.to_owned()
}
