//! What is not well, the worst first; or that all is.

use super::super::model::{Model, Role, Still};
use super::roles::{still_in_words, word};
use super::text::{Look, width};
use crate::cli::role_line::{number, percent};
use crate::cli::status::report::Level;
use ratatui::text::{Line, Span};

/// Lines that it may take.
const MOST_LINES: usize = 3;

/// Columns that a name keeps.
const LEAST_NAME: usize = 4;

/// Between two things in a line.
const APART: &str = "   ";

/// One thing that is not well: with what, and what it is in full and in few words.
struct Trouble {
    level: Level,
    title: String,
    full: String,
    brief: String,
}

// === impl Trouble ===

impl Trouble {
    fn full(&self, look: Look) -> Span<'static> {
        let text = format!("{}: {}{}", word(self.level), self.title, self.full);
        look.levelled(text, self.level)
    }

    /// In few words, of which the name gives way first.
    fn brief(&self, look: Look, columns: usize) -> Span<'static> {
        let word = word(self.level);
        let room = columns.saturating_sub(width(word) + 2 + width(&self.brief));
        let title = look.cut(&self.title, room.max(LEAST_NAME));
        look.levelled(format!("{word}: {title}{}", self.brief), self.level)
    }
}

/// In a line, in two, … as many as it needs. What there is no room for is counted.
pub(super) fn sizes(look: Look, model: &Model, columns: usize) -> Vec<Vec<Line<'static>>> {
    let troubles = troubles(look, model, columns);
    if troubles.is_empty() {
        let well = well(look, model);
        return well.into_iter().map(|line| vec![line]).collect();
    }
    let mut sizes = Vec::new();
    for most in 1..=MOST_LINES {
        let (lines, whole) = lines(look, &troubles, columns, most);
        sizes.push(lines);
        if whole {
            break;
        }
    }
    sizes
}

/// That all is well, as far as anybody can tell.
fn well(look: Look, model: &Model) -> Option<Line<'static>> {
    let fullest = model.worst()?;
    let usage = percent(fullest.says.usage.unwrap_or_default());
    let title = look.name(&fullest.title, 30);
    let text = format!("ok: the fullest is {title} at {usage}");
    let mut line = vec![look.levelled(text, Level::Ok)];
    let sources = model.moment.iter().flat_map(|moment| &moment.sources);
    // Of a source that was never read nobody knows whose it is.
    let n = sources.filter(|source| source.says.state != "up").count();
    if model.roles_left_out > 0 {
        let text = format!(
            "{APART}{} more roles are not in it",
            number(model.roles_left_out)
        );
        line.push(look.levelled(text, Level::Unknown));
    }
    if n > 0 {
        let are = if n == 1 { "source is" } else { "sources are" };
        let text = format!("{APART}{n} {are} not up");
        line.push(look.levelled(text, Level::Unknown));
    }
    Some(Line::from(line))
}

fn troubles(look: Look, model: &Model, columns: usize) -> Vec<Trouble> {
    let titles = look.names(
        model.roles.iter().map(|role| &*role.title),
        30.min(columns / 3),
    );
    let mut all: Vec<Trouble> = Vec::new();
    for (role, title) in model.roles.iter().zip(&titles) {
        all.extend(of_role(look, model, role, title));
    }
    let sources = model.moment.iter().flat_map(|moment| &moment.sources);
    let still = sources.filter(|source| source.stands_still).map(Still::of);
    all.extend(still.map(|still| {
        let full = still_in_words(look, &still);
        // As the name can hold anything, the last one.
        let brief = full.rsplit_once(" while ");
        Trouble {
            level: Level::Warning,
            title: String::new(),
            brief: brief.map_or_else(|| full.clone(), |(brief, _)| brief.to_owned()),
            full,
        }
    }));
    all.sort_by_key(|trouble| std::cmp::Reverse(trouble.level));
    all
}

