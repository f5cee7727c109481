//! The validated settings: what the rest of the program sees.

use super::{Mapping, Pattern};
use crate::kv::Role;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// All settings, validated. See `config/kvgauge.toml` for what each is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where clients connect. Default is `127.0.0.1:30080`. Port 0 is any free one.
    pub listen: SocketAddr,
    /// The router that requests are forwarded to. Default is `http://127.0.0.1:30001`.
    pub upstream: Target,
    /// Threads that carry traffic. Default is one a core.
    pub workers: usize,
    /// Clients whose `X-Forwarded-*` headers are believed and extended. Default is loopback.
    pub trusted_proxies: Vec<IpNet>,
    /// The operators' listener.
    pub admin: Admin,
    /// How sources are read.
    pub scrape: Scrape,
    /// What is refused.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Connections to the router.
    pub upstream_pool: UpstreamPool,
    /// Ending.
    pub drain: Drain,
    /// The most bytes kept to read token usage across frames. Default is 64 KiB.
    pub usage_carry_bytes: usize,
    /// The most bytes of log lines that wait for the writer. Default is 8 MiB.
    pub log_queue_bytes: usize,
    /// The response headers.
    pub headers: Headers,
    /// The unified page.
    pub metrics: Metrics,
    /// How further sources are found.
    pub discovery: Discovery,
    /// The pages read. Default: router :29001, prefill :30000, decode :30002, but none where
    /// sources are found.
    pub sources: Vec<Source>,
    /// Engines that kvgauge does not know, by the names that sources call them by. Default is none.
    pub mappings: BTreeMap<Arc<str>, Arc<Mapping>>,
}

impl Settings {
    /// The mapping that a source's page is read by, and its name, where its `engine` names one.
    #[must_use]
    pub fn mapping(&self, source: &Source) -> Option<(&Arc<str>, &Arc<Mapping>)> {
        self.mappings.get_key_value(source.engine.as_ref()?)
    }

    /// Names for mappings that no section has yet: each may be pasted beside the others.
    pub fn free_mapping_names(&self) -> impl Iterator<Item = String> {
        let more = (2..).map(|n| format!("mine-{n}"));
        let all = std::iter::once("mine".to_owned()).chain(more);
        all.filter(|name| !self.mappings.contains_key(name.as_str()))
    }
}

/// An `http://host:port` or `https://host:port` address with an optional path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether TLS is spoken there. The upstream never has it.
    pub tls: bool,
    /// Host name in lower case, or address without brackets: where to connect.
    pub host: Arc<str>,
    /// The name that stands in the `Host` field and that a certificate must be for, where that is
    /// not `host`: of one address of a name, the name.
    pub server_name: Option<Arc<str>>,
    /// Port. Default is 80, with TLS 443.
    pub port: u16,
    /// Path and query, starting with `/`. For the upstream it is always `/`; for a page where
    /// none is written, `/metrics`.
    pub path: Arc<str>,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// Default is `127.0.0.1:30090`.
    pub listen: SocketAddr,
    /// A file with the token that operators and Prometheus must bring. Default is off.
    pub bearer_file: Option<Arc<Path>>,
}

/// `[scrape]`
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// Default is 1 s.
    pub interval: Duration,
    /// For one whole scrape. Default is 3 s.
    pub timeout: Duration,
    /// A reading older than this is unknown. Default is 10 s.
    pub max_age: Duration,
    /// Default is 32 MiB.
    pub max_page_bytes: usize,
    /// Default is 1,000,000.
    pub max_series: usize,
    /// For the labels of one series. Default is 16 KiB.
    pub max_label_bytes: usize,
    /// Metric families of one page. Default is 50,000.
    pub max_families: usize,
}

/// `[limits]`; `None` is off, but for `connections`.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of a request body. Default is off.
    pub request_body: Option<u64>,
    /// Header fields of a request or response. Default is 100.
    pub header_fields: usize,
    /// Bytes of a head. Default is 256 KiB.
    pub header_bytes: usize,
    /// Client connections; here `None` is not off but what [`Limits::connections_within`] makes of
    /// the descriptor limit. Default is `None`.
    pub connections: Option<usize>,
    /// Requests at a time. Default is off.
    pub in_flight: Option<usize>,
}

