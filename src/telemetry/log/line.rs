//! What stands in a line, and in which order: the one list of the log's fields.

use std::time::Duration;

/// Bytes of `url.path` and of model names that are kept; the rest is cut.
const MOST_TEXT: usize = 1024;

/// Bytes of a line, where no name is long.
const USUAL_LINE: usize = 1024;

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

impl Record<'_> {
    /// Appends the members after `timestamp`, and ends the line.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        /// A member's name as it stands in the line.
        macro_rules! name {
            ($name:literal) => {
                concat!(",\"", $name, "\":").as_bytes()
            };
        }
        out.reserve(USUAL_LINE);
        let mut w = Members(out);
        w.plain(name!("http.request.method"), self.method);
        w.text(name!("url.path"), self.path);
        w.number(name!("http.response.status_code"), self.status);
        w.plain(name!("network.protocol.version"), self.version);
        w.plain(name!("client.address"), Some(self.client));
        w.plain(name!("error.type"), self.error_type);
        w.text(name!("gen_ai.request.model"), self.request_model);
        w.text(name!("gen_ai.response.model"), self.response_model);
        w.number(name!("gen_ai.usage.input_tokens"), self.usage.input);
        w.number(name!("gen_ai.usage.output_tokens"), self.usage.output);
        let cached = self.usage.cached;
        w.number(name!("gen_ai.usage.cache_read.input_tokens"), cached);
        w.plain(name!("trace_id"), self.trace_id);
        w.text(name!("request.id"), self.request_id);
        if self.upstream_request_id.is_some() {
            w.text(name!("upstream.request_id"), self.upstream_request_id);
        }
        w.plain(name!("outcome"), Some(self.outcome));
        w.millis(name!("duration_ms"), Some(self.duration));
        w.millis(name!("ttft_ms"), self.ttft);
        w.millis(name!("tpot_ms"), self.tpot);
        w.flag(name!("stream"), self.stream);
        w.number(name!("bytes_in"), Some(self.bytes_in));
        w.number(name!("bytes_out"), Some(self.bytes_out));
        for fragment in [self.kv_start, self.kv_end] {
            if !fragment.is_empty() {
                out.push(b',');
                out.extend_from_slice(fragment);
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Appends members; their names come with comma, quotes and colon.
struct Members<'a>(&'a mut Vec<u8>);

impl Members<'_> {
    fn raw(&mut self, name: &[u8], value: &[u8]) {
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, name: &[u8], value: Option<&str>) {
        let Some(text) = value else {
            return self.raw(name, b"null");
        };
        self.0.extend_from_slice(name);
        write_text(self.0, cut(text));
    }

    /// Of what can hold nothing that would have to be escaped: tokens (RFC 9110, 5.6.2), addresses, and
    /// words of our own.
    fn plain(&mut self, name: &[u8], value: Option<&str>) {
        let Some(text) = value else {
            return self.raw(name, b"null");
        };
        self.raw(name, b"\"");
        self.raw(cut(text).as_bytes(), b"\"");
    }

    fn number(&mut self, name: &[u8], value: Option<impl Into<u64>>) {
        match value {
            Some(n) => self.raw(name, itoa::Buffer::new().format(n.into()).as_bytes()),
            None => self.raw(name, b"null"),
        }
    }

    fn flag(&mut self, name: &[u8], value: Option<bool>) {
        self.raw(
            name,
            match value {
                Some(true) => b"true",
                Some(false) => b"false",
                None => b"null",
            },
        );
    }

    /// Milliseconds with three decimals.
    fn millis(&mut self, name: &[u8], value: Option<Duration>) {
        let Some(value) = value else {
            return self.raw(name, b"null");
        };
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.raw(name, itoa::Buffer::new().format(micros / 1000).as_bytes());
        let digit = |n: u64| b'0' + u8::try_from(n % 10).unwrap_or(0);
        let places = [digit(micros / 100), digit(micros / 10), digit(micros)];
        self.0.push(b'.');
        self.0.extend_from_slice(&places);
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

/// Appends a JSON string. What needs no escaping, nearly everything, is copied as it is.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    // All are looked at, so that many are at once.
    let plain = text.bytes().fold(true, |plain, b| {
        plain & (b >= 0x20) & (b != b'"') & (b != b'\\')
    });
    if plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else if serde_json::to_writer(&mut *out, text).is_err() {
        out.extend_from_slice(b"null");
    }
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
        let mut out = b"{\"timestamp\":null".to_vec();
        record.write(&mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        assert!(!out.contains(&b'\n'), "one object a line");
        serde_json::from_slice(&out).unwrap()
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
}
