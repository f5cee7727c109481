//! An event stream (WHATWG HTML, 9.2.5), as far as usage, model and the first content need it.

use super::{Found, fields};
use memchr::memmem::Finder;
use memchr::{memchr2, memrchr2};
use std::sync::LazyLock;

/// Reads `data:` lines. A line cut by a frame's end is carried over, up to a bound; a longer one is
/// passed by without being read. Lines end with CR, LF or both; between the two stands an empty line,
/// which says nothing.
///
/// Once the first content and the model are known, or the model has been looked for in
/// [`MOST_PARSED`] events, a frame is only searched for what may hold a usage. Of more such events than
/// that the last one is kept, and read at the end: in streams that report in each event the counts grow.
#[derive(Debug)]
pub struct Events {
    most_carry: usize,
    carry: Vec<u8>,
    /// Inside a line that was too long to carry.
    skipping: bool,
    content_seen: bool,
    /// Events parsed.
    parsed: u32,
    /// One of these had a `meta_info`, as each of SGLang's own `/generate` has.
    has_meta: bool,
    /// The last event that may hold a usage, where it has not been parsed.
    last: Vec<u8>,
    found: Found,
}

/// After so many events without content the next one counts as content: a shape not known here.
const MOST_LOOKED_AT: u32 = 256;

/// Events parsed for a model and for usages as they come.
const MOST_PARSED: u32 = 16;

impl Events {
    pub(super) fn new(most_carry: usize) -> Events {
        Events {
            most_carry,
            carry: Vec::new(),
            skipping: false,
            content_seen: false,
            parsed: 0,
            has_meta: false,
            last: Vec::new(),
            found: Found::default(),
        }
    }

    /// Reads a frame; true when the first content event ended in it.
    #[inline]
    pub(super) fn feed(&mut self, frame: &[u8]) -> bool {
        // Most frames by far are whole lines behind whole lines, in which nothing new can stand.
        let is_searched = matches!(frame, [.., b'\n' | b'\r'])
            && self.carry.is_empty()
            && !self.skipping
            && !self.is_looking();
        if is_searched && !self.may_hold_usage(frame) {
            return false;
        }
        self.read(frame, is_searched)
    }

    #[inline(never)]
    fn read(&mut self, frame: &[u8], is_searched: bool) -> bool {
        let seen_before = self.content_seen;
        let whole = match frame {
            [.., b'\n' | b'\r'] => frame.len(),
            _ => memrchr2(b'\r', b'\n', frame).map_or(0, |end| end + 1),
        };
        let (lines, rest) = frame.split_at(whole);
        self.lines(lines, is_searched);
        if !self.skipping {
            if self.carry.len() + rest.len() <= self.most_carry {
                self.carry.extend_from_slice(rest);
            } else {
                self.carry = Vec::new();
                self.skipping = true;
            }
        }
        self.content_seen && !seen_before
    }

    /// Reads lines that are whole, the first one's beginning aside. Whether they have been searched for
    /// a usage.
    fn lines(&mut self, mut lines: &[u8], mut searched: bool) {
        while !lines.is_empty() {
            let is_cut = self.skipping || !self.carry.is_empty();
            // One search for all lines, where none of them is read for anything else.
            if !is_cut && !searched && !self.is_looking() {
                searched = true;
                if !self.may_hold_usage(lines) {
                    return;
                }
            }
            let end = memchr2(b'\r', b'\n', lines).unwrap_or(lines.len() - 1);
            let (line, rest) = (&lines[..end], &lines[end + 1..]);
            lines = rest;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.carry.is_empty() {
                self.line(line);
            } else if self.carry.len() + line.len() <= self.most_carry {
                let mut whole = std::mem::take(&mut self.carry);
                whole.extend_from_slice(line);
                self.line(&whole);
                whole.clear();
                self.carry = whole;
            } else {
                self.carry.clear();
            }
        }
    }

    pub(super) fn finish(mut self) -> Found {
        self.read_last();
        if let Some(data) = data_of(&self.carry).filter(|data| self.is_to_be_read(data)) {
            fields::from_event(data, &mut self.found);
        }
        self.found
    }

    fn read_last(&mut self) {
        let last = std::mem::take(&mut self.last);
        if let Some(data) = data_of(&last) {
            fields::from_event(data, &mut self.found);
        }
    }

    /// Whether each event is parsed.
    fn is_looking(&self) -> bool {
        !self.content_seen || (self.found.model.is_none() && self.parsed < MOST_PARSED)
    }

