//! A proxy that loses, alters, repeats or reorders anything must not come out fast: the client sees
//! it. Between client and upstream stands a relay that does one thing wrong.

#![allow(clippy::unwrap_used)]

use load::answers::Shape;
use load::client::{Ask, closed_loop, turns};
use load::idle::Idle;
use load::tally::Tally;
use load::upstream::{self, Upstream};
use load::wire::{Fault, Head, Wire};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_secs(10);
const SHORT: Shape = Shape {
    events: 32,
    size: 190,
    every_us: 0,
    hold: false,
};

/// A message as it passes the relay: its head, and its body in the pieces in which it came.
struct Message {
    head: String,
    pieces: Vec<Vec<u8>>,
}

/// What the relay does wrong.
type Wrong = fn(&mut Message);

fn nothing(_: &mut Message) {}

/// Alters a byte that is not of the framing.
fn flip(message: &mut Message) {
    let place = message.pieces.len() / 2;
    let middle = message.pieces[place].len() / 2;
    message.pieces[place][middle] ^= 1;
}

fn lose_a_piece(message: &mut Message) {
    let place = message.pieces.len() / 2;
    message.pieces.remove(place);
}

fn repeat_a_piece(message: &mut Message) {
    let place = message.pieces.len() / 2;
    message.pieces.insert(place, message.pieces[place].clone());
}

fn swap_two(message: &mut Message) {
    message.pieces.swap(3, 4);
}

fn lose_the_end(message: &mut Message) {
    message.pieces.pop();
}

fn lose_the_sum(message: &mut Message) {
    let place = message.pieces.len() - 2;
    message.pieces.remove(place);
}

fn add_behind_the_end(message: &mut Message) {
    message.pieces.push(b"data: {}\n\n".to_vec());
}

fn keep_nothing(message: &mut Message) {
    message.pieces.clear();
}

fn another_status(message: &mut Message) {
    message.head = message.head.replacen("200 OK", "206 Partial Content", 1);
}

fn another_type(message: &mut Message) {
    message.head = message
        .head
        .replacen("content-type: ", "content-type: x-", 1);
}

/// All but the framing is passed on as it is; the framing is made anew, so that what is wrong with
/// the body is not seen by its length.
async fn pass(from: &mut Wire, head: Head, to: &mut Wire, wrong: Wrong) -> Result<(), Fault> {
    let chunked = head.field("transfer-encoding").is_some();
    let mut pieces = Vec::new();
    if let Some(mut body) = head.body()? {
        while let Some(piece) = from.piece(&mut body).await? {
            pieces.push(piece.to_vec());
        }
    }
    let mut message = Message {
        head: head.text().into(),
        pieces,
    };
    wrong(&mut message);
    let mut bytes = Vec::new();
    for line in message
        .head
        .lines()
        .filter(|line| !line.starts_with("content-length"))
    {
        bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    if chunked {
        bytes.extend_from_slice(b"\r\n");
        for piece in &message.pieces {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
    } else {
        let body = message.pieces.concat();
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(&body);
    }
    to.write(&bytes).await
}

async fn connection(
    stream: TcpStream,
    to: SocketAddr,
    asked: Wrong,
    answered: Wrong,
) -> Result<(), Fault> {
    let mut client = Wire::over(stream).map_err(|error| error.to_string())?;
    let mut upstream = Wire::connect(to).await?;
    while let Some(request) = client.head().await? {
        pass(&mut client, request, &mut upstream, asked).await?;
        let answer = upstream.head().await?.ok_or("no answer")?;
        pass(&mut upstream, answer, &mut client, answered).await?;
    }
    Ok(())
}

async fn relay(listener: TcpListener, to: SocketAddr, asked: Wrong, answered: Wrong) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, to, asked, answered));
    }
}

/// Does something through a relay that does this wrong with requests and that with answers.
fn through<R>(
    asked: Wrong,
    answered: Wrong,
    what: impl AsyncFnOnce(SocketAddr, watch::Sender<u64>) -> R,
) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, released) = watch::channel(0);
        let (listener, upstream) = upstream::listen().unwrap();
        let pages = HashMap::new();
        tokio::spawn(upstream::serve(
            listener,
            Arc::new(Upstream {
                pages,
                release: released,
            }),
        ));
        let (listener, address) = upstream::listen().unwrap();
        tokio::spawn(relay(listener, upstream, asked, answered));
        what(address, release).await
    })
}

/// Eight answers, over two connections.
fn eight(ask: fn() -> Ask, asked: Wrong, answered: Wrong) -> Tally {
    through(asked, answered, async |to, _| {
        closed_loop(to, ask(), 2, 8, Duration::ZERO).await
    })
}

