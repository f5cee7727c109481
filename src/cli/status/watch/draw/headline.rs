//! What is not well, the worst first; or that all is.

use super::super::model::{Model, Role, Still};
use super::roles::{still_in_words, word};
use super::text::{Look, width};
use crate::cli::role_line::percent;
use crate::cli::status::report::Level;
use ratatui::text::{Line, Span};

/// Lines that it may take.
const MOST_LINES: usize = 3;

/// Between two things in a line.
const APART: &str = "   ";

/// One thing that is not well, in full and in few words.
struct Trouble {
    level: Level,
    full: String,
    brief: String,
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
        Trouble {
            level: Level::Warning,
            brief: full
                .split_once(" while ")
                .map_or_else(|| full.clone(), |(brief, _)| brief.to_owned()),
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
        let text = format!("{title} {}", look.name(reason, 20));
        return Some(Trouble {
            level: Level::Unknown,
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
                format!("{title}{known} {at}, its hottest pool {max} {from}"),
                format!(
                    "{title}{}hottest {max}",
                    if part { " in part, " } else { " " }
                ),
            )
        }
        None if whole == Level::Ok => (
            format!("{title}{known} {at}"),
            format!("{title}{known} {at}"),
        ),
        None => (
            format!("{title}{known} {at} {}", from(whole)),
            format!("{title}{known} {at}"),
        ),
    };
    let level = if part { Level::Warning } else { Level::Ok };
    Some(Trouble {
        level: level.max(whole).max(role.hottest),
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
    let span = |level: Level, text: &str| look.levelled(format!("{}: {text}", word(level)), level);
    let full: Vec<_> = troubles.iter().map(|t| span(t.level, &t.full)).collect();
    let brief: Vec<_> = troubles.iter().map(|t| span(t.level, &t.brief)).collect();
    for (spans, whole) in [(&full, true), (&brief, false)] {
        let packed = pack(spans, columns);
        let fits = spans.iter().all(|span| span.width() <= columns);
        if packed.len() <= most && fits {
            return (packed.into_iter().map(line).collect(), whole);
        }
    }
    // As many as there is room for, at least one, and how many more there are.
    let mut shown = brief.len();
    loop {
        let more = brief.len() - shown;
        let more = match more {
            0 => String::new(),
            n => format!("{APART}and {n} more"),
        };
        let mut packed = pack(&brief[..shown], columns);
        let last = packed.last().map_or(0, |spans| taken(spans));
        let beside = last + width(&more) <= columns;
        if shown <= 1 || (packed.len() <= most && beside) || packed.len() < most {
            packed.truncate(most);
            let below = !beside && packed.len() < most;
            let mut lines: Vec<_> = packed.into_iter().map(line).collect();
            if below {
                lines.push(Line::from(look.strong(more.trim_start())));
            } else if let Some(last) = lines.pop() {
                let mut last = look.fit(last, columns.saturating_sub(width(&more)));
                last.push_span(look.strong(more));
                lines.push(last);
            }
            return (lines, false);
        }
        shown -= 1;
    }
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
