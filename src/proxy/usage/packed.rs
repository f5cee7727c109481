//! A packed body (RFC 9110, 8.4.1), of which a copy is unpacked for its reader as it flows past.
//!
//! The work is bounded by what came: [`FREE`] bytes, and [`MOST_RATIO`] times the packed ones, of which
//! one frame takes no more than [`MOST_AT_ONCE`]. A member of gzip costs [`MEMBER`] bytes of that, as one
//! that holds nothing is work too. Whatever is beyond (a bomb), or is not the coding that it calls
//! itself, is read no further and nothing of it is known. What is done is taken from the task's turn, so
//! that an answer that comes fast does not hold up the others of its worker.

use super::Plain;
use crate::proxy::headers::holds;
use flate2::write::{GzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::{self, Write};
use std::task::{Context, Poll, Waker};
use tokio::task::coop::poll_proceed;

/// Bytes that may be unpacked whatever they were packed into. Event streams that are packed without a
/// flush come to 60 times their packed size, and to 250 where a model says the same word again and
/// again; this is what some 17,000 of their events make.
const FREE: u64 = 4 << 20;

/// Bytes that may be unpacked for each byte that came. Event streams that are flushed after each event
/// come to 15 to 30, JSON to less.
const MOST_RATIO: u64 = 32;

/// Bytes that one frame (64 KiB at most) may be unpacked to, whatever came before.
const MOST_AT_ONCE: u64 = FREE;

/// What beginning a member of gzip costs, as bytes unpacked.
const MEMBER: u64 = 4 << 10;

/// What looking at a packed byte may cost, as bytes unpacked: blocks that hold nothing have tables too.
const LOOK: u64 = 16;

/// Bytes unpacked that are one step of a task's turn (tokio's has 128, a read or a write is one).
const STEP: u64 = 16 << 10;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Not at all.
    Identity,
    /// RFC 1952, of any number of members.
    Gzip,
    /// RFC 1950.
    Deflate,
    /// In a way that is not read here, or in several.
    Other,
}

/// See the [module](self) description.
#[derive(Debug)]
pub(super) struct Packed {
    /// Gone once nothing can be known any more.
    decoder: Option<Decoder>,
}

#[derive(Debug)]
enum Decoder {
    Gzip(GzDecoder<Sink>),
    Deflate(ZlibDecoder<Sink>),
}

/// Takes what comes out of a decoder.
#[derive(Debug)]
struct Sink {
    reader: Plain,
    /// How many bytes more may come out.
    left: u64,
    /// And how many of this frame.
    left_at_once: u64,
    content: bool,
}

// === impl Coding ===

impl Coding {
    /// What the head says.
    pub(super) fn of(headers: &HeaderMap) -> Coding {
        if !holds(headers, &CONTENT_ENCODING) {
            return Coding::Identity;
        }
        let mut lines = headers.get_all(CONTENT_ENCODING).iter();
        let Some(line) = lines.next() else {
            return Coding::Identity;
        };
        let is = |name: &[u8]| line.as_bytes().eq_ignore_ascii_case(name);
        if lines.next().is_some() {
            Coding::Other
        } else if is(b"identity") {
            Coding::Identity
        } else if is(b"gzip") || is(b"x-gzip") {
            Coding::Gzip
        } else if is(b"deflate") {
            Coding::Deflate
        } else {
            Coding::Other
        }
    }
}

// === impl Packed ===

impl Packed {
    pub(super) fn gzip(reader: Plain) -> Packed {
        let decoder = Decoder::Gzip(GzDecoder::new(Sink::new(reader)));
        Packed {
            decoder: Some(decoder),
        }
    }

    pub(super) fn deflate(reader: Plain) -> Packed {
        let decoder = Decoder::Deflate(ZlibDecoder::new(Sink::new(reader)));
        Packed {
            decoder: Some(decoder),
        }
    }

    /// Reads a frame; true when it brought content, which of a body that can't be read is any byte.
    pub(super) fn feed(&mut self, frame: &[u8]) -> bool {
        let fed = self.decoder.take().and_then(|d| d.feed(frame).ok());
        let Some((decoder, content)) = fed else {
            return !frame.is_empty();
        };
        self.decoder = Some(decoder);
        content
    }

    /// The reader, with what it found up to the body's end or to where it broke off.
    pub(super) fn finish(self) -> Option<Plain> {
        let mut decoder = self.decoder?;
        // The sum at the end of a gzip member is compared here.
        let ended = match &mut decoder {
            Decoder::Gzip(decoder) => decoder.try_finish(),
            Decoder::Deflate(decoder) => decoder.try_finish(),
        };
        match ended {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => None,
            _ => Some(std::mem::replace(&mut decoder.sink().reader, Plain::Blind)),
        }
    }
}

