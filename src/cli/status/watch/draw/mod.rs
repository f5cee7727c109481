//! The view, drawn into a buffer. Pure: the same model at the same time gives the same view.
//!
//! What matters is in the words; colours only repeat it. Texts from elsewhere come here without controls
//! ([`Look::name`](text::Look)), and the buffer takes none either.

mod headline;
mod order;
mod plan;
mod rest;
mod roles;
mod sources;
mod text;

pub(super) use text::Look;

use super::model::{Model, Role};
use crate::cli::role_line::percent;
use crate::cli::status::report::Level;
use order::Counts;
use plan::Part;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use roles::{Roles, word};
use sources::Sources;
use std::time::{Duration, Instant};
use text::{ago, padded, width, wrap};

/// A window with less is told that it is too small.
const LEAST: (usize, usize) = (44, 7);

/// A window that is lower has no line for the keys.
const LEAST_WITH_KEYS: usize = 10;

/// Lines that a message about the connection may take.
const MOST_LINES: usize = 3;

/// Columns before what the words mean, and columns of a window that has room for both.
const HELP_TEXT: usize = 26;
const HELP_BESIDE: usize = 60;

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
        view.help(height)
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
        let roles = Roles::new(look, self.model, self.now, self.columns);
        let old = self.model.is_old(self.now);
        let (mut traffic, mut sources) = (Vec::new(), Vec::new());
        let (mut pools, mut errors, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        let mut counts = Counts {
            roles: self.model.roles.len(),
            ..Counts::default()
        };
        if let Some(moment) = &self.model.moment {
            let since = self.model.age(self.now).unwrap_or_default();
            let all = Sources::new(look, moment, self.columns, since, old);
            counts.unwell = all.unwell().len();
            if roles.of_several_pools() {
                counts.hot_pools = rest::hot_pools(moment, self.model.limits);
            }
            traffic = rest::traffic(look, moment, old);
            sources = all.sizes();
            pools = rest::pools(&roles, moment, self.model.limits, height);
            errors = rest::errors(look, moment);
            requests = rest::requests(look, moment);
        }
        let role_sizes = if self.model.roles.is_empty() {
            vec![rest::no_roles(look, self.model, self.columns).into()]
        } else {
            roles.sizes(height)
        };
        // In the order of `What`.
        let parts = vec![
            Part::joined(vec![vec![self.header()]]),
            Part::joined(self.verdict()),
            Part::apart(role_sizes),
            Part::apart(traffic),
            Part::apart(sources),
            Part::apart(pools),
            Part::apart(errors),
            Part::apart(requests),
        ];
        let plan = order::plan(parts, height - usize::from(keys), counts);
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
            let old = self.model.is_old(self.now);
            if let Some(phase) = &kvgauge.phase {
                let phase = look.name(phase, 12);
                // The only one that asks for no attention.
                let phase = if phase == "serving" {
                    phase
                } else {
                    phase.to_uppercase()
                };
                left.push_str(if old { "  was " } else { "  " });
                left.push_str(&phase);
            }
            if let Some(uptime) = kvgauge.uptime_s.filter(|_| !old) {
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

    /// That there is no connection; and what is not well, the worst first, or that all is: in a line, in
    /// two, … as many as it needs.
    fn verdict(&self) -> Vec<Vec<Line<'static>>> {
        let connection = self.connection();
        let mut sizes = vec![connection.clone()];
        if self.model.is_old(self.now) {
            return sizes;
        }
        for lines in headline::sizes(self.look, self.model, self.columns) {
            sizes.push(connection.iter().cloned().chain(lines).collect());
        }
        sizes
    }

    /// Of what can't be shown the worst, and that the window is too small.
    fn tiny(&self, height: usize) -> Vec<Line<'static>> {
        let look = self.look;
        let mut roles: Vec<_> = self.model.roles.iter().collect();
        roles.sort_by_key(|role| std::cmp::Reverse(role.gravest()));
        let mut lines = Vec::new();
        if self.model.lost.is_some() {
            lines.push(Line::from(look.wrong("CONNECTION LOST")));
        } else if roles.is_empty() {
            lines.push(Line::from(look.plain("nothing known yet")));
        }
        let room = height.saturating_sub(1).max(1).saturating_sub(lines.len());
        let more = roles.len().saturating_sub(room);
        let more =
            more.saturating_add(usize::try_from(self.model.roles_left_out).unwrap_or(usize::MAX));
        let shown = &roles[..roles.len().min(room)];
        lines.extend(shown.iter().map(|role| self.tiny_role(role)));
        if height > 1 {
            let words = if more > 0 {
                [
                    format!("and {more} more: too small, 80x24 shows all"),
                    format!("too small: {more} more"),
                    format!("{more} more"),
                ]
            } else {
                [
                    "too small: 80x24 shows all".to_owned(),
                    "too small for more".to_owned(),
                    "too small".to_owned(),
                ]
            };
            let fits = words.into_iter().find(|words| width(words) <= self.columns);
            let words = fits.unwrap_or_else(|| "small".to_owned());
            lines.push(Line::from(look.faint(words)));
        }
        lines
    }

    /// Its gravest level stays where all else has to give way: the name, and what it is of.
    fn tiny_role(&self, role: &Role) -> Line<'static> {
        let look = self.look;
        let old = self.model.is_old(self.now);
        let level = if old { "OLD" } else { word(role.gravest()) };
        let usage = role
            .says
            .usage
            .map(|usage| format!("{:.0}%", usage * 100.0));
        let mut notes = if old {
            Vec::new()
        } else {
            roles::notes(role, false)
        };
        let last = notes.last().cloned();
        notes.splice(0..0, usage.clone());
        // A usage that is well would seem to be what the level says.
        let alone = usage.filter(|_| last.is_none());
        let values = [
            format!(" {} {level}", notes.join(", ")),
            format!(" {} {level}", last.or(alone).unwrap_or_default()),
            format!(" {level}"),
        ]
        .map(|value| value.replace("  ", " "));
        let name = width(&role.title).min(8);
        let fits = values
            .iter()
            .find(|value| width(value) + name <= self.columns);
        let value = fits.unwrap_or(&values[2]);
        let titles = self.model.roles.iter().map(|other| &*other.title);
        let names = look.names(titles, self.columns.saturating_sub(width(value)));
        let mut names = names.into_iter().zip(&self.model.roles);
        let name = names.find(|(_, other)| other.title == role.title);
        let name = name.map(|(name, _)| name).unwrap_or_default();
        let text = format!("{name}{value}");
        Line::from(if old {
            look.wrong(text)
        } else {
            look.levelled(text, role.gravest())
        })
    }

    fn help(&self, height: usize) -> Vec<Line<'static>> {
        let look = self.look;
        let limits = self.model.limits;
        let (warn, crit) = (percent(limits.warn), percent(limits.crit));
        let from = format!("from {warn} and {crit}");
        let words = [
            ("ok, WARNING, CRITICAL", &*from),
            (
                "UNKNOWN",
                "nothing is known, which is not 0; the reason is beside it",
            ),
            (
                "OLD",
                "was so when it was last heard; nothing is known of now",
            ),
            ("?  in a graph", "unknown then; a blank: nothing was heard"),
            ("hottest", "the fullest of several pools (ranks, engines)"),
            (
                "queued",
                "wait to be scheduled; transfer, prealloc, inflight and bootstrap: between \
                 prefill and decode",
            ),
            (
                "TTFT, TPOT",
                "time to the first token, and for each one after it",
            ),
            (
                "KV start to end",
                "the role's usage when a request came, and when it ended",
            ),
        ];
        let mut lines = vec![
            Line::from(look.strong("kvgauge status --watch")),
            Line::default(),
        ];
        // Beside the words where there is room, else after them.
        let wide = self.columns >= HELP_BESIDE;
        let room = self
            .columns
            .saturating_sub(if wide { HELP_TEXT } else { 4 });
        let mut bar = vec![look.plain("  ")];
        bar.extend(look.bar(0.4, Some(0.7), Some(Level::Ok), 20));
        let mut bar = Some(Line::from(bar));
        let text = "held by running requests (usage), then what else is occupied (fill): cache \
                    that gives way when needed";
        for text in wrap(text, self.columns.saturating_sub(HELP_TEXT)) {
            let mut line = bar.take().unwrap_or_default();
            let blanks = HELP_TEXT.saturating_sub(line.width());
            line.push_span(look.plain(format!("{}{text}", " ".repeat(blanks))));
            lines.push(line);
        }
        for (word, text) in words {
            let (mut first, texts) = if wide {
                (format!("  {word}"), wrap(text, room))
            } else {
                ("  ".to_owned(), wrap(&format!("{word}: {text}"), room))
            };
            for text in texts {
                let indent = match first.len() {
                    0 => self.columns.saturating_sub(room),
                    _ if wide => HELP_TEXT,
                    _ => 2,
                };
                let text = format!("{}{text}", padded(&first, indent));
                lines.push(Line::from(look.plain(text)));
                first.clear();
            }
        }
        let keys = if wide {
            ["", "q, Esc, Ctrl-C  quit     p  pause, go on     ?  back"]
        } else {
            ["", "q quit   p pause, go on   ? back"]
        };
        // The way out stays, however low the window is.
        lines.truncate(height.saturating_sub(keys.len()));
        lines.extend(keys.map(|text| Line::from(look.plain(format!("  {text}")))));
        lines
    }
}

#[cfg(test)]
mod tests;
