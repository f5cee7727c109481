//! The upstream: answers at once, in streams, and with metrics pages.

use crate::answers::{self, Event, RECEIVED, SHAPE, Shape};
use crate::clock;
use crate::wire::{Body, Fault, Wire};
use crc32fast::Hasher;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// What all connections share.
#[derive(Debug)]
pub struct Upstream {
    /// Metrics pages by path.
    pub pages: HashMap<String, Vec<u8>>,
    /// Held streams end when this changes.
    pub release: watch::Receiver<u64>,
}

/// A socket on a free port of this machine; needs a runtime.
pub fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Accepts for ever.
pub async fn serve(listener: TcpListener, upstream: Arc<Upstream>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let upstream = Arc::clone(&upstream);
                // A connection that breaks shows at the client.
                tokio::spawn(async move { upstream.connection(stream).await });
            }
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

impl Upstream {
    async fn connection(&self, stream: TcpStream) -> Result<(), Fault> {
        let mut wire = Wire::over(stream).map_err(|error| error.to_string())?;
        let completion = answers::completion();
        while let Some(head) = wire.head().await? {
            let mut body = head.body()?.unwrap_or(Body::Length(0));
            let (mut length, mut sum) = (0, Hasher::new());
            while let Some(piece) = wire.piece(&mut body).await? {
                length += piece.len() as u64;
                sum.update(piece);
            }
            let received = answers::received(length, sum.finalize());
            let mut words = head.first().split(' ');
            match (words.next(), words.next(), head.field(SHAPE)) {
                (Some("POST"), _, Some(shape)) => {
                    self.stream(&mut wire, Shape::read(shape)?, &received)
                        .await?;
                }
                (Some("POST"), _, None) => {
                    wire.write(&whole("200 OK", "application/json", &received, &completion))
                        .await?;
                }
                (_, Some(path), _) if self.pages.contains_key(path) => {
                    let kind = "text/plain; version=0.0.4; charset=utf-8";
                    wire.write(&whole("200 OK", kind, &received, &self.pages[path]))
                        .await?;
                }
                _ => {
                    wire.write(&whole(
                        "404 Not Found",
                        "text/plain",
                        &received,
                        b"no such page\n",
                    ))
                    .await?;
                }
            }
        }
        Ok(())
    }

    /// One write an event, as a server does that has nothing to add.
    async fn stream(&self, wire: &mut Wire, shape: Shape, received: &str) -> Result<(), Fault> {
        let mut release = self.release.clone();
        release.mark_unchanged();
        let head = format!(
            "HTTP/1.1 200 OK\r\nserver: upstream\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n{RECEIVED}: {received}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        wire.write(head.as_bytes()).await?;
        let (mut event, mut sum) = (Event::new(shape.size), Hasher::new());
        let pause = Duration::from_micros(shape.every_us);
        let mut ticks = (!pause.is_zero()).then(|| {
            let mut ticks = interval_at(tokio::time::Instant::now(), pause);
            // After a delay the pace goes on; nothing is made up for in a burst.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        for _ in 0..shape.events {
            match &mut ticks {
                Some(ticks) => drop(ticks.tick().await),
                // The other streams get their turn, so that each event is a write of its own time.
                None => tokio::task::yield_now().await,
            }
            wire.write(event.at(clock::now(), &mut sum)).await?;
        }
        if shape.hold {
            held(wire, &mut release).await?;
        }
        let closing = answers::closing(shape.events, sum.finalize());
        let mut end = format!(
            "{:x}\r\n{closing}\r\n{:x}\r\n",
            closing.len(),
            answers::DONE.len()
        )
        .into_bytes();
        end.extend_from_slice(answers::DONE);
        end.extend_from_slice(b"\r\n0\r\n\r\n");
        wire.write(&end).await
    }
}

/// Waits until held streams are let go, or the other side is gone.
async fn held(wire: &Wire, release: &mut watch::Receiver<u64>) -> Result<(), Fault> {
    let mut let_go = std::pin::pin!(release.changed());
    let mut stirs = std::pin::pin!(wire.stirs());
    std::future::poll_fn(|context| {
        if let_go.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(Ok(()));
        }
        stirs
            .as_mut()
            .poll(context)
            .map(|()| Err("the client left".into()))
    })
    .await
}

fn whole(status: &str, kind: &str, received: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nserver: upstream\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{RECEIVED}: {received}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}