// === impl Decoder ===

impl Decoder {
    fn feed(mut self, frame: &[u8]) -> io::Result<(Decoder, bool)> {
        let sink = self.sink();
        let came = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        sink.left = sink.left.saturating_add(came.saturating_mul(MOST_RATIO));
        sink.left_at_once = MOST_AT_ONCE;
        // What is still inside may be the event that the client is about to get.
        let mut fed = match self {
            Decoder::Gzip(decoder) => {
                let mut decoder = members(decoder, frame)?;
                decoder.flush()?;
                Decoder::Gzip(decoder)
            }
            Decoder::Deflate(mut decoder) => {
                decoder.write_all(frame)?;
                decoder.flush()?;
                Decoder::Deflate(decoder)
            }
        };
        let sink = fed.sink();
        let content = std::mem::take(&mut sink.content);
        take_from_turn(MOST_AT_ONCE - sink.left_at_once + came.saturating_mul(LOOK));
        Ok((fed, content))
    }

    fn sink(&mut self) -> &mut Sink {
        match self {
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Deflate(decoder) => decoder.get_mut(),
        }
    }
}

/// Feeds a frame to a member of gzip, and to those behind it.
fn members(mut decoder: GzDecoder<Sink>, mut frame: &[u8]) -> io::Result<GzDecoder<Sink>> {
    while !frame.is_empty() {
        let taken = decoder.write(frame)?;
        if taken == 0 {
            // The member has ended.
            let mut sink = decoder.finish()?;
            sink.charge(MEMBER)?;
            decoder = GzDecoder::new(sink);
        }
        frame = frame.get(taken..).unwrap_or_default();
    }
    Ok(decoder)
}

/// Lets the task's next read or write give way to others once its turn is used up. Nobody is to be woken
/// here: whoever reads or writes then is.
fn take_from_turn(work: u64) {
    let mut nobody = Context::from_waker(Waker::noop());
    for _ in 0..work / STEP {
        match poll_proceed(&mut nobody) {
            Poll::Ready(step) => step.made_progress(),
            Poll::Pending => return,
        }
    }
}

// === impl Sink ===

impl Sink {
    fn new(reader: Plain) -> Sink {
        Sink {
            reader,
            left: FREE,
            left_at_once: MOST_AT_ONCE,
            content: false,
        }
    }

    fn charge(&mut self, work: u64) -> io::Result<()> {
        let less = |left: u64| left.checked_sub(work).ok_or(io::ErrorKind::QuotaExceeded);
        self.left = less(self.left)?;
        self.left_at_once = less(self.left_at_once)?;
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let came = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.charge(came)?;
        self.content |= self.reader.feed(piece, false);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Found, Kind, Reader};
    use super::*;
    use crate::telemetry::log::Usage;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use http::HeaderValue;
    use http::header::CONTENT_TYPE;

    const ANSWER: &str =
        r#"{"model":"m","usage":{"prompt_tokens":12,"completion_tokens":34},"x":1}"#;

    const USAGE: Usage = Usage {
        input: Some(12),
        output: Some(34),
        cached: None,
    };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn reader(coding: &'static str, kind: &'static str) -> Reader {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Reader::for_response(Kind::of(&headers), &headers, 1024)
    }

    fn read(coding: &'static str, pieces: &[&[u8]]) -> Found {
        let mut reader = reader(coding, "application/json");
        for piece in pieces {
            reader.feed(piece, false);
        }
        reader.finish()
    }

    #[test]
    fn a_packed_answer_is_read_wherever_it_is_cut() {
        for (coding, bytes) in [
            ("gzip", gzip(ANSWER.as_bytes())),
            ("X-GZIP", gzip(ANSWER.as_bytes())),
            ("deflate", deflate(ANSWER.as_bytes())),
            ("identity", ANSWER.as_bytes().to_vec()),
        ] {
            for cut in 0..=bytes.len() {
                let found = read(coding, &[&bytes[..cut], &bytes[cut..]]);
                assert_eq!(found.usage, USAGE, "{coding} cut at {cut}");
                assert_eq!(found.model.as_deref(), Some("m"));
            }
        }
    }

