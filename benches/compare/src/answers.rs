//! What the upstream says. The client knows it too, and holds every answer against it.

use crate::wire::Fault;
use crc32fast::Hasher;

/// The field that asks for a stream: `events=256 size=190 every_us=5000 hold=1`.
pub const SHAPE: &str = "x-shape";
/// The field of an answer that says which body arrived: its length and checksum.
pub const RECEIVED: &str = "x-received";
/// The last event of a stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Most that a stream may ask for, so that nothing here grows without end.
const MOST_EVENTS: u64 = 1_000_000;
const LARGEST_EVENT: usize = 64 * 1024;

const EVENT_START: &str =
    r#"data: {"id":"chatcmpl-5f0c","object":"chat.completion.chunk","created":1760000000,"sent":""#;
const SENT_DIGITS: usize = 16;
const EVENT_MIDDLE: &str = r#"","model":"m","choices":[{"index":0,"delta":{"content":""#;
const EVENT_END: &str = "\"},\"finish_reason\":null}]}\n\n";
const CLOSING_START: &str = r#"data: {"id":"chatcmpl-5f0c","object":"chat.completion.chunk","created":1760000000,"model":"m","choices":[],"#;

/// A stream as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many events, the closing ones not counted.
    pub events: u64,
    /// Bytes an event.
    pub size: usize,
    /// Microseconds from one event to the next; at 0 they follow each other.
    pub every_us: u64,
    /// Whether the stream falls silent behind its events until it is let go.
    pub hold: bool,
}

impl Shape {
    /// As it stands in the field.
    pub fn field(&self) -> String {
        let Self {
            events,
            size,
            every_us,
            hold,
        } = self;
        format!(
            "events={events} size={size} every_us={every_us} hold={}",
            u8::from(*hold)
        )
    }

    /// Out of the field.
    pub fn read(field: &str) -> Result<Self, Fault> {
        let number = |name: &str| -> Result<u64, Fault> {
            field
                .split(' ')
                .filter_map(|word| word.split_once('='))
                .find_map(|(key, value)| {
                    if key == name {
                        value.parse().ok()
                    } else {
                        None
                    }
                })
                .ok_or_else(|| format!("{SHAPE} without a number for {name}: {field}"))
        };
        Ok(Self {
            events: number("events")?.min(MOST_EVENTS),
            size: usize::try_from(number("size")?)
                .unwrap_or(LARGEST_EVENT)
                .min(LARGEST_EVENT),
            every_us: number("every_us")?,
            hold: number("hold")? != 0,
        })
    }
}

/// The answer to a request that asks for no stream: 1.2 kB of JSON.
pub fn completion() -> Vec<u8> {
    let text = "Forty-two engines hum in the hall, and each of them has its own tale. ".repeat(13);
    format!(
        r#"{{"id":"chatcmpl-5f0c","object":"chat.completion","created":1760000000,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}","tool_calls":null}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":311,"completion_tokens":183,"total_tokens":494,"prompt_tokens_details":{{"cached_tokens":256}}}}}}"#
    )
    .into_bytes()
}

/// What the upstream says of a body that it got.
pub fn received(length: u64, sum: u32) -> String {
    format!("{length}-{sum:08x}")
}

/// An event of the given size as one chunk, with a place for the time.
#[derive(Debug)]
pub struct Event {
    chunk: Vec<u8>,
    start: usize,
    end: usize,
}

impl Event {
    /// Smaller than its fixed parts it can't be.
    pub fn new(size: usize) -> Self {
        let fixed = EVENT_START.len() + SENT_DIGITS + EVENT_MIDDLE.len() + EVENT_END.len();
        let filler: String = ('a'..='z')
            .cycle()
            .take(size.saturating_sub(fixed))
            .collect();
        let event = format!("{EVENT_START}{:016}{EVENT_MIDDLE}{filler}{EVENT_END}", 0);
        let line = format!("{:x}\r\n", event.len());
        Self {
            start: line.len(),
            end: line.len() + event.len(),
            chunk: format!("{line}{event}\r\n").into_bytes(),
        }
    }

    /// The chunk, sent at this time; the checksum takes the event in.
    pub fn at(&mut self, mut time: u64, sum: &mut Hasher) -> &[u8] {
        let digits = self.start + EVENT_START.len();
        for place in self.chunk[digits..digits + SENT_DIGITS].iter_mut().rev() {
            *place = b'0' + (time % 10) as u8;
            time /= 10;
        }
        sum.update(&self.chunk[self.start..self.end]);
        &self.chunk
    }
}

/// When an event was sent; `None` where it is none of the upstream's.
pub fn sent(event: &[u8]) -> Option<u64> {
    let digits = event
        .strip_prefix(EVENT_START.as_bytes())?
        .get(..SENT_DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The event behind the others: how many there were, and the checksum of all their bytes.
pub fn closing(events: u64, sum: u32) -> String {
    format!(
        "{CLOSING_START}\"usage\":{{\"prompt_tokens\":311,\"completion_tokens\":{events},\"total_tokens\":{}}},\"sum\":\"{sum:08x}\"}}\n\n",
        311 + events
    )
}

/// Whether an event is the closing one.
pub fn is_closing(event: &[u8]) -> bool {
    event.starts_with(CLOSING_START.as_bytes())
}