fn chat() -> Ask {
    Ask::chat(LIMIT)
}

fn stream() -> Ask {
    Ask::stream(SHORT, LIMIT)
}

fn paced() -> Ask {
    Ask::stream(
        Shape {
            every_us: 1000,
            ..SHORT
        },
        LIMIT,
    )
}

fn upload() -> Ask {
    Ask::upload(1 << 20, LIMIT)
}

#[test]
fn a_relay_that_alters_nothing_passes() {
    for ask in [chat, stream, paced, upload] {
        let tally = eight(ask, nothing, nothing);
        assert_eq!((tally.right, tally.wrong, tally.why().as_str()), (8, 0, ""));
        assert!(!tally.times.is_empty(), "nothing was measured");
    }
    assert_eq!(eight(stream, nothing, nothing).events, 8 * SHORT.events);
}

#[test]
fn a_stream_is_caught_that_is_not_the_upstreams() {
    let wrongs: [(Wrong, &str); 9] = [
        (flip, "did not send"),
        (lose_a_piece, "did not send"),
        (repeat_a_piece, "did not send"),
        (swap_two, "did not send"),
        (lose_the_end, "cut short"),
        (lose_the_sum, "did not send"),
        (add_behind_the_end, "behind the stream's end"),
        (another_status, "206"),
        (another_type, "content type"),
    ];
    for ask in [stream, paced] {
        for (place, (wrong, why)) in wrongs.into_iter().enumerate() {
            let tally = eight(ask, nothing, wrong);
            assert_eq!((tally.right, tally.wrong), (0, 8), "case {place}");
            assert!(tally.why().contains(why), "case {place}: {}", tally.why());
        }
    }
}

#[test]
fn an_answer_at_once_is_caught_that_is_not_the_upstreams() {
    let wrongs: [(Wrong, &str); 5] = [
        (flip, "did not send"),
        (repeat_a_piece, "did not send"),
        (keep_nothing, "cut short"),
        (another_status, "206"),
        (another_type, "content type"),
    ];
    for (place, (wrong, why)) in wrongs.into_iter().enumerate() {
        let tally = eight(chat, nothing, wrong);
        assert_eq!((tally.right, tally.wrong), (0, 8), "case {place}");
        assert!(tally.why().contains(why), "case {place}: {}", tally.why());
    }
}

#[test]
fn a_request_is_caught_that_arrives_as_another() {
    for ask in [chat, stream, upload] {
        for (place, wrong) in [flip as Wrong, keep_nothing, repeat_a_piece]
            .into_iter()
            .enumerate()
        {
            let tally = eight(ask, wrong, nothing);
            assert_eq!((tally.right, tally.wrong), (0, 8), "case {place}");
            assert!(
                tally.why().contains("received another body"),
                "case {place}: {}",
                tally.why()
            );
        }
    }
}

#[test]
fn one_at_a_time_only_the_target_that_alters_is_wrong() {
    let tallies = through(nothing, flip, async |bad, _| {
        let (_release, released) = watch::channel(0);
        let (listener, good) = upstream::listen().unwrap();
        let upstream = Upstream {
            pages: HashMap::new(),
            release: released,
        };
        tokio::spawn(upstream::serve(listener, Arc::new(upstream)));
        turns(&[good, bad], &chat(), 4).await
    });
    let counts: Vec<(u64, u64)> = tallies
        .iter()
        .map(|tally| (tally.right, tally.wrong))
        .collect();
    assert_eq!(counts, [(5, 0), (0, 5)]);
}

#[test]
fn a_target_that_is_not_there_is_wrong() {
    let tally = through(nothing, nothing, async |_, _| {
        // Bound, so that no one else is there, and not listening.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        closed_loop(socket.local_addr().unwrap(), chat(), 2, 8, Duration::ZERO).await
    });
    assert_eq!((tally.right, tally.wrong), (0, 8));
}

#[test]
fn held_streams_are_open_until_they_are_let_go() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, released) = watch::channel(0);
        let (listener, address) = upstream::listen().unwrap();
        let pages = HashMap::new();
        tokio::spawn(upstream::serve(
            listener,
            Arc::new(Upstream {
                pages,
                release: released,
            }),
        ));
        let mut idle = Idle::default();
        for _ in 0..2 {
            let opened = idle.open(address, 120, LIMIT).await;
            assert_eq!((opened.right, opened.why().as_str()), (120, ""));
            let closed = idle.close(&release, LIMIT).await;
            assert_eq!(
                (closed.right, closed.wrong, closed.why().as_str()),
                (120, 0, "")
            );
        }
    });
}
