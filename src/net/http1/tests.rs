//! Bodies and heads in any pieces, and what is no HTTP.

use super::decoder::{Decoder, Taken};
use super::head::{Limits, Parsed, Said, parse};
use super::{Broken, Lines, Outbound, Outgoing, familiar, scratch};
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{ACCEPT, FROM};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body::{Body, Frame};
use hyper::ext::ReasonPhrase;
use proptest::prelude::*;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

const LIMITS: Limits = Limits {
    fields: 20,
    head_bytes: 1 << 12,
};

fn head(came: &[u8]) -> Result<(Parsed, Said), Broken> {
    let mut said = Said::default();
    let parsed = parse(
        came,
        &Method::GET,
        &LIMITS,
        &mut HeaderMap::new(),
        &mut said,
    )?;
    Ok((parsed, said))
}

/// The body, whether it is done, and how much of what came stands behind it.
fn read(
    mut decoder: Decoder,
    came: &[u8],
    cuts: &[usize],
) -> Result<(Vec<u8>, bool, usize), Broken> {
    let (mut body, mut used) = (Vec::new(), 0);
    let mut rest = came;
    for cut in cuts.iter().copied().chain([usize::MAX]) {
        let (piece, behind) = rest.split_at(cut.min(rest.len()));
        if piece.is_empty() {
            continue;
        }
        let Taken { data, used: here } = decoder.take(piece)?;
        body.extend_from_slice(&data);
        used += here;
        if let Some(wrong) = decoder.take_wrong() {
            return Err(wrong);
        }
        rest = behind;
        if here < piece.len() {
            break;
        }
    }
    Ok((body, decoder.is_done(), came.len() - used))
}

fn chunked(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        text.extend_from_slice(format!("{:X}\r\n", piece.len()).as_bytes());
        text.extend_from_slice(piece);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

proptest! {
    #[test]
    fn a_chunked_body_is_the_same_in_any_pieces(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        cuts in prop::collection::vec(1usize..30, 0..40),
        behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut text = chunked(&pieces);
        text.extend_from_slice(&behind);
        let (body, done, left) = read(Decoder::chunked(), &text, &cuts).unwrap();
        prop_assert_eq!(body, pieces.concat());
        prop_assert!(done);
        prop_assert!(left <= behind.len());
    }

    #[test]
    fn a_body_by_its_length_ends_there_in_any_pieces(
        came in prop::collection::vec(any::<u8>(), 0..200),
        length in 0usize..250,
        cuts in prop::collection::vec(1usize..60, 0..10),
    ) {
        let (body, done, left) = read(Decoder::length(length as u64), &came, &cuts).unwrap();
        let wanted = length.min(came.len());
        prop_assert_eq!(&body[..], &came[..wanted]);
        prop_assert_eq!(done, came.len() >= length);
        prop_assert!(left <= came.len() - wanted);
    }

    #[test]
    fn whatever_comes_is_read_or_refused(came in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(Decoder::chunked(), &came, &[1, 2, 3]);
        let _ = head(&came);
    }
}

/// A line of a head, and sometimes something else.
fn line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["date", "Content-Length", "x-a", "Connection"]);
    let value = prop_oneof![
        4 => "[0-9]{1,3}",
        2 => "[a-c]{1,3}",
        1 => prop::sample::select(vec!["", " ", "close", "1, 1", "a \t", "\u{e4}", "\x01", "a\rb", "\x7f"])
            .prop_map(str::to_owned),
    ];
    let colon = prop_oneof![8 => Just(": "), 1 => Just(":"), 1 => Just(" : ")];
    let end = prop_oneof![16 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\n ")];
    (name, colon, value, end)
        .prop_map(|(name, colon, value, end)| [name, colon, &value, end].concat())
}

/// All that a head says.
fn all_of(came: &[u8]) -> String {
    let Ok((parsed, said)) = head(came) else {
        return "broken".to_owned();
    };
    let Parsed::Head(length, parts) = parsed else {
        return "no head".to_owned();
    };
    let reason = parts.extensions.get::<ReasonPhrase>().cloned();
    format!(
        "{length} {parts:?} {reason:?} {:?} {}",
        said.decoder, said.keeps_alive
    )
}

