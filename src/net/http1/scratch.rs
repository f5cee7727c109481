//! Room to read into, one for each thread: a connection that waits holds none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at a time at most.
const ROOM: usize = 64 << 10;

thread_local! {
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
