//! Traffic, pools, errors and requests.

use super::super::model::Model;
use super::super::moment::{Moment, Quantiles, RequestSays, Traffic};
use super::plan::Size;
use super::roles::Roles;
use super::text::{Look, clock, millis, padded, rate, short, width};
use crate::cli::role_line::{number, percent};
use crate::cli::status::report::{Level, Limits};
use ratatui::text::{Line, Span};
use std::rc::Rc;

/// The title of a part, and whether it is of now.
pub(super) fn title(look: Look, name: &'static str, old: bool) -> Vec<Span<'static>> {
    let mut title = vec![look.strong(name)];
    if old {
        title.push(look.wrong(" OLD"));
    }
    title
}

/// In a line, and in three.
pub(super) fn traffic(look: Look, moment: &Moment, old: bool) -> Vec<Vec<Line<'static>>> {
    let Some(traffic) = &moment.traffic else {
        let why = "traffic: not known here, as no kvgauge is asked that sees the requests";
        return vec![vec![Line::from(look.faint(why))]];
    };
    let rates = rates(look, traffic, old);
    let quantiles = [("TTFT", traffic.ttft_ms), ("TPOT", traffic.tpot_ms)];
    let window = traffic.window_s.unwrap_or(60);
    let all = quantiles.map(|(name, all)| quantiles_line(look, name, all, window));
    vec![
        vec![rates.clone()],
        [rates].into_iter().chain(all).collect(),
    ]
}

fn rates(look: Look, traffic: &Traffic, old: bool) -> Line<'static> {
    let mut line = title(look, "traffic", old);
    let Some(requests) = traffic.requests_per_s else {
        line.push(look.plain("  rates unknown yet: they come with the next look"));
        return Line::from(line);
    };
    line.push(look.plain(format!("  {} requests/s", rate(requests))));
    match traffic.failed_per_s {
        Some(failed) if failed > 0.0 => {
            line.push(look.levelled(format!("  {} FAILED/s", rate(failed)), Level::Critical));
        }
        Some(_) => line.push(look.plain("  0 failed/s")),
        None => line.push(look.plain("  failed unknown")),
    }
    if let Some(n) = traffic.in_flight {
        line.push(look.plain(format!("  {} in flight", number(n))));
    }
    let tokens = [
        ("in", traffic.input_tokens_per_s),
        ("out", traffic.output_tokens_per_s),
    ];
    let tokens = tokens
        .into_iter()
        .filter_map(|(name, n)| Some(format!("{name} {}", rate(n?))));
    let tokens = tokens.collect::<Vec<_>>().join(" ");
    let tokens = if tokens.is_empty() {
        "unknown".to_owned()
    } else {
        tokens
    };
    line.push(look.plain(format!("  tokens/s {tokens}")));
    Line::from(line)
}

fn quantiles_line(look: Look, name: &str, all: Quantiles, window: u64) -> Line<'static> {
    let values = [("p50", all.p50), ("p90", all.p90), ("p99", all.p99)];
    if values.iter().all(|(_, value)| value.is_none()) {
        let why = format!("     unknown: no answer gave one in the last {window} s");
        return Line::from(vec![look.strong(name.to_owned()), look.faint(why)]);
    }
    let mut line = vec![look.strong(name.to_owned()), look.plain("   ")];
    for (quantile, value) in values {
        let value = value.map_or("unknown".to_owned(), millis);
        line.push(look.faint(format!("  {quantile} ")));
        line.push(look.plain(padded(&value, 8)));
    }
    Line::from(line)
}

/// Pools at the warning or above it: the first ones, as the fullest come first.
pub(super) fn hot_pools(moment: &Moment, limits: Limits) -> usize {
    let usage = moment.pools.iter().map(|pool| pool.usage);
    usage
        .take_while(|usage| usage.is_some_and(|usage| limits.level(usage) > Level::Ok))
        .count()
}

/// With one pool, two, … and all, of which no more than `most` are looked at.
pub(super) fn pools(
    roles: &Roles<'_>,
    moment: &Moment,
    limits: Limits,
    most: usize,
) -> Vec<Size<'static>> {
    let look = roles.look;
    let total = moment.pools.len() as u64 + moment.pools_left_out;
    let mut title = title(look, "pools", roles.is_old());
    title.push(look.plain(format!("  the fullest of {}", number(total))));
    let pools = &moment.pools[..moment.pools.len().min(most)];
    let names: Vec<String> = pools
        .iter()
        .map(|pool| {
            let model = pool
                .model
                .as_deref()
                .filter(|_| several_models(moment, &pool.role));
            let model = model.map(|model| look.name(model, 24));
            let parts = [
                Some(look.name(&pool.role, 10)),
                model,
                Some(roles.pool_name(pool)),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            parts.join(" ").trim_end().to_owned()
        })
        .collect();
    let widest = names
        .iter()
        .map(|name| width(name))
        .max()
        .unwrap_or_default();
    let lines = pools.iter().zip(&names).map(|(pool, name)| {
        let mut line = vec![look.plain(format!("  {} ", padded(name, widest)))];
        match pool.usage.filter(|usage| (0.0..=1.0).contains(usage)) {
            Some(usage) => {
                let level = Some(limits.level(usage)).filter(|_| !roles.is_old());
                let wide = roles.width.saturating_sub(widest + 40).clamp(8, 40);
                line.extend(look.bar(usage, None, level, wide));
                line.push(look.strong(format!(" {:>7}", percent(usage))));
            }
            None => line.push(look.levelled("usage unknown", Level::Unknown)),
        }
        if let (Some(used), Some(capacity)) = (pool.used, pool.capacity) {
            line.push(look.plain(format!("  {} / {}", number(used), number(capacity))));
        }
        Line::from(line)
    });
    growing(Line::from(title), lines)
}

