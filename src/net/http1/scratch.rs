//! Room to read into, one for each thread: a connection that waits holds none.

use bytes::BytesMut;
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

/// A thread's block for what is handed on at once, in bytes, and the longest that is put there.
const BLOCK: (usize, usize) = (16 << 10, 4 << 10);

thread_local! {
    static PASSING: RefCell<BytesMut> = RefCell::new(BytesMut::new());
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

/// A copy of what is handed on at once and gone soon: it holds all of its thread's block, which is used from
/// its beginning again when nothing of it is held any more. What may wait, as the pieces of a stream, does not
/// belong there.
pub(super) fn passing(bytes: &[u8]) -> BytesMut {
    if bytes.len() > BLOCK.1 {
        return BytesMut::from(bytes);
    }
    PASSING.with_borrow_mut(|block| {
        if !block.try_reclaim(BLOCK.0) && block.capacity() < bytes.len() {
            *block = BytesMut::with_capacity(BLOCK.0);
        }
        block.extend_from_slice(bytes);
        block.split()
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
