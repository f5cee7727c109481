//! What kvgauge makes of its own command line and is shipped with it: completions, manual pages. Written
//! anew with
//!
//! ```text
//! kvgauge man docs/man
//! kvgauge completions bash > config/completions/kvgauge.bash
//! kvgauge completions zsh  > config/completions/_kvgauge
//! kvgauge completions fish > config/completions/kvgauge.fish
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::kvgauge::run;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files
        .map(|path| (name(&path), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn the_manual_pages_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("man");
    let output = run(&["man", written.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let (written, shipped) = (files(&written), files(&root("docs/man")));
    let names: Vec<&String> = written.keys().collect();
    assert_eq!(names, shipped.keys().collect::<Vec<_>>());
    for (name, text) in &written {
        assert!(
            text == &shipped[name],
            "docs/man/{name} is old: run `kvgauge man docs/man`"
        );
    }
    assert!(!names.iter().any(|name| name.contains("sim")), "{names:?}");
    assert!(written["kvgauge-serve.1"].contains("upstream"));
    let output = run(&["man"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), written["kvgauge.1"].trim_end());
}

#[test]
fn a_folder_that_can_not_be_written_is_said() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = run(&["man", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("The manual pages can't be written into"),
        "{said}"
    );
}

#[test]
fn the_completions_are_those_of_the_program() {
    for (shell, name) in [
        ("bash", "kvgauge.bash"),
        ("zsh", "_kvgauge"),
        ("fish", "kvgauge.fish"),
    ] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let path = format!("config/completions/{name}");
        let shipped = fs::read_to_string(root(&path)).unwrap();
        let same = text.trim_end() == shipped.trim_end();
        assert!(
            same,
            "{path} is old: run `kvgauge completions {shell} > {path}`"
        );
        assert!(
            text.contains("doctor") && !text.contains("kvgauge__sim"),
            "{shell}"
        );
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(64));
}
