//! An answer's body as it comes.

use super::{Broken, Connection, Decoder, Outgoing, scratch};
use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame};
use std::error::Error;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// The rest of an exchange: the body of its answer, and what is left of its request.
pub(in super::super) struct Answer<B, S> {
    connection: Connection<S>,
    decoder: Decoder,
    keeps_alive: bool,
    upload: Option<Box<Outgoing<B>>>,
    /// Why the upload ended before its end.
    failed: Option<Broken>,
}

impl<B, S> Answer<B, S>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// What comes behind a head.
    pub(in super::super) fn new(
        connection: Connection<S>,
        decoder: Decoder,
        keeps_alive: bool,
        upload: Option<Box<Outgoing<B>>>,
    ) -> Answer<B, S> {
        Answer {
            connection,
            decoder,
            keeps_alive,
            upload,
            failed: None,
        }
    }

    /// How much is known of what is still to come.
    pub(in super::super) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Whether the request is still on its way.
    pub(in super::super) fn is_uploading(&self) -> bool {
        self.upload.is_some()
    }

    /// The connection, where it is good for another exchange.
    pub(in super::super) fn into_kept(self) -> Option<Connection<S>> {
        let connection = self.connection;
        let kept = self.keeps_alive
            && self.upload.is_none()
            && self.decoder.is_done()
            && connection.came.is_empty()
            && !connection.deaf;
        kept.then_some(connection)
    }

    /// Goes on with the upload, whatever becomes of the answer.
    pub(in super::super) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let Some(upload) = &mut self.upload else {
            return;
        };
        match upload.poll(&mut self.connection.stream, cx) {
            Poll::Pending => return,
            Poll::Ready(Ok(())) => {}
            // The server may have answered since it wants no more.
            Poll::Ready(Err(Broken::Io(_))) => self.connection.deaf = true,
            Poll::Ready(Err(error)) => self.failed = Some(error),
        }
        self.upload = None;
    }

    /// The next piece of the body, or its trailers.
    pub(in super::super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.poll_upload(cx);
        if let Some(failed) = self.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        loop {
            if self.decoder.is_done() {
                let trailers = self.decoder.take_trailers().map(Frame::trailers);
                return Poll::Ready(trailers.map(Ok));
            }
            if let Some(wrong) = self.decoder.take_wrong() {
                return Poll::Ready(Some(Err(wrong)));
            }
            let data = match ready!(self.poll_data(cx)) {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Broken>> {
        let Connection { stream, came, .. } = &mut self.connection;
        let decoder = &mut self.decoder;
        if !came.is_empty() {
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
}
