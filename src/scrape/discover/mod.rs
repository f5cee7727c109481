//! Sources that are found: one small file for each way, and what all of them come to ([`plan`](mod@plan)).

mod dns;
mod file_sd;
mod once;
mod plan;
mod workers;

pub(crate) use once::{Way, search};
pub(super) use plan::plan;

use crate::config::{self, Settings, SourceKind, Target};
use crate::kv::Role;
use crate::net::Trusts;
use dns::Dns;
use file_sd::Aside;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use workers::Workers;

/// Files are looked at this often, where the refresh interval is not shorter: that costs nothing but a
/// look at each one's age.
const FILES: Duration = Duration::from_secs(2);

/// A page that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) url: Target,
    /// What the source's engine does, where that was said.
    pub(super) role: Option<Role>,
    /// What its own entry says in place of `[discovery.source]`.
    pub(super) own: Own,
}

/// What one entry of a list says of its source alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) interval: Option<Duration>,
    pub(super) engine: Option<Arc<str>>,
    pub(super) kind: Option<SourceKind>,
}

/// What one look came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Looked {
    /// All pages that there are now; `None` where nothing could be seen, so that the last list holds.
    pub(super) found: Option<Vec<Found>>,
    /// Of those, whom the list itself calls unhealthy; the first few.
    pub(super) unhealthy: Vec<Arc<str>>,
    pub(super) problem: Option<Problem>,
}

/// What is wrong with a look; of several the first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The cause, and behind the last colon the cure.
    pub(super) words: String,
    /// What of the look before holds on, where something does.
    pub(super) holds: Option<&'static str>,
    /// Whether a page is not seen for it.
    pub(super) costs: bool,
}

/// One way to find sources.
pub(super) enum Finder {
    Workers(Box<Workers>),
    Files(Aside),
    Dns(Dns),
}

/// As much of a list's text as a message may hold, and no password.
fn shown(text: &str) -> String {
    /// A URL that is longer is cut.
    const MOST: usize = 200;
    let text = config::without_credentials(text);
    text.escape_debug().take(MOST).collect()
}

/// What is wrong with a text in JSON. serde repeats what it has read, which may be a URL.
fn json_error(error: &serde_json::Error) -> String {
    let says = error.to_string();
    if says.contains('@') {
        let (line, column) = (error.line(), error.column());
        format!("it has another form at line {line} column {column}")
    } else {
        says.escape_debug().collect()
    }
}

// === impl Problem ===

impl Problem {
    fn new(words: impl Into<String>) -> Problem {
        Problem {
            words: words.into(),
            holds: None,
            costs: true,
        }
    }

    /// All pages are there in spite of it.
    fn that_costs_nothing(self) -> Problem {
        Problem {
            costs: false,
            ..self
        }
    }

    fn while_holds(self, what: &'static str) -> Problem {
        Problem {
            holds: Some(what),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        match self.holds {
            Some(what) => write!(f, "; {what} holds"),
            None => Ok(()),
        }
    }
}

// === impl Finder ===

impl Finder {
    /// Those that are set.
    pub(super) fn all(settings: &Settings, trusts: &Trusts) -> Vec<Finder> {
        let discovery = &settings.discovery;
        let mut all = Vec::new();
        if let Some(router) = &discovery.workers {
            let trust = trusts.of(discovery.ca_file.as_ref());
            let token = discovery.bearer_file.as_ref();
            let workers = Workers::new(router, &settings.scrape, token, trust);
            all.push(Finder::Workers(Box::new(workers)));
        }
        if !discovery.file_sd.is_empty() {
            all.push(Finder::Files(Aside::new(settings)));
        }
        if !discovery.dns.is_empty() {
            let limit = settings.scrape.timeout;
            all.push(Finder::Dns(Dns::new(&discovery.dns, limit)));
        }
        all
    }

    /// The name of its key, as in `kvgauge_discovery_up`.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Finder::Workers(_) => "workers",
            Finder::Files(_) => "file_sd",
            Finder::Dns(_) => "dns",
        }
    }

    /// What it looks at.
    pub(in crate::scrape) fn at(&self, settings: &Settings) -> String {
        let discovery = &settings.discovery;
        match self {
            Finder::Workers(_) => discovery
                .workers
                .iter()
                .map(|url| format!("{url}/workers"))
                .collect(),
            Finder::Files(_) => discovery.file_sd.join(" "),
            Finder::Dns(_) => {
                let names: Vec<_> = discovery.dns.iter().map(|n| n.url.authority()).collect();
                names.join(" ")
            }
        }
    }

    /// Looks once.
    pub(super) async fn look(&mut self) -> Looked {
        match self {
            Finder::Workers(workers) => workers.look().await,
            Finder::Files(files) => files.look().await,
            Finder::Dns(dns) => dns.look().await,
        }
    }

    /// Between two looks.
    pub(super) fn pause(&self, set: Duration) -> Duration {
        match self {
            Finder::Files(_) => set.min(FILES),
            _ => set,
        }
    }
}
