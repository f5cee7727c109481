//! Pieces of text: bars, graphs, numbers, and lines that fit.

use super::super::model::Column;
use crate::cli::role_line::{number, shown, shown_up_to};
use crate::cli::status::report::Level;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// Characters of a message that are shown.
const MOST_OF_MESSAGE: usize = 400;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Look {
    /// Else ASCII alone.
    pub(in super::super) unicode: bool,
    /// Else bold and faint alone; what matters is said in words.
    pub(in super::super) colour: bool,
}

// === impl Look ===

impl Look {
    pub(super) fn plain(self, text: impl Into<String>) -> Span<'static> {
        Span::raw(text.into())
    }

    pub(super) fn strong(self, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
    }

    pub(super) fn faint(self, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), Style::new().add_modifier(Modifier::DIM))
    }

    /// In the colour of a level, where there are colours.
    pub(super) fn levelled(self, text: impl Into<String>, level: Level) -> Span<'static> {
        Span::styled(text.into(), self.style(level))
    }

    /// What is wrong, or not of now.
    pub(super) fn wrong(self, text: impl Into<String>) -> Span<'static> {
        self.levelled(text, Level::Critical)
    }

    fn style(self, level: Level) -> Style {
        let (colour, bold) = match level {
            Level::Ok => (Color::Green, false),
            Level::Warning => (Color::Yellow, true),
            Level::Critical => (Color::Red, true),
            Level::Unknown => (Color::Magenta, true),
        };
        let mut style = Style::new();
        if self.colour {
            style = style.fg(colour);
        }
        if bold {
            style = style.add_modifier(Modifier::BOLD);
        }
        style
    }

    pub(super) fn cut_mark(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// `[████▌░░░     ]`, so many columns wide: usage, and what is occupied beyond it.
    pub(super) fn bar(
        self,
        usage: f64,
        fill: Option<f64>,
        level: Option<Level>,
        width: usize,
    ) -> Vec<Span<'static>> {
        let inner = width.saturating_sub(2);
        // No number of columns is as large.
        let eighths = |share: f64| (share.clamp(0.0, 1.0) * (inner * 8) as f64).round() as usize;
        let mut held = eighths(usage);
        if usage > 0.0 {
            held = held.max(1);
        }
        // A full bar is a full pool.
        if usage < 1.0 {
            held = held.min((inner * 8).saturating_sub(1));
        }
        let mut used = if self.unicode {
            "█".repeat(held / 8)
        } else {
            "#".repeat(held.div_ceil(8))
        };
        let mut columns = if self.unicode {
            held / 8
        } else {
            held.div_ceil(8)
        };
        if self.unicode && held % 8 > 0 {
            used.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][held % 8 - 1]);
            columns += 1;
        }
        let occupied = fill.map_or(0, |fill| eighths(fill).div_ceil(8));
        let occupied = occupied.min(inner).saturating_sub(columns);
        let free = inner.saturating_sub(columns + occupied);
        let used = match level {
            Some(level) => self.levelled(used, level),
            None => self.faint(used),
        };
        vec![
            self.plain("["),
            used,
            self.faint(if self.unicode { "░" } else { "=" }.repeat(occupied)),
            self.faint(if self.unicode { " " } else { "." }.repeat(free)),
            self.plain("]"),
        ]
    }

    /// A column each: 0 to 1 from the lowest to the highest, `?` where it was unknown, a blank where
    /// nothing was heard.
    pub(super) fn graph(self, columns: &[Column]) -> String {
        const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const LETTERS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
        let steps = if self.unicode { BLOCKS } else { LETTERS };
        let column = |column: &Column| match column {
            Column::Nothing => ' ',
            Column::Unknown => '?',
            Column::Usage(usage) => {
                let step = (usage.clamp(0.0, 1.0) * 8.0).ceil() as usize;
                steps[step.clamp(1, 8) - 1]
            }
        };
        columns.iter().map(column).collect()
    }

    /// A text from elsewhere, at most so many columns of it.
    pub(super) fn name(self, text: &str, columns: usize) -> String {
        self.cut(&self.safe(&shown(text)), columns)
    }

    /// Several, at most so many columns of each. Those that would look the same are cut before what tells
    /// them apart, too.
    pub(super) fn names<'t>(
        self,
        texts: impl Iterator<Item = &'t str>,
        columns: usize,
    ) -> Vec<String> {
        let whole: Vec<String> = texts.map(|text| self.safe(&shown(text))).collect();
        // All that look the same when they are cut, in order: what is most like one stands beside it.
        let mut same: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for text in &whole {
            same.entry(self.cut(text, columns))
                .or_default()
                .insert(text);
        }
        let one = |text: &String| {
            let cut = self.cut(text, columns);
            let Some(texts) = same.get(&cut) else {
                return cut;
            };
            let before = texts.range::<&str, _>(..text.as_str()).next_back();
            let after = (Bound::Excluded(text.as_str()), Bound::<&str>::Unbounded);
            let after = texts.range::<&str, _>(after).next();
            // All that look like this one begin alike, at least as far as this.
            match before
                .into_iter()
                .chain(after)
                .map(|other| alike(text, other))
                .max()
            {
                Some(alike) => self.cut_before(text, alike, columns),
                None => cut,
            }
        };
        whole.iter().map(one).collect()
    }

    /// Its beginning, and what follows about the first so many characters.
    fn cut_before(self, text: &str, alike: usize, columns: usize) -> String {
        let begin = self.cut(text, columns / 2);
        let room = columns.saturating_sub(width(&begin));
        let all: Vec<char> = text.chars().collect();
        let tail = |from: usize| all[from.min(all.len())..].iter().collect::<String>();
        let mut from = alike;
        while from > 0 && width(&tail(from - 1)) <= room {
            from -= 1;
        }
        format!("{begin}{}", self.cut(&tail(from), room))
    }

    /// A longer one, in at most so many lines.
    pub(super) fn message(self, text: &str, width: usize, lines: usize) -> Vec<String> {
        let text = self.safe(&shown_up_to(text, MOST_OF_MESSAGE));
        let mut all = wrap(&text, width);
        if all.len() > lines {
            let rest = all.split_off(lines.saturating_sub(1)).join(" ");
            all.push(self.cut(&rest, width));
        }
        all
    }

    /// Without what an ASCII terminal can't show.
    fn safe(self, text: &str) -> String {
        if self.unicode {
            return text.to_owned();
        }
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '…' => out.push('~'),
                c if c.is_ascii() => out.push(c),
                _ => out.push('?'),
            }
        }
        out
    }

    /// At most so many columns, the end marked where some are left out.
    pub(super) fn cut(self, text: &str, columns: usize) -> String {
        if width(text) <= columns {
            return text.to_owned();
        }
        let mut out = String::new();
        for c in text.chars() {
            let with = format!("{out}{c}");
            if width(&with) + 1 > columns {
                break;
            }
            out = with;
        }
        if columns > 0 {
            out.push_str(self.cut_mark());
        }
        out
    }

    /// The same of a line.
    pub(super) fn fit(self, line: Line<'static>, columns: usize) -> Line<'static> {
        if line.width() <= columns {
            return line;
        }
        let mut left = columns;
        let mut out = Vec::new();
        for span in line.spans {
            let wide = span.width();
            if wide < left {
                left -= wide;
                out.push(span);
                continue;
            }
            // A column is left for the mark, whatever follows.
            let text = format!("{} ", span.content);
            out.push(Span::styled(self.cut(&text, left), span.style));
            break;
        }
        Line::from(out)
    }
}