    #[test]
    fn members_behind_each_other_are_one_body() {
        let (first, second) = ANSWER.as_bytes().split_at(20);
        let bytes = [gzip(first), gzip(b""), gzip(second)].concat();
        assert_eq!(read("gzip", &[&bytes]).usage, USAGE);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read("gzip", &single).usage, USAGE);
    }

    #[test]
    fn what_is_broken_or_not_read_here_gives_nothing() {
        let good = gzip(ANSWER.as_bytes());
        let mut wrong_sum = good.clone();
        *wrong_sum.iter_mut().nth_back(5).unwrap() ^= 1;
        let mut garbled = good.clone();
        garbled[12..20].fill(0xFF);
        let tail = [&good[..], b"and more, which is no member"].concat();
        for (coding, bytes) in [
            ("gzip", wrong_sum),
            ("gzip", garbled),
            ("gzip", tail),
            ("gzip", ANSWER.as_bytes().to_vec()),
            ("deflate", good.clone()),
            ("br", good.clone()),
            ("gzip, gzip", good.clone()),
            ("gzip, identity", good),
        ] {
            let found = read(coding, &[&bytes]);
            assert_eq!(found.usage, Usage::default(), "{coding} {bytes:?}");
            assert!(found.model.is_none());
        }
    }

    #[test]
    fn a_cut_answer_gives_what_came_before() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(ANSWER.as_bytes()).unwrap();
        encoder.flush().unwrap();
        let came = encoder.get_ref().clone();
        assert_eq!(read("gzip", &[&came]).usage, USAGE);
    }

    #[test]
    fn a_bomb_is_read_to_its_bound_and_no_further() {
        // Blanks, a thousand times as long as they are packed, in front of a usage.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let blanks = vec![b' '; 1 << 20];
        for _ in 0..64 {
            encoder.write_all(&blanks).unwrap();
        }
        encoder.write_all(ANSWER.as_bytes()).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        let mut packed = Packed::gzip(Plain::Blind);
        let mut unpacked = 0;
        for frame in bomb.chunks(1000) {
            packed.feed(frame);
            let Some(decoder) = &mut packed.decoder else {
                break;
            };
            let sent = FREE + 1000 * MOST_RATIO;
            unpacked += sent.saturating_sub(decoder.sink().left);
            assert!(unpacked < 3 * FREE, "{unpacked}");
        }
        assert!(packed.decoder.is_none(), "it was unpacked to its end");
        assert_eq!(read("gzip", &[&bomb]).usage, Usage::default());
    }

    #[test]
    fn a_member_costs_something_even_if_nothing_is_in_it() {
        let empty = gzip(b"");
        let mut packed = Packed::gzip(Plain::Blind);
        let mut fed = 0;
        while packed.decoder.is_some() {
            packed.feed(&empty);
            fed += 1;
            assert!(fed < 2000, "members that hold nothing are read on and on");
        }
        // The same in one frame.
        let mut packed = Packed::gzip(Plain::Blind);
        packed.feed(&empty.repeat(2000));
        assert!(packed.decoder.is_none());
        // A server that makes a member of each event is read.
        let mut reader = reader("gzip", "text/event-stream");
        for n in 0..5000 {
            let event = format!(
                "data: {{\"id\":\"chatcmpl-{n:032x}\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\
                 \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word {n}\"}},\"finish_reason\":null}}]}}\n\n"
            );
            reader.feed(&gzip(event.as_bytes()), false);
        }
        reader.feed(
            &gzip(b"data: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}\n\n"),
            false,
        );
        assert_eq!(reader.finish().usage, USAGE);
    }

    #[test]
    fn what_came_before_is_no_leave_to_unpack_all_at_once() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
        let plain = encoder.finish().unwrap();
        let bomb = gzip(&vec![b' '; 8 << 20]);
        let mut packed = Packed::gzip(Plain::Blind);
        for frame in plain.chunks(64 << 10) {
            packed.feed(frame);
        }
        assert!(packed.decoder.as_mut().unwrap().sink().left > 16 << 20);
        packed.feed(&bomb);
        assert!(packed.decoder.is_none(), "8 MiB in one frame");
    }

    #[tokio::test]
    async fn unpacking_is_taken_from_the_tasks_turn() {
        use tokio::task::coop::has_budget_remaining;
        let bomb = gzip(&vec![b' '; 4_000_000]);
        let (before, after, read) = tokio::spawn(async move {
            let mut packed = Packed::gzip(Plain::Blind);
            let before = has_budget_remaining();
            packed.feed(&bomb);
            (before, has_budget_remaining(), packed.decoder.is_some())
        })
        .await
        .unwrap();
        assert_eq!((before, after, read), (true, false, true));
    }

    #[test]
    fn the_first_content_is_found_in_packed_events() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let mut came = Vec::new();
        for event in [
            ": a comment\n\n",
            "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
            "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}\n\n",
        ] {
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
            came.push(std::mem::take(encoder.get_mut()));
        }
        came.push(encoder.finish().unwrap());
        let mut reader = reader("gzip", "text/event-stream");
        let content: Vec<bool> = came.iter().map(|frame| reader.feed(frame, false)).collect();
        assert_eq!(content, [false, false, true, false, false]);
        assert_eq!(reader.finish().usage, USAGE);
    }
}
