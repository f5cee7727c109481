//! An event stream (WHATWG HTML, 9.2.5), as far as usage, model and the first content need it.

use super::{Found, fields};
use memchr::memchr2;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Reads `data:` lines. A line cut by a frame's end is carried over, up to a bound; a longer one is
/// passed by without being read. Lines end with CR, LF or both; between the two stands an empty line,
/// which says nothing.
#[derive(Debug)]
pub struct Events {
    most_carry: usize,
    carry: Vec<u8>,
    /// Inside a line that was too long to carry.
    skipping: bool,
    content_seen: bool,
    /// Events looked at for the first content, which is bounded.
    looked_at: u32,
    found: Found,
}

/// After so many events without content the next one counts as content: a shape not known here.
const MOST_LOOKED_AT: u32 = 256;

impl Events {
    pub(super) fn new(most_carry: usize) -> Events {
        Events {
            most_carry,
            carry: Vec::new(),
            skipping: false,
            content_seen: false,
            looked_at: 0,
            found: Found::default(),
        }
    }

    /// Reads a frame; true when the first content event ended in it.
    pub(super) fn feed(&mut self, mut frame: &[u8]) -> bool {
        let seen_before = self.content_seen;
        while let Some(end) = memchr2(b'\r', b'\n', frame) {
            let (line, rest) = (&frame[..end], &frame[end + 1..]);
            frame = rest;
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
        if !self.skipping {
            if self.carry.len() + frame.len() <= self.most_carry {
                self.carry.extend_from_slice(frame);
            } else {
                self.carry = Vec::new();
                self.skipping = true;
            }
        }
        self.content_seen && !seen_before
    }

    pub(super) fn finish(mut self) -> Found {
        let last = std::mem::take(&mut self.carry);
        self.line(&last);
        self.found
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else {
            return;
        };
        let data = data.trim_ascii();
        if data.is_empty() || data == b"[DONE]" {
            return;
        }
        // Most events carry neither a usage nor anything new: two searches, no parsing.
        if self.content_seen && self.found.model.is_some() && !may_hold_usage(data) {
            return;
        }
        let content = fields::from_event(data, &mut self.found);
        if !self.content_seen {
            self.looked_at += 1;
            self.content_seen = content || self.looked_at >= MOST_LOOKED_AT;
        }
    }
}

/// Whether a `usage` member that is not null may stand in the event. Inside a JSON string the quotes
/// would be escaped, so text that speaks of usage is not taken for it. (SGLang's own `/generate`,
/// which says `meta_info`, names no model, so its events are all parsed.)
fn may_hold_usage(data: &[u8]) -> bool {
    /// Made once: making it costs more than a search.
    static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
    USAGE.find_iter(data).any(|at| {
        let after = data[at + 7..].trim_ascii_start();
        after
            .strip_prefix(b":")
            .is_some_and(|v| v.trim_ascii_start().first() == Some(&b'{'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::log::Usage;

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
}
