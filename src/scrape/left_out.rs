//! What is left out of a page: shown at `/sources`, and told, but not at every read.

use crate::exposition::{Dropped, Prepared};
use crate::kv::LeftOut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A reason that was told is told again only after no page has had it for so long. One that stays, or
/// comes and goes, is in the counter and at `/sources`.
const QUIET: Duration = Duration::from_secs(600);

/// Characters of a line that are shown.
const SHOWN: usize = 80;

/// Why lines are left out, in words that go on "line 17 is left out, since".
const LINES: [(&str, &str); 9] = [
    ("name", "it begins with no metric name"),
    ("labels", "its labels are broken"),
    ("repeated_label", "it has a label twice"),
    ("value", "its value is no number"),
    ("timestamp", "what follows its value is no timestamp"),
    ("exemplar", "its exemplar is broken"),
    ("comment", "it names no metric"),
    (
        "type",
        "its type is unknown, or another than the one before",
    ),
    ("encoding", "it is not UTF-8"),
];

/// Why good lines can't stand on the unified page.
const SAMPLES: [(&str, &str); 3] = [
    (
        "duplicate",
        "the page has their series twice: the first stands",
    ),
    ("misfit", "their family's type has no place for them"),
    ("unwritable_name", "classic text can't write their names"),
];

/// What is left out of a page: its bad lines, then the good ones that `prepared` left out.
pub(super) fn left_out(text: &[u8], bad: &[Dropped], prepared: &Prepared) -> Vec<LeftOut> {
    let lines = bad.iter().map(|dropped| LeftOut {
        reason: dropped.reason,
        count: dropped.count,
        line: Some(dropped.line),
        excerpt: Some(excerpt(line(text, dropped.line))),
    });
    let counts = [
        prepared.duplicates(),
        prepared.misfits(),
        prepared.unwritable(),
    ];
    let samples = SAMPLES
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|((reason, _), count)| LeftOut {
            reason,
            count,
            line: None,
            excerpt: None,
        });
    lines.chain(samples).collect()
}

/// The line of this number, counted from 1, without its end.
fn line(text: &[u8], number: u64) -> &[u8] {
    let before = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut lines = text.split(|b| *b == b'\n');
    let line = lines.nth(before).unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The beginning of a line, in which nothing moves a terminal's cursor or turns its text around.
fn excerpt(line: &[u8]) -> Arc<str> {
    let mut shown = String::new();
    let mut left = SHOWN;
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            if left == 0 {
                break;
            }
            left -= 1;
            // Quotes and backslashes are what labels are made of.
            if matches!(c, '"' | '\'' | '\\') {
                shown.push(c);
            } else {
                shown.extend(c.escape_debug());
            }
        }
        for b in chunk.invalid() {
            if left == 0 {
                break;
            }
            left -= 1;
            shown.push_str(&format!("\\x{b:02x}"));
        }
        if left == 0 {
            break;
        }
    }
    if left == 0 && line.len() > SHOWN {
        shown.push('…');
    }
    shown.into()
}

