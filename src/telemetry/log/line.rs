//! What stands in a line, and in which order: the one list of the log's fields.

use super::room::{MOST_ESCAPED, Room};
use std::time::Duration;

/// Bytes of `url.path` and of model names that are kept; the rest is cut.
const MOST_TEXT: usize = 1024;

/// Token counts as the answer reported them; what it did not report is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: Option<u64>,
    /// Tokens generated.
    pub output: Option<u64>,
    /// Of `input`: tokens that came from the prefix cache.
    pub cached: Option<u64>,
}

/// One request, ended. Everything borrowed: a line costs no allocation.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// As sent, `None` where no request was understood.
    pub method: Option<&'a str>,
    /// Without the query.
    pub path: Option<&'a str>,
    /// The status sent; `None` where no head was sent.
    pub status: Option<u16>,
    /// `1.1`.
    pub version: Option<&'static str>,
    /// The address of the connection's peer.
    pub client: &'a str,
    /// What went wrong, a short token.
    pub error_type: Option<&'a str>,
    /// The model asked for.
    pub request_model: Option<&'a str>,
    /// The model that answered.
    pub response_model: Option<&'a str>,
    /// Token counts.
    pub usage: Usage,
    /// From `traceparent`.
    pub trace_id: Option<&'a str>,
    /// The id that router, log and client all see.
    pub request_id: Option<&'a str>,
    /// The router's own id, where it answered with another.
    pub upstream_request_id: Option<&'a str>,
    /// How it ended.
    pub outcome: &'static str,
    /// Head read to last byte.
    pub duration: Duration,
    /// To the first content event, or first body byte where not a stream.
    pub ttft: Option<Duration>,
    /// For each further token.
    pub tpot: Option<Duration>,
    /// Whether the answer was an event stream; `None` without an answer.
    pub stream: Option<bool>,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// The stamp's `"kv.start.…"` members.
    pub kv_start: &'a [u8],
    /// The stamp's `"kv.end.…"` members.
    pub kv_end: &'a [u8],
}

/// Bytes that a line takes at most beside its texts: names, numbers, words and braces.
const MOST_BESIDE: usize = 1024;

/// A member's name as it stands in the line, in front of each kind of value. Constants, so that each is
/// written in one go.
struct Name {
    /// Before a number, a word, or text that brings its quotes.
    bare: &'static [u8],
    /// Before text, with its quote.
    quoted: &'static [u8],
    /// With the value.
    null: &'static [u8],
}

macro_rules! name {
    ($name:literal) => {
        Name {
            bare: concat!(",\"", $name, "\":").as_bytes(),
            quoted: concat!(",\"", $name, "\":\"").as_bytes(),
            null: concat!(",\"", $name, "\":null").as_bytes(),
        }
    };
}

impl Record<'_> {
    /// Bytes that the line takes at most.
    pub(super) fn most_bytes(&self) -> usize {
        let texts: [Option<&str>; 11] = [
            self.method,
            self.path,
            self.version,
            Some(self.client),
            self.error_type,
            self.request_model,
            self.response_model,
            self.trace_id,
            self.request_id,
            self.upstream_request_id,
            Some(self.outcome),
        ];
        let texts = texts.iter().flatten();
        let text_bytes: usize = texts.map(|text| text.len().min(MOST_TEXT)).sum();
        MOST_BESIDE + MOST_ESCAPED * text_bytes + self.kv_start.len() + self.kv_end.len()
    }

    /// Writes the line, given its beginning; says how long it is.
    pub(super) fn write(&self, beginning: &[u8], place: &mut [u8]) -> usize {
        let all = place.len();
        let mut room = Room::new(place);
        room.put(beginning);
        let mut w = Members(room);
        w.plain(&name!("http.request.method"), self.method);
        w.text(&name!("url.path"), self.path);
        w.number(&name!("http.response.status_code"), self.status);
        w.plain(&name!("network.protocol.version"), self.version);
        w.plain(&name!("client.address"), Some(self.client));
        w.plain(&name!("error.type"), self.error_type);
        w.text(&name!("gen_ai.request.model"), self.request_model);
        w.text(&name!("gen_ai.response.model"), self.response_model);
        w.number(&name!("gen_ai.usage.input_tokens"), self.usage.input);
        w.number(&name!("gen_ai.usage.output_tokens"), self.usage.output);
        let cached = self.usage.cached;
        w.number(&name!("gen_ai.usage.cache_read.input_tokens"), cached);
        w.plain(&name!("trace_id"), self.trace_id);
        w.text(&name!("request.id"), self.request_id);
        if self.upstream_request_id.is_some() {
            w.text(&name!("upstream.request_id"), self.upstream_request_id);
        }
        w.plain(&name!("outcome"), Some(self.outcome));
        w.millis(&name!("duration_ms"), Some(self.duration));
        w.millis(&name!("ttft_ms"), self.ttft);
        w.millis(&name!("tpot_ms"), self.tpot);
        w.flag(&name!("stream"), self.stream);
        w.number(&name!("bytes_in"), Some(self.bytes_in));
        w.number(&name!("bytes_out"), Some(self.bytes_out));
        let Members(mut room) = w;
        for fragment in [self.kv_start, self.kv_end] {
            if !fragment.is_empty() {
                room.put(b",");
                room.put(fragment);
            }
        }
        room.put(b"}\n");
        all - room.left()
    }
}

