//! The requests that went wrong last, equal ones together. Pure: the log's writer fills it.

use serde::Deserialize;

/// Kinds of failure that are kept.
pub const MOST_FAILURES: usize = 20;

/// Characters of a text that are kept.
const MOST_TEXT: usize = 200;

/// Requests that went wrong alike. Long texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// When the last of them ended, as its line has it: RFC 3339 in UTC.
    #[serde(rename = "timestamp")]
    pub last: String,
    /// How many there were since this kind of failure was first kept.
    #[serde(skip, default = "one")]
    pub count: u64,
    /// The request's method; `None` where no request was understood.
    #[serde(rename = "http.request.method")]
    pub method: Option<String>,
    /// Its path.
    #[serde(rename = "url.path")]
    pub path: Option<String>,
    /// The status sent; `None` where none was.
    #[serde(rename = "http.response.status_code")]
    pub status: Option<u16>,
    /// What went wrong, a short token.
    #[serde(rename = "error.type")]
    pub error: Option<String>,
    /// How it ended.
    pub outcome: String,
}

/// See the [module](self) description.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<Failure>);

// === impl Failure ===

impl Failure {
    /// From a request's line; `None` for what is none.
    pub(super) fn read(line: &[u8]) -> Option<Failure> {
        let mut failure: Failure = serde_json::from_slice(line).ok()?;
        for text in [&mut failure.method, &mut failure.path]
            .into_iter()
            .flatten()
        {
            if let Some((end, _)) = text.char_indices().nth(MOST_TEXT) {
                text.truncate(end);
                text.shrink_to_fit();
            }
        }
        Some(failure)
    }

    fn is_like(&self, other: &Failure) -> bool {
        (self.status, &self.outcome, &self.error) == (other.status, &other.outcome, &other.error)
            && (&self.method, &self.path) == (&other.method, &other.path)
    }
}

fn one() -> u64 {
    1
}

// === impl Failures ===

impl Failures {
    /// Keeps one more. Where all places are taken, what has not been seen for longest gives way.
    pub(super) fn keep(&mut self, mut failure: Failure) {
        let Failures(kept) = self;
        if let Some(at) = kept.iter().position(|kept| kept.is_like(&failure)) {
            let like = kept.remove(at);
            failure.count = like.count.saturating_add(1);
            // Each worker hands its lines over by itself. All times are written alike, so their letters tell.
            failure.last = failure.last.max(like.last);
        }
        if kept.len() >= MOST_FAILURES {
            kept.remove(0);
        }
        kept.push(failure);
    }

    /// The last kept last.
    pub(super) fn all(&self) -> &[Failure] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(second: u64, path: &str, status: u16) -> Failure {
        let line = json!({
            "timestamp": format!("2026-11-29T14:12:{second:02}.123Z"),
            "http.request.method": "POST",
            "url.path": path,
            "http.response.status_code": status,
            "error.type": null,
            "outcome": "complete",
            "duration_ms": second,
        });
        Failure::read(line.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn equal_ones_are_counted_and_the_oldest_kind_gives_way() {
        let mut failures = Failures::default();
        for second in [3, 1, 2] {
            failures.keep(line(second, "/a", 502));
        }
        failures.keep(line(4, "/a", 503));
        let [first, second] = failures.all() else {
            panic!("{failures:?}")
        };
        assert_eq!((first.count, first.status), (3, Some(502)));
        assert_eq!(first.last, "2026-11-29T14:12:03.123Z", "the last time");
        assert_eq!((second.count, second.status), (1, Some(503)));
        for n in 0..100 {
            failures.keep(line(5 + n % 50, &format!("/{n}"), 500));
            failures.keep(line(59, "/a", 502));
        }
        assert_eq!(failures.all().len(), MOST_FAILURES);
        let lasting = failures
            .all()
            .iter()
            .find(|f| f.path.as_deref() == Some("/a"));
        assert_eq!(lasting.unwrap().count, 103);
    }

    #[test]
    fn long_texts_are_cut_and_what_is_no_line_is_nothing() {
        let failure = line(1, &"é".repeat(1_000), 500);
        let path = failure.path.unwrap();
        assert_eq!(path.chars().count(), MOST_TEXT);
        assert!(path.capacity() <= 2 * path.len());
        assert!(Failure::read(b"{}").is_none());
        assert!(Failure::read(b"").is_none());
    }
}
