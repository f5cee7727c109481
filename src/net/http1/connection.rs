//! A connection between two exchanges, and while a head is awaited on it.

use super::head::{Head, Limits, Parsed, parse};
use super::{Broken, Outgoing, scratch};
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body::Body;
use memchr::memmem;
use std::error::Error;
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// One connection to a server.
pub(in super::super) struct Connection<S> {
    pub(super) stream: S,
    /// What has come of a head, or stands behind one.
    pub(super) came: BytesMut,
    /// How much of it has been looked through for the end of a head.
    looked: usize,
    /// The peer takes nothing any more, but may still have something to say: a server that refuses an
    /// upload answers and closes while the rest is being sent.
    pub(super) deaf: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// On a stream that has just been opened.
    pub(in super::super) fn new(stream: S) -> Connection<S> {
        Connection {
            stream,
            came: BytesMut::new(),
            looked: 0,
            deaf: false,
        }
    }

    /// What is spoken over it, when that is no HTTP any more, and what came behind the last head.
    pub(in super::super) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.came)
    }

    /// Whether nothing has come since the last answer, not even the end. What comes unasked belongs to
    /// no request, and may not be taken for an answer to the next one.
    pub(in super::super) fn is_quiet(&mut self) -> bool {
        // The look must be a real one, however much this task has done in its turn.
        let look = tokio::task::unconstrained(std::future::poll_fn(|cx| {
            scratch::poll_read(&mut self.stream, cx, |_| ())
        }));
        let pending = pin!(look)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending();
        pending && self.came.is_empty() && !self.deaf
    }

    /// Writes a request and reads the head of its answer, both at once: a server may answer before it
    /// has read all.
    pub(in super::super) fn poll_exchange<B>(
        &mut self,
        outgoing: &mut Outgoing<B>,
        limits: &Limits,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, Broken>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if !self.deaf && !outgoing.is_out() {
            match outgoing.poll(&mut self.stream, cx) {
                Poll::Pending | Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Broken::Io(_))) => self.deaf = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        self.poll_head(outgoing.method(), limits, cx)
    }

    /// The next head that is no interim answer (RFC 9110, 15.2), of which nobody is told.
    fn poll_head(
        &mut self,
        method: &Method,
        limits: &Limits,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, Broken>> {
        loop {
            let new = self.came.get(self.looked..).unwrap_or_default();
            // At first what came is read whatever it is, so that what is no head is told at once.
            if self.looked == 0 || has_end(new) {
                match parse(&mut self.came, method, limits)? {
                    Parsed::Partial => {}
                    Parsed::Interim => {
                        self.looked = 0;
                        continue;
                    }
                    Parsed::Head(head) => {
                        self.looked = 0;
                        return Poll::Ready(Ok(*head));
                    }
                }
            }
            // An end that has begun may go on.
            self.looked = self.came.len().saturating_sub(3);
            if self.came.len() >= limits.head_bytes {
                return Poll::Ready(Err(Broken::HeadTooLarge));
            }
            let came = &mut self.came;
            let read = scratch::poll_read(&mut self.stream, cx, |bytes| {
                came.extend_from_slice(bytes);
                bytes.len()
            });
            match ready!(read) {
                Ok(0) if self.came.is_empty() => {
                    return Poll::Ready(Err(Broken::Ended("before an answer")));
                }
                Ok(0) => return Poll::Ready(Err(Broken::Ended("in the answer's head"))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Broken::Io(error))),
            }
        }
    }
}

fn has_end(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\n\r\n").is_some() || memmem::find(bytes, b"\n\n").is_some()
}
