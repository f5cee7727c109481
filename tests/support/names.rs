//! A resolver under the test's control.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A library for `LD_PRELOAD`, in which the look-up of names that begin with `slow` hangs for a minute,
/// and names that begin with `moving` have the address that stands in the file `MOVING_NAMES`.
pub(crate) fn slow_names(folder: &Path) -> PathBuf {
    let library = folder.join("slow_names.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/slow_names.c");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(made.success());
    library
}
