//! From what was answered to lines, JSON and an exit code. The JSON's schema is
//! `docs/status.schema.json`.

use crate::cli::role_line::{RoleSays, number, percent, shown, shown_up_to};
use crate::kv::Unknown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Characters of a message that are shown.
const MOST_OF_MESSAGE: usize = 1000;

/// Where nobody but routers was asked.
const ROUTER: &str = "usage unknown: this is a router's page, and how full the KV cache is stands on those of its engines: \
                      name them, such as kvgauge status http://127.0.0.1:30002, or a running kvgauge\n";

/// Characters of a name that are shown.
const MOST_OF_NAME: usize = 48;

/// How it stands, the better first; the number is the exit code, as monitoring plugins have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    #[default]
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

/// Shares from which on a usage is worth a warning, or critical.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) warn: f64,
    pub(super) crit: f64,
}

// === impl Limits ===

impl Limits {
    /// How a role stands. What is no share is none, whoever says it.
    pub(super) fn judge(self, says: &mut RoleSays) -> Level {
        if says
            .usage
            .is_some_and(|usage| !(0.0..=1.0).contains(&usage))
        {
            says.usage = None;
            says.unknown = Some(Unknown::Invalid.as_str().to_owned());
        }
        match says.usage {
            None => Level::Unknown,
            Some(usage) if says.missing.is_some() => self.level(usage).max(Level::Warning),
            Some(usage) => self.level(usage),
        }
    }

    /// How a usage stands.
    pub(super) fn level(self, usage: f64) -> Level {
        match usage {
            usage if usage >= self.crit => Level::Critical,
            usage if usage >= self.warn => Level::Warning,
            _ => Level::Ok,
        }
    }
}

/// What was answered.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) roles: Vec<RoleSays>,
    pub(super) sources: Vec<SourceSays>,
    /// Of pages that were read here.
    pub(super) pools: Vec<PoolSays>,
    /// Somebody was asked whose answer is in no role.
    pub(super) unanswered: bool,
}

/// One page, as kvgauge sees it or as it is seen from here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SourceSays {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) role: Option<String>,
    pub(super) engine: Option<String>,
    /// `up`, `down` or `not_read`.
    pub(super) state: String,
    /// Why its usage is unknown, where it is.
    pub(super) unknown: Option<String>,
    /// What is wrong now, and what to do.
    pub(super) message: Option<String>,
}

// === impl SourceSays ===

impl SourceSays {
    /// A good page of which no usage is expected.
    fn is_a_router(&self) -> bool {
        self.state == "up" && self.engine.is_none() && self.unknown.is_none()
    }
}

/// One pool, as `/kv/stream` has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PoolSays {
    pub(super) role: String,
    pub(super) model: Option<String>,
    pub(super) source: String,
    /// What tells it from the others of its source.
    pub(super) pool: Option<String>,
    /// 0 to 1.
    pub(super) usage: Option<f64>,
    /// Tokens.
    pub(super) used: Option<u64>,
    /// Tokens.
    pub(super) capacity: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Judged {
    level: Level,
    #[serde(flatten)]
    says: RoleSays,
}

/// See the [module](self) description.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    timestamp: String,
    status: Level,
    exit_code: u8,
    warn: f64,
    crit: f64,
    roles: Vec<Judged>,
    sources: Vec<SourceSays>,
}

// === impl Report ===

