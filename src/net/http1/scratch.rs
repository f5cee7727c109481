//! Room to read into, one for each thread: a connection that waits holds none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at a time at most.
const ROOM: usize = 64 << 10;

/// Room to write heads into that a thread keeps: this many pieces, of so many bytes at most. More are in
/// use at a time only where a server takes nothing.
const TEXTS: (usize, usize) = (4, 16 << 10);

/// Room for a head and a short body, in bytes.
const TEXT: usize = 2 << 10;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; ROOM].into_boxed_slice());
}

/// Reads once, and gives `take` what came; nothing is the end.
pub(super) fn poll_read<S, T>(
    stream: &mut S,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>>
where
    S: AsyncRead + Unpin,
{
    SCRATCH.with_borrow_mut(|room| {
        let mut room = ReadBuf::new(room);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        Poll::Ready(Ok(take(room.filled())))
    })
}

/// Room to write a head into, empty.
pub(super) fn text() -> Vec<u8> {
    let kept = KEPT.with_borrow_mut(Vec::pop);
    kept.unwrap_or_else(|| Vec::with_capacity(TEXT))
}

/// For the next one, when all of it is out.
pub(super) fn give_back(mut text: Vec<u8>) {
    text.clear();
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < TEXTS.0 && text.capacity() <= TEXTS.1 {
            kept.push(text);
        }
    });
}
