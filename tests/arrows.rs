//! Holds the table of rooms in `docs/design.md`: a room may use what stands below it, never what
//! stands above. Reads the `crate::` paths of `src/` as text, outside comments, strings and
//! `#[cfg(test)]`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/source.rs"]
mod source;

use source::{Use, room_of, uses_in};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from top to bottom. A path of `lib.rs` or `main.rs` counts as `cli`'s.
const ROOMS: [&str; 12] = [
    "cli",
    "sim",
    "admin",
    "proxy",
    "publish",
    "scrape",
    "telemetry",
    "net",
    "engine",
    "exposition",
    "config",
    "kv",
];

/// Rooms that use no other room.
const ALONE: [&str; 2] = ["exposition", "kv"];

/// Rooms without I/O, clock or async, and what would bring it in.
const PURE: [&str; 2] = ["engine", "exposition"];
const IMPURE: [&str; 9] = [
    "tokio",
    "hyper",
    "hyper_util",
    "std::fs",
    "std::net",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::env",
];

fn rank(room: &str) -> Option<usize> {
    ROOMS.iter().position(|known| *known == room)
}

/// What is wrong with one use, if anything.
fn fault(from: &str, used: &Use) -> Option<String> {
    let to = used.room.as_str();
    let (Some(above), Some(below)) = (rank(from), rank(to)) else {
        return None;
    };
    if above > below {
        return Some(format!("{from} uses {to}, which stands above it"));
    }
    if above != below && ALONE.contains(&from) {
        return Some(format!("{from} uses {to}, and {from} stands alone"));
    }
    None
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// `(path below src, text)` of every file.
fn sources() -> Vec<(String, String)> {
    let src = root().join("src");
    let files: Vec<_> = rust_files(&src)
        .into_iter()
        .map(|path| {
            let name = path
                .strip_prefix(&src)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    assert!(files.len() > ROOMS.len(), "too few files: {}", files.len());
    files
}

#[test]
fn no_arrow_points_up() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        // lib.rs declares all rooms; that is no use.
        if name == "lib.rs" {
            continue;
        }
        let from = room_of(&name);
        for used in uses_in(&name, &text) {
            if let Some(fault) = fault(&from, &used) {
                faults.push(format!("src/{name}:{}: {fault}", used.line));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "arrows that point up:\n{}",
        faults.join("\n")
    );
}

#[test]
fn every_file_is_in_a_room_of_the_table() {
    let strangers: Vec<_> = sources()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name != "lib.rs" && rank(&room_of(name)).is_none())
        .collect();
    assert!(
        strangers.is_empty(),
        "in no room of docs/design.md: {strangers:?}"
    );
}

#[test]
fn the_table_is_that_of_the_design_page() {
    let page = fs::read_to_string(root().join("docs/design.md")).unwrap();
    let (_, section) = page.split_once("## Rooms").expect("a section Rooms");
    let rooms: Vec<_> = section
        .lines()
        .skip_while(|line| !line.starts_with("| `"))
        .take_while(|line| line.starts_with("| `"))
        .map(|line| line.split('|').nth(1).unwrap())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter_map(|name| name.strip_suffix('/'))
        .collect();
    assert_eq!(rooms, ROOMS);
}

#[test]
fn pure_rooms_have_no_io_clock_or_async() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        if !PURE.contains(&room_of(&name).as_str()) {
            continue;
        }
        let code = source::code_only(&text);
        for (number, line) in code.lines().enumerate() {
            for word in IMPURE {
                if source::has_path(line, word) {
                    faults.push(format!("src/{name}:{}: {word}", number + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "not pure:\n{}", faults.join("\n"));
}

/// The reader itself: each way of writing an upward use is seen, with its line.
#[test]
fn every_way_of_writing_a_path_is_read() {
    let text = r#"
use crate::kv::Role;
use crate::{
    admin::{self, Page},
    config::Settings,
};
// crate::cli is a comment
/// [`crate::cli`] is a comment
fn f() {
    let _ = crate::proxy::forward();
    let _ = "crate::cli::run";
    let _ = super::super::scrape::poll();
    let _ = super::sibling();
}
#[cfg(test)]
mod tests {
    use crate::cli::run;
}
pub(in crate::net) fn g() {}
"#;
    let found: Vec<_> = uses_in("net/pool.rs", text)
        .into_iter()
        .map(|used| (used.line, used.room))
        .collect();
    let expected = [
        (2, "kv"),
        (4, "admin"),
        (5, "config"),
        (10, "proxy"),
        (12, "scrape"),
        (19, "net"),
    ]
    .map(|(line, room)| (line, room.to_owned()));
    assert_eq!(found, expected);
    assert!(
        fault(
            "net",
            &Use {
                line: 4,
                room: "admin".into()
            }
        )
        .is_some()
    );
    assert!(
        fault(
            "net",
            &Use {
                line: 2,
                room: "kv".into()
            }
        )
        .is_none()
    );
    assert!(
        fault(
            "exposition",
            &Use {
                line: 1,
                room: "kv".into()
            }
        )
        .is_some()
    );
}
