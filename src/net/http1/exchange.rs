//! A request and its answer on one connection.

use super::head::{Limits, Said};
use super::{Broken, Connection, Decoder, Outbound, Outgoing, scratch};
use bytes::{Buf as _, Bytes};
use http::response;
use http_body::{Body, Frame};
use std::error::Error;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// One exchange, from the request that is to be written to the last of its answer.
pub(in super::super) struct Exchange<B, S> {
    outgoing: Outgoing<B>,
    connection: Option<Connection<S>>,
    /// What the answer's head has said of what follows it.
    answer: Said,
    /// Why the upload ended before its end.
    failed: Option<Broken>,
}

impl<B, S> Exchange<B, S>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Of a request of which nothing is written yet, and which has no connection.
    pub(in super::super) fn new(request: Outbound<B>) -> Exchange<B, S> {
        Exchange {
            outgoing: Outgoing::new(request),
            connection: None,
            answer: Said::default(),
            failed: None,
        }
    }

    /// Goes over this connection, in place of another over which nothing went.
    pub(in super::super) fn go_over(&mut self, connection: Connection<S>) {
        self.connection = Some(connection);
    }

    /// Whether anything of the request may have reached the peer.
    pub(in super::super) fn is_written(&self) -> bool {
        self.outgoing.is_written()
    }

    /// The connection as it is, when no HTTP is spoken over it any more.
    pub(in super::super) fn take_connection(&mut self) -> Option<Connection<S>> {
        self.connection.take()
    }

    /// The connection, where the exchange is over and the connection is good for another one.
    pub(in super::super) fn take_kept(&mut self) -> Option<Connection<S>> {
        let connection = self.connection.take()?;
        let kept = self.answer.keeps_alive
            && !self.is_uploading()
            && self.answer.decoder.is_done()
            && connection.came.is_empty()
            && !connection.deaf;
        kept.then_some(connection)
    }

    /// How much is known of what is still to come of the answer.
    pub(in super::super) fn decoder(&self) -> &Decoder {
        &self.answer.decoder
    }

    /// Whether the whole answer has come, and nothing behind it, though it may not have been taken yet.
    pub(in super::super) fn has_come(&self) -> bool {
        let here = self
            .connection
            .as_ref()
            .map_or(0, |connection| connection.came.len());
        self.answer.decoder.left() == Some(here as u64)
    }

    /// Whether the request is still on its way.
    pub(in super::super) fn is_uploading(&self) -> bool {
        !self.outgoing.is_out()
    }

    /// Writes the request and reads the head of its answer, both at once: a server may answer before it
    /// has read all. Pending where there is no connection.
    pub(in super::super) fn poll_head(
        &mut self,
        limits: &Limits,
        cx: &mut Context<'_>,
    ) -> Poll<Result<response::Parts, Broken>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        if !connection.deaf && !self.outgoing.is_out() {
            match self.outgoing.poll(&mut connection.stream, cx) {
                Poll::Pending | Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Broken::Io(_))) => connection.deaf = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        let (method, fields) = self.outgoing.for_answer();
        connection.poll_head(method, limits, fields, &mut self.answer, cx)
    }

    /// Goes on with the upload, whatever becomes of the answer.
    pub(in super::super) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if self.outgoing.is_out() {
            return;
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        match self.outgoing.poll(&mut connection.stream, cx) {
            Poll::Pending => return,
            Poll::Ready(Ok(())) => {}
            // The server may have answered since it wants no more.
            Poll::Ready(Err(Broken::Io(_))) => connection.deaf = true,
            Poll::Ready(Err(error)) => self.failed = Some(error),
        }
        self.outgoing.give_up();
    }

    /// The next piece of the answer's body, or its trailers.
    pub(in super::super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.poll_upload(cx);
        if let Some(failed) = self.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        loop {
            let decoder = &mut self.answer.decoder;
            if decoder.is_done() {
                let trailers = decoder.take_trailers().map(Frame::trailers);
                return Poll::Ready(trailers.map(Ok));
            }
            if let Some(wrong) = decoder.take_wrong() {
                return Poll::Ready(Some(Err(wrong)));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(None);
            };
            let data = match ready!(poll_data(connection, decoder, cx)) {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}

fn poll_data<S: AsyncRead + Unpin>(
    connection: &mut Connection<S>,
    decoder: &mut Decoder,
    cx: &mut Context<'_>,
) -> Poll<Result<Bytes, Broken>> {
    let Connection { stream, came, .. } = connection;
    if !came.is_empty() {
        if let Some(data) = decoder.take_all(came) {
            return Poll::Ready(Ok(data));
        }
        let taken = decoder.take(came)?;
        came.advance(taken.used);
        if came.is_empty() {
            // Its room goes too.
            *came = Default::default();
        }
        return Poll::Ready(Ok(taken.data));
    }
    let taken = ready!(scratch::poll_read(stream, cx, |bytes| {
        let taken = decoder.take(bytes)?;
        // What stands behind the body belongs to no request.
        came.extend_from_slice(bytes.get(taken.used..).unwrap_or_default());
        Ok(taken.data)
    }));
    Poll::Ready(taken.map_err(Broken::Io)?)
}
