//! Asking a running kvgauge, or reading an engine's page.

use super::report::{PoolSays, Said, SourceSays};
use crate::cli::role_line::RoleSays;
use crate::config::{Scrape, Settings, Source, Target};
use crate::engine::{self, SourceReading};
use crate::kv::{FailureReason, Reading, Roles, Unknown};
use crate::scrape::{
    Access, Case, EventStream, Look, Missed, Stands, Verdict, Whose, get, look_at_source,
};
use http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;

/// Who is asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    source: Source,
    /// A kvgauge may be there, whose `/kv` says more than any page.
    maybe_ours: bool,
}

/// `/kv`, as far as it is used here.
#[derive(Deserialize)]
struct Kv {
    roles: Vec<RoleSays>,
}

/// `/sources`, as far as it is used here.
#[derive(Deserialize)]
struct Sources {
    sources: Vec<SourceState>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SourceState {
    name: String,
    url: String,
    role: Option<String>,
    engine: Option<String>,
    state: String,
    unknown: Option<String>,
    last_error: Option<LastError>,
    lacking: Option<Vec<Lacks>>,
    problems: Vec<Problem>,
    mapping: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LastError {
    message: String,
    resolved: bool,
}

/// What is wrong with its page.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    cause: String,
    next: String,
}

/// A value that its page does not have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lacks {
    value: String,
    why: String,
    next: String,
}

/// What one of them answered.
enum Answer {
    Kvgauge(Vec<RoleSays>, Vec<SourceSays>),
    Page(Box<Look>),
    Nothing(Missed),
}

// === impl Asked ===

impl Asked {
    /// Whatever is there.
    pub(super) fn source(source: &Source) -> Asked {
        Asked {
            source: source.clone(),
            maybe_ours: true,
        }
    }

    /// What was typed as `text`.
    pub(super) fn named(source: &Source, text: &str) -> Asked {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let rest = rest.split(',').next().unwrap_or_default();
        let bare = rest
            .find(['/', '?'])
            .is_none_or(|at| matches!(&rest[at..], "/" | "/kv"));
        Asked {
            source: source.clone(),
            maybe_ours: bare,
        }
    }

    /// Whether a kvgauge may be there.
    pub(super) fn maybe_ours(&self) -> bool {
        self.maybe_ours
    }

    /// Where it is, without a path.
    pub(super) fn address(&self) -> String {
        let url = &self.source.url;
        let scheme = if url.tls { "https" } else { "http" };
        format!("{scheme}://{}", url.authority())
    }

    /// The moments of a kvgauge there, as they come.
    pub(super) async fn stream(&self, scrape: &Scrape) -> Result<EventStream, Missed> {
        let (name, access) = (&self.source.name, Access::of(&self.source));
        let stream = EventStream::open(name, &self.at("/kv/stream"), scrape, &access).await;
        stream.map_err(|missed| self.advised("/kv/stream", missed))
    }

    /// What a kvgauge there remembers.
    pub(super) async fn history(&self, scrape: &Scrape) -> Result<Vec<u8>, Missed> {
        let access = Access::of(&self.source);
        get(&self.source.name, &self.at("/kv/history"), scrape, &access).await
    }

    fn at(&self, path: &str) -> Target {
        Target {
            path: path.into(),
            ..self.source.url.clone()
        }
    }

    /// With what can be done about it here, `path` having been asked for.
    fn advised(&self, path: &str, mut missed: Missed) -> Missed {
        if missed.status == Some(StatusCode::UNAUTHORIZED) && self.source.bearer_file.is_none() {
            let path = path.split('?').next().unwrap_or_default();
            missed.message = format!(
                "{} answered 401 at {path}: it asks for a token; name a file that holds it with --bearer-file \
                 FILE (of one page among several: bearer_file=FILE behind its URL, after a comma)",
                self.source.name
            );
        }
        missed
    }