impl Limits {
    /// The most connections where [`Limits::connections`] says nothing.
    pub const MOST_CONNECTIONS: usize = 65_536;
    /// File descriptors left for everything that is not a client's exchange: listeners, sources,
    /// standard streams, timers, admin connections. Of a limit under twice this, the half.
    pub const RESERVED_DESCRIPTORS: u64 = 256;

    /// The client connections that are accepted at a time in a process that may open
    /// `descriptors` files (`None`: no limit, or none known): what the setting says, else
    /// [`Limits::MOST_CONNECTIONS`] or half of the descriptors less
    /// [`Limits::RESERVED_DESCRIPTORS`], since every client needs a connection to the router too.
    /// At least 1. Ask after the soft limit has been raised to the hard one.
    #[must_use]
    pub fn connections_within(&self, descriptors: Option<u64>) -> usize {
        if let Some(connections) = self.connections {
            return connections;
        }
        let Some(descriptors) = descriptors else {
            return Self::MOST_CONNECTIONS;
        };
        let reserved = Self::RESERVED_DESCRIPTORS.min(descriptors / 2);
        let room = descriptors.saturating_sub(reserved) / 2;
        usize::try_from(room)
            .unwrap_or(usize::MAX)
            .clamp(1, Self::MOST_CONNECTIONS)
    }
}

/// `[timeouts]`; `None` is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// Connecting to the router. Default is 2 s.
    pub connect: Duration,
    /// From a connection's first byte of a request to the end of its head; also for a new
    /// connection that says nothing. Default is 30 s.
    pub request_head: Duration,
    /// From the request sent (or the last of it that the router took) to the router's head. Default is
    /// off.
    pub response_head: Option<Duration>,
    /// Between two pieces of a body, of a request or a response, or of a tunnel while nothing moves
    /// either way. Default is off.
    pub stream_silence: Option<Duration>,
    /// The whole exchange, a tunnel included. Default is off.
    pub request: Option<Duration>,
    /// A kept-alive client connection without a request, and one that takes nothing of the end of its
    /// answer. Default is 75 s.
    pub client_idle: Duration,
}

/// `[upstream]` but for its `url`.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamPool {
    /// An idle connection is closed after this. Default is 4 s: Python servers close at 5 s.
    pub idle: Duration,
    /// Idle connections kept by each worker. Default is 1,024.
    pub max_idle: usize,
    /// A connection is not used again after this. Default is 10 min.
    pub max_age: Duration,
}

/// `[drain]`
#[derive(Clone, Debug, PartialEq)]
pub struct Drain {
    /// Between readiness going off and the listener closing. Default is 0.
    pub delay: Duration,
    /// For streams to finish, then they are cut. Default is 300 s.
    pub timeout: Duration,
}

/// `[headers]`
#[derive(Clone, Debug, PartialEq)]
pub struct Headers {
    /// Name of the usage header; `None` is off. Default is `x-kv-usage`.
    pub usage: Option<http::HeaderName>,
    /// Name of the pools header; `None` is off. Default is `x-kv-pools`.
    pub pools: Option<http::HeaderName>,
    /// Who sees them. Default is everyone.
    pub audience: Audience,
    /// Which role the usage header speaks of. Default is `auto`.
    pub headline: Headline,
}

/// Who sees the KV headers.
#[derive(Clone, Debug, PartialEq)]
pub enum Audience {
    /// Every client.
    All,
    /// Clients whose address is in one of these ranges.
    Ranges(Vec<IpNet>),
}

/// Which role the usage header speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headline {
    /// `decode` where a decode source is set, else `unified`, else `prefill`.
    Auto,
    /// Always this role.
    Role(Role),
    /// The fullest role.
    Fullest,
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// What of the sources' series is shown again. Default is `all`.
    pub expose: Expose,
    /// The label that tells sources apart. Default is `source`.
    pub source_label: Arc<str>,
}

/// What of the sources' series stands on the unified page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expose {
    /// Everything.
    All,
    /// The families that carry the KV state of an engine.
    Kv,
    /// Nothing but kvgauge's own families.
    None,
}

