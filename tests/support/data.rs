//! Files of `tests/data`.

use std::path::{Path, PathBuf};

fn path(folder: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(folder)
        .join(name)
}

fn read(folder: &str, name: &str) -> Vec<u8> {
    let path = path(folder, name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bytes of an input of a case, `b25.steps.json`.
pub(crate) fn case(name: &str) -> Vec<u8> {
    read("cases", name)
}

/// The text of a real page, without `.prom`.
pub(crate) fn page(name: &str) -> String {
    String::from_utf8(read("expositions", &format!("{name}.prom"))).unwrap()
}

/// The text of a file beside the pages.
pub(crate) fn beside_pages(name: &str) -> String {
    String::from_utf8(read("expositions", name)).unwrap()
}
