//! Families that are left out, and what of a page's identity does not depend on it.

use super::{check, read};
use kvgauge::exposition::Prepared;
use std::cell::RefCell;

const TEXT: &[u8] = b"# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\n\
h_count 2\n# TYPE h_other gauge\nh_other 1\n# TYPE c counter\nc_total 5\nc_created 6\n\
# TYPE d_total counter\nd_total 7\nalone 8\nalone 9\n";

#[test]
fn a_family_goes_with_all_its_series_and_is_asked_for_once() {
    let page = read(TEXT);
    let asked = RefCell::new(Vec::new());
    let all = Prepared::filtered(&page, None, &|name| {
        asked.borrow_mut().push(name.to_owned());
        true
    });
    assert_eq!(
        all.sample_count(),
        Prepared::new(&page, None).sample_count()
    );
    let mut asked = asked.into_inner();
    asked.sort();
    // As they are called in classic text.
    let names = ["alone", "c_created", "c_total", "d_total", "h", "h_other"];
    assert_eq!(asked, names);

    for name in names {
        let without = Prepared::filtered(&page, Some(("source", "a")), &|n| n != name);
        let (merged, _) = check(&[without], 0);
        let text = String::from_utf8(merged.text).unwrap();
        for line in TEXT
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty() && l[0] != b'#')
        {
            let sample = std::str::from_utf8(line).unwrap();
            let sample = sample.split(['{', ' ']).next().unwrap();
            let gone =
                sample == name || (name == "h" && sample != "h_other" && sample.starts_with("h_"));
            assert_eq!(
                !text.contains(&format!("\n{sample}{{")),
                gone,
                "{name} {sample}\n{text}"
            );
        }
    }
    let none = Prepared::filtered(&page, None, &|_| false);
    assert_eq!(
        (none.sample_count(), none.family_count(), none.duplicates()),
        (0, 0, 0)
    );
}

#[test]
fn the_content_of_a_page_is_its_samples_in_any_order() {
    let hash = |text: &[u8]| read(text).content_hash();
    let same = hash(b"a{x=\"1\"} 1\na{x=\"2\"} 2\nb 3\n");
    assert_eq!(
        hash(b"# HELP a words\nb 3\na{x=\"2\"} 2 1700000000000\n\na{x=\"1\"} 1"),
        same
    );
    for other in [
        b"a{x=\"1\"} 1\na{x=\"2\"} 2\nb 4\n".as_slice(),
        b"a{x=\"1\"} 2\na{x=\"2\"} 1\nb 3\n",
        b"a{x=\"1\"} 1\na{x=\"3\"} 2\nb 3\n",
        b"a{x=\"1\"} 1\na{x=\"2\"} 2\nc 3\n",
        b"a{x=\"1\"} 1\na{x=\"2\"} 2\n",
        b"a{x=\"1\"} 1\na{x=\"2\"} 2\nb 3\nb 3\n",
    ] {
        assert_ne!(hash(other), same, "{}", String::from_utf8_lossy(other));
    }
}
