//! RFC 3339 timestamps in UTC with milliseconds, the calendar part worked out once a second.

use super::room::four_places;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a line's beginning.
const LENGTH: usize = 39;

/// How a line begins, with the places of a time.
const BEGINNING: [u8; LENGTH] = *b"{\"timestamp\":\"0000-00-00T00:00:00.000Z\"";

/// Where the second begins in it, and where the milliseconds.
const SECOND: usize = 14;
const MILLIS: usize = SECOND + 20;

/// Begins lines with their time; one for each worker.
pub struct Clock {
    second: i64,
    text: [u8; LENGTH],
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            second: i64::MIN,
            text: BEGINNING,
        }
    }
}

impl Clock {
    /// The time now as an object's first member, such as
    /// `{"timestamp":"2026-11-29T14:12:40.123Z"`.
    pub(super) fn line_begins(&mut self) -> &[u8; LENGTH] {
        self.line_began(SystemTime::now())
    }

    fn line_began(&mut self, at: SystemTime) -> &[u8; LENGTH] {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        if second != self.second {
            self.second = second;
            if let Ok(t) = jiff::Timestamp::from_second(second) {
                let text = t.to_string();
                if let Some(head) = text.as_bytes().first_chunk::<19>() {
                    self.text[SECOND..SECOND + 19].copy_from_slice(head);
                }
            }
        }
        let [_, places @ ..] = four_places(since.subsec_millis() as u16);
        self.text[MILLIS..MILLIS + 3].copy_from_slice(&places);
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn is_rfc_3339_in_utc_with_milliseconds() {
        let mut clock = Clock::default();
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
            (1_700_000_000_999, "2023-11-14T22:13:20.999Z"),
            (1_709_210_096_120, "2024-02-29T12:34:56.120Z"),
        ] {
            let began = clock.line_began(UNIX_EPOCH + Duration::from_millis(ms));
            assert_eq!(
                str::from_utf8(began).unwrap(),
                format!("{{\"timestamp\":\"{text}\"")
            );
        }
    }
}
