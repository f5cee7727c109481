//! What is made of one look: right or wrong, in lines, each cause with its cure behind an arrow.

use crate::cli::role_line::{RoleSays, number, shown};
use crate::config::{Source, Target};
use crate::engine::{self, SourceReading};
use crate::kv::{Pool, Reading, Role, Roles, Unknown};
use crate::scrape::{Look, Missed, Whose};

/// One thing that was looked at.
pub(super) struct Finding {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) fine: bool,
    pub(super) lines: Vec<String>,
}

impl Finding {
    fn of(name: &str, url: &Target) -> Finding {
        Finding {
            name: name.to_owned(),
            url: url.to_string(),
            fine: true,
            lines: Vec::new(),
        }
    }

    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn wrong(&mut self, cause: impl Into<String>, cure: &str) {
        self.fine = false;
        self.say(cause);
        self.say(format!("-> {cure}"));
    }

    /// A failure's message is `cause: cure`.
    fn missed(&mut self, missed: &Missed) {
        match missed.message.rsplit_once(": ") {
            Some((cause, cure)) => self.wrong(cause, cure),
            None => self.wrong(&*missed.message, "see the server's own log"),
        }
    }
}

/// The router that requests go to. Any answer of HTTP is one.
pub(super) fn of_router(url: &Target, answer: &Result<Vec<u8>, Missed>) -> Finding {
    let mut finding = Finding::of("upstream", url);
    match answer {
        Ok(_) => finding.say("answers at /v1/models"),
        Err(missed) => match missed.status {
            Some(status) if status.is_server_error() => finding.wrong(
                format!("answered {} at /v1/models", status.as_u16()),
                "it is there but can't serve: see its own log, and whether its workers are up",
            ),
            Some(status) => finding.say(format!(
                "is there, and answered {} at /v1/models",
                status.as_u16()
            )),
            None => finding.missed(missed),
        },
    }
    finding
}

/// One source. `engines`: whether any source's page is an engine's. `warmed`: whether a request was
/// to make the first gauges appear.
pub(super) fn of_source(
    source: &Source,
    look: &Result<Look, Missed>,
    engines: bool,
    warmed: bool,
) -> Finding {
    let mut finding = Finding::of(&source.name, &source.url);
    let look = match look {
        Ok(look) => look,
        Err(missed) => {
            finding.missed(missed);
            return finding;
        }
    };
    finding.say(format!(
        "answered in {} ms: {}, {} bytes",
        look.took.as_millis(),
        several(look.samples as u64, "sample"),
        number(look.bytes as u64)
    ));
    if let Some((count, line, reason)) = look.bad_lines {
        finding.say(format!(
            "{} can't be read and are left out, the first in line {line} ({reason})",
            several(count, "line")
        ));
    }
    match look.whose {
        Whose::Engine => of_engine(&mut finding, source, &look.reading, warmed),
        Whose::Kvgauge => finding.wrong(
            "this is kvgauge's own page, which repeats those of others",
            "name the engine's own page; `kvgauge status` reads a running kvgauge",
        ),
        Whose::Router if source.role.is_none() && engines => {
            finding.say("a router's page: no KV gauges, and none are expected");
        }
        Whose::Router => {
            let role = source.role.unwrap_or(Role::Decode);
            finding.wrong(
                format!("this is the router: KV gauges live on the {role} server"),
                &format!(
                    "set the source's url to the {role} server's own page, which it has when it is \
                     started with --enable-metrics (SGLang)"
                ),
            );
        }
        Whose::Other => of_stranger(&mut finding, source, look, engines),
    }
    finding
}

