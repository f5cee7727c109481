//! The sources: how many are up, how old what was read is, and why one is not well.

use super::super::moment::{Moment, SourceSeen};
use super::plan::Size;
use super::rest::title;
use super::text::{Look, ago, padded, width};
use crate::cli::role_line::words;
use crate::cli::status::report::Level;
use ratatui::text::Line;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Lines that one message may take.
const MOST_LINES: usize = 3;

/// Columns that a name may take.
const NAME: usize = 24;

/// A window with fewer columns has short forms.
const NARROW: usize = 60;

/// What all sources of one view share.
pub(super) struct Sources<'a> {
    look: Look,
    moment: &'a Moment,
    /// Columns of the window.
    columns: usize,
    /// Since the moment was heard: what was read then is older by that.
    since: Duration,
    /// Whether nothing is known of now.
    old: bool,
    /// What each is called here.
    names: BTreeMap<&'a str, String>,
}

// === impl Sources ===

impl<'a> Sources<'a> {
    pub(super) fn new(
        look: Look,
        moment: &'a Moment,
        columns: usize,
        since: Duration,
        old: bool,
    ) -> Sources<'a> {
        let whole = || moment.sources.iter().map(|source| &*source.says.name);
        let names = look.names(whole(), NAME.min(columns / 3));
        Sources {
            look,
            moment,
            columns,
            since,
            old,
            names: whole().zip(names).collect(),
        }
    }

    /// In a line; with a line for one that is not well, for two, … for each; with the whole message of
    /// one, … of each; and all sources.
    pub(super) fn sizes(&self) -> Vec<Size<'static>> {
        let unwell = self.unwell();
        let names = self.widest(unwell.iter().copied());
        let alone = self.summary(false);
        let summary = self.summary(true);
        let briefs: Rc<[Line<'static>]> = unwell.iter().map(|s| self.brief(s, names)).collect();
        // One after another, and where each ends. A line that says it all is not said again.
        let mut whole = Vec::new();
        let mut ends = vec![0];
        for (source, brief) in unwell.iter().zip(&*briefs) {
            if brief.width() > self.columns {
                whole.push(self.line(source, names));
                whole.extend(self.message(source));
            } else {
                whole.push(brief.clone());
            }
            ends.push(whole.len());
        }
        let whole: Rc<[Line<'static>]> = whole.into();
        let all = unwell.len();
        let mut sizes = vec![Size::from(vec![alone])];
        for (briefly, wholly) in (1..=all).map(|n| (n, 0)).chain((1..=all).map(|n| (all, n))) {
            let (briefs, whole, summary) = (briefs.clone(), whole.clone(), summary.clone());
            let end = ends[wholly];
            sizes.push(Size::new(1 + end + briefly - wholly, move || {
                let lines = whole[..end].iter().chain(&briefs[wholly..briefly]);
                [&summary].into_iter().chain(lines).cloned().collect()
            }));
        }
        let names = self.widest(self.moment.sources.iter());
        let mut lines = vec![summary];
        for source in &self.moment.sources {
            lines.push(self.line(source, names));
            lines.extend(self.message(source));
        }
        sizes.push(lines.into());
        sizes
    }

    /// Those with which something is wrong, the worst first.
    pub(super) fn unwell(&self) -> Vec<&SourceSeen> {
        let all = self.moment.sources.iter();
        let mut unwell: Vec<&SourceSeen> = all.filter(|source| !is_well(source)).collect();
        unwell.sort_by_key(|source| match state(source).1 {
            Level::Critical => 0,
            Level::Unknown => 1,
            Level::Warning => 2,
            Level::Ok => 3,
        });
        unwell
    }

    fn widest<'s>(&self, sources: impl Iterator<Item = &'s SourceSeen>) -> usize {
        let names = sources.map(|source| width(self.name(source)));
        names.max().unwrap_or_default()
    }

    fn name(&self, source: &SourceSeen) -> &str {
        let name = self.names.get(&*source.says.name);
        name.map_or("", String::as_str)
    }

    /// How many are up, how old the oldest of what they said is, and who is not up. `lines`: of these
    /// each has more to say below.
    fn summary(&self, lines: bool) -> Line<'static> {
        let look = self.look;
        let all = &self.moment.sources;
        let (up, down): (Vec<_>, Vec<_>) = all.iter().partition(|source| is_up(source));
        let mut text = format!("  {} of {} up", up.len(), all.len());
        let oldest = up.iter().filter_map(|source| source.age_ms).max();
        // In a narrow window who is not up matters more.
        let narrow = self.columns < NARROW;
        if let Some(oldest) = oldest.filter(|_| !narrow || down.is_empty()) {
            let read = self.read(oldest);
            text.push_str(&match (up.len(), narrow) {
                (1, _) => format!(", {read}"),
                (_, true) => format!(", oldest {}", read.trim_start_matches("read ")),
                (_, false) => format!(", oldest {read}"),
            });
        }
        let mut line = title(look, "sources", self.old);
        line.push(look.plain(text));
        let down: Vec<String> = down
            .into_iter()
            .map(|source| {
                let name = self.name(source);
                match self.age(source).filter(|_| !lines) {
                    Some(age) => format!("{name} ({age})"),
                    None => name.to_owned(),
                }
            })
            .collect();
        if !down.is_empty() {
            line.push(look.wrong(format!("  NOT UP: {}", down.join(", "))));
        }
        Line::from(line)
    }

    fn read(&self, age_ms: u64) -> String {
        let age = Duration::from_millis(age_ms).saturating_add(self.since);
        if age < Duration::from_secs(1) {
            "read under 1 s ago".to_owned()
        } else {
            format!("read {} ago", ago(age))
        }
    }

    /// When it was last read well.
    fn age(&self, source: &SourceSeen) -> Option<String> {
        match source.age_ms {
            Some(age) => Some(self.read(age)),
            None if self.moment.kvgauge.is_some() => Some("never read".to_owned()),
            // Who reads pages itself knows of no time before.
            None => Some("not read since the start".to_owned()),
        }
    }

    /// One that is not well, in a line.
    fn brief(&self, source: &SourceSeen, names: usize) -> Line<'static> {
        let says = &source.says;
        let message = says.message.as_deref().map(|message| {
            let rest = message.strip_prefix(says.name.as_str());
            rest.map_or(message, str::trim_start).to_owned()
        });
        let reason = says.unknown.as_deref();
        let reason = reason.map(|reason| words(reason).unwrap_or(reason).to_owned());
        let what = message.or(reason);
        let what = what.map(|what| self.look.name(&what, 400));
        self.row(source, names, self.age(source).into_iter().chain(what))
    }

    fn line(&self, source: &SourceSeen, names: usize) -> Line<'static> {
        let says = &source.says;
        // Most are named after their role, and read without TLS.
        let role = says.role.clone().filter(|role| *role != says.name);
        let url = says.url.strip_prefix("http://").unwrap_or(&says.url);
        let rest = [role, says.engine.clone(), Some(url.to_owned())];
        let rest = rest.into_iter().flatten();
        let rest = rest.map(|part| self.look.name(&part, 60));
        self.row(source, names, self.age(source).into_iter().chain(rest))
    }

    fn row(
        &self,
        source: &SourceSeen,
        names: usize,
        rest: impl Iterator<Item = String>,
    ) -> Line<'static> {
        let look = self.look;
        let (state, level) = state(source);
        let rest: Vec<String> = rest.collect();
        Line::from(vec![
            look.plain(format!("  {} ", padded(self.name(source), names))),
            if self.old {
                look.plain(padded(&state, 5))
            } else {
                look.levelled(padded(&state, 5), level)
            },
            look.plain(if width(&state) > 5 { "  " } else { " " }),
            look.plain(rest.join("  ")),
        ])
    }

    /// What is wrong with it, and what to do.
    fn message(&self, source: &SourceSeen) -> Vec<Line<'static>> {
        let look = self.look;
        let Some(message) = &source.says.message else {
            return Vec::new();
        };
        let lines = look.message(message, self.columns.saturating_sub(4), MOST_LINES);
        let line = |text: String| Line::from(look.plain(format!("    {text}")));
        lines.into_iter().map(line).collect()
    }
}

fn is_up(source: &SourceSeen) -> bool {
    source.says.state == "up"
}

fn is_well(source: &SourceSeen) -> bool {
    let says = &source.says;
    is_up(source) && !source.stands_still && says.unknown.is_none() && says.message.is_none()
}

fn state(source: &SourceSeen) -> (String, Level) {
    let (state, level) = match &*source.says.state {
        "up" if source.says.unknown.is_some() => ("up, unknown", Level::Unknown),
        "up" if source.stands_still => {
            let time = source.unchanged_ms.map(Duration::from_millis).map(ago);
            let time = time.map_or_else(String::new, |time| format!(" for {time}"));
            return (format!("up, UNCHANGED{time}"), Level::Warning);
        }
        "up" => ("up", Level::Ok),
        "down" => ("DOWN", Level::Critical),
        _ => ("not read yet", Level::Unknown),
    };
    (state.to_owned(), level)
}
