//! From workers to standard output: blocks of lines through a bounded queue to one writer thread,
//! so that no request ever waits for a slow reader of the log.

use super::queue::{Block, Receiver, Sender, queue};
use super::{Clock, Record};
use metrics::Counter;
use std::cell::RefCell;
use std::io::{self, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A block is handed over when it has grown to this, or at the worker's next tick.
const BLOCK_BYTES: usize = 64 * 1024;

/// Room that a block has at first.
const FIRST_BYTES: usize = 4 * 1024;

/// A line is rarely longer.
const LINE_BYTES: usize = 2 * 1024;

/// Between two looks of the writer, when it has found something.
const PAUSE: Duration = Duration::from_millis(20);

/// For the last lines to be written when the process ends.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The writer thread. Hand out a [`Sink`] to each worker, drop them all, then [`Log::finish`].
pub struct Log {
    queue: Sender,
    writer: JoinHandle<()>,
}

/// Where one worker puts its lines.
pub struct Sink {
    queue: Sender,
    state: RefCell<SinkState>,
}

struct SinkState {
    clock: Clock,
    lines: u64,
    /// Room for any line so far, in which each is written before it joins the block.
    line: Vec<u8>,
    block: Vec<u8>,
    /// Room for the next block: as much as the last one took.
    expected: usize,
}

// === impl Log ===

impl Log {
    /// Starts the writer onto `out`. `dropped` counts the lines that could not be written.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        out: impl Write + Send + 'static,
        most_bytes: usize,
        dropped: Counter,
    ) -> io::Result<Log> {
        let (queue, waiting) = queue(most_bytes, dropped.clone());
        let writer = thread::Builder::new()
            .name("kvgauge-log".into())
            .spawn(move || write_blocks(out, &waiting, &dropped))?;
        Ok(Log { queue, writer })
    }

    /// A sink for one worker.
    #[must_use]
    pub fn sink(&self) -> Sink {
        Sink {
            queue: self.queue.clone(),
            state: RefCell::new(SinkState {
                clock: Clock::default(),
                lines: 0,
                line: vec![0; LINE_BYTES],
                block: Vec::new(),
                expected: FIRST_BYTES,
            }),
        }
    }

    /// Waits until everything handed over is written. Call it after every [`Sink`] is gone:
    /// the writer ends with the last of them. A reader that takes nothing any more is given up after
    /// a while, so that it can't keep the process from ending.
    pub fn finish(self) {
        drop(self.queue);
        let give_up = Instant::now() + LAST_LINES;
        while !self.writer.is_finished() {
            if Instant::now() >= give_up {
                tracing::warn!("nobody reads the request log: its last lines are lost");
                return;
            }
            thread::park_timeout(Duration::from_millis(2));
        }
        let _ = self.writer.join();
    }
}

fn write_blocks(mut out: impl Write, waiting: &Receiver, dropped: &Counter) {
    let mut broken = false;
    while let Some(block) = waiting.next() {
        let written = out.write_all(&block.bytes).and_then(|()| out.flush());
        waiting.done(block.bytes.len());
        match written {
            Ok(()) => broken = false,
            Err(error) => {
                dropped.increment(block.lines);
                if !broken {
                    broken = true;
                    tracing::warn!(%error, "the request log can't be written to standard output: lines are dropped and counted in kvgauge_log_lines_dropped_total");
                }
            }
        }
        drop(block);
        waiting.pause(PAUSE);
    }
}

// === impl Sink ===

impl Sink {
    /// Writes one line.
    pub fn write(&self, record: &Record<'_>) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let needed = record.most_bytes();
        if state.line.len() < needed {
            state.line.resize(needed, 0);
        }
        let length = record.write(state.clock.line_begins(), &mut state.line);
        if state.block.capacity() == 0 {
            state.block.reserve_exact(state.expected);
        }
        let line = state.line.get(..length).unwrap_or_default();
        state.block.extend_from_slice(line);
        state.lines += 1;
        // A block of a short queue may not fill it.
        let most = (BLOCK_BYTES - LINE_BYTES).min(self.queue.most_bytes() / 2);
        if state.block.len() >= most {
            state.hand_over(&self.queue);
        }
    }

    /// Hands over what there is. Call it every 100 ms.
    pub fn flush(&self) {
        let mut state = self.state.borrow_mut();
        if state.lines > 0 {
            state.hand_over(&self.queue);
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
    }
}

// === impl SinkState ===

impl SinkState {
    fn hand_over(&mut self, queue: &Sender) {
        self.expected = (self.block.len() + LINE_BYTES).clamp(FIRST_BYTES, BLOCK_BYTES);
        queue.send(Block {
            lines: std::mem::take(&mut self.lines),
            bytes: std::mem::take(&mut self.block),
        });
    }
}
