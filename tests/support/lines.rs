//! The lines of a child's output, as they come.

use super::wait::PATIENCE;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
struct State {
    lines: Vec<Vec<u8>>,
    ended: bool,
}

/// Collected by a thread of its own, so that the child never waits.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Lines {
    pub(crate) fn of(output: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let shared = Arc::clone(&lines.shared);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                let read = reader.read_until(b'\n', &mut line);
                let ended = !matches!(read, Ok(1..));
                let mut state = shared.0.lock().unwrap();
                if ended {
                    state.ended = true;
                } else {
                    state
                        .lines
                        .push(line.strip_suffix(b"\n").unwrap_or(&line).to_vec());
                }
                shared.1.notify_all();
                if ended {
                    break;
                }
            }
        });
        lines
    }

    pub(crate) fn all(&self) -> Vec<Vec<u8>> {
        self.shared.0.lock().unwrap().lines.clone()
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.all();
        String::from_utf8_lossy(&lines.join(&b'\n')).into_owned()
    }

    /// Waits until the child has closed its output: all lines are here then.
    pub(crate) fn to_the_end(&self) -> Vec<Vec<u8>> {
        self.wait(PATIENCE, |_, ended| ended.then_some(()))
            .unwrap_or_else(|| panic!("the output did not end"));
        self.all()
    }

    /// Waits for what `look` finds in the lines so far; it is told whether more can come.
    pub(crate) fn wait<T>(
        &self,
        limit: Duration,
        look: impl Fn(&[Vec<u8>], bool) -> Option<T>,
    ) -> Option<T> {
        let start = Instant::now();
        let mut state = self.shared.0.lock().unwrap();
        loop {
            if let Some(found) = look(&state.lines, state.ended) {
                return Some(found);
            }
            let left = limit.saturating_sub(start.elapsed());
            if state.ended || left.is_zero() {
                return None;
            }
            state = self.shared.1.wait_timeout(state, left).unwrap().0;
        }
    }
}