fn several_models(moment: &Moment, role: &str) -> bool {
    let mut models = moment
        .roles
        .iter()
        .filter(|says| says.role == role)
        .map(|says| &says.model);
    let first = models.next();
    models.any(|model| Some(model) != first)
}

/// The last things that went wrong.
pub(super) fn errors(look: Look, moment: &Moment) -> Vec<Size<'static>> {
    let lines = moment.errors.iter().map(|error| {
        let who = error.who.as_deref().map(|who| look.name(who, 24));
        let message = look.name(&error.message, 400);
        let text = match who {
            Some(who) if !message.starts_with(&who) => format!("{who}: {message}"),
            _ => message,
        };
        let times = error.count.filter(|count| *count > 1);
        let times = times.map_or_else(String::new, |n| format!("{} times, last: ", number(n)));
        let text = format!("{times}{text}");
        Line::from(vec![
            look.faint(format!("  {} ", clock(&error.timestamp))),
            look.plain(text),
        ])
    });
    growing(Line::from(look.strong("last errors")), lines)
}

/// A table, as lines of words would not fit: at 80 columns all but the path has room.
pub(super) fn requests(look: Look, moment: &Moment) -> Vec<Size<'static>> {
    let lines = moment
        .requests
        .iter()
        .map(|request| request_line(look, request));
    let names = ["TTFT", "took", "in", "out"].map(|name| format!(" {name:>7}"));
    let names = format!("{:18}{}", "KV start to end", names.concat());
    let title = vec![
        look.strong(padded("last requests", OUTCOME_END)),
        look.faint(names),
    ];
    growing(Line::from(title), lines)
}

/// Where the columns of the outcome end, and those of the KV usage begin.
const OUTCOME_END: usize = 25;

fn request_line(look: Look, request: &RequestSays) -> Line<'static> {
    let status = request
        .status
        .map_or("none".to_owned(), |status| status.to_string());
    let outcome = request.outcome.as_deref().unwrap_or("unknown");
    let fine = outcome == "complete" && request.status.is_some_and(|status| status < 400);
    let begin = format!("  {} ", clock(&request.timestamp));
    let room = OUTCOME_END.saturating_sub(width(&begin) + 1);
    let what = format!("{status:>4} {}", look.name(outcome, room.saturating_sub(5)));
    let what = format!("{} ", padded(&what, room));
    let unknown = || "unknown".to_owned();
    let share = |usage: Option<f64>| usage.map_or_else(unknown, percent);
    let (start, end) = (share(request.kv_start_usage), share(request.kv_end_usage));
    let ttft = match request.stream {
        // Where nothing is streamed the first token comes with all others.
        Some(false) => "-".to_owned(),
        _ => request.ttft_ms.map_or_else(unknown, millis),
    };
    let rest = [
        ttft,
        request.duration_ms.map_or_else(unknown, millis),
        request.input_tokens.map_or_else(unknown, short),
        request.output_tokens.map_or_else(unknown, short),
    ];
    let mut text = format!("{start:>7} to {end:<7}");
    text.extend(rest.map(|value| format!(" {value:>7}")));
    if let Some(path) = &request.path {
        text.push_str(&format!("  {}", look.name(path, 40)));
    }
    Line::from(vec![
        look.faint(begin),
        if fine {
            look.plain(what)
        } else {
            look.wrong(what)
        },
        look.plain(text),
    ])
}

/// A title with one line, with two, … and with all.
fn growing(title: Line<'static>, lines: impl Iterator<Item = Line<'static>>) -> Vec<Size<'static>> {
    let lines: Rc<[Line<'static>]> = [title].into_iter().chain(lines).collect();
    let with = |n: usize| {
        let lines = lines.clone();
        Size::new(n, move || lines[..n].to_vec())
    };
    (2..=lines.len()).map(with).collect()
}

/// What is said where there are no roles.
pub(super) fn no_roles(look: Look, model: &Model, columns: usize) -> Vec<Line<'static>> {
    let text = match &model.moment {
        None => "Nothing has been heard yet.",
        Some(moment)
            if moment
                .sources
                .iter()
                .any(|source| source.says.engine.is_some()) =>
        {
            "usage unknown: of no engine that was read is the role known"
        }
        Some(_) => "usage unknown: nobody that was read says anything of a KV cache",
    };
    let lines = look.message(text, columns, 2);
    lines
        .into_iter()
        .map(|line| Line::from(look.levelled(line, Level::Unknown)))
        .collect()
}
