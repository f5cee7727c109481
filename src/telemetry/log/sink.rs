//! From workers to standard output: blocks of lines through a bounded queue to one writer thread,
//! so that no request ever waits for a slow reader of the log.

use super::queue::{Block, Receiver, Sender, queue};
use super::{Clock, Recent, Record};
use crate::telemetry::went_wrong;
use metrics::Counter;
use std::cell::RefCell;
use std::io::{self, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks of the writer, when it has found something.
const PAUSE: Duration = Duration::from_millis(20);

/// For the last lines to be written when the process ends.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The writer thread. Hand out a [`Sink`] to each worker, drop them all, then [`Log::finish`].
pub struct Log {
    queue: Sender,
    recent: Recent,
    writer: JoinHandle<()>,
}

/// Where one worker puts its lines.
pub struct Sink {
    queue: Sender,
    state: RefCell<SinkState>,
}

#[derive(Default)]
struct SinkState {
    clock: Clock,
    /// Without room while there are no lines.
    block: Block,
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
        let recent = Recent::default();
        let kept = recent.clone();
        let writer = thread::Builder::new()
            .name("kvgauge-log".into())
            .spawn(move || write_blocks(out, &waiting, &kept, &dropped))?;
        Ok(Log {
            queue,
            recent,
            writer,
        })
    }

    /// A sink for one worker.
    #[must_use]
    pub fn sink(&self) -> Sink {
        Sink {
            queue: self.queue.clone(),
            state: RefCell::default(),
        }
    }

    /// The last lines, for whoever wants to look at them.
    #[must_use]
    pub fn recent(&self) -> Recent {
        self.recent.clone()
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

fn write_blocks(mut out: impl Write, waiting: &Receiver, recent: &Recent, dropped: &Counter) {
    let mut broken = false;
    while let Some(block) = waiting.next() {
        let lines = block.lines();
        // Before, as nobody may be reading what is written.
        recent.keep(block.bytes(), block.wrong());
        let written = out.write_all(block.bytes()).and_then(|()| out.flush());
        waiting.done(block);
        match written {
            Ok(()) => broken = false,
            Err(error) => {
                dropped.increment(lines);
                if !broken {
                    broken = true;
                    tracing::warn!(%error, "the request log can't be written to standard output: lines are dropped and counted in kvgauge_log_lines_dropped_total");
                }
            }
        }
        waiting.pause(PAUSE);
    }
}

// === impl Sink ===

impl Sink {
    /// Writes one line.
    pub fn write(&self, record: &Record<'_>) {
        let mut state = self.state.borrow_mut();
        let SinkState { clock, block } = &mut *state;
        let needed = record.most_bytes();
        if block.room().len() < needed {
            hand_over(block, &self.queue);
            *block = self.queue.block(needed);
        }
        let length = record.write(clock.line_begins(), block.room());
        block.line_written(length);
        if went_wrong(record.outcome, record.status) {
            block.went_wrong(length);
        }
    }

    /// Hands over what there is. Call it every 100 ms.
    pub fn flush(&self) {
        hand_over(&mut self.state.borrow_mut().block, &self.queue);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
    }
}

fn hand_over(block: &mut Block, queue: &Sender) {
    if block.lines() > 0 {
        queue.send(std::mem::take(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::log::Usage;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(path: &str) -> Record<'_> {
        Record {
            method: Some("GET"),
            path: Some(path),
            status: Some(200),
            version: Some("1.1"),
            client: "127.0.0.1",
            error_type: None,
            request_model: None,
            response_model: None,
            usage: Usage::default(),
            trace_id: None,
            request_id: None,
            upstream_request_id: None,
            outcome: "complete",
            duration: Duration::ZERO,
            ttft: None,
            tpot: None,
            stream: None,
            bytes_in: 0,
            bytes_out: 0,
            kv_start: b"",
            kv_end: b"",
        }
    }

    /// Takes nothing until it is let.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_last_lines_can_be_looked_at_though_nobody_takes_them() {
        let (let_go, stuck) = std::sync::mpsc::sync_channel(1);
        let log = Log::start(Stuck(stuck), 64 << 10, Counter::noop()).unwrap();
        let (sink, recent) = (log.sink(), log.recent());
        for n in 0..1000 {
            sink.write(&record(&format!("/{n}")));
            if n == 0 {
                sink.flush();
                while recent.changes() == 0 {
                    thread::yield_now();
                }
            }
        }
        let lines = String::from_utf8(recent.lines().0).unwrap();
        assert!(lines.contains("\"/0\""), "{lines}");
        assert_eq!(lines.lines().count(), 1, "the rest waits or is lost");
        drop((let_go, sink));
        log.finish();
        // Now the end of what was not lost is there.
        let lines = String::from_utf8(recent.lines().0).unwrap();
        assert_eq!(lines.lines().count(), super::super::MOST_LINES);
    }

    #[test]
    fn what_went_wrong_stays_however_many_good_ones_come_behind_it() {
        let log = Log::start(io::sink(), 64 << 20, Counter::noop()).unwrap();
        let (sink, recent) = (log.sink(), log.recent());
        for n in 0..5_000_usize {
            let wrong = n < 4_000 && n % 10 == 0;
            sink.write(&Record {
                status: Some(if wrong { 502 } else { 200 }),
                ..record("/a")
            });
            // Blocks of any length, those that give their lines to a shorter one too.
            if n % 37 == 0 {
                sink.flush();
            }
        }
        let gone = Record {
            status: None,
            error_type: Some("client_gone"),
            outcome: "client_gone",
            ..record("/a")
        };
        sink.write(&gone);
        drop(sink);
        log.finish();
        let failures = recent.failures();
        let said: Vec<_> = failures
            .iter()
            .map(|failure| (failure.status, failure.count))
            .collect();
        assert_eq!(said, [(Some(502), 400), (None, 1)]);
    }

    #[test]
    fn each_line_is_written_once_in_its_order_whatever_its_length() {
        let out = Written::default();
        let log = Log::start(out.clone(), 64 << 20, Counter::noop()).unwrap();
        let sink = log.sink();
        // A block's end falls into each of the lengths, and some lines are longer than a block.
        let long = format!("\"a\":\"{}\"", "x".repeat(40_000));
        for n in 0..3000 {
            let path = format!("/{n}/{}", "y".repeat(n % 1000));
            let kv_start = if n % 100 == 0 { long.as_bytes() } else { b"" };
            sink.write(&Record {
                kv_start,
                ..record(&path)
            });
            if n % 500 == 0 {
                sink.flush();
            }
        }
        drop(sink);
        log.finish();
        let written = out.0.lock().unwrap();
        let mut lines = 0;
        for (n, line) in str::from_utf8(&written).unwrap().lines().enumerate() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let path = format!("/{n}/{}", "y".repeat(n % 1000));
            assert_eq!(line["url.path"], path);
            assert_eq!(line["a"].is_string(), n % 100 == 0);
            lines += 1;
        }
        assert_eq!(lines, 3000);
    }
}