    fn is_to_be_read(&self, data: &[u8]) -> bool {
        self.is_looking() || self.may_hold_usage(data)
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = data_of(line).filter(|data| self.is_to_be_read(data)) else {
            return;
        };
        if self.parsed >= MOST_PARSED && self.content_seen {
            if line.len() <= self.most_carry {
                self.last.clear();
                self.last.extend_from_slice(line);
                return;
            }
            self.read_last();
        }
        self.parsed += 1;
        self.has_meta |= holds_object(data, &META);
        let content = fields::from_event(data, &mut self.found);
        self.content_seen |= content || self.parsed >= MOST_LOOKED_AT;
    }

    /// Whether a usage that is not null may stand in the text, or what `/generate`, which names no model,
    /// has in its place.
    #[inline]
    fn may_hold_usage(&self, text: &[u8]) -> bool {
        let by_meta = self.has_meta && self.found.model.is_none();
        holds_object(text, &USAGE) || (by_meta && holds_object(text, &META))
    }
}

/// Made once: making one costs more than a search.
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static META: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"meta_info\""));

/// An event's data, where the line holds any.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    // A byte order mark may stand before the first line (WHATWG HTML, 9.2.5).
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let data = line.strip_prefix(b"data:")?.trim_ascii();
    (!data.is_empty() && data != b"[DONE]").then_some(data)
}

/// Whether a member of this name whose value is an object may stand in the text. Inside a JSON string the
/// quotes would be escaped, so text that speaks of it is not taken for it.
#[inline]
fn holds_object(text: &[u8], name: &Finder<'static>) -> bool {
    let at = name.find(text);
    at.is_some_and(|at| is_object_from(at, text, name))
}