    async fn answer(&self, settings: &Arc<Settings>) -> Answer {
        let scrape = &settings.scrape;
        let mut shut = None;
        if self.maybe_ours {
            match self.kv(scrape).await {
                Ok(Some(answer)) => return answer,
                // Nobody is there: a page would not be either.
                Err(missed) if missed.status.is_none() && missed.reason.ends_reading() => {
                    return Answer::Nothing(missed);
                }
                Err(missed) if missed.status == Some(StatusCode::UNAUTHORIZED) => {
                    shut = Some(self.advised("/kv", missed));
                }
                Ok(None) | Err(_) => {}
            }
        }
        match look_at_source(&self.source, settings).await {
            // Its page repeats those of others, as if one engine had said it all.
            Ok(look) if look.whose == Whose::Kvgauge => match self.kv(scrape).await {
                Ok(Some(answer)) => answer,
                Ok(None) => Answer::Nothing(self.no_kv("what it answers there is something else")),
                Err(missed) => Answer::Nothing(self.no_kv(&missed.message)),
            },
            Ok(look) => Answer::Page(Box::new(look)),
            // What was asked first is what was wanted.
            Err(missed) if missed.status == Some(StatusCode::UNAUTHORIZED) => {
                let of_page = || self.advised(&self.source.url.path, missed);
                Answer::Nothing(shut.unwrap_or_else(of_page))
            }
            Err(missed) => Answer::Nothing(missed),
        }
    }

    /// What a kvgauge there says; `None` where somebody else answers.
    async fn kv(&self, scrape: &Scrape) -> Result<Option<Answer>, Missed> {
        let (name, access) = (&self.source.name, Access::of(&self.source));
        let kv = get(name, &self.at("/kv"), scrape, &access).await?;
        let Ok(kv) = serde_json::from_slice::<Kv>(&kv) else {
            return Ok(None);
        };
        let sources = get(name, &self.at("/sources"), scrape, &access).await?;
        let Ok(sources) = serde_json::from_slice::<Sources>(&sources) else {
            return Ok(None);
        };
        let sources = sources.sources.into_iter().map(SourceSays::from).collect();
        Ok(Some(Answer::Kvgauge(kv.roles, sources)))
    }

    /// A kvgauge that does not say what it knows.
    fn no_kv(&self, why: &str) -> Missed {
        let name = &self.source.name;
        Missed {
            reason: FailureReason::Content,
            message: format!(
                "{name} is a kvgauge whose /kv can't be read ({why}): let /kv and /sources through to it"
            ),
            status: None,
        }
    }

    fn says(&self) -> SourceSays {
        SourceSays {
            name: self.source.name.to_string(),
            url: self.source.url.to_string(),
            role: self.source.role.map(|role| role.as_str().to_owned()),
            ..SourceSays::default()
        }
    }
}

impl From<SourceState> for SourceSays {
    fn from(source: SourceState) -> SourceSays {
        let mut lacking = source.lacking.into_iter().flatten();
        // A kvgauge that says no problems may be of a version that knows none.
        let usage = lacking.find(|lacks| lacks.value == "usage");
        let problems = source.problems.iter().map(|p| no_usage(&p.cause, &p.next));
        let problems: Vec<String> = problems.collect();
        let mut problems = problems.join("; and ");
        if source.mapping.is_some() {
            problems.push_str("; /sources has it as `mapping`");
        }
        SourceSays {
            name: source.name,
            url: source.url,
            role: source.role,
            engine: source.engine,
            state: source.state,
            unknown: source.unknown,
            message: source
                .last_error
                .filter(|error| !error.resolved)
                .map(|error| error.message)
                .or((!problems.is_empty()).then_some(problems))
                .or(usage.map(|lacks| no_usage(&lacks.why, &lacks.next))),
        }
    }
}

