//! What is wrong with a page that was read, and what to do: `doctor`, the diagnostics and `/sources`
//! say the same. Pure.

use super::{Whose, paste};
use crate::config::Source;
use crate::engine::{self, Lacking, Suspect};
use crate::kv::{Pool, Problem, Reading, Role, Roles};

/// A good page, and what is known beside it.
pub(crate) struct Case<'a> {
    pub(crate) source: &'a Source,
    pub(crate) whose: Whose,
    pub(crate) reading: &'a Reading,
    /// The engine whose page it is, where the source is set to be read as another.
    pub(crate) other_engine: Option<&'static str>,
    /// What looks like KV usage on a page of nobody known.
    pub(crate) suspects: &'a [Suspect],
    /// Roles that it named before.
    pub(crate) roles: Roles,
    /// Whether there are engines, so that nothing is expected of a page without a role.
    pub(crate) engines: bool,
    /// Where the source stands.
    pub(crate) stands: Stands,
    /// What a mapping of it may be called.
    pub(crate) mapping: &'a str,
}

/// Where a source stands, and so what is to be changed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// In the settings.
    Set,
    /// On a list of sources that is looked at.
    Found,
    /// In no settings yet.
    Nowhere,
}

/// See the [module](self) description.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// A handful at most, the gravest last.
    pub(crate) troubles: Vec<Trouble>,
    /// A mapping to paste, in lines of TOML, that the last of them speaks of.
    pub(crate) mapping: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) problem: Problem,
    /// Whether it may go by itself, with the first requests.
    pub(crate) goes: bool,
}

// === impl Verdict ===

impl Verdict {
    fn wrong(&mut self, cause: impl Into<String>, next: impl Into<String>) {
        let (cause, next) = (cause.into().into(), next.into().into());
        self.troubles.push(Trouble {
            problem: Problem { cause, next },
            goes: false,
        });
    }

    pub(crate) fn of(case: &Case<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        let role = case.source.role;
        match case.whose {
            Whose::Engine => verdict.engine(case),
            Whose::Kvgauge => verdict.wrong(
                "this is kvgauge's own page, which repeats those of others",
                "name the engine's own page; `kvgauge status` reads a running kvgauge",
            ),
            Whose::Router if role.is_none() && case.engines => {}
            Whose::Router => {
                let role = role.unwrap_or(Role::Decode);
                verdict.wrong(
                    format!("this is the router: KV gauges live on the {role} server"),
                    format!(
                        "set the source's url to the {role} server's own page; if it has none, switch \
                         its metrics on (SGLang: --enable-metrics)"
                    ),
                );
            }
            Whose::Other if !case.suspects.is_empty() => verdict.stranger(case),
            Whose::Other if role.is_some() || !case.engines => verdict.wrong(
                "a good page, but no engine known here has KV gauges on it",
                "see whether the url is the engine's own page, and whether its metrics are on",
            ),
            Whose::Other => {}
        }
        verdict
    }

    fn engine(&mut self, case: &Case<'_>) {
        let (reading, set) = (case.reading, case.source.role);
        let paged = reading.roles();
        let several = paged.len() > 1;
        // An engine that knows no disaggregation says `unified` of itself, whatever it is used for.
        if let (Some(set), Some(paged @ (Role::Decode | Role::Prefill))) = (set, reading.role)
            && set != paged
        {
            self.wrong(
                format!("it is set as {set}, but its page says that it is a {paged} server"),
                "set the source's url to the right server, or correct its role",
            );
        }
        if let (Some(set), true) = (set, several)
            && !paged.iter().any(|role| role == set)
        {
            self.wrong(
                format!("it is set as {set}, but its page says {}", named(paged)),
                "leave its role out, or set one of these",
            );
        }
        if set.is_none() && paged.is_empty() && case.roles.is_empty() {
            self.wrong(
                "its page names no role, and none is set, so it feeds no role",
                "set the source's role: decode, prefill or unified",
            );
        }
        let beyond = engine::pools_not_read(reading);
        if beyond > 0 {
            let read = reading.pools.len();
            self.wrong(
                format!("it has {beyond} pools more than the {read} that are read of a page"),
                "name the pages of its engines, each in a source of its own",
            );
        }
        self.usage(case);
    }

    fn usage(&mut self, case: &Case<'_>) {
        let reading = case.reading;
        let (set, several) = (case.source.role, reading.roles().len() > 1);
        let lacking = engine::lacking(reading);
        let usage = lacking.iter().find(|lacking| lacking.value == "usage");
        // On a page of several roles only the pools of the one that is set are meant.
        let meant = |pool: &&Pool| !several || set.is_none() || pool.role == set;
        let mut meant = reading.pools.iter().filter(meant);
        if let (Some(other), Some(_)) = (case.other_engine, usage) {
            let engine = engine::in_words(reading).unwrap_or_default();
            self.wrong(
                format!("it is read as {engine}, as it is set, but its page is {other}'s"),
                format!("leave its engine out, or set \"{other}\""),
            );
        } else if let Some(Lacking {
            why, next, comes, ..
        }) = usage
        {
            self.wrong(*why, *next);
            if let Some(last) = self.troubles.last_mut() {
                last.goes = *comes;
            }
        } else if meant.any(|pool| pool.usage.is_err()) {
            let odd: Vec<&str> = reading.odd.iter().map(|(reason, _)| *reason).collect();
            self.wrong(
                format!("a gauge holds what can't be a value ({})", odd.join(", ")),
                "look at the gauge on the engine's page, and at the engine's own log",
            );
        }
    }

    fn stranger(&mut self, case: &Case<'_>) {
        let (name, mapping) = (&case.source.name, case.mapping);
        let cause = "no engine known here has KV gauges on it; some names look like KV usage, but \
                     nothing is guessed by names";
        let Some(section) = paste::section(mapping, case.suspects.iter()) else {
            self.wrong(
                cause,
                "see what the engine's documentation says of them; a mapping, [engine.NAME] in the \
                 settings, needs a usage, or used and capacity in the same unit",
            );
            return;
        };
        self.mapping = section;
        let place = match case.stands {
            Stands::Set => {
                format!(", and engine = \"{mapping}\" into the section of the source {name}")
            }
            Stands::Found => format!(", and engine = \"{mapping}\" into [discovery.source]"),
            Stands::Nowhere => {
                self.mapping.extend(paste::source(case.source, mapping));
                String::new()
            }
        };
        self.wrong(
            cause,
            format!(
                "see what the engine's documentation says of them; then put this mapping, mended where \
                 it has to be, into the settings{place}"
            ),
        );
    }
}

/// `decode and prefill`
pub(crate) fn named(roles: Roles) -> String {
    let names: Vec<&str> = roles.iter().map(Role::as_str).collect();
    names.join(" and ")
}