/// With how many of the same characters both begin.
fn alike(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).count()
}

/// Columns that it takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// With blanks up to so many columns.
pub(super) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Lines of at most so many columns, cut at blanks.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && width(line) + 1 + width(word) > columns {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// `12 s`, `3 min`, `5 h`, `2 d`: how long ago.
pub(super) fn ago(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// `8.4 ms`, `80 ms`, `1.2 s`, `95 s`, `3.1 min`.
pub(super) fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 9_950.0 => format!("{:.1} s", ms / 1e3),
        ms if ms < 120_000.0 => format!("{:.0} s", ms / 1e3),
        ms => format!("{:.1} min", ms / 60_000.0),
    }
}

/// `3.2`, `1,200`: so many a second.
pub(super) fn rate(rate: f64) -> String {
    if rate == 0.0 {
        "0".to_owned()
    } else if rate < 100.0 {
        format!("{rate:.1}")
    } else {
        // Negative and what is no number become 0, which no rate is.
        number(rate.round() as u64)
    }
}

/// `2.58M`, `12.0k`, `999`.
pub(super) fn short(n: u64) -> String {
    match n {
        0..10_000 => number(n),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}M", n as f64 / 1e6),
        n => format!("{:.2}G", n as f64 / 1e9),
    }
}

/// `23:59:59` of a time in RFC 3339.
pub(super) fn clock(timestamp: &str) -> String {
    let time: Result<jiff::Timestamp, _> = timestamp.parse();
    match time {
        Ok(time) => format!("{time:.0}").get(11..19).unwrap_or("?").to_owned(),
        Err(_) => "?".to_owned(),
    }
}
