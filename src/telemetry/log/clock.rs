//! RFC 3339 timestamps in UTC with milliseconds, the calendar part worked out once a second.

use std::time::{SystemTime, UNIX_EPOCH};

/// Writes timestamps; one for each worker.
pub struct Clock {
    second: i64,
    text: [u8; 19],
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            second: i64::MIN,
            text: *b"0000-00-00T00:00:00",
        }
    }
}

impl Clock {
    /// Appends the time now, such as `2026-11-29T14:12:40.123Z`.
    pub fn write_now(&mut self, out: &mut Vec<u8>) {
        self.write(SystemTime::now(), out);
    }

    fn write(&mut self, at: SystemTime, out: &mut Vec<u8>) {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        if second != self.second {
            self.second = second;
            if let Ok(t) = jiff::Timestamp::from_second(second) {
                let text = t.to_string();
                if let Some(head) = text.as_bytes().first_chunk::<19>() {
                    self.text = *head;
                }
            }
        }
        out.extend_from_slice(&self.text);
        let ms = since.subsec_millis();
        let digit = |n: u32| b'0' + u8::try_from(n % 10).unwrap_or(0);
        out.extend_from_slice(&[b'.', digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
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
            let mut out = Vec::new();
            clock.write(UNIX_EPOCH + Duration::from_millis(ms), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