/// What is wrong with a good page. `router`: whether nothing is expected of it.
fn page_message(source: &Source, look: &Look, router: bool) -> Option<String> {
    if look.whose == Whose::Other {
        let stranger = "no engine known here has KV gauges on this page; see kvgauge doctor";
        return (!router).then(|| stranger.to_owned());
    }
    let verdict = Verdict::of(&Case {
        source,
        whose: look.whose,
        reading: &look.reading,
        other_engine: look.other_engine,
        suspects: &[],
        roles: Roles::default(),
        engines: true,
        stands: Stands::Nowhere,
        mapping: "",
    });
    let problem = &verdict.troubles.last()?.problem;
    Some(no_usage(&problem.cause, &problem.next))
}

fn no_usage(why: &str, next: &str) -> String {
    format!("{why}; {next}")
}

/// Asks all at once.
pub(super) async fn all(asked: Vec<Asked>, settings: &Arc<Settings>) -> Said {
    let ask = |asked: Asked| {
        let settings = Arc::clone(settings);
        tokio::task::spawn_local(async move {
            let answer = asked.answer(&settings).await;
            (asked, answer)
        })
    };
    let tasks: Vec<_> = asked.into_iter().map(ask).collect();
    let mut said = Said::default();
    let mut pages: Vec<(Roles, Result<Reading, Unknown>)> = Vec::new();
    for task in tasks {
        let Ok((asked, answer)) = task.await else {
            said.unanswered = true;
            continue;
        };
        match answer {
            Answer::Kvgauge(roles, sources) => {
                said.roles.extend(roles);
                said.sources.extend(sources);
            }
            Answer::Page(look) => {
                let roles = match asked.source.role {
                    Some(role) => Some(role).into(),
                    None => look.reading.roles(),
                };
                let known = look.reading.pools.iter().any(|pool| pool.usage.is_ok());
                // A router has no usage to know.
                let none = look.whose == Whose::Router && asked.source.role.is_none();
                let why = look.reading.pools.iter().find_map(|pool| pool.usage.err());
                let why = why.unwrap_or(Unknown::Absent);
                said.sources.push(SourceSays {
                    role: roles.only().map(|role| role.as_str().to_owned()),
                    engine: look.reading.engine.as_deref().map(str::to_owned),
                    state: "up".to_owned(),
                    unknown: (!known && !none).then(|| why.as_str().to_owned()),
                    message: page_message(&asked.source, &look, none),
                    ..asked.says()
                });
                said.unanswered |= roles.is_empty() && !none;
                let role = roles.only();
                said.pools
                    .extend(look.reading.pools.iter().filter_map(|pool| {
                        Some(PoolSays {
                            role: pool.role.or(role)?.as_str().to_owned(),
                            model: pool.model.as_deref().map(str::to_owned),
                            source: asked.source.name.to_string(),
                            pool: pool.rank.as_deref().map(|rank| format!("rank {rank}")),
                            usage: pool.usage.ok(),
                            used: pool.used,
                            capacity: pool.capacity,
                        })
                    }));
                pages.push((roles, Ok(look.reading)));
            }
            Answer::Nothing(missed) => {
                let why = if missed.reason.ends_reading() {
                    Unknown::Unreachable
                } else {
                    Unknown::NotRead
                };
                let message = missed.message;
                said.sources.push(SourceSays {
                    state: "down".to_owned(),
                    unknown: Some(why.as_str().to_owned()),
                    message: Some(message),
                    ..asked.says()
                });
                // Without a role there is no line that would say so.
                said.unanswered |= asked.source.role.is_none();
                pages.push((asked.source.role.into(), Err(why)));
            }
        }
    }
    let readings: Vec<SourceReading<'_>> = pages
        .iter()
        .map(|(roles, reading)| SourceReading {
            roles: *roles,
            reading: reading.as_ref().map_err(|why| *why),
            age: None,
        })
        .collect();
    let states = engine::aggregate(&readings);
    said.roles.extend(states.iter().map(RoleSays::from));
    said
}
