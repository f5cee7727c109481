//! A connection to the router that is played, and a request over it.

use super::TIMES;
use super::at_once;
use super::messages::{answer_on_the_wire, request, request_body};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use kvgauge::config::{Settings, Target};
use kvgauge::net::{Connect, Pool, PoolError, PoolLimits, PooledBody};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;

/// Takes whatever is written, and says what it was told to, as much at once as it was told at once.
#[derive(Clone, Default)]
pub(crate) struct Played(Arc<Mutex<VecDeque<Bytes>>>);

impl Played {
    pub(crate) fn say(&self, bytes: &Bytes) {
        self.0.lock().unwrap().push_back(bytes.clone());
    }
}

impl Connect for Played {
    type Stream = Played;
    type Error = Infallible;

    fn peer(_: &Played) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }

    async fn connect(&self, _: &Target, _: Duration) -> Result<Played, Infallible> {
        Ok(self.clone())
    }
}

impl AsyncRead for Played {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.0.lock().unwrap().pop_front() {
            Some(bytes) => {
                room.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Played {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(black_box(bytes).len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

type PlayedPool = Pool<Full<Bytes>, Played>;
type PlayedAnswer = Response<PooledBody<Full<Bytes>, Played>>;
type Answering = Pin<Box<dyn Future<Output = Result<PlayedAnswer, PoolError<Infallible>>>>>;

/// One request over a connection that has been used before.
pub(crate) struct Asking {
    pub(crate) played: Played,
    pool: PlayedPool,
    request: Option<Request<Full<Bytes>>>,
    answering: Option<Answering>,
    answer: Option<PlayedAnswer>,
}

pub(crate) fn asking() -> Vec<Asking> {
    (0..TIMES).map(|_| Asking::new()).collect()
}

impl Asking {
    pub(crate) fn new() -> Asking {
        let settings = Settings::defaults();
        let limits = PoolLimits {
            connect: settings.timeouts.connect,
            idle: Duration::from_secs(3600),
            max_age: Duration::from_secs(3600),
            max_idle: 8,
            header_fields: settings.limits.header_fields,
            header_bytes: settings.limits.header_bytes,
        };
        let played = Played::default();
        let mut asking = Asking {
            pool: Pool::by(played.clone(), settings.upstream, limits),
            played,
            request: Some(Asking::request()),
            answering: None,
            answer: None,
        };
        asking.begin();
        asking.played.say(&answer_on_the_wire());
        asking.answered();
        while asking.frame().is_some() {}
        assert_eq!(asking.pool.idle(), 1, "the connection is kept");
        asking.request = Some(Asking::request());
        asking
    }

    fn request() -> Request<Full<Bytes>> {
        request(Full::new(request_body().into()))
    }

    /// Writes the request.
    pub(crate) fn begin(&mut self) {
        let mut answering: Answering = Box::pin(self.pool.call(self.request.take().unwrap()));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(answering.as_mut().poll(cx).is_pending());
        self.answering = Some(answering);
    }

    /// Reads the head of the answer that has been played.
    pub(crate) fn answered(&mut self) {
        self.answer = Some(at_once(self.answering.as_mut().unwrap()).unwrap());
    }

    /// Reads the next frame of its body.
    pub(crate) fn frame(&mut self) -> Option<Frame<Bytes>> {
        let body = Pin::new(self.answer.as_mut().unwrap().body_mut());
        match body.poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(Result::unwrap),
            Poll::Pending => panic!("the body has not come whole"),
        }
    }
}
