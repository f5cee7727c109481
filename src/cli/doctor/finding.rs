//! What is made of one look: right or wrong, in lines, each cause with its cure behind an arrow.

use super::mapping;
use crate::cli::role_line::{RoleSays, number, shown};
use crate::config::{Source, Target};
use crate::engine::{self, Lacking, SourceReading};
use crate::kv::{Pool, Reading, Role, Roles, Unknown};
use crate::scrape::{Look, Missed, Way, Whose};

/// One thing that was looked at.
pub(super) struct Finding {
    pub(super) name: String,
    /// Where: an address, or what is looked at to find some.
    pub(super) at: String,
    pub(super) fine: bool,
    pub(super) lines: Vec<String>,
}

/// What may be pasted into settings.
pub(super) struct Paste<'a> {
    /// The name of a mapping.
    pub(super) mapping: &'a str,
    /// Whether a whole `[[source]]` too: the source stands in no settings.
    pub(super) source: bool,
}

impl Finding {
    fn of(name: &str, at: impl Into<String>) -> Finding {
        Finding {
            name: name.to_owned(),
            at: at.into(),
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

    /// A failure in the words `cause: cure`.
    fn failed(&mut self, words: &str) {
        match words.rsplit_once(": ") {
            Some((cause, cure)) => self.wrong(cause, cure),
            None => self.wrong(words, "see the server's own log"),
        }
    }
}

/// The router that requests go to. Any answer of HTTP is one.
pub(super) fn of_router(url: &Target, answer: &Result<Vec<u8>, Missed>) -> Finding {
    let mut finding = Finding::of("upstream", url.to_string());
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
            None => finding.failed(&missed.message),
        },
    }
    finding
}

/// One way in which sources are found, of which so many are read at most.
pub(super) fn of_way(way: &Way, most: usize) -> Finding {
    let mut finding = Finding::of(&format!("discovery.{}", way.kind), shown(&way.at));
    match way.found {
        Some(0) if way.problem.is_none() => {
            let (cause, cure) = match way.kind {
                "workers" => (
                    "the router has no workers",
                    "start them, and name them to the router (--worker-urls, --prefill, --decode); \
                     those of a router that has just started take a moment",
                ),
                "file_sd" => (
                    "no file that fits names a target",
                    "see that the files are there, and that their groups have targets",
                ),
                _ => (
                    "no address stands behind it",
                    "check the name, and that servers are registered under it",
                ),
            };
            finding.wrong(cause, cure);
        }
        Some(found @ 1..) => finding.say(format!("found {}", several(found as u64, "page"))),
        Some(0) | None => {}
    }
    if !way.unhealthy.is_empty() {
        let names: Vec<String> = way.unhealthy.iter().map(|name| shown(name)).collect();
        finding.wrong(
            format!(
                "the router takes {} for unhealthy, and sends nothing there",
                names.join(", ")
            ),
            "see whether it answers /health, and the router's own log",
        );
    }
    if let Some(words) = &way.problem {
        finding.failed(words);
    }
    if way.beyond > 0 {
        finding.wrong(
            format!(
                "{} of them are not read, as discovery.max_sources is {}",
                number(way.beyond as u64),
                number(most as u64)
            ),
            "raise discovery.max_sources if all are meant",
        );
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
    paste: &Paste<'_>,
) -> Finding {
    let mut finding = Finding::of(&source.name, source.url.to_string());
    let look = match look {
        Ok(look) => look,
        Err(missed) => {
            finding.failed(&missed.message);
            return finding;
        }
    };
    finding.say(format!(
        "answered in {} ms: {}, {} bytes",
        look.took.as_millis(),
        match look.samples {
            Some(samples) => several(samples as u64, "sample"),
            None => "loads in JSON".to_owned(),
        },
        number(look.bytes as u64)
    ));
    if look.from_loads {
        finding.say("its values are from SGLang's loads");
    } else if let Some(why) = &look.without_loads {
        finding.say(format!(
            "its values are from its page, not the loads: {why}"
        ));
    }
    if let Some(path) = &look.redirected {
        finding.say(format!("redirected to {}, which was followed", shown(path)));
    }
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
        Whose::Other => of_stranger(&mut finding, source, look, engines, paste),
    }
    finding
}

fn of_engine(finding: &mut Finding, source: &Source, reading: &Reading, warmed: bool) {
    let role = source.role.or(reading.role);
    let paged = reading.roles();
    let several = paged.len() > 1;
    let engine = engine::in_words(reading).unwrap_or_default();
    finding.say(match (role, reading.role) {
        // `unified` is also what an engine is called that names no role.
        (Some(role), Some(paged)) if role == paged && role != Role::Unified => {
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
    let (usage, others): (Vec<Lacking>, Vec<Lacking>) = engine::lacking(reading)
        .into_iter()
        .partition(|lacking| lacking.value == "usage");
    for lacking in others.chunk_by(|a, b| (a.why, a.next) == (b.why, b.next)) {
        let values: Vec<&str> = lacking.iter().map(|lacking| lacking.value).collect();
        let values = values.join(", ");
        finding.say(match lacking {
            // What makes them come is said of the usage.
            [
                Lacking {
                    why, comes: true, ..
                },
                ..,
            ] => format!("  unknown: {values} ({why})"),
            [Lacking { why, next, .. }, ..] => format!("  unknown: {values} ({why}; {next})"),
            [] => continue,
        });
    }
    if role.is_none() && !several {
        finding.wrong(
            "its page names no role, and none is set",
            "set the source's role: decode, prefill or unified",
        );
    }
    if let Some(Lacking {
        why, next, comes, ..
    }) = usage.first()
    {
        if warmed && *comes {
            finding.wrong(
                "it has no KV usage after the warm-up either",
                "see in the router's log whether the request reached this server, or another one of the \
                 same model (then run this again), and whether this version of the engine publishes its \
                 KV usage at all",
            );
        } else {
            finding.wrong(*why, next);
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

fn of_stranger(
    finding: &mut Finding,
    source: &Source,
    look: &Look,
    engines: bool,
    paste: &Paste<'_>,
) {
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
        let cause = "its usage stays unknown, as nothing is guessed by names";
        let suspects = look.suspects.iter().map(|(suspect, _)| suspect);
        let Some(section) = mapping::section(paste.mapping, suspects) else {
            finding.wrong(
                cause,
                "see what the engine's documentation says of them; a mapping, [engine.NAME] in the settings, needs a usage, or used and capacity in the same unit",
            );
            return;
        };
        let (place, source) = if paste.source {
            let source = mapping::source(source, paste.mapping);
            (String::new(), source)
        } else {
            let name = &source.name;
            let place = format!(
                ", and engine = \"{}\" into the section of the source {name}",
                paste.mapping
            );
            (place, Vec::new())
        };
        finding.wrong(
            cause,
            &format!(
                "see what the engine's documentation says of them; then put this, mended where it has to be, into the settings{place}:"
            ),
        );
        for line in section.iter().chain(&source) {
            finding.say(format!("     {line}"));
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
