//! The view, drawn into a buffer. Pure: the same model at the same time gives the same view.
//!
//! What matters is in the words; colours only repeat it. Texts from elsewhere come here without controls
//! ([`Look::name`](text::Look)), and the buffer takes none either.

mod plan;
mod rest;
mod roles;
mod text;

pub(super) use text::Look;

use super::model::{Model, Role};
use crate::cli::role_line::percent;
use crate::cli::status::report::Level;
use plan::{Part, Plan};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use roles::{Roles, word};
use std::time::{Duration, Instant};
use text::{ago, width};

/// A window with less is told that it is too small.
const LEAST: (usize, usize) = (44, 7);

/// A window that is lower has no line for the keys.
const LEAST_WITH_KEYS: usize = 10;

/// Lines that a message about the connection may take.
const MOST_LINES: usize = 3;

/// What the person who looks has chosen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode {
    /// For how long what is shown has stood still.
    pub(super) paused: Option<Duration>,
    pub(super) help: bool,
}

/// Draws it all.
pub(super) fn draw(model: &Model, mode: Mode, look: Look, now: Instant, buffer: &mut Buffer) {
    let area = buffer.area;
    let (columns, height) = (usize::from(area.width), usize::from(area.height));
    let view = View {
        model,
        mode,
        look,
        now,
        columns,
    };
    let lines = if columns < LEAST.0 || height < LEAST.1 {
        view.tiny(height)
    } else if mode.help {
        view.help()
    } else {
        view.whole(height)
    };
    for (line, y) in lines.into_iter().zip(area.top()..area.bottom()) {
        let row = Rect::new(area.left(), y, area.width, 1);
        let line = look.fit(line, columns);
        buffer.set_line(row.x, row.y, &line, row.width);
    }
}

struct View<'a> {
    model: &'a Model,
    mode: Mode,
    look: Look,
    now: Instant,
    columns: usize,
}

// === impl View ===

