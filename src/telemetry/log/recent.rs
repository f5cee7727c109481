//! The last lines of the log, and the last requests that went wrong, kept by its writer thread for whoever
//! wants to look at them. Workers only say which lines those are.

use super::failures::{Failure, Failures};
use memchr::memrchr_iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines that are kept.
pub const MOST_LINES: usize = 50;

/// Bytes that are kept.
const MOST_BYTES: usize = 64 * 1024;

/// See the [module](self) description. Clones share the lines.
#[derive(Clone, Debug, Default)]
pub struct Recent(Arc<Mutex<Tail>>);

#[derive(Debug, Default)]
struct Tail {
    /// Whole lines, the oldest first. Takes no memory before there is one.
    text: Vec<u8>,
    /// By themselves, as good ones push lines out within a second where there are many.
    failures: Failures,
    changes: u64,
}

// === impl Recent ===

impl Recent {
    /// Keeps the end of some lines, and what all of those say that went wrong.
    pub(super) fn keep<'a>(&self, lines: &[u8], wrong: impl Iterator<Item = &'a [u8]>) {
        let failures: Vec<Failure> = wrong.filter_map(Failure::read).collect();
        let new = last_lines(lines);
        let mut tail = self.tail();
        tail.changes += 1;
        if new.len() == MOST_BYTES || lines_in(new) >= MOST_LINES {
            tail.text.clear();
        } else {
            // Room for the new ones first, so that there is never more than is to be kept.
            let from = tail.text.len().saturating_sub(MOST_BYTES - new.len());
            let from = match from {
                0 => 0,
                _ => memchr::memchr(b'\n', &tail.text[from - 1..])
                    .map_or(tail.text.len(), |at| from + at),
            };
            tail.text.drain(..from);
        }
        tail.text.extend_from_slice(new);
        let kept = last_lines(&tail.text).len();
        let beyond = tail.text.len() - kept;
        tail.text.drain(..beyond);
        for failure in failures {
            tail.failures.keep(failure);
        }
    }

    /// How often the lines have changed: the same number means the same lines.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.tail().changes
    }

    /// The lines, the oldest first, and how often they have changed.
    #[must_use]
    pub fn lines(&self) -> (Vec<u8>, u64) {
        let tail = self.tail();
        (tail.text.clone(), tail.changes)
    }

    /// The last requests that went wrong, each kind once, the last kept last.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.tail().failures.all().to_vec()
    }

    /// Held for a copy of 64 KiB at most.
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many whole lines from the end as may be kept.
fn last_lines(text: &[u8]) -> &[u8] {
    // The end of each line but the last is where the next one begins.
    let body = text.len().saturating_sub(1);
    let mut from = text.len();
    let starts = memrchr_iter(b'\n', &text[..body]).map(|at| at + 1);
    for start in starts
        .chain((!text.is_empty()).then_some(0))
        .take(MOST_LINES)
    {
        if text.len() - start > MOST_BYTES {
            break;
        }
        from = start;
    }
    &text[from..]
}

fn lines_in(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(recent: &Recent, lines: &str) {
        recent.keep(lines.as_bytes(), [].into_iter());
    }

    fn kept(recent: &Recent) -> Vec<String> {
        let (text, _) = recent.lines();
        assert!(text.len() <= MOST_BYTES, "{}", text.len());
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_last_lines_are_kept_whole_and_in_order_however_they_come() {
        for at_once in [1, 3, 49, 50, 51, 200] {
            let recent = Recent::default();
            assert_eq!(recent.changes(), 0);
            assert!(kept(&recent).is_empty());
            let mut all = Vec::new();
            for block in 0..20 {
                let lines = (0..at_once).map(|n| format!("{block}-{n}"));
                let lines: Vec<String> = lines.collect();
                keep(&recent, &(lines.join("\n") + "\n"));
                all.extend(lines);
                let from = all.len().saturating_sub(MOST_LINES);
                assert_eq!(kept(&recent), all[from..], "{at_once}");
                assert_eq!(recent.changes(), block + 1);
            }
        }
    }

    #[test]
    fn long_lines_are_fewer_and_one_that_is_too_long_is_none() {
        let recent = Recent::default();
        let line = |letter: &str, length| letter.repeat(length) + "\n";
        for _ in 0..4 {
            keep(&recent, &line("a", 20_000));
        }
        assert_eq!(kept(&recent).len(), 3);
        keep(&recent, &line("b", 10));
        assert_eq!(kept(&recent).len(), 4, "it fits beside three");
        keep(&recent, &line("c", 60_000));
        let letters: Vec<usize> = kept(&recent).iter().map(String::len).collect();
        assert_eq!(letters, [10, 60_000]);
        keep(&recent, &line("d", MOST_BYTES));
        assert!(kept(&recent).iter().all(|line| !line.contains('d')));
        keep(&recent, &line("e", MOST_BYTES - 1));
        assert_eq!(kept(&recent).len(), 1);
        keep(&recent, "f\n");
        assert_eq!(kept(&recent), ["f"]);
    }
}