/// `[discovery]`
#[derive(Clone, Debug, PartialEq)]
pub struct Discovery {
    /// The router whose `/workers` list is read; its path is `/`. Default is off.
    pub workers: Option<Target>,
    /// Paths of `file_sd` files, with `*` in their last part where several are meant. Default is none.
    pub file_sd: Vec<Arc<str>>,
    /// Names whose every address is a source. Default is none.
    pub dns: Vec<DnsName>,
    /// Between two looks. Default is 5 s.
    pub interval: Duration,
    /// Sources that are found, all together. Default is 256.
    pub max_sources: usize,
    /// The file with the token that the router asks for when its list is read. Default is none.
    pub bearer_file: Option<Arc<Path>>,
    /// The file with the CAs that are trusted when the router's list is read; `None` is the system's.
    /// Default is `None`.
    pub ca_file: Option<Arc<Path>>,
    /// How those that are found are read.
    pub source: FoundSource,
}

/// `[discovery.source]`: what holds for every source that is found, each as in [`Source`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundSource {
    /// Default is `None`.
    pub interval: Option<Duration>,
    /// Default is `None`.
    pub engine: Option<Arc<str>>,
    /// Default is `metrics`.
    pub kind: SourceKind,
    /// Default is `None`.
    pub bearer_file: Option<Arc<Path>>,
    /// Default is `None`.
    pub ca_file: Option<Arc<Path>>,
    /// Default is none.
    pub keep: Vec<Pattern>,
    /// Default is none.
    pub drop: Vec<Pattern>,
}

/// A name whose every address is a source.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsName {
    /// The page, the name for its host.
    pub url: Target,
    /// What the engines behind it do.
    pub role: Option<Role>,
}

impl Discovery {
    /// Finds nothing.
    pub fn clear(&mut self) {
        self.workers = None;
        self.file_sd.clear();
        self.dns.clear();
    }

    /// Whether sources are found at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.workers.is_some() || !self.file_sd.is_empty() || !self.dns.is_empty()
    }
}

/// `[[source]]`
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The name in labels; unique.
    pub name: Arc<str>,
    /// The page.
    pub url: Target,
    /// The role; `None` is as the page says (a router has none). Where none is written, a name
    /// that is a role, or a role with a number (`decode`, `decode-1`), is the role.
    pub role: Option<Role>,
    /// Overrides `scrape.interval`.
    pub interval: Option<Duration>,
    /// What its page is read as: an engine of [`ENGINES`](super::ENGINES), or one of
    /// [`Settings::mappings`]. `None` is as recognised from the page.
    pub engine: Option<Arc<str>>,
    /// What is read of it. Default is `metrics`.
    pub kind: SourceKind,
    /// The file with the token that the source asks for; only its path is kept here.
    pub bearer_file: Option<Arc<Path>>,
    /// The file with the CAs that are trusted, where its page is https; `None` is the system's.
    pub ca_file: Option<Arc<Path>>,
    /// Families that are shown again; empty is all.
    pub keep: Vec<Pattern>,
    /// Families that are not shown again, whatever `keep` says.
    pub drop: Vec<Pattern>,
}

/// What is read of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// Its Prometheus page.
    #[default]
    Metrics,
    /// SGLang's `/v1/loads`, and while that fails the page beside it; no series are shown again.
    /// [`Source::url`] is that of the loads.
    SglangLoads,
    /// Its page, and where that is SGLang's `/v1/loads` for the readings; the page's while that fails.
    Auto,
}

impl SourceKind {
    /// The name in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            SourceKind::Metrics => "metrics",
            SourceKind::SglangLoads => "sglang-loads",
            SourceKind::Auto => "auto",
        }
    }

    /// What is read of a source whose page is at this address.
    #[must_use]
    pub fn page(self, url: Target) -> Target {
        match self {
            SourceKind::SglangLoads if url.path.ends_with("/metrics") => url.loads(),
            _ => url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_descriptor_for_the_router_and_some_for_the_rest() {
        let mut limits = Settings::defaults().limits;
        assert_eq!(limits.connections_within(None), 65_536);
        assert_eq!(limits.connections_within(Some(1_048_576)), 65_536);
        assert_eq!(limits.connections_within(Some(1024)), 384);
        assert_eq!(limits.connections_within(Some(64)), 16);
        assert_eq!(limits.connections_within(Some(2)), 1);
        limits.connections = Some(70_000);
        assert_eq!(limits.connections_within(Some(1024)), 70_000);
    }
}