impl View<'_> {
    fn whole(&self, height: usize) -> Vec<Line<'static>> {
        let look = self.look;
        let keys = height >= LEAST_WITH_KEYS;
        let roles = Roles {
            look,
            model: self.model,
            now: self.now,
            width: self.columns,
        };
        let (mut traffic, mut sources) = (Vec::new(), Vec::new());
        let (mut pools, mut errors, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(moment) = &self.model.moment {
            traffic = rest::traffic(look, moment);
            sources = rest::sources(look, moment, self.columns);
            pools = rest::pools(&roles, moment, self.model.limits);
            errors = rest::errors(look, moment);
            requests = rest::requests(look, moment);
        }
        let role_sizes = if self.model.roles.is_empty() {
            vec![rest::no_roles(look, self.model, self.columns)]
        } else {
            roles.sizes()
        };
        let parts = vec![
            Part::joined(vec![vec![self.header()]]),
            Part::joined(vec![self.connection(), self.verdict()]),
            Part::apart(role_sizes),
            Part::apart(traffic),
            Part::apart(sources),
            Part::apart(pools),
            Part::apart(errors),
            Part::apart(requests),
        ];
        let [
            header,
            verdict,
            role,
            traffic,
            sources,
            pools,
            errors,
            requests,
        ] = [0, 1, 2, 3, 4, 5, 6, 7];
        let most = usize::MAX - 1;
        let mut plan = Plan::new(parts, height - usize::from(keys));
        // What is wished first gets its room first.
        plan.wish(header, 0);
        plan.wish_up_to(verdict, 1);
        plan.wish_up_to(role, roles.size(1));
        plan.wish(sources, 0);
        plan.wish(traffic, 0);
        plan.wish(sources, 1);
        plan.wish(role, roles.size(2));
        plan.wish(traffic, 1);
        plan.wish(role, roles.size(3));
        plan.wish(role, roles.size(4));
        plan.wish_blanks();
        if roles.of_several_pools() {
            plan.wish_up_to(pools, 2);
        }
        plan.wish(sources, 2);
        plan.wish(role, roles.size(5));
        plan.wish_up_to(pools, 3);
        plan.wish_up_to(errors, 2);
        plan.wish_up_to(requests, 4);
        plan.wish_up_to(pools, most);
        plan.wish_up_to(errors, 5);
        plan.wish_up_to(requests, most);
        plan.wish_up_to(errors, most);
        let mut lines = plan.lines();
        if keys {
            lines.resize(height - 1, Line::default());
            let pause = if self.mode.paused.is_some() {
                "p go on"
            } else {
                "p pause"
            };
            lines.push(Line::from(look.faint(format!("q quit   {pause}   ? help"))));
        }
        lines
    }

    /// Whom it is about, and how new it is.
    fn header(&self) -> Line<'static> {
        let look = self.look;
        let moment = self.model.moment.as_deref();
        let kvgauge = moment.and_then(|moment| moment.kvgauge.as_ref());
        let mut left = match kvgauge {
            Some(kvgauge) => format!("kvgauge {}", look.name(&kvgauge.version, 20)),
            None => "kvgauge status".to_owned(),
        };
        let address = &self.model.address;
        let address = look.name(address.strip_prefix("http://").unwrap_or(address), 60);
        left.push_str(&format!("  {address}"));
        if let Some(kvgauge) = kvgauge {
            if let Some(phase) = &kvgauge.phase {
                let phase = look.name(phase, 12);
                // The only one that asks for no attention.
                let phase = if phase == "serving" {
                    phase
                } else {
                    phase.to_uppercase()
                };
                left.push_str(&format!("  {phase}"));
            }
            if let Some(uptime) = kvgauge.uptime_s {
                left.push_str(&format!(", up {}", ago(Duration::from_secs(uptime))));
            }
        }
        let age = self.model.age(self.now).map(ago);
        let right = match (self.mode.paused, age) {
            (Some(time), _) => format!("PAUSED for {}, p goes on", ago(time)),
            (None, Some(age)) => format!("heard {age} ago"),
            (None, None) => "nothing heard yet".to_owned(),
        };
        let room = self.columns.saturating_sub(width(&right) + 2);
        let left = look.cut(&left, room);
        let between = self.columns.saturating_sub(width(&left) + width(&right));
        let right = if self.mode.paused.is_some() {
            look.levelled(right, Level::Warning)
        } else {
            look.faint(right)
        };
        Line::from(vec![
            look.strong(left),
            look.plain(" ".repeat(between)),
            right,
        ])
    }

    /// That there is no connection, where there is none.
    fn connection(&self) -> Vec<Line<'static>> {
        let look = self.look;
        let Some(lost) = &self.model.lost else {
            let silent = self.model.moment.is_some() && self.model.is_old(self.now);
            let text = "NOTHING HEARD for a while: what is shown is OLD";
            return if silent {
                vec![Line::from(look.wrong(text))]
            } else {
                Vec::new()
            };
        };
        let again = lost.next_try.saturating_duration_since(self.now);
        let since = ago(self.now.saturating_duration_since(lost.since));
        let text = if self.model.moment.is_some() {
            format!(
                "CONNECTION LOST {since} ago, next try in {}; what is shown is OLD",
                ago(again)
            )
        } else {
            format!("NO CONNECTION for {since}, next try in {}", ago(again))
        };
        let mut lines = vec![Line::from(look.wrong(text))];
        let message = look.message(&lost.message, self.columns.saturating_sub(2), MOST_LINES);
        lines.extend(
            message
                .into_iter()
                .map(|line| Line::from(look.plain(format!("  {line}")))),
        );
        lines
    }

    /// The roles that are not well, the worst first; or that all are.
    fn verdict(&self) -> Vec<Line<'static>> {
        let look = self.look;
        let mut lines = self.connection();
        if self.model.is_old(self.now) {
            return lines;
        }
        let mut troubled: Vec<(Level, String)> = Vec::new();
        for role in &self.model.roles {
            if let Some(what) = self.trouble(role) {
                troubled.push(what);
            }
        }
        troubled.extend(self.standing_still());
        troubled.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let mut line: Vec<Span<'static>> = Vec::new();
        for (level, what) in &troubled {
            if !line.is_empty() {
                line.push(look.plain("   "));
            }
            line.push(look.levelled(format!("{}: {what}", word(*level)), *level));
        }
        if let (true, Some(fullest)) = (troubled.is_empty(), self.model.worst()) {
            let usage = percent(fullest.says.usage.unwrap_or_default());
            let title = look.name(&fullest.title, 30);
            line.push(look.levelled(format!("ok: the fullest is {title} at {usage}"), Level::Ok));
        }
        if !line.is_empty() {
            lines.push(Line::from(line));
        }
        lines
    }

    /// Sources whose page stands still with work to do: it can be read, and says nothing of now.
    fn standing_still(&self) -> Vec<(Level, String)> {
        let look = self.look;
        let sources = self.model.moment.iter().flat_map(|moment| &moment.sources);
        let still = sources.filter(|source| source.stands_still).map(|source| {
            let name = look.name(&source.says.name, 24);
            let time = source.unchanged_ms.map(Duration::from_millis).map(ago);
            let time = time.map_or_else(String::new, |time| format!(" for {time}"));
            (
                Level::Warning,
                format!("{name}'s page unchanged{time} while it has requests: it may hang"),
            )
        });
        still.collect()
    }

    /// What is not well with a role.
    fn trouble(&self, role: &Role) -> Option<(Level, String)> {
        let look = self.look;
        let limits = self.model.limits;
        let title = look.name(&role.title, 30);
        let says = &role.says;
        let from = |level| match level {
            Level::Critical => format!("(from {})", percent(limits.crit)),
            _ => format!("(from {})", percent(limits.warn)),
        };
        let Some(usage) = says.usage else {
            let reason = says.unknown.as_deref().unwrap_or("no reason is given");
            return Some((Level::Unknown, format!("{title} {}", look.name(reason, 20))));
        };
        let whole = limits.level(usage);
        // One full pool makes its requests wait, however empty the others are.
        let hottest = says.max.filter(|_| says.pools > 1);
        let hot = hottest.map_or(Level::Ok, |max| limits.level(max));
        if let (Some(max), true) = (hottest, hot > whole) {
            let what = format!(
                "{title} {}, its hottest pool {} {}",
                percent(usage),
                percent(max),
                from(hot)
            );
            return Some((hot, what));
        }
        if whole != Level::Ok {
            return Some((whole, format!("{title} {} {}", percent(usage), from(whole))));
        }
        (role.level != Level::Ok).then(|| (role.level, format!("{title} known in part")))
    }

    /// Of what can't be shown the worst, and that the window is too small.
    fn tiny(&self, height: usize) -> Vec<Line<'static>> {
        let look = self.look;
        let old = self.model.is_old(self.now);
        let mut roles: Vec<_> = self.model.roles.iter().collect();
        roles.sort_by_key(|role| std::cmp::Reverse(role.level));
        let mut lines = Vec::new();
        if self.model.lost.is_some() {
            lines.push(Line::from(look.wrong("CONNECTION LOST")));
        } else if roles.is_empty() {
            lines.push(Line::from(look.plain("nothing known yet")));
        }
        for role in roles {
            let level = if old { "OLD" } else { word(role.level) };
            // The level stays where the name has to give way.
            let value = match role.says.usage {
                Some(usage) => format!(" {:.0}% {level}", usage * 100.0),
                None => format!(" {level}"),
            };
            let name = look.name(&role.title, self.columns.saturating_sub(width(&value)));
            lines.push(Line::from(
                look.levelled(format!("{name}{value}"), role.level),
            ));
        }
        lines.truncate(height.saturating_sub(1).max(1));
        if height > 1 {
            let words = [
                "too small: 80x24 shows all",
                "too small for more",
                "too small",
            ];
            let fits = words.iter().find(|words| width(words) <= self.columns);
            lines.push(Line::from(look.faint(*fits.unwrap_or(&"small"))));
        }
        lines
    }

    fn help(&self) -> Vec<Line<'static>> {
        let look = self.look;
        let bar = look.bar(0.4, Some(0.7), Some(Level::Ok), 20);
        let mut first = vec![look.plain("  ")];
        first.extend(bar);
        first.push(look.plain("  held by running requests (usage), then what else"));
        let limits = self.model.limits;
        let from = format!(
            "from {} and {}.",
            percent(limits.warn),
            percent(limits.crit)
        );
        let texts = [
            "                        is occupied (fill): cache that gives way when needed"
                .to_owned(),
            format!("  ok, WARNING, CRITICAL   {from}"),
            "  UNKNOWN                 nothing is known, which is not 0; the reason is beside it"
                .to_owned(),
            "  OLD                     was so when it was last heard; nothing is known of now"
                .to_owned(),
            "  ?  in a graph           unknown then; a blank: nothing was heard".to_owned(),
            "  hottest                 the fullest of several pools (ranks, engines)".to_owned(),
            "  queued                  wait to be scheduled; transfer, prealloc, inflight and"
                .to_owned(),
            "                          bootstrap: between prefill and decode".to_owned(),
            "  TTFT, TPOT              time to the first token, and for each one after it"
                .to_owned(),
            String::new(),
            "  q, Esc, Ctrl-C  quit     p  pause, go on     ?  this page, and back".to_owned(),
        ];
        let mut lines = vec![
            Line::from(look.strong("kvgauge status --watch")),
            Line::default(),
        ];
        lines.push(Line::from(first));
        lines.extend(texts.map(|text| Line::from(look.plain(text))));
        lines
    }
}

#[cfg(test)]
mod tests;
