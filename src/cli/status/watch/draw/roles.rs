//! The roles: how full, how it has been, who waits.

use super::super::model::{Model, Role, Still};
use super::plan::Size;
use super::text::{self, Look, ago, padded, short, width};
use crate::cli::role_line::{RoleSays, number, percent, words};
use crate::cli::status::report::{Level, PoolSays, left_out};
use ratatui::text::{Line, Span};
use std::rc::Rc;
use std::time::Instant;

/// Seconds that the graph shows, in a narrow and in a wide window.
const SPANS: [(usize, i64); 2] = [(150, 900), (0, 300)];

/// Seconds that a column of the graph may stand for.
const STEPS: [i64; 8] = [1, 2, 5, 10, 15, 30, 60, 120];

/// Columns below which a bar shows nothing.
const LEAST_BAR: usize = 6;

/// What all roles of one view share.
pub(super) struct Roles<'a> {
    pub(super) look: Look,
    pub(super) model: &'a Model,
    pub(super) now: Instant,
    /// Columns of the window.
    pub(super) width: usize,
    /// What each of the model's roles is called here.
    titles: Vec<String>,
    /// Columns of the widest.
    title_width: usize,
}

/// What a level is called.
pub(super) fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warning => "WARNING",
        Level::Critical => "CRITICAL",
        Level::Unknown => "UNKNOWN",
    }
}

// === impl Roles ===

impl<'a> Roles<'a> {
    pub(super) fn new(look: Look, model: &'a Model, now: Instant, width: usize) -> Roles<'a> {
        let titles = model.roles.iter().map(|role| &*role.title);
        let titles = look.names(titles, width / 3);
        let widest = titles.iter().map(|title| text::width(title)).max();
        Roles {
            look,
            model,
            now,
            width,
            titles,
            title_width: widest.unwrap_or_default(),
        }
    }

    /// In sizes: as many as there is room for with a line each, all with a line, with two, three, four
    /// lines, and with blank lines between them. None that is higher than `most` by itself.
    pub(super) fn sizes(&self, most: usize) -> Vec<Size<'_>> {
        let roles: Vec<(&Role, &String)> = self.model.roles.iter().zip(&self.titles).collect();
        let mut worst = roles.clone();
        // Those as they came keep their order.
        worst.sort_by_key(|(role, _)| std::cmp::Reverse(role.gravest()));
        let worst: Rc<[(&Role, &String)]> = worst.into();
        let mut sizes: Vec<Size<'_>> = Vec::new();
        for n in 1..roles.len().min(most) {
            let worst = worst.clone();
            sizes.push(Size::new(n + 1, move || self.worst(&worst, n)));
        }
        if roles.len() > most {
            return sizes;
        }
        for size in 1..=4 {
            let blocks = roles
                .iter()
                .flat_map(|(r, title)| self.block(r, title, size));
            sizes.push(blocks.chain(self.left_out()).collect::<Vec<_>>().into());
        }
        let mut spaced: Vec<Vec<Line<'static>>> = roles
            .iter()
            .map(|(role, title)| self.block(role, title, 4))
            .collect();
        spaced.extend(self.left_out().map(|line| vec![line]));
        sizes.push(spaced.join(&Line::default()).into());
        sizes
    }