/// What is not well with a role: its own usage, its hottest pool, and that a part of it is unknown, which
/// is said first, so that nothing hides it.
fn of_role(look: Look, model: &Model, role: &Role, title: &str) -> Option<Trouble> {
    let limits = model.limits;
    let says = &role.says;
    let from = |level| match level {
        Level::Critical => format!("(from {})", percent(limits.crit)),
        _ => format!("(from {})", percent(limits.warn)),
    };
    let Some(usage) = says.usage else {
        let reason = says.unknown.as_deref().unwrap_or("no reason is given");
        let text = format!(" {}", look.name(reason, 20));
        return Some(Trouble {
            level: Level::Unknown,
            title: title.to_owned(),
            full: text.clone(),
            brief: text,
        });
    };
    let part = says.missing.is_some();
    let whole = limits.level(usage);
    // One full pool makes its requests wait, however empty the others are.
    let hot = says.max.filter(|_| role.hottest > whole);
    if !part && whole == Level::Ok && hot.is_none() {
        return None;
    }
    let known = if part { " known in part:" } else { "" };
    let at = percent(usage);
    let (full, brief) = match hot {
        Some(max) => {
            let (max, from) = (percent(max), from(role.hottest));
            (
                format!("{known} {at}, its hottest pool {max} {from}"),
                format!("{}hottest {max}", if part { " in part, " } else { " " }),
            )
        }
        None if whole == Level::Ok => (format!("{known} {at}"), format!("{known} {at}")),
        None => (
            format!("{known} {at} {}", from(whole)),
            format!("{known} {at}"),
        ),
    };
    let level = if part { Level::Warning } else { Level::Ok };
    Some(Trouble {
        level: level.max(whole).max(role.hottest),
        title: title.to_owned(),
        full,
        brief,
    })
}

/// In at most so many lines, and whether that is all in full.
fn lines(
    look: Look,
    troubles: &[Trouble],
    columns: usize,
    most: usize,
) -> (Vec<Line<'static>>, bool) {
    let full: Vec<_> = troubles.iter().map(|t| t.full(look)).collect();
    let brief: Vec<_> = troubles.iter().map(|t| t.brief(look, columns)).collect();
    for (spans, whole) in [(&full, true), (&brief, false)] {
        let packed = pack(spans, columns);
        let fits = spans.iter().all(|span| span.width() <= columns);
        if packed.len() <= most && fits {
            return (packed.into_iter().map(line).collect(), whole);
        }
    }
    // As many as there is room for, at least one, and how many more there are.
    let more = |shown: usize| match brief.len() - shown {
        0 => String::new(),
        n => format!("{APART}and {n} more"),
    };
    let beside = |packed: &[Vec<Span<'static>>], shown: usize| {
        let last = packed.last().map_or(0, |spans| taken(spans));
        last + width(&more(shown)) <= columns
    };
    let mut shown = 1;
    for n in 1..=brief.len() {
        let packed = pack(&brief[..n], columns);
        if packed.len() > most {
            break;
        }
        if packed.len() < most || beside(&packed, n) {
            shown = n;
        }
    }
    let mut packed = pack(&brief[..shown], columns);
    let mut more = more(shown);
    let last = packed.last().map_or(0, |spans| taken(spans));
    if last + width(&more) > columns {
        if packed.len() < most {
            packed.push(vec![look.strong(more.trim_start().to_owned())]);
            return (packed.into_iter().map(line).collect(), false);
        }
        // The number says more than the end of a name.
        if let (1, Some(trouble)) = (shown, troubles.first()) {
            let least = width(word(trouble.level)) + 2 + LEAST_NAME + width(&trouble.brief);
            if least + width(&more) > columns {
                more = format!(" +{}", brief.len() - shown);
            }
            let room = columns.saturating_sub(width(&more));
            packed = vec![vec![trouble.brief(look, room)]];
        }
    }
    let mut lines: Vec<_> = packed.into_iter().map(line).collect();
    if let Some(last) = lines.pop() {
        let mut last = look.fit(last, columns.saturating_sub(width(&more)));
        last.push_span(look.strong(more));
        lines.push(last);
    }
    (lines, false)
}

/// In lines, as many in each as there is room for.
fn pack(spans: &[Span<'static>], columns: usize) -> Vec<Vec<Span<'static>>> {
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    for span in spans {
        match lines.last_mut() {
            Some(line) if taken(line) + width(APART) + span.width() <= columns => {
                line.push(span.clone());
            }
            _ => lines.push(vec![span.clone()]),
        }
    }
    lines
}

fn taken(spans: &[Span<'static>]) -> usize {
    let all: usize = spans.iter().map(Span::width).sum();
    all + width(APART) * spans.len().saturating_sub(1)
}

fn line(spans: Vec<Span<'static>>) -> Line<'static> {
    let mut all = Vec::new();
    for span in spans {
        if !all.is_empty() {
            all.push(Span::raw(APART));
        }
        all.push(span);
    }
    Line::from(all)
}
