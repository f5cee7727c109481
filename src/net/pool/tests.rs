//! A pool over pipes in memory, whose other end does at one moment what on a network happens by chance.

#![allow(clippy::disallowed_methods, reason = "both ends are the test's own")]

use super::*;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tower::Service as _;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Each connection is a pipe; the other ends are in the test's hands.
#[derive(Clone, Default)]
struct Pipes(Rc<RefCell<VecDeque<DuplexStream>>>);

impl Connect for Pipes {
    type Stream = DuplexStream;
    type Error = Infallible;

    fn peer(_: &DuplexStream) -> Option<IpAddr> {
        None
    }

    async fn connect(&self, _: &Target, _: Duration) -> Result<DuplexStream, Infallible> {
        let (near, far) = tokio::io::duplex(1 << 16);
        self.0.borrow_mut().push_back(far);
        Ok(near)
    }
}

impl Pipes {
    fn opened(&self) -> DuplexStream {
        self.0
            .borrow_mut()
            .pop_front()
            .expect("a connection was opened")
    }

    fn none_was_opened(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

const LIMITS: PoolLimits = PoolLimits {
    connect: Duration::from_secs(1),
    idle: Duration::from_secs(4),
    max_age: Duration::from_secs(600),
    max_idle: 2,
    header_fields: 100,
    header_bytes: 1 << 16,
};

type TestPool<B> = Pool<B, Pipes>;

fn pool<B>(limits: PoolLimits) -> (TestPool<B>, Pipes) {
    let target = Target {
        tls: false,
        server_name: None,
        host: "router".into(),
        port: 1,
        path: "/".into(),
    };
    let pipes = Pipes::default();
    (Pool::by(pipes.clone(), target, limits), pipes)
}

fn post<B>(body: B) -> Request<B> {
    Request::post("/").header("host", "r").body(body).unwrap()
}

fn full(text: &'static str) -> Full<Bytes> {
    Full::new(Bytes::from_static(text.as_bytes()))
}

/// Reads up to the end of a request that ends with these bytes.
async fn request(far: &mut DuplexStream, end: &[u8]) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        assert_ne!(far.read_buf(&mut bytes).await.unwrap(), 0, "the end");
    }
    String::from_utf8(bytes).unwrap()
}

/// One whole exchange; the other end of its connection.
async fn exchange_one(pool: &mut TestPool<Full<Bytes>>, pipes: &Pipes) -> DuplexStream {
    let answer = pool.call(post(full("first")));
    let playing = async {
        while pipes.none_was_opened() {
            tokio::task::yield_now().await;
        }
        let mut far = pipes.opened();
        request(&mut far, b"first").await;
        far.write_all(OK).await.unwrap();
        far
    };
    let (answer, far) = tokio::join!(answer, playing);
    read(answer.unwrap()).await;
    far
}

async fn read<B>(answer: Response<PooledBody<B, Pipes>>)
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "ok");
}

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap()
        .block_on(async { tokio::time::timeout(Duration::from_secs(10), test).await })
        .expect("it ends within 10 s");
}

#[test]
fn a_request_that_finds_its_connection_closed_goes_over_another_whole() {
    run(async {
        let (mut pool, pipes) = pool(LIMITS);
        let far = exchange_one(&mut pool, &pipes).await;
        assert_eq!(pool.idle(), 1);
        // Closed at this moment: nobody here has looked at the connection since.
        drop(far);
        let answer = pool.call(post(full("second")));
        let playing = async {
            while pipes.none_was_opened() {
                tokio::task::yield_now().await;
            }
            let mut far = pipes.opened();
            let seen = request(&mut far, b"second").await;
            far.write_all(OK).await.unwrap();
            (seen, far)
        };
        let (answer, (seen, _far)) = tokio::join!(answer, playing);
        read(answer.unwrap()).await;
        assert!(seen.starts_with("POST / HTTP/1.1\r\n"), "{seen}");
        assert_eq!(seen.matches("second").count(), 1, "{seen}");
        assert!(pipes.none_was_opened());
    });
}

#[test]
fn a_request_of_which_something_was_written_is_never_sent_again() {
    run(async {
        let (mut pool, pipes) = pool(LIMITS);
        let mut far = exchange_one(&mut pool, &pipes).await;
        let answer = pool.call(post(full("second")));
        let playing = async move {
            request(&mut far, b"second").await;
            drop(far);
        };
        let (answer, ()) = tokio::join!(answer, playing);
        assert!(matches!(answer, Err(PoolError::Broken(_))));
        assert!(pipes.none_was_opened(), "it was sent again");
        assert_eq!(pool.idle(), 0);
    });
}