/// The reasons that were told of a source, and when a page last had each.
#[derive(Default)]
pub(super) struct Told(Vec<(&'static str, Instant)>);

// === impl Told ===

impl Told {
    /// Tells what has not been told yet, where it `may`. `name` and `url` are the source's, `now` the
    /// time of the read.
    pub(super) fn tell(
        &mut self,
        name: &str,
        url: &str,
        left_out: &[LeftOut],
        now: Instant,
        mut may: impl FnMut() -> bool,
    ) {
        for found in left_out {
            if !self.is_news(found.reason, now) || !may() {
                continue;
            }
            let words = sentence(name, url, found);
            // A line that can't be read is a fault of the page; the others are ways of writing that
            // this page has no room for.
            if found.line.is_some() {
                tracing::warn!("{words}");
            } else {
                tracing::info!("{words}");
            }
        }
    }

    fn is_news(&mut self, reason: &'static str, now: Instant) -> bool {
        // As few entries as there are reasons.
        match self.0.iter_mut().find(|(told, _)| *told == reason) {
            Some((_, seen)) => now.saturating_duration_since(std::mem::replace(seen, now)) >= QUIET,
            None => {
                self.0.push((reason, now));
                true
            }
        }
    }
}

fn sentence(name: &str, url: &str, found: &LeftOut) -> String {
    let LeftOut {
        reason,
        count,
        line,
        excerpt,
    } = found;
    let why = LINES.iter().chain(&SAMPLES).find(|(r, _)| r == reason);
    let why = why.map_or("", |(_, words)| words);
    let Some(line) = line else {
        let samples = if *count == 1 { "sample" } else { "samples" };
        return format!(
            "{name}: {count} {samples} of {url} left out of /metrics ({reason}: {why})"
        );
    };
    let excerpt = excerpt.as_deref().unwrap_or_default();
    let more = match count {
        0 | 1 => String::new(),
        n => format!("; {n} lines like it on this page"),
    };
    format!("{name}: line {line} of {url} is left out ({reason}: {why}): `{excerpt}`{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::DROP_REASONS;

    #[test]
    fn every_reason_has_its_words() {
        assert_eq!(LINES.map(|(reason, _)| reason), DROP_REASONS);
    }

    #[test]
    fn a_line_is_found_by_its_number() {
        let text = b"a\r\n\nb\nlast";
        for (number, want) in [(1, "a"), (2, ""), (3, "b"), (4, "last"), (5, ""), (0, "a")] {
            assert_eq!(line(text, number), want.as_bytes(), "{number}");
        }
    }

    #[test]
    fn an_excerpt_is_short_and_fit_for_a_terminal() {
        for (line, want) in [
            (b"a{b=\"c\"} x".as_slice(), "a{b=\"c\"} x"),
            (b"a\t\x1b[31m\x07\r", "a\\t\\u{1b}[31m\\u{7}\\r"),
            (b"a \xff\xfe \xc3\xa9", "a \\xff\\xfe é"),
            ("a\u{202e}b\u{85}".as_bytes(), "a\\u{202e}b\\u{85}"),
        ] {
            assert_eq!(&*excerpt(line), want);
        }
        let just = "é".repeat(40);
        assert_eq!(&*excerpt(just.as_bytes()), just);
        let long = excerpt(&[b'a'; 100_000]);
        assert_eq!(&*long, format!("{}…", "a".repeat(80)));
        // Escapes can make it longer, but not without bound.
        assert!(excerpt(&[1; 100_000]).len() < 80 * 8 + 8);
    }

    #[test]
    fn a_reason_is_told_again_only_after_a_long_absence() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut told = Told::default();
        assert!(told.is_news("value", at(0)));
        assert!(told.is_news("labels", at(0)));
        // It stays for an hour.
        for n in 1..3600 {
            assert!(!told.is_news("value", at(n)), "{n}");
        }
        // It comes and goes.
        assert!(!told.is_news("value", at(3600 + 590)));
        assert!(!told.is_news("value", at(3600 + 590 + 599)));
        // It was gone.
        assert!(told.is_news("value", at(3600 + 590 + 599 + 600)));
        assert!(!told.is_news("value", at(3600 + 590 + 599 + 601)));
    }

    #[test]
    fn the_words_say_where_why_and_how_often() {
        let mut found = LeftOut {
            reason: "value",
            count: 3,
            line: Some(17),
            excerpt: Some("up x".into()),
        };
        let say = |found: &LeftOut| sentence("decode", "http://h/metrics", found);
        assert_eq!(
            say(&found),
            "decode: line 17 of http://h/metrics is left out (value: its value is no number): \
             `up x`; 3 lines like it on this page"
        );
        found.count = 1;
        assert!(say(&found).ends_with(": `up x`"), "{}", say(&found));
        found = LeftOut {
            reason: "duplicate",
            count: 2,
            line: None,
            excerpt: None,
        };
        assert_eq!(
            say(&found),
            "decode: 2 samples of http://h/metrics left out of /metrics (duplicate: the page has \
             their series twice: the first stands)"
        );
    }
}
