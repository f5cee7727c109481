//! Small files that are read whole: tokens, certificates, lists of sources.

use std::fs::{File, metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// What tells that a file has changed, or that another one is in its place: by `rename`, or as a link
/// leads elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    device: u64,
    inode: u64,
    modified: Option<SystemTime>,
    bytes: u64,
}

// === impl Seen ===

impl Seen {
    /// As the file is now; `None` where that can't be seen.
    #[must_use]
    pub fn of(path: &Path) -> Option<Seen> {
        let data = metadata(path).ok()?;
        Some(Seen {
            device: data.dev(),
            inode: data.ino(),
            modified: data.modified().ok(),
            bytes: data.len(),
        })
    }
}

/// The bytes of a file of at most `most`. The error says what is wrong with the file, as in "is no
/// file", and nothing of what is in it.
///
/// # Errors
/// Where it can't be read, is something else than a file, or is longer.
pub fn small_file(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("can't be read ({error})");
    // A pipe would stop this thread until somebody writes.
    if !metadata(path).map_err(failed)?.is_file() {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(format!("has more than {most} bytes"));
    }
    Ok(bytes)
}
