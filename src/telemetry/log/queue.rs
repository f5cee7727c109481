//! Blocks of log lines on their way from the workers to the one writer thread.
//!
//! Waking a thread costs as much as some twenty lines, so the writer is woken only when it sleeps for want
//! of blocks. After each look it pauses for a moment, in which more may come: not so much that it would
//! push what the workers need out of the processor's caches.

use metrics::Counter;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// With so many bytes waiting the pause is over.
const ENOUGH: usize = 128 * 1024;

/// A block's length, but for that of a longer line. Half of the shortest queue that can be set.
const BLOCK_BYTES: usize = 32 * 1024;

/// Blocks that are kept to be used again: as many as are mostly on their way at a time.
const MOST_SPARE: usize = 6;

/// And while nothing is logged.
const SPARE_AT_REST: usize = 1;

/// Lines that are written together, and room for more of them.
#[derive(Default)]
pub(super) struct Block {
    lines: u64,
    used: usize,
    /// Where those lines stand that are of requests that went wrong.
    wrong: Vec<Range<usize>>,
    room: Box<[u8]>,
}

#[derive(Default)]
struct State {
    blocks: VecDeque<Block>,
    /// Blocks without lines.
    spare: Vec<Block>,
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

// === impl Block ===

impl Block {
    fn with_room(bytes: usize) -> Block {
        Block {
            room: vec![0; bytes].into_boxed_slice(),
            ..Block::default()
        }
    }

    /// Room for one more line.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.room.get_mut(self.used..).unwrap_or_default()
    }

    /// A line of so many bytes has been written into the room.
    pub(super) fn line_written(&mut self, bytes: usize) {
        self.lines += 1;
        self.used += bytes;
    }

    /// The last line, of so many bytes, is of a request that went wrong. Such lines are no more than a
    /// block has room for.
    #[cold]
    pub(super) fn went_wrong(&mut self, bytes: usize) {
        self.wrong.push(self.used.saturating_sub(bytes)..self.used);
    }

    /// The lines of requests that went wrong.
    pub(super) fn wrong(&self) -> impl Iterator<Item = &[u8]> {
        self.wrong.iter().filter_map(|at| self.room.get(at.clone()))
    }

    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.room.get(..self.used).unwrap_or_default()
    }

    /// One that is mostly empty gives its lines to another of their length, so that what waits does not
    /// take much more than it counts for.
    fn split_short(mut self) -> (Block, Option<Block>) {
        if self.used > self.room.len() / 2 {
            return (self, None);
        }
        let short = Block {
            lines: self.lines,
            used: self.used,
            wrong: std::mem::take(&mut self.wrong),
            room: self.bytes().into(),
        };
        (short, Some(self))
    }
}

// === impl State ===

