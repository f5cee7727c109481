//! Standard output, written by a thread of its own: a terminal or a pipe that takes nothing holds up
//! nobody who has to hear of a signal.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;

/// There is one standard output of a process.
pub(super) static OUTPUT: Output = Output {
    state: Mutex::new(State {
        waiting: Vec::new(),
        writing: false,
        failed: false,
    }),
    changed: Condvar::new(),
    taken: Notify::const_new(),
};

/// See the [module](self) description.
#[derive(Debug)]
pub(super) struct Output {
    state: Mutex<State>,
    changed: Condvar,
    taken: Notify,
}

#[derive(Debug)]
struct State {
    /// To be written next. Who sends only what is [taken](Output::taken) keeps this short.
    waiting: Vec<u8>,
    writing: bool,
    /// Nobody can read any more.
    failed: bool,
}

// === impl Output ===

impl Output {
    /// Begins to write, once.
    pub(super) fn start(&'static self) -> io::Result<()> {
        static STARTED: Once = Once::new();
        let mut started = Ok(());
        STARTED.call_once(|| {
            let thread = thread::Builder::new().name("output".to_owned());
            started = thread.spawn(|| self.write()).map(|_| ());
        });
        started
    }

    fn write(&self) {
        let mut state = self.lock();
        loop {
            while state.waiting.is_empty() {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
            let bytes = std::mem::take(&mut state.waiting);
            state.writing = true;
            drop(state);
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(&bytes).and_then(|()| stdout.flush());
            drop(stdout);
            state = self.lock();
            state.writing = false;
            if written.is_err() {
                state.failed = true;
                state.waiting.clear();
            }
            self.changed.notify_all();
            self.taken.notify_one();
        }
    }

    /// To be written after what was sent before.
    pub(super) fn send(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if !state.failed {
            state.waiting.extend_from_slice(bytes);
            self.changed.notify_all();
        }
    }

    /// Whether something is still being written.
    pub(super) fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// Waits until all has been written; one at a time may.
    ///
    /// # Errors
    /// Nobody can read any more.
    pub(super) async fn taken(&self) -> io::Result<()> {
        while self.is_busy() {
            self.taken.notified().await;
        }
        self.check()
    }

    /// # Errors
    /// Nobody can read any more.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.lock().failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    /// The same without a runtime, at most for so long.
    pub(super) fn finish(&self, limit: Duration) {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| state.is_busy());
        drop(waited);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn is_busy(&self) -> bool {
        self.writing || !self.waiting.is_empty()
    }
}
