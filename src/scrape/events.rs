//! A stream of server-sent events (WHATWG HTML, 9.2), as a kvgauge's `/kv/stream` is one: of each event
//! the data.

use super::explain::{Keys, explain};
use super::fetch::{AnswerBody, Failed, Fetcher, broken};
use super::probe::{Access, Missed, missed};
use crate::config::{Scrape, Target};
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of one event. A kvgauge's are some 30 kB.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// See the [module](self) description. Use it within a tokio `LocalRuntime` or `LocalSet`.
pub(crate) struct EventStream {
    name: String,
    url: Target,
    body: AnswerBody,
    lines: EventLines,
    /// It has the connection's pool.
    _fetcher: Fetcher,
}

/// From bytes to the data of events.
#[derive(Debug, Default)]
struct EventLines {
    /// Not yet read to the end of a line.
    bytes: Vec<u8>,
    /// Where in them the next line begins.
    at: usize,
    /// Of the event that is being read.
    data: Vec<u8>,
}

// === impl EventStream ===

impl EventStream {
    /// Asks for it; `name` is what the server is called in words.
    pub(crate) async fn open(
        name: &str,
        url: &Target,
        scrape: &Scrape,
        access: &Access,
    ) -> Result<EventStream, Missed> {
        let mut fetcher = access.fetcher(url, scrape);
        match fetcher.open_events().await {
            Ok(body) => Ok(EventStream {
                name: name.to_owned(),
                url: url.clone(),
                body,
                lines: EventLines::default(),
                _fetcher: fetcher,
            }),
            Err(failed) => Err(missed(&failed, explain(name, url, &failed, &Keys::SOURCE))),
        }
    }

    /// The next event's data; `None` where the server has ended the stream. `silence`: how long nothing
    /// at all may come.
    pub(crate) async fn next(&mut self, silence: Duration) -> Result<Option<Vec<u8>>, Missed> {
        loop {
            if let Some(data) = self.lines.next() {
                return Ok(Some(data));
            }
            if self.lines.held() > MOST_BYTES {
                let seen = format!("has an event of more than {MOST_BYTES} bytes");
                return Err(self.failed(&Failed::Broken(seen)));
            }
            let frame = match timeout(silence, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(self.failed(&broken(&error))),
                Ok(None) => return Ok(None),
                Err(_) => return Err(self.failed(&Failed::Timeout(silence))),
            };
            if let Some(data) = frame.data_ref() {
                self.lines.add(data);
            }
        }
    }

    fn failed(&self, failed: &Failed) -> Missed {
        missed(
            failed,
            explain(&self.name, &self.url, failed, &Keys::SOURCE),
        )
    }
}

// === impl EventLines ===

impl EventLines {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn held(&self) -> usize {
        self.bytes.len() - self.at + self.data.len()
    }

    /// The data of the next event that is there whole. Comments and other fields are passed over.
    fn next(&mut self) -> Option<Vec<u8>> {
        while let Some(end) = memchr::memchr(b'\n', &self.bytes[self.at..]) {
            let line = &self.bytes[self.at..self.at + end];
            self.at += end + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                // An event without data is none.
                if self.data.pop().is_some() {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                self.data
                    .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
                self.data.push(b'\n');
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_they_are_cut() {
        let text = ":\n\nevent: moment\nid: 1\ndata: {\"a\":\ndata: 1}\n\n: still here\r\n\r\n\
                    event: nothing\n\ndata:2\r\n\r\ndata: not whole";
        for size in 1..text.len() {
            let mut lines = EventLines::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.add(piece);
                while let Some(data) = lines.next() {
                    seen.push(String::from_utf8(data).unwrap());
                }
            }
            assert_eq!(seen, ["{\"a\":\n1}", "2"], "in pieces of {size}");
        }
    }
}