proptest! {
    #[test]
    fn a_head_says_the_same_whatever_came_before_it(
        first in prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 200 OK\r\n",
            "HTTP/1.1 204 None\r\n",
            "\r\nHTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\n",
        ]),
        lines in prop::collection::vec(line(), 0..5),
        others in prop::collection::vec((any::<prop::sample::Index>(), line()), 0..6),
        end in prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("")],
        behind in "[a\r\n]{0,3}",
    ) {
        let mut lines = lines;
        let text = |lines: &[String]| [first, &lines.concat(), end, &behind].concat().into_bytes();
        let mut heads = vec![text(&lines)];
        for (at, other) in others {
            if !lines.is_empty() {
                let at = at.index(lines.len());
                lines[at] = other;
            }
            heads.push(text(&lines));
            heads.push(text(&lines));
        }
        // A thread of its own knows none but these, or this one.
        let say = |heads: Vec<Vec<u8>>| {
            let say = move || heads.iter().map(|head| all_of(head)).collect::<Vec<_>>();
            std::thread::spawn(say).join().unwrap()
        };
        for (head, known) in heads.iter().zip(say(heads.clone())) {
            let unknown = say(vec![head.clone()]).remove(0);
            prop_assert_eq!(known, unknown, "{:?}", String::from_utf8_lossy(head));
        }
    }
}

#[test]
fn a_head_like_one_before_is_known_by_its_shape() {
    let text = |length: &str, server: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nServer: {server}\r\ncontent-length: {length}\r\nX-A: a\r\n\r\nbody"
        )
    };
    let known = |text: &str| {
        let mut fields = HeaderMap::new();
        let head = familiar::read(text.as_bytes(), &LIMITS, &mut fields)?;
        assert_eq!(head.length, text.len() - 4);
        let values = head.parts.headers.values();
        Some(
            values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(known(&text("4", "s")), None);
    head(text("4", "s").as_bytes()).unwrap();
    // The known values go on to be others.
    for n in 0..40 {
        let n = n.to_string();
        assert_eq!(
            known(&text(&n, "s")),
            Some(vec!["s".to_owned(), n.clone(), "a".to_owned()])
        );
        assert_eq!(
            known(&text("4", &n)),
            Some(vec![n, "4".to_owned(), "a".to_owned()])
        );
    }
    let good = text("4", "s");
    for other in [
        good.replace("200 OK", "201 Created"),
        good.replace("Server", "server"),
        good.replace("X-A: a\r\n", ""),
        good.replace("X-A: a\r\n", "X-A: a\r\nX-A: a\r\n"),
        good.replace(": s", ":s"),
        good.replace(": s", ":  s"),
        good.replace(": s", ": s "),
        good.replace(": s", ": "),
        good.replace(": s", ": \x01s"),
        good.replace(": s", ": s\x01s"),
        good.replace(": s\r\n", ": s\n"),
        good.replace(": s\r\n", ": s\r"),
        good.replace("\r\n\r\n", "\r\n"),
    ] {
        assert_eq!(known(&other), None, "{other:?}");
    }
    let few = Limits {
        fields: 2,
        ..LIMITS
    };
    let short = Limits {
        head_bytes: good.len() - 5,
        ..LIMITS
    };
    for limits in [few, short] {
        let parsed = parse(
            good.as_bytes(),
            &Method::GET,
            &limits,
            &mut HeaderMap::new(),
            &mut Said::default(),
        );
        assert!(matches!(parsed, Err(Broken::HeadTooLarge)), "{limits:?}");
    }
}

#[test]
fn what_is_handed_on_stays_as_it_is_while_it_is_held() {
    let first = scratch::passing(b"first");
    let held: Vec<_> = (0..100)
        .map(|_| scratch::passing(&[b'x'; 1000]).freeze())
        .collect();
    assert_eq!(first, "first");
    assert!(
        held.iter()
            .all(|held| held.iter().all(|byte| *byte == b'x'))
    );
    assert_eq!(scratch::passing(&[b'y'; 9000]), [b'y'; 9000][..]);
    drop((first, held));
    let again = scratch::passing(b"again").as_ptr();
    assert_eq!(again, scratch::passing(b"again").as_ptr());
}

#[test]
fn trailers_stand_behind_the_last_chunk() {
    let mut decoder = Decoder::chunked();
    let text = b"3\r\nabc\r\n0\r\nx-sum: 1\r\nX-Sum: 2\r\n\r\n";
    for byte in text {
        decoder.take(&[*byte]).unwrap();
        assert!(decoder.take_wrong().is_none());
    }
    let trailers = decoder.take_trailers().unwrap();
    let values: Vec<_> = trailers.get_all("x-sum").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert!(decoder.take_trailers().is_none());
}

#[test]
fn a_chunk_that_is_none_is_refused() {
    let long = format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(20_000));
    let trailers = format!("0\r\n{}\r\n\r\n", "a".repeat(20_000));
    for text in [
        "x\r\n",
        "\r\n",
        "+4\r\nabcd\r\n",
        "0x4\r\nabcd\r\n",
        "-1\r\n",
        " 4\r\nabcd\r\n",
        "4 4\r\nabcd",
        "4\nabcd\r\n",
        "4\r\nabcde\r\n",
        "4\r\nabcd\n0\r\n\r\n",
        "4;a\nb\r\nabcd\r\n",
        "10000000000000000\r\n",
        "0\r\nno field\r\n\r\n",
        "0\r\nx: \x01\r\n\r\n",
        &long,
        &trailers,
    ] {
        let read = read(Decoder::chunked(), text.as_bytes(), &[]);
        assert!(
            matches!(read, Err(Broken::NotHttp(_))),
            "{text:?}: {read:?}"
        );
    }
    for text in [
        "4 \r\nabcd\r\n0\r\n\r\n",
        "004;x=\"y\"\r\nabcd\r\n000\r\n\r\n",
        "4\t;a\r\nabcd\r\n0;b\r\n\r\n",
    ] {
        let (body, done, _) = read(Decoder::chunked(), text.as_bytes(), &[]).unwrap();
        assert_eq!((&body[..], done), (&b"abcd"[..], true), "{text:?}");
    }
}

