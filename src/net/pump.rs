//! An answer that has begun before its request was over: a task of its own goes on with both, so that
//! neither waits for the other. A client that sends all before it reads anything, and a server that
//! answers as it reads, would else wait for each other.

use super::http1::{Broken, Exchange};
use bytes::Bytes;
use http_body::{Body, Frame};
use std::error::Error;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

type Piece = Result<Frame<Bytes>, Broken>;

/// What is received of it. Dropped, it ends the task and closes the connection.
pub(super) struct Pumped {
    pieces: mpsc::Receiver<Piece>,
    left: Option<u64>,
}

impl Pumped {
    /// Starts the task, within a tokio `LocalRuntime` or `LocalSet`.
    pub(super) fn start<B, S>(exchange: Exchange<B, S>) -> Pumped
    where
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let left = exchange.decoder().left();
        let (sender, pieces) = mpsc::channel(1);
        tokio::task::spawn_local(pump(exchange, sender));
        Pumped { pieces, left }
    }

    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let piece = ready!(self.pieces.poll_recv(cx));
        if let (Some(Ok(frame)), Some(left)) = (&piece, &mut self.left) {
            let length = frame.data_ref().map_or(0, Bytes::len);
            *left = left.saturating_sub(length as u64);
        }
        Poll::Ready(piece)
    }
}

async fn pump<B, S>(mut exchange: Exchange<B, S>, sender: mpsc::Sender<Piece>)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let place = tokio::select! {
            place = sender.reserve() => place,
            () = poll_fn(|cx| { exchange.poll_upload(cx); Poll::Pending }) => return,
        };
        let Ok(place) = place else { return };
        let piece = tokio::select! {
            piece = poll_fn(|cx| exchange.poll_frame(cx)) => piece,
            () = sender.closed() => return,
        };
        let Some(piece) = piece else { return };
        let goes_on = piece.is_ok();
        place.send(piece);
        if !goes_on {
            return;
        }
    }
}