impl State {
    fn keep(&mut self, block: Block) {
        if block.room.len() == BLOCK_BYTES && self.spare.len() < MOST_SPARE {
            self.spare.push(Block {
                lines: 0,
                used: 0,
                wrong: Vec::new(),
                ..block
            });
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Sender ===

impl Sender {
    /// A block without lines, with room for one of so many bytes at least.
    pub(super) fn block(&self, line_bytes: usize) -> Block {
        if line_bytes > BLOCK_BYTES {
            return Block::with_room(line_bytes);
        }
        let spare = self.0.state().spare.pop();
        spare.unwrap_or_else(|| Block::with_room(BLOCK_BYTES))
    }

    /// Never waits for the writer.
    pub(super) fn send(&self, block: Block) {
        let (block, emptied) = block.split_short();
        let mut state = self.0.state();
        if let Some(emptied) = emptied {
            state.keep(emptied);
        }
        if state.bytes + block.used > self.0.most_bytes {
            let lines = block.lines;
            state.keep(block);
            drop(state);
            self.0.dropped.increment(lines);
            return;
        }
        state.bytes += block.used;
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
            state.spare.truncate(SPARE_AT_REST);
            state = self
                .0
                .come
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A block has been written, or lost.
    pub(super) fn done(&self, block: Block) {
        let mut state = self.0.state();
        state.bytes -= block.used;
        state.keep(block);
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
        let mut block = Block::with_room(bytes);
        block.line_written(bytes);
        block
    }

    fn spare(sender: &Sender) -> usize {
        sender.0.state().spare.len()
    }

    #[test]
    fn blocks_come_in_their_order_and_then_the_end() {
        let (sender, receiver) = queue(1000, Counter::noop());
        let other = sender.clone();
        let reading = thread::spawn(move || {
            let mut sizes = Vec::new();
            while let Some(block) = receiver.next() {
                sizes.push(block.bytes().len());
                receiver.done(block);
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
                receiver.next().map(|block| block.bytes().len())
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
        receiver.done(first);
        sender.send(block(7));
        drop(sender);
        let sizes = |receiver: &Receiver| receiver.next().map(|block| block.bytes().len());
        assert_eq!((sizes(&receiver), sizes(&receiver)), (Some(7), None));
    }

    #[test]
    fn blocks_come_back_empty_and_no_more_of_them_than_are_of_use() {
        let (sender, receiver) = queue(1 << 20, Counter::noop());
        for _ in 0..=MOST_SPARE {
            let mut block = sender.block(1);
            block.line_written(BLOCK_BYTES);
            sender.send(block);
        }
        let first = receiver.next().unwrap();
        let place = first.room.as_ptr();
        receiver.done(first);
        let mut again = sender.block(BLOCK_BYTES);
        assert_eq!(again.room.as_ptr(), place);
        assert_eq!((again.lines(), again.bytes()), (0, &b""[..]));
        assert_eq!(again.room().len(), BLOCK_BYTES);
        again.line_written(BLOCK_BYTES);
        sender.send(again);

        sender.send(block(BLOCK_BYTES + 1));
        while spare(&sender) < MOST_SPARE {
            receiver.done(receiver.next().unwrap());
        }
        assert_eq!(sender.0.state().blocks.len(), 2);
        receiver.done(receiver.next().unwrap());
        receiver.done(receiver.next().unwrap());
        assert_eq!(spare(&sender), MOST_SPARE);
        drop(sender.block(1));
        assert_eq!(spare(&sender), MOST_SPARE - 1);
        sender.send(block(BLOCK_BYTES + 1));
        receiver.done(receiver.next().unwrap());
        assert_eq!(spare(&sender), MOST_SPARE - 1, "longer than others");
    }

    #[test]
    fn while_nothing_comes_one_block_is_kept() {
        let (sender, receiver) = queue(1 << 20, Counter::noop());
        for _ in 0..3 {
            sender.0.state().keep(Block::with_room(BLOCK_BYTES));
        }
        assert_eq!(spare(&sender), 3);
        thread::scope(|scope| {
            let sleeping = scope.spawn(|| receiver.next().is_none());
            while sender.0.state().wake_at.is_none() {
                thread::yield_now();
            }
            assert_eq!(spare(&sender), SPARE_AT_REST);
            drop(sender);
            assert!(sleeping.join().unwrap());
        });
    }

    #[test]
    fn a_few_lines_take_no_more_room_than_they_count_for() {
        let (sender, receiver) = queue(1 << 20, Counter::noop());
        let mut block = sender.block(1);
        block.room()[..3].copy_from_slice(b"{}\n");
        block.line_written(3);
        sender.send(block);
        assert_eq!(spare(&sender), 1);
        let short = receiver.next().unwrap();
        assert_eq!((short.lines(), short.bytes()), (1, &b"{}\n"[..]));
        assert_eq!(short.room.len(), 3);
        receiver.done(short);
        assert_eq!(spare(&sender), 1);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_its_block_kept() {
        let dropped = Arc::new(metrics::atomics::AtomicU64::new(0));
        let (sender, receiver) = queue(BLOCK_BYTES, Counter::from_arc(Arc::clone(&dropped)));
        sender.send(block(BLOCK_BYTES));
        let mut more = Block::with_room(BLOCK_BYTES);
        more.line_written(BLOCK_BYTES - 1);
        more.line_written(1);
        sender.send(more);
        assert_eq!(dropped.load(std::sync::atomic::Ordering::Relaxed), 2);
        assert_eq!(spare(&sender), 1);
        assert_eq!(receiver.next().map(|block| block.lines()), Some(1));
    }
}