/// Gives a piece when it is let to.
struct Slow(Rc<Cell<u8>>);

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.set(self.0.get() + 1);
        match self.0.get() {
            1 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part"))))),
            _ => Poll::Pending,
        }
    }
}

#[test]
fn nor_is_one_whose_body_was_begun() {
    run(async {
        let (mut pool, pipes) = pool(LIMITS);
        let answer = pool.call(post(Slow(Rc::default())));
        let playing = async {
            while pipes.none_was_opened() {
                tokio::task::yield_now().await;
            }
            let mut far = pipes.opened();
            request(&mut far, b"part\r\n").await;
            drop(far);
        };
        let (answer, ()) = tokio::join!(answer, playing);
        assert!(matches!(answer, Err(PoolError::Broken(_))));
        assert!(pipes.none_was_opened(), "it was sent again");
    });
}

#[test]
fn no_more_wait_than_allowed_and_the_oldest_goes_first() {
    run(async {
        let (mut pool, pipes) = pool(LIMITS);
        let mut answers = Vec::new();
        let mut fars = Vec::new();
        for _ in 0..3 {
            let answer = tokio::task::spawn_local(pool.call(post(full("x"))));
            while pipes.none_was_opened() {
                tokio::task::yield_now().await;
            }
            let mut far = pipes.opened();
            request(&mut far, b"x").await;
            far.write_all(OK).await.unwrap();
            answers.push(answer.await.unwrap().unwrap());
            fars.push(far);
        }
        for answer in answers {
            read(answer).await;
        }
        assert_eq!(pool.idle(), LIMITS.max_idle);
        assert_eq!(fars[0].read(&mut [0; 8]).await.unwrap(), 0, "the oldest");
        // The one that was used last is taken.
        let answer = tokio::task::spawn_local(pool.call(post(full("y"))));
        request(&mut fars[2], b"y").await;
        fars[2].write_all(OK).await.unwrap();
        read(answer.await.unwrap().unwrap()).await;
    });
}

#[test]
fn what_has_waited_too_long_or_is_too_old_is_not_used_again() {
    let short = Duration::from_millis(1);
    for limits in [
        PoolLimits {
            idle: Duration::ZERO,
            ..LIMITS
        },
        PoolLimits {
            max_age: Duration::ZERO,
            ..LIMITS
        },
        PoolLimits {
            max_idle: 0,
            ..LIMITS
        },
    ] {
        run(async {
            let (mut pool, pipes) = pool(limits);
            let _first = exchange_one(&mut pool, &pipes).await;
            // Over another connection, as this waits for one to be opened.
            let _second = exchange_one(&mut pool, &pipes).await;
        });
    }
    run(async {
        let (mut pool, pipes) = pool(LIMITS);
        let mut far = exchange_one(&mut pool, &pipes).await;
        pool.sweep(Instant::now() + LIMITS.idle - Duration::from_secs(1));
        assert_eq!(pool.idle(), 1);
        pool.sweep(Instant::now() + LIMITS.idle + short);
        assert_eq!(pool.idle(), 0);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "closed");
        poll_fn(|cx| tower::Service::<Request<_>>::poll_ready(&mut pool, cx))
            .await
            .unwrap();
    });
}

#[test]
fn a_connection_waits_from_when_the_last_of_an_answer_came() {
    let nearly = LIMITS.idle - Duration::from_nanos(1);
    for (first, rest, waits) in [(OK.len(), LIMITS.idle, 0), (OK.len() - 1, nearly, 1)] {
        run(async {
            let (mut pool, pipes) = pool(LIMITS);
            let answer = tokio::task::spawn_local(pool.call(post(full("x"))));
            while pipes.none_was_opened() {
                tokio::task::yield_now().await;
            }
            let mut far = pipes.opened();
            request(&mut far, b"x").await;
            far.write_all(&OK[..first]).await.unwrap();
            let answer = answer.await.unwrap().unwrap();
            let answered = Instant::now();
            far.write_all(&OK[first..]).await.unwrap();
            read(answer).await;
            assert_eq!(pool.idle(), 1);
            pool.sweep(answered + rest);
            assert_eq!(pool.idle(), waits);
        });
    }
}
