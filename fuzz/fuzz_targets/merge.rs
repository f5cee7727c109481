//! Several pages, read, prepared and merged: nothing panics, every sample is accounted for, and the
//! merged page is valid, which readers say that share no code with what they check.
//!
//! The input's first byte says how to merge; the rest is the pages, with a zero byte between them.

#![no_main]

mod limits;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests use the rest of it"
)]
#[path = "../../tests/exposition/strict.rs"]
mod strict;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests use the rest of it"
)]
#[path = "../../tests/exposition/strict_open.rs"]
mod strict_open;

use kvgauge::exposition::{Escaping, Format, Merged, Page, Prepared, Version, merge};
use libfuzzer_sys::fuzz_target;
use limits::LIMITS;
use strict::Names;

/// The names of the sources, and one page of kvgauge's own without a source label. Two are alike:
/// nothing but their samples keeps them apart.
const SOURCES: [Option<(&str, &str)>; 5] = [
    None,
    Some(("source", "a")),
    Some(("source", "b")),
    Some(("source", "a")),
    Some(("le", "c\"\\\n")),
];

const FORMATS: [Format; 8] = [
    Format::CLASSIC,
    Format::OPEN_METRICS,
    format(Version::OpenMetrics001, None),
    format(Version::Text100, Some(Escaping::AllowUtf8)),
    format(Version::Text100, Some(Escaping::Underscores)),
    format(Version::OpenMetrics100, Some(Escaping::AllowUtf8)),
    format(Version::OpenMetrics100, Some(Escaping::Dots)),
    format(Version::OpenMetrics100, Some(Escaping::Values)),
];

const fn format(version: Version, escaping: Option<Escaping>) -> Format {
    Format { version, escaping }
}

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else {
        return;
    };
    let format = FORMATS[usize::from(how & 7)];
    let first_source = usize::from(how >> 3 & 3);
    let pinned = usize::from(how >> 5 & 3);
    let pages: Vec<Prepared> = rest
        .split(|b| *b == 0)
        .filter_map(|text| Page::read(text, &LIMITS).ok())
        .zip(SOURCES.iter().cycle().skip(first_source))
        .take(SOURCES.len())
        .map(|(page, source)| Prepared::new(&page, *source))
        .collect();
    let merged = merge(&pages.iter().collect::<Vec<_>>(), pinned, format);
    assert_valid(&merged, format);
    if format.escaping.is_none() {
        assert_accounted_for(&pages, &merged);
    }
});

fn assert_valid(merged: &Merged, format: Format) {
    let names = match format.escaping {
        Some(Escaping::AllowUtf8) => Names::Utf8,
        _ => Names::Legacy,
    };
    let outcome = if format.is_open_metrics() {
        strict_open::check(&merged.text, names)
    } else {
        strict::check(&merged.text, names)
    };
    if let Err(error) = outcome {
        panic!("{error}\n{}", String::from_utf8_lossy(&merged.text));
    }
}

/// Every sample that all readers can take is on the merged page, or is counted among those left out.
/// (Where a reader asks for other names too, there are more.)
fn assert_accounted_for(pages: &[Prepared], merged: &Merged) {
    let before: usize = pages.iter().map(Prepared::sample_count).sum();
    let left_out: u64 = merged
        .conflicts
        .iter()
        .flat_map(|conflict| &conflict.dropped)
        .map(|(.., samples)| samples)
        .sum();
    let after = Page::read(&merged.text, &LIMITS).expect("a page that can be read again");
    assert_eq!(after.dropped(), []);
    assert_eq!(
        after.sample_count() as u64 + left_out + merged.duplicates,
        before as u64
    );
}