/// Writes members. Inlined where a line is written, so that the length of each name is known there.
struct Members<'a>(Room<'a>);

impl Members<'_> {
    #[inline(always)]
    fn text(&mut self, name: &Name, value: Option<&str>) {
        let Some(text) = value else {
            return self.0.put(name.null);
        };
        self.0.put(name.bare);
        self.0.put_text(cut(text));
    }

    /// Of what can hold nothing that would have to be escaped: tokens (RFC 9110, 5.6.2), addresses, and
    /// words of our own.
    #[inline(always)]
    fn plain(&mut self, name: &Name, value: Option<&str>) {
        let Some(text) = value else {
            return self.0.put(name.null);
        };
        self.0.put(name.quoted);
        self.0.put(cut(text).as_bytes());
        self.0.put(b"\"");
    }

    #[inline(always)]
    fn number(&mut self, name: &Name, value: Option<impl Into<u64>>) {
        let Some(number) = value else {
            return self.0.put(name.null);
        };
        self.0.put(name.bare);
        self.0.put_number(number.into());
    }

    #[inline(always)]
    fn flag(&mut self, name: &Name, value: Option<bool>) {
        let Some(flag) = value else {
            return self.0.put(name.null);
        };
        self.0.put(name.bare);
        self.0.put(if flag { b"true" } else { b"false" });
    }

    /// Milliseconds with three decimals.
    #[inline(always)]
    fn millis(&mut self, name: &Name, value: Option<Duration>) {
        let Some(value) = value else {
            return self.0.put(name.null);
        };
        self.0.put(name.bare);
        let micros = value.as_secs().saturating_mul(1_000_000);
        self.0
            .put_thousandths(micros.saturating_add(value.subsec_micros().into()));
    }
}

fn cut(text: &str) -> &str {
    let mut end = MOST_TEXT;
    if text.len() <= end {
        return text;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        Record {
            method: Some("POST"),
            path: Some("/v1/chat/completions"),
            status: Some(200),
            version: Some("1.1"),
            client: "127.0.0.1",
            error_type: None,
            request_model: Some("m"),
            response_model: None,
            usage: Usage {
                input: Some(12),
                output: Some(34),
                cached: None,
            },
            trace_id: None,
            request_id: Some("abc"),
            upstream_request_id: None,
            outcome: "complete",
            duration: Duration::from_micros(1_234_056),
            ttft: Some(Duration::from_micros(7)),
            tpot: None,
            stream: Some(true),
            bytes_in: 5,
            bytes_out: 6,
            kv_start: b"\"kv.start.usage\":0.0047",
            kv_end: b"\"kv.end.usage\":null",
        }
    }

    fn parsed(record: &Record<'_>) -> serde_json::Value {
        let mut bytes = vec![0; record.most_bytes()];
        let beginning = b"{\"timestamp\":\"2026-11-29T14:12:40.123Z\"";
        let used = record.write(beginning, &mut bytes);
        let line = bytes[..used].strip_suffix(b"\n").unwrap();
        assert!(!line.contains(&b'\n'), "one object a line");
        serde_json::from_slice(line).unwrap()
    }

    #[test]
    fn a_line_is_one_json_object_with_unknown_as_null() {
        let line = parsed(&record());
        assert_eq!(line["duration_ms"], 1234.056);
        assert_eq!(line["ttft_ms"], 0.007);
        assert_eq!(line["gen_ai.usage.input_tokens"], 12);
        assert!(line["gen_ai.usage.cache_read.input_tokens"].is_null());
        assert!(line["tpot_ms"].is_null());
        assert_eq!(line["kv.start.usage"], 0.0047);
        assert!(line["kv.end.usage"].is_null());
    }

    #[test]
    fn hostile_text_stays_inside_its_string() {
        let hostile = "a\"b\\c\nd\u{1}\u{7f}é\u{2028}";
        let line = parsed(&Record {
            path: Some(hostile),
            request_model: Some(hostile),
            ..record()
        });
        assert_eq!(line["url.path"], hostile);
        assert_eq!(line["gen_ai.request.model"], hostile);
    }

    #[test]
    fn long_paths_are_cut_between_characters() {
        let long = "é".repeat(MOST_TEXT);
        let line = parsed(&Record {
            path: Some(&long),
            ..record()
        });
        assert_eq!(line["url.path"].as_str().unwrap().len(), MOST_TEXT);
    }

    #[test]
    fn the_longest_line_has_room() {
        let letters = "x".repeat(MOST_TEXT + 1);
        let escaped = "\u{1}".repeat(MOST_TEXT + 1);
        let (plain, long, max) = (Some(&*letters), Some(&*escaped), Some(u64::MAX));
        let line = parsed(&Record {
            method: plain,
            path: long,
            status: Some(u16::MAX),
            client: &letters,
            error_type: plain,
            request_model: long,
            response_model: long,
            usage: Usage {
                input: max,
                output: max,
                cached: max,
            },
            trace_id: plain,
            request_id: long,
            upstream_request_id: long,
            duration: Duration::MAX,
            ttft: Some(Duration::MAX),
            tpot: Some(Duration::MAX),
            stream: Some(false),
            bytes_in: u64::MAX,
            bytes_out: u64::MAX,
            ..record()
        });
        assert_eq!(
            line["upstream.request_id"].as_str().unwrap().len(),
            MOST_TEXT
        );
        assert_eq!(line["bytes_out"], u64::MAX);
        assert!(line["kv.end.usage"].is_null());
    }
}