    /// So many of the worst, and how many more there are.
    fn worst(&self, worst: &[(&Role, &String)], n: usize) -> Vec<Line<'static>> {
        let look = self.look;
        let (shown, rest) = worst.split_at(n);
        let mut lines: Vec<Line<'static>> = shown
            .iter()
            .flat_map(|(role, title)| self.block(role, title, 1))
            .collect();
        let level = rest.first().map_or(Level::Ok, |(role, _)| role.gravest());
        let mut line = vec![look.plain(format!("and {} more, ", rest.len()))];
        if self.is_old() {
            line.push(look.wrong("OLD"));
        } else {
            line.push(look.plain("none worse than "));
            line.push(look.levelled(word(level), level));
        }
        if let Some(left_out) = self.left_out() {
            line.push(look.plain("; "));
            line.extend(left_out.spans);
        }
        lines.push(Line::from(line));
        lines
    }

    /// That there are roles of which nothing is known here.
    fn left_out(&self) -> Option<Line<'static>> {
        let text = left_out(self.model.roles_left_out)?;
        Some(Line::from(self.look.levelled(text, Level::Unknown)))
    }

    /// Whether there is more to see in the pools than in the roles.
    pub(super) fn of_several_pools(&self) -> bool {
        self.model.roles.iter().any(|role| role.says.pools > 1)
    }

    pub(super) fn is_old(&self) -> bool {
        self.model.is_old(self.now)
    }

    /// One role in so many lines, or one more where a part of it is missing.
    fn block(&self, role: &Role, title: &str, lines: usize) -> Vec<Line<'static>> {
        let look = self.look;
        let says = &role.says;
        let mut all = vec![self.first(role, title, lines == 1)];
        match lines {
            1 => return all,
            2 => {
                let tokens = look.plain(self.tokens(says, true));
                let name = self.hottest(says, true);
                let hottest = self.hottest_alone(says);
                // Who waits matters more than which of the pools it is, and a hot pool more than tokens.
                let least = if role.hottest > Level::Ok {
                    hottest.clone()
                } else {
                    Some(tokens.clone())
                };
                let firsts = [
                    [Some(tokens.clone()), name],
                    [Some(tokens), hottest],
                    [least, None],
                ];
                let lines = firsts.map(|first| {
                    let waiting = waiting(says).into_iter().map(Span::raw);
                    indented(first.into_iter().flatten().chain(waiting).collect())
                });
                let fits = lines.iter().find(|line| line.width() <= self.width);
                all.push(fits.unwrap_or(&lines[2]).clone());
            }
            _ => {
                let mut parts = vec![look.plain(self.tokens(says, false))];
                parts.extend(
                    says.fill
                        .map(|fill| look.plain(format!("fill {}", percent(fill)))),
                );
                parts.extend(self.hottest(says, false));
                all.extend(self.flow(parts));
                let mut parts: Vec<Span<'static>> =
                    waiting(says).into_iter().map(Span::raw).collect();
                if let Some(n) = says.preempted.filter(|n| *n > 0) {
                    parts.push(look.plain(format!("preempted {} since its start", number(n))));
                }
                all.extend(self.flow(parts));
            }
        }
        if let (Some(missing), Some(_)) = (&says.missing, says.usage) {
            let reason = look.name(&missing.reason, 20);
            let n = missing.count;
            let what = if n == 1 {
                "source or pool is"
            } else {
                "sources or pools are"
            };
            all.push(Line::from(look.levelled(
                format!("  {n} {what} not in these numbers ({reason})"),
                Level::Warning,
            )));
        }
        for still in &role.still {
            let text = still_in_words(look, still);
            all.push(Line::from(
                look.levelled(format!("  {text}"), Level::Warning),
            ));
        }
        if lines >= 4 {
            all.push(self.past(says));
        }
        all
    }

    fn first(&self, role: &Role, title: &str, alone: bool) -> Line<'static> {
        let look = self.look;
        let says = &role.says;
        let title = padded(title, self.title_width);
        // Where no other line says that a pool is hot, this one does.
        let level = if alone { role.gravest() } else { role.level };
        let (level, colour) = if self.is_old() {
            (padded("OLD", 8), None)
        } else {
            (padded(word(level), 8), Some(level))
        };
        let level = match colour {
            Some(colour) => look.levelled(level, colour),
            None => look.wrong(level),
        };
        let mut line = vec![look.strong(title), look.plain(" "), level, look.plain(" ")];
        let taken = Line::from(line.clone()).width();
        let room = self.width.saturating_sub(taken);
        let Some(usage) = says.usage else {
            line.push(look.plain(self.why(says, room)));
            return Line::from(line);
        };
        let mut after = format!(" {:>7}", percent(usage));
        let mut wide = room.saturating_sub(width(&after));
        if alone {
            if !self.is_old() {
                let notes = notes(role, true);
                let space = if notes.is_empty() { "" } else { " " };
                after.push_str(&format!("{space}{}", notes.join(", ")));
            }
            // Why it is not ok matters more than a bar, and those that wait more than a wide one.
            let least = room.saturating_sub(width(&after) + 1).min(12);
            let least = if least < LEAST_BAR { 0 } else { least };
            let waiting = waiting(says).join(" ");
            after = look.cut(&format!("{after} {waiting}"), room.saturating_sub(least));
            wide = room.saturating_sub(width(&after)).min(32);
        }
        if wide >= LEAST_BAR {
            line.extend(look.bar(usage, says.fill, colour, wide));
        }
        line.push(look.strong(after));
        Line::from(line)
    }

    /// Why there is no usage, in words as far as there is room for them.
    fn why(&self, says: &RoleSays, room: usize) -> String {
        let reason = says.unknown.as_deref().unwrap_or("no reason is given");
        let reason = self.look.name(reason, 20);
        let full = words(&reason).map(|words| format!("{words} ({reason})"));
        full.filter(|full| width(full) <= room).unwrap_or(reason)
    }

    /// In as many lines as these need.
    fn flow(&self, parts: Vec<Span<'static>>) -> Vec<Line<'static>> {
        let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new()];
        let mut taken = 0;
        for part in parts {
            let wide = part.width() + 2;
            if taken > 0 && taken + wide > self.width {
                lines.push(Vec::new());
                taken = 0;
            }
            taken += wide;
            if let Some(line) = lines.last_mut() {
                line.push(part);
            }
        }
        lines.into_iter().map(indented).collect()
    }

    fn tokens(&self, says: &RoleSays, brief: bool) -> String {
        let n = |n: u64| if brief { short(n) } else { number(n) };
        let mut text = match (says.used, says.capacity) {
            // Without a usage a number of tokens is of another moment, or none.
            (Some(used), Some(capacity)) if says.usage.is_some() => {
                format!("{} / {} tokens", n(used), n(capacity))
            }
            (Some(used), None) if says.usage.is_some() => {
                format!("{} tokens of an unknown number", n(used))
            }
            (_, Some(capacity)) => format!("an unknown part of {} tokens", n(capacity)),
            _ => "tokens unknown".to_owned(),
        };
        if !matches!(&*says.pool, "" | "full") {
            text.push_str(&format!(" ({} pool)", self.look.name(&says.pool, 10)));
        }
        text
    }

    /// The fullest pool of several, with its name.
    fn hottest(&self, says: &RoleSays, brief: bool) -> Option<Span<'static>> {
        let mut span = self.hottest_alone(says)?;
        let name = self.hottest_pool(says).map(|pool| self.pool_name(pool));
        let name = name.filter(|name| !name.is_empty());
        span.content.to_mut().push_str(&match (name, brief) {
            (Some(name), true) => format!(" {name}"),
            (Some(name), false) => format!(": {name} of {} pools", says.pools),
            (None, _) => format!(" of {} pools", says.pools),
        });
        Some(span)
    }

    fn hottest_alone(&self, says: &RoleSays) -> Option<Span<'static>> {
        if says.pools < 2 {
            return None;
        }
        let max = says.max?;
        let level = self.model.limits.level(max);
        let text = format!("hottest {}", percent(max));
        // Of what is old nothing is said of now.
        if level == Level::Ok || self.is_old() {
            return Some(self.look.plain(text));
        }
        // The role's own level is that of all its pools together.
        let text = format!("{text} {}", word(level));
        Some(self.look.levelled(text, level))
    }

    pub(super) fn hottest_pool(&self, says: &RoleSays) -> Option<&PoolSays> {
        let moment = self.model.moment.as_deref()?;
        moment.pools.iter().find(|pool| {
            let model = says.model.is_none() || pool.model.is_none() || says.model == pool.model;
            pool.role == says.role && model && pool.usage.is_some()
        })
    }

    /// Its source where the role has several, and what tells it from others there.
    pub(super) fn pool_name(&self, pool: &PoolSays) -> String {
        let pools = self.model.moment.iter().flat_map(|moment| &moment.pools);
        let mut others = pools.filter(|other| other.role == pool.role);
        let several = others.any(|other| other.source != pool.source);
        let rank = pool.pool.as_deref().map(|rank| self.look.name(rank, 28));
        let source = several.then(|| self.look.name(&pool.source, 20));
        [source, rank]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The last minutes.
    fn past(&self, says: &RoleSays) -> Line<'static> {
        let look = self.look;
        let room = self
            .width
            .saturating_sub("  15 min ago ".len() + " now".len());
        let span = SPANS.iter().find(|(from, _)| self.width >= *from);
        let span = span.map_or(300, |(_, span)| *span);
        let fits = |step: &&i64| usize::try_from(span / **step).is_ok_and(|n| n <= room);
        let step = STEPS.iter().find(fits).copied().unwrap_or(300);
        let columns = usize::try_from(span / step).unwrap_or_default();
        let columns = self.model.columns(says, columns, step, self.now);
        Line::from(vec![
            look.faint(format!("  {:>2} min ago ", span / 60)),
            look.plain(look.graph(&columns)),
            look.faint(" now"),
        ])
    }
}

