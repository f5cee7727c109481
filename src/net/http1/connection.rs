//! A connection between two exchanges, and while a head is awaited on it.

use super::head::{Limits, Parsed, Said, parse};
use super::{Broken, scratch};
use bytes::{Buf as _, BytesMut};
use http::{HeaderMap, Method, response};
use memchr::memmem;
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
    ///
    /// It forgets who waited for the last answer.
    pub(in super::super) fn is_quiet(&mut self) -> bool {
        // The look must be a real one, however much this task has done in its turn.
        let look = tokio::task::unconstrained(std::future::poll_fn(|cx| {
            scratch::poll_read(&mut self.stream, cx, |_| ())
        }));
        let pending = pin!(look)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending();
        pending && self.has_nothing_left()
    }

    /// The same of one that is used at once, by a look at the stream that may do without a poll.
    pub(in super::super) fn is_quiet_now(&mut self, look: fn(&S) -> Option<bool>) -> bool {
        match look(&self.stream) {
            Some(quiet) => quiet && self.has_nothing_left(),
            None => self.is_quiet(),
        }
    }

    fn has_nothing_left(&self) -> bool {
        self.came.is_empty() && !self.deaf
    }

    /// The next head that is no interim answer (RFC 9110, 15.2), of which nobody is told.
    pub(super) fn poll_head(
        &mut self,
        method: &Method,
        limits: &Limits,
        fields: &mut HeaderMap,
        said: &mut Said,
        cx: &mut Context<'_>,
    ) -> Poll<Result<response::Parts, Broken>> {
        loop {
            let new = self.came.get(self.looked..).unwrap_or_default();
            // At first what came is read whatever it is, so that what is no head is told at once.
            if self.looked == 0 || has_end(new) {
                match parse(&self.came, method, limits, fields, said)? {
                    Parsed::Partial => {}
                    Parsed::Interim(length) => {
                        self.looked = 0;
                        self.came.advance(length);
                        continue;
                    }
                    Parsed::Head(length, parts) => {
                        self.looked = 0;
                        self.came.advance(length);
                        return Poll::Ready(Ok(parts));
                    }
                }
            }
            // An end that has begun may go on.
            self.looked = self.came.len().saturating_sub(3);
            if self.came.len() >= limits.head_bytes {
                return Poll::Ready(Err(Broken::HeadTooLarge));
            }
            let came = &mut self.came;
            let read = ready!(scratch::poll_read(&mut self.stream, cx, |bytes| {
                // A head that comes whole is read where it is.
                let parsed = match came.is_empty() {
                    true => parse(bytes, method, limits, fields, said)?,
                    false => Parsed::Partial,
                };
                let (used, parts) = match parsed {
                    Parsed::Partial => (0, None),
                    Parsed::Interim(length) => (length, None),
                    Parsed::Head(length, parts) => (length, Some(parts)),
                };
                let behind = bytes.get(used..).unwrap_or_default();
                // A whole answer goes to the client at once; a part of one may have to wait for the rest.
                let is_whole = said.decoder.left() == Some(behind.len() as u64);
                match parts {
                    Some(_) if is_whole && !behind.is_empty() => {
                        *came = scratch::passing(behind);
                    }
                    _ => came.extend_from_slice(behind),
                }
                Ok(match parts {
                    Some(parts) => Read::Head(parts),
                    None if bytes.is_empty() => Read::End,
                    None => Read::Some,
                })
            }));
            match read.map_err(Broken::Io)?? {
                Read::Head(parts) => return Poll::Ready(Ok(parts)),
                Read::Some => {}
                Read::End if self.came.is_empty() => {
                    return Poll::Ready(Err(Broken::Ended("before an answer")));
                }
                Read::End => return Poll::Ready(Err(Broken::Ended("in the answer's head"))),
            }
        }
    }
}

/// What one read has brought of a head.
enum Read {
    Head(response::Parts),
    Some,
    End,
}

fn has_end(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\n\r\n").is_some() || memmem::find(bytes, b"\n\n").is_some()
}
