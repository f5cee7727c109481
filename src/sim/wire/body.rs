//! Bodies of simulated answers.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// A server that dies in mid-answer: hyper then closes the connection without the last chunk.
#[derive(Debug, thiserror::Error)]
#[error("the simulated server broke its answer off, as it was asked to")]
pub(crate) struct Broken;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// With a content-length.
    Whole(Bytes),
    /// Without one, so that HTTP/1.1 sends it in chunks.
    Pieces(VecDeque<Bytes>),
    /// As it is made.
    Stream(mpsc::Receiver<Result<Bytes, Broken>>),
}

impl Body {
    pub(crate) fn empty() -> Body {
        Body::Whole(Bytes::new())
    }

    /// In chunks of 64 KiB.
    pub(crate) fn chunked(text: String) -> Body {
        let mut rest = Bytes::from(text);
        let mut pieces = VecDeque::new();
        while !rest.is_empty() {
            pieces.push_back(rest.split_to(rest.len().min(1 << 16)));
        }
        Body::Pieces(pieces)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Body::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|b| Ok(Frame::data(b)))),
            Body::Stream(receiver) => receiver
                .poll_recv(cx)
                .map(|item| item.map(|result| result.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_empty(),
            Body::Pieces(_) | Body::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Pieces(_) | Body::Stream(_) => SizeHint::default(),
        }
    }
}
