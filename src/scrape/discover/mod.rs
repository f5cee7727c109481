//! Sources that are found: one small file for each way, and what all of them come to ([`plan`](mod@plan)).

mod dns;
mod file_sd;
mod plan;
mod workers;

pub(super) use plan::plan;

use crate::config::{Settings, SourceKind, Target};
use crate::kv::Role;
use crate::net::Trusts;
use dns::Dns;
use file_sd::Files;
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
    /// What is wrong, and what to do.
    pub(super) problem: Option<String>,
}

/// One way to find sources.
pub(super) enum Finder {
    Workers(Box<Workers>),
    Files(Files),
    Dns(Dns),
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
            all.push(Finder::Files(Files::new(&discovery.file_sd, settings)));
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

    /// Looks once.
    pub(super) async fn look(&mut self) -> Looked {
        match self {
            Finder::Workers(workers) => workers.look().await,
            Finder::Files(files) => files.look(),
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
