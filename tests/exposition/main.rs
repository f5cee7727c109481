//! The exposition room from outside: real pages, public cases, odd pages, and a strict reader of
//! classic text that shares no code with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod filter;
mod odd;
mod pages;
mod props;
mod strict;

use kvgauge::exposition::{Format, Limits, Merged, Page, PageError, Prepared, merge};
use std::path::PathBuf;

const LIMITS: Limits = Limits {
    max_series: 1_000_000,
    max_label_bytes: 16 * 1024,
    max_families: 100_000,
};

/// The folder of real pages and cases, which is not part of the crate.
fn shared(path: &str) -> PathBuf {
    let base = std::env::var_os("KVGAUGE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data"),
        PathBuf::from,
    );
    base.join(path)
}

fn case(name: &str) -> Vec<u8> {
    let path = shared("cases").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(text: &[u8]) -> Page<'_> {
    Page::read(text, &LIMITS).unwrap()
}

fn prepare(text: &[u8], source: &str) -> Prepared {
    Prepared::new(&read(text), Some(("source", source)))
}

/// Merges texts, each under its source name, and has the outcome checked.
fn merge_texts(texts: &[(&str, &[u8])]) -> (Merged, strict::Checked) {
    let pages: Vec<Prepared> = texts
        .iter()
        .map(|(source, text)| prepare(text, source))
        .collect();
    check(&pages, 0)
}

fn check(pages: &[Prepared], pinned: usize) -> (Merged, strict::Checked) {
    let merged = merge(&pages.iter().collect::<Vec<_>>(), pinned, Format::CLASSIC);
    let checked = strict::check(&merged.text)
        .unwrap_or_else(|e| panic!("{e}\n{}", String::from_utf8_lossy(&merged.text)));
    (merged, checked)
}

fn error(text: &[u8]) -> PageError {
    Page::read(text, &LIMITS).unwrap_err()
}