/// Why a role is not ok although its usage is, in few words.
pub(super) fn notes(role: &Role, exact: bool) -> Vec<String> {
    let says = &role.says;
    let mut all = Vec::new();
    if says.missing.is_some() && says.usage.is_some() {
        all.push("in part".to_owned());
    }
    if !role.still.is_empty() {
        all.push("may hang".to_owned());
    }
    if let (Some(max), true) = (says.max, role.hottest > Level::Ok) {
        all.push(if exact {
            format!("hottest {}", percent(max))
        } else {
            format!("hottest {:.0}%", max * 100.0)
        });
    }
    all
}

/// `decode's page unchanged for 40 s while it has requests: it may hang`
pub(super) fn still_in_words(look: Look, still: &Still) -> String {
    let name = look.name(&still.source, 24);
    let time = still.unchanged.map(ago);
    let time = time.map_or_else(String::new, |time| format!(" for {time}"));
    format!("{name}'s page unchanged{time} while it has requests: it may hang")
}

fn indented(parts: Vec<Span<'static>>) -> Line<'static> {
    let apart = |part: Span<'static>| [Span::raw("  "), part];
    Line::from(parts.into_iter().flat_map(apart).collect::<Vec<_>>())
}

/// Requests that run and that wait.
fn waiting(says: &RoleSays) -> Vec<String> {
    let mut all = Vec::new();
    for (name, n) in [("running", says.running), ("queued", says.queued)] {
        all.push(match n {
            Some(n) => format!("{name} {}", number(n)),
            None => format!("{name} unknown"),
        });
    }
    // The queue next to the pool first.
    for name in ["transfer", "prealloc", "inflight", "bootstrap"] {
        if let Some(n) = says.queues.get(name) {
            all.push(format!("{name} {}", number(*n)));
        }
    }
    all
}
