//! Blocks of log lines on their way from the workers to the one writer thread.
//!
//! Waking a thread costs as much as some twenty lines, so the writer is woken only when it sleeps for want
//! of blocks. After each look it pauses for a moment, in which more may come: not so much that it would
//! push what the workers need out of the processor's caches.

use metrics::Counter;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// With so many bytes waiting the pause is over.
const ENOUGH: usize = 128 * 1024;

/// Lines that are written together.
pub(super) struct Block {
    pub(super) lines: u64,
    pub(super) bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    blocks: VecDeque<Block>,
    /// Bytes that wait, or are being written.
    bytes: usize,
    /// Who may still hand something over.
    senders: usize,
    /// The writer is to be woken when so many bytes wait.
    wake_at: Option<usize>,
}

struct Shared {
    state: Mutex<State>,
    come: Condvar,
    most_bytes: usize,
    dropped: Counter,
}

/// Where blocks are handed over. The writer ends when all of these are gone.
pub(super) struct Sender(Arc<Shared>);

/// Where the writer takes them.
pub(super) struct Receiver(Arc<Shared>);

/// A queue of at most so many bytes, those that are being written included. `dropped` counts the lines
/// for which there was no room.
pub(super) fn queue(most_bytes: usize, dropped: Counter) -> (Sender, Receiver) {
    let state = State {
        senders: 1,
        ..State::default()
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        come: Condvar::new(),
        most_bytes,
        dropped,
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Sender ===

impl Sender {
    /// How many bytes there is room for.
    pub(super) fn most_bytes(&self) -> usize {
        self.0.most_bytes
    }

    /// Never waits for the writer.
    pub(super) fn send(&self, block: Block) {
        let mut state = self.0.state();
        if state.bytes + block.bytes.len() > self.0.most_bytes {
            drop(state);
            self.0.dropped.increment(block.lines);
            return;
        }
        state.bytes += block.bytes.len();
        state.blocks.push_back(block);
        let waiting = state.bytes;
        let wakes = state.wake_at.take_if(|bytes| waiting >= *bytes).is_some();
        drop(state);
        // Not while the lock is held, for which the woken one would wait at once.
        if wakes {
            self.0.come.notify_one();
        }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Sender {
        self.0.state().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.state().senders -= 1;
        self.0.come.notify_one();
    }
}

// === impl Receiver ===

impl Receiver {
    /// The next block; waits for it. `None` when nobody is left to hand one over.
    pub(super) fn next(&self) -> Option<Block> {
        let mut state = self.0.state();
        loop {
            if let Some(block) = state.blocks.pop_front() {
                state.wake_at = None;
                return Some(block);
            }
            if state.senders == 0 {
                return None;
            }
            state.wake_at = Some(0);
            state = self
                .0
                .come
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A block has been written, or lost.
    pub(super) fn done(&self, bytes: usize) {
        self.0.state().bytes -= bytes;
    }

    /// Lets more come for so long at most, unless something waits already or nobody is left.
    pub(super) fn pause(&self, most: Duration) {
        let mut state = self.0.state();
        if state.blocks.is_empty() && state.senders > 0 {
            state.wake_at = Some(ENOUGH.min(self.0.most_bytes / 2));
            let paused = self.0.come.wait_timeout(state, most);
            drop(paused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn block(bytes: usize) -> Block {
        Block {
            lines: 1,
            bytes: vec![b'x'; bytes],
        }
    }

    #[test]
    fn blocks_come_in_their_order_and_then_the_end() {
        let (sender, receiver) = queue(1000, Counter::noop());
        let other = sender.clone();
        let reading = thread::spawn(move || {
            let mut sizes = Vec::new();
            while let Some(block) = receiver.next() {
                sizes.push(block.bytes.len());
                receiver.done(block.bytes.len());
                receiver.pause(Duration::ZERO);
            }
            sizes
        });
        sender.send(block(1));
        sender.send(block(2));
        drop(sender);
        other.send(block(3));
        drop(other);
        assert_eq!(reading.join().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_pause_is_over_when_half_of_what_there_is_room_for_waits() {
        let (sender, receiver) = queue(10, Counter::noop());
        thread::scope(|scope| {
            let pausing = scope.spawn(|| {
                receiver.pause(Duration::from_secs(3600));
                receiver.next().map(|block| block.bytes.len())
            });
            while sender.0.state().wake_at.is_none() {
                thread::yield_now();
            }
            sender.send(block(4));
            sender.send(block(1));
            assert_eq!(pausing.join().unwrap(), Some(4));
        });
    }

    #[test]
    fn what_is_being_written_takes_room_until_it_is_done() {
        let (sender, receiver) = queue(10, Counter::noop());
        sender.send(block(6));
        sender.send(block(6));
        let first = receiver.next().unwrap();
        sender.send(block(6));
        receiver.done(first.bytes.len());
        sender.send(block(7));
        drop(sender);
        let sizes = |receiver: &Receiver| receiver.next().map(|block| block.bytes.len());
        assert_eq!((sizes(&receiver), sizes(&receiver)), (Some(7), None));
    }
}
