//! A connection whose peer is still heard when it does not listen any more.
//!
//! A server that refuses an upload answers and closes while the rest is being sent; the next write then
//! fails, and hyper gives the exchange up with the answer unread. Here a write that finds the peer gone
//! waits instead, and what the peer has said is read: its answer, or the end of the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the [module](self) description.
#[derive(Debug)]
pub struct ReadOn<S> {
    inner: S,
    /// The peer takes nothing any more.
    deaf: bool,
}

impl<S> ReadOn<S> {
    /// Wraps a connection.
    #[must_use]
    pub fn new(inner: S) -> ReadOn<S> {
        ReadOn { inner, deaf: false }
    }

    /// The connection, when what is spoken over it is no HTTP any more.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Nobody wakes a write that waits: whoever reads sees the end, which is sure to come.
    fn written(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                self.deaf = true;
                Poll::Pending
            }
            result => result,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadOn<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadOn<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
