//! What the tests of the exposition room share: pages to read, checkers that share no code with the
//! room, and what a page says in a form that can be compared. `tests/real_readers` uses it too.

#![allow(dead_code, reason = "each test binary uses a part")]

#[path = "bad_open.rs"]
pub(crate) mod bad_open;
#[path = "forms.rs"]
pub(crate) mod forms;
#[path = "generate.rs"]
pub(crate) mod generate;
#[path = "plain_open.rs"]
pub(crate) mod plain_open;
#[path = "said.rs"]
pub(crate) mod said;
#[path = "strict.rs"]
pub(crate) mod strict;
#[path = "strict_open.rs"]
pub(crate) mod strict_open;

use forms::Form;
use kvgauge::exposition::{Format, Limits, Merged, Page, PageError, Prepared, merge};
use said::More;
use std::path::PathBuf;

pub(crate) const LIMITS: Limits = Limits {
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

pub(crate) fn case(name: &str) -> Vec<u8> {
    let path = shared("cases").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Name and text of every `*.prom` of a folder of `tests/data`.
fn folder(name: &str) -> Vec<(String, Vec<u8>)> {
    let mut pages: Vec<(String, Vec<u8>)> = std::fs::read_dir(shared(name))
        .unwrap_or_else(|e| panic!("tests/data/{name}: {e}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "prom"))
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect();
    pages.sort();
    pages
}

/// Name and text of every real page.
pub(crate) fn real() -> Vec<(String, Vec<u8>)> {
    let pages = folder("expositions");
    assert!(pages.len() > 40, "only {} real pages found", pages.len());
    pages
}

/// Name and text of the page of every public case.
pub(crate) fn cases() -> Vec<(String, Vec<u8>)> {
    let pages = folder("cases");
    assert!(pages.len() > 25, "only {} cases found", pages.len());
    pages
}

pub(crate) fn read(text: &[u8]) -> Page<'_> {
    Page::read(text, &LIMITS).unwrap()
}

pub(crate) fn prepare(text: &[u8], source: &str) -> Prepared {
    Prepared::new(&read(text), Some(("source", source)))
}

/// Merges texts, each under its source name, and has the outcome checked.
pub(crate) fn merge_texts(texts: &[(&str, &[u8])]) -> (Merged, strict::Checked) {
    let pages: Vec<Prepared> = texts
        .iter()
        .map(|(source, text)| prepare(text, source))
        .collect();
    check(&pages, 0)
}

/// Merges pages in every form that there is; each must pass its checker, and say what the others
/// say. Gives the page of classic text.
pub(crate) fn check(pages: &[Prepared], pinned: usize) -> (Merged, strict::Checked) {
    try_check(pages, pinned).unwrap_or_else(|e| panic!("{e}"))
}

/// The same; what is wrong, with the pages.
pub(crate) fn try_check(
    pages: &[Prepared],
    pinned: usize,
) -> Result<(Merged, strict::Checked), String> {
    let (merged, checked) = try_check_in(pages, pinned, Form::CLASSIC)?;
    let mut quoted: Option<strict::Checked> = None;
    for form in Form::ALL.into_iter().filter(|form| *form != Form::CLASSIC) {
        let (other, read) = try_check_in(pages, pinned, form)?;
        let mut difference = match &quoted {
            Some(quoted) => said::compare(quoted, &read, More::Nothing),
            None if form.names == strict::Names::Utf8 => {
                said::compare(&checked, &read, More::OddNames)
            }
            None => said::compare(&checked, &read, More::Nothing),
        };
        if form.names == strict::Names::Legacy
            && (&other.conflicts, other.duplicates) != (&merged.conflicts, merged.duplicates)
        {
            difference = Err("other conflicts or duplicates".into());
        }
        if let Err(difference) = difference {
            let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            let (classic, other) = (text(&merged.text), text(&other.text));
            return Err(format!(
                "{form:?}: {difference}\n--- classic\n{classic}\n--- {form:?}\n{other}"
            ));
        }
        if form == Form::TEXT_UTF8 {
            quoted = Some(read);
        }
    }
    for form in Form::ESCAPED {
        let (_, read) = try_check_in(pages, pinned, form)?;
        said::compare(&checked, &read, More::Anything).map_err(|e| format!("{form:?}: {e}"))?;
    }
    Ok((merged, checked))
}

/// Merges pages in one form, which must pass its checker.
pub(crate) fn check_in(pages: &[Prepared], pinned: usize, form: Form) -> (Merged, strict::Checked) {
    try_check_in(pages, pinned, form).unwrap_or_else(|e| panic!("{e}"))
}

/// The same; what is wrong, with the page.
pub(crate) fn try_check_in(
    pages: &[Prepared],
    pinned: usize,
    form: Form,
) -> Result<(Merged, strict::Checked), String> {
    let merged = merge_in(pages, pinned, form.format);
    match form.check(&merged.text) {
        Ok(checked) => Ok((merged, checked)),
        Err(e) => Err(format!(
            "{form:?}: {e}\n{}",
            String::from_utf8_lossy(&merged.text)
        )),
    }
}

pub(crate) fn merge_in(pages: &[Prepared], pinned: usize, format: Format) -> Merged {
    merge(&pages.iter().collect::<Vec<_>>(), pinned, format)
}

pub(crate) fn error(text: &[u8]) -> PageError {
    Page::read(text, &LIMITS).unwrap_err()
}