impl Report {
    pub(super) fn of(said: Said, limits: Limits) -> Report {
        let judge = |mut says: RoleSays| {
            let level = limits.judge(&mut says);
            Judged { level, says }
        };
        let roles: Vec<Judged> = said.roles.into_iter().map(judge).collect();
        let worst = roles.iter().map(|role| role.level).max();
        let status = if said.unanswered {
            Level::Unknown
        } else {
            // Where no role is, nothing is known.
            worst.unwrap_or(Level::Unknown)
        };
        Report {
            timestamp: jiff::Timestamp::now().to_string(),
            status,
            exit_code: status as u8,
            warn: limits.warn,
            crit: limits.crit,
            roles,
            sources: said.sources,
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    pub(super) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// A line for each role, then one for each page with which something is wrong.
    pub(super) fn lines(&self) -> String {
        let mut text = self.role_lines();
        text.push_str(&self.problem_lines());
        text
    }

    /// A line for each role; where there is none, one that says so.
    pub(super) fn role_lines(&self) -> String {
        let roles: Vec<&RoleSays> = self.roles.iter().map(|role| &role.says).collect();
        let titles: Vec<String> = titles(&roles).iter().map(|title| brief(title)).collect();
        let width = titles.iter().map(|title| title.chars().count()).max();
        let width = width.unwrap_or_default();
        let mut text = String::new();
        if self.roles.is_empty() {
            let any = |is: fn(&SourceSays) -> bool| self.sources.iter().any(is);
            text.push_str(if any(|source| source.engine.is_some()) {
                "usage unknown: of no engine that was asked is the role known\n"
            } else if any(SourceSays::is_a_router) {
                ROUTER
            } else if !self.sources.is_empty() && !any(|source| source.state != "down") {
                "usage unknown: nothing that was asked could be read\n"
            } else {
                "usage unknown: nobody that was asked says anything of a KV cache\n"
            });
        }
        // Writing to a String does not fail.
        for (role, title) in self.roles.iter().zip(&titles) {
            let _ = write!(text, "{title:<width$}  {}", role.says.line());
            let usage = role.says.usage.unwrap_or_default();
            let _ = match role.level {
                Level::Critical => writeln!(text, " | CRITICAL from {}", percent(self.crit)),
                Level::Warning if usage >= self.warn => {
                    writeln!(text, " | WARNING from {}", percent(self.warn))
                }
                Level::Warning => writeln!(text, " | WARNING"),
                Level::Ok | Level::Unknown => writeln!(text),
            };
        }
        text
    }

    /// A line for each page with which something is wrong.
    pub(super) fn problem_lines(&self) -> String {
        let mut text = String::new();
        for source in &self.sources {
            if let Some(message) = &source.message {
                let message = shown_up_to(message, MOST_OF_MESSAGE);
                let name = brief(&shown(&source.name));
                let _ = if message.starts_with(&source.name) {
                    writeln!(text, "{message}")
                } else {
                    writeln!(text, "{name}: {message}")
                };
            }
        }
        text
    }
}

/// That there are roles that are not shown, and where they are, if there are any.
pub(super) fn left_out(n: u64) -> Option<String> {
    let roles = if n == 1 { "role" } else { "roles" };
    (n > 0).then(|| format!("{} more {roles}: kvgauge status, /kv", number(n)))
}

/// A name without its middle where it is so long that every line would be: those of a kind often begin or
/// end alike, and the whole one is in the JSON.
fn brief(name: &str) -> String {
    let all: Vec<char> = name.chars().collect();
    if all.len() <= MOST_OF_NAME {
        return name.to_owned();
    }
    let (begin, end) = (MOST_OF_NAME / 2, MOST_OF_NAME.div_ceil(2) - 1);
    let (begin, end) = (&all[..begin], &all[all.len() - end..]);
    begin.iter().chain(&['…']).chain(end).collect()
}

/// What each role is called: with its model where it serves several.
pub(super) fn titles(roles: &[&RoleSays]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for says in roles {
        *counts.entry(&says.role).or_default() += 1;
    }
    let title = |says: &&RoleSays| {
        let several = counts.get(&*says.role).is_some_and(|n| *n > 1);
        let title = says.title(several);
        // Beside those of models it is not the role's sum.
        match says.model {
            None if several => format!("{title} (no model named)"),
            _ => title,
        }
    };
    roles.iter().map(title).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long name, or one that needs escapes, does not make every line long.
    #[test]
    fn long_names_are_cut_in_lines_alone() {
        let role = |model: String| RoleSays {
            role: "decode".to_owned(),
            model: Some(model),
            usage: Some(0.5),
            ..RoleSays::default()
        };
        let path = "/models/".repeat(6);
        let models = [
            "\u{301}".repeat(300),
            format!("{path}a"),
            format!("{path}b"),
        ];
        let said = Said {
            roles: models.iter().cloned().map(role).collect(),
            ..Said::default()
        };
        let report = Report::of(
            said,
            Limits {
                warn: 0.85,
                crit: 0.95,
            },
        );
        let lines = report.role_lines();
        assert!(lines.contains("/a  ") && lines.contains("/b  "), "{lines}");
        for line in lines.lines() {
            assert!(line.chars().count() < 140, "{line}");
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["roles"][0]["model"], *models[0]);
    }
}