fn of_engine(finding: &mut Finding, source: &Source, reading: &Reading, warmed: bool) {
    let role = source.role.or(reading.role);
    let paged = reading.roles();
    let several = paged.len() > 1;
    let engine = reading.engine.unwrap_or_default();
    finding.say(match (role, reading.role) {
        (Some(role), Some(paged)) if role == paged => {
            format!("engine {engine}, role {role} as its page says")
        }
        (Some(role), _) if several => {
            format!(
                "engine {engine}, role {role} as set; its page says {}",
                named(paged)
            )
        }
        (Some(role), _) if source.role.is_some() => format!("engine {engine}, role {role} as set"),
        (Some(role), _) => format!("engine {engine}, role {role}"),
        (None, _) if several => {
            format!("engine {engine}, roles {} as its page says", named(paged))
        }
        (None, _) => format!("engine {engine}"),
    });
    // An engine that knows no disaggregation says `unified` of itself, whatever it is used for.
    if let (Some(set), Some(paged @ (Role::Decode | Role::Prefill))) = (source.role, reading.role)
        && set != paged
    {
        finding.wrong(
            format!("it is set as {set}, but its page says that it is a {paged} server"),
            "set the source's url to the right server, or correct its role",
        );
    }
    if let (Some(set), true) = (source.role, several)
        && !paged.iter().any(|role| role == set)
    {
        finding.wrong(
            format!("it is set as {set}, but its page says {}", named(paged)),
            "leave its role out, or set one of these",
        );
    }
    let states = engine::aggregate(&[SourceReading {
        roles: match role {
            None if several => paged,
            role => role.or(Some(Role::Unified)).into(),
        },
        reading: Ok(reading),
        age: None,
    }]);
    for state in &states {
        let says = RoleSays::from(state);
        finding.say(format!("{}  {}", says.title(true), says.line()));
    }
    for (value, metric) in &reading.chosen {
        finding.say(format!("  {value:<10} from {metric}"));
    }
    for (value, metric, why) in &reading.passed_over {
        finding.say(format!("  {value:<10} not from {metric}: {why}"));
    }
    // On a page of several roles only the pools of the one that is set are meant.
    let meant = |pool: &&Pool| !several || role.is_none() || pool.role == role;
    let pools = reading.pools.iter().filter(meant);
    let unknown: Vec<Unknown> = pools.filter_map(|p| p.usage.err()).collect();
    let fresh = reading.pools.is_empty() || unknown.contains(&Unknown::Absent);
    let not_there = not_there(reading).join(", ");
    if !not_there.is_empty() {
        finding.say(if fresh {
            format!("  not on the page yet: {not_there}")
        } else {
            format!(
                "  not on the page: {not_there} (so left out everywhere; another version of the \
                 engine may publish it)"
            )
        });
    }
    if role.is_none() && !several {
        finding.wrong(
            "its page names no role, and none is set",
            "set the source's role: decode, prefill or unified",
        );
    }
    if fresh {
        if warmed {
            finding.wrong(
                "it has no usage after the warm-up either",
                "see whether the request reached this server (the router's log), and whether this \
                 version of the engine publishes its KV usage at all",
            );
        } else {
            finding.wrong(
                "it has no usage yet: its gauges come with the first request",
                "send a request through the router (kvgauge doctor --warmup does), then look again",
            );
        }
    } else if !unknown.is_empty() {
        let odd: Vec<String> = reading
            .odd
            .iter()
            .map(|(reason, n)| format!("{reason} {n}"))
            .collect();
        finding.wrong(
            format!("a gauge holds what can't be a value ({})", odd.join(", ")),
            "look at the gauge on the engine's page, and at the engine's own log",
        );
    }
}

/// The values that no pool of a page has.
fn not_there(reading: &Reading) -> Vec<&'static str> {
    let none = |has: fn(&crate::kv::Pool) -> bool| !reading.pools.iter().any(has);
    [
        ("usage", none(|p| p.usage != Err(Unknown::Absent))),
        ("used", none(|p| p.used.is_some())),
        ("capacity", none(|p| p.capacity.is_some())),
        ("fill", none(|p| p.fill.is_some())),
        ("running", none(|p| p.running.is_some())),
        ("queued", none(|p| p.queued.is_some())),
    ]
    .into_iter()
    .filter_map(|(value, none)| none.then_some(value))
    .collect()
}

fn of_stranger(finding: &mut Finding, source: &Source, look: &Look, engines: bool) {
    if !look.suspects.is_empty() {
        finding.say("no engine known here has KV gauges on it, but these look like it:");
        for (suspect, value) in &look.suspects {
            let mut line = format!(
                "  {} {} may be {}, in {}",
                shown(&suspect.metric),
                shown(value),
                suspect.value,
                suspect.unit
            );
            if !suspect.labels.is_empty() {
                let labels: Vec<String> = suspect.labels.iter().map(|l| shown(l)).collect();
                line.push_str(&format!("; several, told apart by {}", labels.join(", ")));
            }
            finding.say(line);
        }
        finding.wrong(
            "its usage stays unknown: nothing is guessed by names",
            "see what the engine's documentation says of them; then put this, mended where it has to be, into the settings, and engine = \"mine\" into the source:",
        );
        finding.say("     [engine.mine]");
        let mut mapped: Vec<&str> = Vec::new();
        for (suspect, _) in &look.suspects {
            if mapped.contains(&suspect.value) {
                continue;
            }
            mapped.push(suspect.value);
            finding.say(format!(
                "     {} = {{ metric = \"{}\", unit = \"{}\" }}",
                suspect.value,
                shown(&suspect.metric),
                suspect.unit
            ));
        }
    } else if source.role.is_some() || !engines {
        finding.wrong(
            "a good page, but no engine known here has KV gauges on it",
            "see whether the url is the engine's own page, and whether its metrics are on",
        );
    } else {
        finding.say("no KV gauges, and no role is set, so none are expected");
    }
}

/// `decode and prefill`
fn named(roles: Roles) -> String {
    let names: Vec<&str> = roles.iter().map(Role::as_str).collect();
    names.join(" and ")
}

/// `1 line`, `2 lines`
fn several(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        n => format!("{} {what}s", number(n)),
    }
}
