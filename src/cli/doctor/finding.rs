//! What is made of one look: right or wrong, in lines, each cause with its cure behind an arrow.

use crate::cli::role_line::{RoleSays, number, shown};
use crate::config::{Source, Target};
use crate::engine::{self, Lacking, SourceReading, Suspect};
use crate::kv::{Problem, Reading, Role, Roles};
use crate::scrape::{Case, Look, Missed, Stands, Verdict, Way, Whose, named};

/// One thing that was looked at.
pub(super) struct Finding {
    pub(super) name: String,
    /// Where: an address, or what is looked at to find some.
    pub(super) at: String,
    pub(super) fine: bool,
    pub(super) lines: Vec<String>,
}

/// Where a source stands, and what a mapping of it may be called.
pub(super) struct Paste<'a> {
    pub(super) mapping: &'a str,
    pub(super) stands: Stands,
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
    if let Some(words) = &way.remark {
        finding.say(words);
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
        Whose::Engine => of_engine(&mut finding, source, &look.reading),
        Whose::Router if source.role.is_none() && engines => {
            finding.say("a router's page: no KV gauges, and none are expected");
        }
        Whose::Other if !look.suspects.is_empty() => list(&mut finding, look),
        Whose::Other if source.role.is_none() && engines => {
            finding.say("no KV gauges, and no role is set, so none are expected");
        }
        Whose::Router | Whose::Kvgauge | Whose::Other => {}
    }
    let suspects: Vec<Suspect> = look.suspects.iter().map(|(s, _)| s.clone()).collect();
    let verdict = Verdict::of(&Case {
        source,
        whose: look.whose,
        reading: &look.reading,
        other_engine: look.other_engine,
        suspects: &suspects,
        roles: Roles::default(),
        engines,
        stands: paste.stands,
        mapping: paste.mapping,
    });
    for trouble in &verdict.troubles {
        let Problem { cause, next } = &trouble.problem;
        if warmed && trouble.goes {
            finding.wrong(
                "it has no KV usage after the warm-up either",
                "see in the router's log whether the request reached this server, or another one of the \
                 same model (then run this again), and whether this version of the engine publishes its \
                 KV usage at all",
            );
        } else {
            finding.wrong(&**cause, next);
        }
    }
    if let (Some(last), false) = (finding.lines.last_mut(), verdict.mapping.is_empty()) {
        last.push(':');
    }
    for line in &verdict.mapping {
        finding.say(format!("     {line}"));
    }
    finding
}

fn of_engine(finding: &mut Finding, source: &Source, reading: &Reading) {
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
    let mut others = engine::lacking(reading);
    others.retain(|lacking| lacking.value != "usage");
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
}

/// The names on a page of nobody known that look like KV usage.
fn list(finding: &mut Finding, look: &Look) {
    finding.say("these names on it look like KV usage:");
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
}

/// `1 line`, `2 lines`
fn several(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        n => format!("{} {what}s", number(n)),
    }
}