/// The same of a text in which the name has been found there.
#[inline(never)]
fn is_object_from(mut at: usize, mut text: &[u8], name: &Finder<'static>) -> bool {
    loop {
        text = &text[at + name.needle().len()..];
        let value = text.trim_ascii_start().strip_prefix(b":");
        if value.is_some_and(|v| v.trim_ascii_start().first() == Some(&b'{')) {
            return true;
        }
        match name.find(text) {
            Some(next) => at = next,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::log::Usage;
    use proptest::prelude::*;
    use proptest::sample::select;

    const STREAM: &str = concat!(
        "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"你好 \\\"usage\\\"\"}}]}\n\n",
        ": a comment\r\n",
        "data:{\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34,",
        "\"prompt_tokens_details\":{\"cached_tokens\":5}}}\r\n\r\n",
        "data: [DONE]\n\n",
    );

    fn read(pieces: &[&[u8]], carry: usize) -> (Found, Option<usize>) {
        let mut events = Events::new(carry);
        let mut first = None;
        for (i, piece) in pieces.iter().enumerate() {
            if events.feed(piece) {
                first = Some(i);
            }
        }
        (events.finish(), first)
    }

    const EXPECTED: Usage = Usage {
        input: Some(12),
        output: Some(34),
        cached: Some(5),
    };

    #[test]
    fn reads_usage_model_and_first_content_wherever_frames_end() {
        let bytes = STREAM.as_bytes();
        for cut in 0..=bytes.len() {
            let (found, first) = read(&[&bytes[..cut], &bytes[cut..]], 1024);
            assert_eq!(found.usage, EXPECTED, "cut at {cut}");
            assert_eq!(found.model.as_deref(), Some("m"));
            assert!(first.is_some());
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single, 1024).0.usage, EXPECTED);
    }

    #[test]
    fn a_line_ends_with_cr_lf_or_both() {
        for end in ["\r", "\n", "\r\n"] {
            let stream = STREAM.replace("\r\n", "\n").replace('\n', end);
            let bytes = stream.as_bytes();
            for cut in 0..=bytes.len() {
                let (found, first) = read(&[&bytes[..cut], &bytes[cut..]], 1024);
                assert_eq!(found.usage, EXPECTED, "{end:?} cut at {cut}");
                assert_eq!(found.model.as_deref(), Some("m"));
                assert!(first.is_some());
            }
            let long = format!("data: {{\"x\":\"{}", "y".repeat(300));
            let rest = format!("\"}}{end}{stream}");
            let (found, _) = read(&[long.as_bytes(), rest.as_bytes()], 256);
            assert_eq!(found.usage, EXPECTED, "{end:?} behind a long line");
        }
    }

    #[test]
    fn a_byte_order_mark_hides_nothing() {
        let stream = [b"\xef\xbb\xbf", STREAM.as_bytes()].concat();
        assert_eq!(read(&[&stream], 1024).0.usage, EXPECTED);
        let last = STREAM
            .split("\n\n")
            .nth(2)
            .unwrap()
            .split("\r\n")
            .nth(1)
            .unwrap();
        let stream = [b"\xef\xbb\xbf", last.as_bytes(), b"\n\n"].concat();
        assert_eq!(read(&[&stream], 1024).0.usage, EXPECTED);
    }

    #[test]
    fn the_role_event_is_not_content() {
        let events: Vec<&[u8]> = STREAM.split_inclusive("\n\n").map(str::as_bytes).collect();
        assert_eq!(read(&events, 1024).1, Some(1));
    }

    #[test]
    fn a_line_over_the_bound_is_passed_by_and_the_next_one_is_read() {
        let long = format!("data: {{\"x\":\"{}", "y".repeat(300));
        let (found, _) = read(&[long.as_bytes(), b"\"}\n", STREAM.as_bytes()], 256);
        assert_eq!(found.usage, EXPECTED);
    }

    #[test]
    fn without_a_usage_event_nothing_is_known() {
        let (found, _) = read(
            &[b"data: {\"choices\":[],\"usage\":null}\n\ndata: not json\n\n"],
            256,
        );
        assert_eq!(found.usage, Usage::default());
    }

    /// An event of SGLang's own `/generate`.
    fn generated(tokens: u64) -> String {
        format!(
            "data: {{\"text\":\"a b\",\"meta_info\":{{\"prompt_tokens\":12,\"completion_tokens\":{tokens},\
             \"cached_tokens\":5}}}}\n\n"
        )
    }

    #[test]
    fn of_counts_that_grow_the_last_ones_are_told_wherever_the_stream_breaks_off() {
        for events in [1, 15, 16, 17, 40] {
            let stream: String = (1..=events).map(generated).collect();
            for end in [
                "",
                "data: [DONE]\n\n",
                "data: {\"text\":\"a\",\"meta_info\":{\"completion_tok",
                "data: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":1",
            ] {
                let stream = format!("{stream}{end}");
                for size in [1, 7, 100, stream.len()] {
                    let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
                    let expected = Usage {
                        output: Some(events),
                        ..EXPECTED
                    };
                    assert_eq!(
                        read(&pieces, 1024).0.usage,
                        expected,
                        "{events} and {end:?}"
                    );
                    if let [whole] = pieces[..] {
                        // Nothing is carried, and the events are too long to be kept.
                        assert_eq!(read(&[whole], 16).0.usage, expected);
                    }
                }
            }
        }
    }

    #[test]
    fn a_usage_in_each_event_is_told_by_the_last_one() {
        let stream: String = (1..=50)
            .map(|n| {
                format!(
                    "data: {{\"model\":\"m\",\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}],\
                     \"usage\":{{\"prompt_tokens\":12,\"completion_tokens\":{n}}}}}\n\n"
                )
            })
            .collect();
        let (found, first) = read(&[stream.as_bytes()], 1024);
        assert_eq!(
            (found.usage.input, found.usage.output),
            (Some(12), Some(50))
        );
        assert_eq!(first, Some(0));
    }

    #[test]
    fn a_usage_is_found_behind_events_that_name_no_model_or_are_no_json() {
        for event in [
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"t\":007,\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        ] {
            let stream = event.repeat(100) + STREAM;
            for size in [1, 50, stream.len()] {
                let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
                let (found, first) = read(&pieces, 1024);
                assert_eq!(found.usage, EXPECTED);
                assert!(first.is_some());
            }
        }
    }

    #[test]
    fn the_model_is_looked_for_in_the_first_events_and_where_a_usage_is() {
        let nameless = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let named = "data: {\"model\":\"m\",\"choices\":[]}\n\n";
        let model = |before: usize| {
            let stream = nameless.repeat(before) + named;
            read(&[stream.as_bytes()], 1024).0.model
        };
        assert_eq!(model(15).as_deref(), Some("m"));
        assert_eq!(model(16), None);
        let stream = nameless.repeat(16) + STREAM;
        assert_eq!(
            read(&[stream.as_bytes()], 1024).0.model.as_deref(),
            Some("m")
        );
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_makes_no_difference(
            events in proptest::collection::vec(select(vec![
                "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
                "data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"usage\\\":{\"}}]}",
                "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}],\"usage\":null}",
                "data: {\"usage\":{\"prompt_tokens\":12}}",
                "data: {\"x\":\"usage\",\"usage\" : { \"completion_tokens\":34}}",
                "data: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":35,\"cached_tokens\":5}}",
                "data: {\"usage\":{\"completion_tokens\":0036}}",
                "data: not json", "data: [DONE]", "data:", "event: message", ": a comment", "",
            ]), 0..40),
            end in select(vec!["\n\n", "\r\n\r\n", "\r", "\n"]),
            cuts in proptest::collection::vec(0usize..2000, 0..8),
            carry in select(vec![16, 64, 1024]),
        ) {
            let stream = events.join(end);
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            let (cut, first) = read(&pieces, 1024);
            let (whole, first_of_whole) = read(&[bytes], 1024);
            prop_assert_eq!(cut.usage, whole.usage);
            prop_assert_eq!(cut.model, whole.model);
            prop_assert_eq!(first.is_some(), first_of_whole.is_some());
            let _ = read(&pieces, carry);
        }
    }
}