#[test]
fn a_head_that_is_not_there_whole_is_waited_for_and_nothing_of_it_lost() {
    let text = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 Fine\r\ncontent-length: 2\r\n\r\nok";
    let mut came = BytesMut::new();
    let mut interim = 0;
    for byte in text {
        came.extend_from_slice(&[*byte]);
        match head(&came).unwrap() {
            (Parsed::Partial, _) => {}
            (Parsed::Interim(length), _) => {
                came.advance(length);
                interim += 1;
            }
            (Parsed::Head(length, parts), said) => {
                assert_eq!((interim, parts.status.as_u16()), (1, 200));
                assert_eq!(said.decoder.left(), Some(2));
                assert_eq!(came.len(), length);
                return;
            }
        }
    }
    panic!("no head in {came:?}");
}

#[test]
fn a_head_over_its_limits_is_refused() {
    let fields = "a: b\r\n".repeat(21);
    let bytes = format!("a: {}\r\n", "b".repeat(5000));
    for fields in [fields, bytes] {
        let parsed = head(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
        assert!(matches!(parsed, Err(Broken::HeadTooLarge)));
    }
}

/// Takes a few bytes at a time, and now and then none.
struct Narrow {
    taken: Vec<u8>,
    most: usize,
    turn: usize,
}

impl AsyncWrite for Narrow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = bytes.len().min(self.most);
        self.taken.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_request_goes_out_whole_however_little_is_taken() {
    for (most, sizes) in [
        (1, vec![3, 0, 5]),
        (7, vec![5000, 1, 4096]),
        (100_000, vec![9000, 9000]),
    ] {
        let pieces: Vec<Vec<u8>> = sizes.iter().map(|n| vec![b'x'; *n]).collect();
        let body = Pieces(pieces.clone().into_iter());
        let request = Request::post("/a?b=c")
            .header("host", "r")
            .body(body)
            .unwrap();
        let mut ready = Lines::default();
        ready.add(&ACCEPT, &HeaderValue::from_static("*/*"));
        let mut outbound = Outbound::from(request);
        outbound.lines = Lines::in_kept_room();
        outbound.lines.add_all(&ready);
        outbound.lines.add(&FROM, &HeaderValue::from_static("k"));
        let mut outgoing = Outgoing::new(outbound);
        assert!(!outgoing.is_written() && !outgoing.is_out());
        let mut stream = Narrow {
            taken: Vec::new(),
            most,
            turn: 0,
        };
        poll_fn(|cx| outgoing.poll(&mut stream, cx)).await.unwrap();
        assert!(outgoing.is_written() && outgoing.is_out());
        let head = b"POST /a?b=c HTTP/1.1\r\nhost: r\r\naccept: */*\r\nfrom: k\r\ntransfer-encoding: chunked\r\n\r\n";
        let (start, rest) = stream.taken.split_at(head.len());
        assert_eq!(start, head);
        let (body, done, left) = read(Decoder::chunked(), rest, &[]).unwrap();
        assert_eq!((body, done, left), (pieces.concat(), true, 0));
    }
}

/// A body of these pieces, which is always ready.
struct Pieces(std::vec::IntoIter<Vec<u8>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|piece| Ok(Frame::data(piece.into()))))
    }
}

#[test]
fn a_length_is_at_most_what_has_a_sign_elsewhere() {
    let head = |length: &str| {
        head(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes())
    };
    assert!(matches!(
        head("9223372036854775807"),
        Ok((Parsed::Head(..), said)) if said.decoder.left() == Some(u64::MAX >> 1)
    ));
    for length in ["9223372036854775808", "18446744073709551615"] {
        assert!(
            matches!(head(length), Err(Broken::NotHttp(why)) if why.contains("2^63")),
            "{length}"
        );
    }
}
