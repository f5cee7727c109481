//! The settings as they are written: every key optional, each value in its text form.
//!
//! The names of the fields are the keys of the file; [`keys`](fn@super::keys) takes the list of all keys
//! from here, so a key is added by a field here, one in [`Settings`], and a line in [`Raw::from`]
//! and [`Raw::apply`] each.

use super::discovery::{Names, Paths, Router};
use super::names::{EngineName, FilePath, HeaderField, LabelName, Ranges, SourceName, role_in};
use super::pattern::{Pattern, Patterns};
use super::settings::{Audience, Expose, FoundSource, Headline, Settings, Source, SourceKind};
use super::target::{Page, Upstream};
use super::value::{Auto, Format, Size, Val};
use crate::kv::Role;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// A key that may be missing.
type Key<T> = Option<Val<T>>;

/// The file as a whole.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Raw {
    /// Where clients connect.
    listen: Key<SocketAddr>,
    /// Threads that carry traffic; `auto` is one a core.
    workers: Key<Auto<usize>>,
    /// Clients whose `X-Forwarded-*` headers are believed.
    trusted_proxies: Key<Ranges>,
    upstream: RawUpstream,
    admin: RawAdmin,
    scrape: RawScrape,
    limits: RawLimits,
    timeouts: RawTimeouts,
    drain: RawDrain,
    usage: RawUsage,
    log: RawLog,
    headers: RawHeaders,
    metrics: RawMetrics,
    discovery: RawDiscovery,
    /// The pages that are read.
    pub(super) source: Option<Vec<RawSource>>,
}

/// `[upstream]`, or `upstream = "URL"`, which the file's reader turns into `upstream.url`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawUpstream {
    /// The router that requests are forwarded to.
    url: Key<Upstream>,
    /// An idle connection to the router is closed after this.
    idle: Key<Duration>,
    /// Idle connections kept by each worker.
    max_idle: Key<usize>,
    /// A connection is not used again after this.
    max_age: Key<Duration>,
}

/// `[admin]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawAdmin {
    /// Where operators and Prometheus connect.
    listen: Key<SocketAddr>,
    /// The token that they must bring.
    bearer_file: Key<Option<FilePath>>,
}

/// `[scrape]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawScrape {
    /// Between two scrapes of a source.
    interval: Key<Duration>,
    /// For one whole scrape.
    timeout: Key<Duration>,
    /// A reading older than this is unknown.
    max_age: Key<Duration>,
    /// Bytes of one page.
    max_page_bytes: Key<Size>,
    /// Series of one page.
    max_series: Key<usize>,
    /// Bytes of the labels of one series.
    max_label_bytes: Key<Size>,
    /// Metric families of one page.
    max_families: Key<usize>,
}

/// `[limits]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    /// Bytes of a request body.
    request_body: Key<Option<Size>>,
    /// Fields of a head.
    header_fields: Key<usize>,
    /// Bytes of a head.
    header_bytes: Key<Size>,
    /// Client connections; `auto` is what the descriptor limit leaves.
    connections: Key<Auto<usize>>,
    /// Requests at a time.
    in_flight: Key<Option<usize>>,
}

/// `[timeouts]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawTimeouts {
    /// Connecting to the router.
    connect: Key<Duration>,
    /// Reading a request's head.
    request_head: Key<Duration>,
    /// Waiting for the router's head.
    response_head: Key<Option<Duration>>,
    /// Between two pieces of a response body.
    stream_silence: Key<Option<Duration>>,
    /// The whole exchange.
    request: Key<Option<Duration>>,
    /// A kept-alive client connection without a request.
    client_idle: Key<Duration>,
}

/// `[drain]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawDrain {
    /// Between readiness going off and the listener closing.
    delay: Key<Duration>,
    /// For streams to finish.
    timeout: Key<Duration>,
}

/// `[usage]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawUsage {
    /// Bytes kept to read token usage across frames.
    carry_bytes: Key<Size>,
}

/// `[log]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawLog {
    /// Bytes of log lines that wait for the writer.
    queue_bytes: Key<Size>,
}

/// `[headers]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawHeaders {
    /// Name of the usage header.
    usage: Key<HeaderField>,
    /// Name of the pools header.
    pools: Key<HeaderField>,
    /// Who sees them.
    audience: Key<Audience>,
    /// Which role the usage header speaks of.
    headline: Key<Headline>,
}

/// `[metrics]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawMetrics {
    /// What of the sources' series is shown again.
    expose: Key<Expose>,
    /// The label that tells sources apart.
    source_label: Key<LabelName>,
}

/// `[discovery]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawDiscovery {
    /// The router whose list of workers is read.
    workers: Key<Router>,
    /// Files that name sources.
    file_sd: Key<Paths>,
    /// Names whose every address is a source.
    dns: Key<Names>,
    /// Between two looks.
    interval: Key<Duration>,
    /// Sources that are found.
    max_sources: Key<usize>,
    /// The token that the router asks for.
    bearer_file: Key<Option<FilePath>>,
    /// The CAs that are trusted of the router's list.
    ca_file: Key<Option<FilePath>>,
    source: RawFoundSource,
}

/// `[discovery.source]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RawFoundSource {
    /// Instead of `scrape.interval`.
    interval: Key<Option<Duration>>,
    /// What the pages are read as.
    engine: Key<Option<EngineName>>,
    /// What is read of the sources.
    kind: Key<SourceKind>,
    /// The token that they ask for.
    bearer_file: Key<Option<FilePath>>,
    /// The CAs that are trusted of them.
    ca_file: Key<Option<FilePath>>,
    /// Families that are shown again.
    keep: Key<Option<Patterns>>,
    /// Families that are not.
    drop: Key<Option<Patterns>>,
}

/// `[[source]]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSource {
    /// The name in labels.
    name: Key<SourceName>,
    /// The page.
    url: Key<Page>,
    /// What the source's engine does.
    role: Key<Role>,
    /// Instead of `scrape.interval`.
    interval: Key<Duration>,
    /// What the page is read as.
    engine: Key<EngineName>,
    /// What is read of it.
    kind: Key<SourceKind>,
    /// The token that the source asks for.
    bearer_file: Key<FilePath>,
    /// The CAs that are trusted.
    ca_file: Key<FilePath>,
    /// Families that are shown again.
    keep: Key<Patterns>,
    /// Families that are not.
    drop: Key<Patterns>,
}

/// A value as its key.
fn key<T: Format>(value: T) -> Key<T> {
    Some(Val(value))
}

/// A count of bytes as its key.
fn size(bytes: usize) -> Key<Size> {
    // Lossless: a usize has at most 64 bits.
    key(Size(bytes as u64))
}

/// Puts a key's value in its place, where there is one.
fn put<T, V>(place: &mut V, key: Key<T>, value: impl FnOnce(T) -> V) {
    if let Some(Val(written)) = key {
        *place = value(written);
    }
}

/// Bytes that this machine can address.
fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

// === impl Raw ===

impl Raw {
    /// Overwrites `settings` with the keys that are set.
    pub(super) fn apply(self, settings: &mut Settings) {
        fn same<T>(value: T) -> T {
            value
        }
        let s = settings;
        put(&mut s.listen, self.listen, same);
        if let Some(Val(Auto(Some(workers)))) = self.workers {
            s.workers = workers;
        }
        put(&mut s.trusted_proxies, self.trusted_proxies, |v| v.0);
        put(&mut s.upstream, self.upstream.url, |v| v.0);
        put(&mut s.upstream_pool.idle, self.upstream.idle, same);
        put(&mut s.upstream_pool.max_idle, self.upstream.max_idle, same);
        put(&mut s.upstream_pool.max_age, self.upstream.max_age, same);
        let path = |v: Option<FilePath>| v.map(|path| path.0);
        put(&mut s.admin.listen, self.admin.listen, same);
        put(&mut s.admin.bearer_file, self.admin.bearer_file, path);
        put(&mut s.scrape.interval, self.scrape.interval, same);
        put(&mut s.scrape.timeout, self.scrape.timeout, same);
        put(&mut s.scrape.max_age, self.scrape.max_age, same);
        put(
            &mut s.scrape.max_page_bytes,
            self.scrape.max_page_bytes,
            bytes,
        );
        put(&mut s.scrape.max_series, self.scrape.max_series, same);
        put(
            &mut s.scrape.max_label_bytes,
            self.scrape.max_label_bytes,
            bytes,
        );
        put(&mut s.scrape.max_families, self.scrape.max_families, same);
        put(&mut s.limits.request_body, self.limits.request_body, |v| {
            v.map(|size| size.0)
        });
        put(&mut s.limits.header_fields, self.limits.header_fields, same);
        put(&mut s.limits.header_bytes, self.limits.header_bytes, bytes);
        put(&mut s.limits.connections, self.limits.connections, |v| v.0);
        put(&mut s.limits.in_flight, self.limits.in_flight, same);
        put(&mut s.timeouts.connect, self.timeouts.connect, same);
        put(
            &mut s.timeouts.request_head,
            self.timeouts.request_head,
            same,
        );
        put(
            &mut s.timeouts.response_head,
            self.timeouts.response_head,
            same,
        );
        put(
            &mut s.timeouts.stream_silence,
            self.timeouts.stream_silence,
            same,
        );
        put(&mut s.timeouts.request, self.timeouts.request, same);
        put(&mut s.timeouts.client_idle, self.timeouts.client_idle, same);
        put(&mut s.drain.delay, self.drain.delay, same);
        put(&mut s.drain.timeout, self.drain.timeout, same);
        put(&mut s.usage_carry_bytes, self.usage.carry_bytes, bytes);
        put(&mut s.log_queue_bytes, self.log.queue_bytes, bytes);
        put(&mut s.headers.usage, self.headers.usage, |v| v.0);
        put(&mut s.headers.pools, self.headers.pools, |v| v.0);
        put(&mut s.headers.audience, self.headers.audience, same);
        put(&mut s.headers.headline, self.headers.headline, same);
        put(&mut s.metrics.expose, self.metrics.expose, same);
        put(
            &mut s.metrics.source_label,
            self.metrics.source_label,
            |v| v.0,
        );
        let (found, raw) = (&mut s.discovery, self.discovery);
        put(&mut found.workers, raw.workers, |v| v.0);
        put(&mut found.file_sd, raw.file_sd, |v| v.0);
        put(&mut found.dns, raw.dns, |v| v.0);
        put(&mut found.interval, raw.interval, same);
        put(&mut found.max_sources, raw.max_sources, same);
        let patterns = |v: Option<Patterns>| v.map(|patterns| patterns.0).unwrap_or_default();
        put(&mut found.bearer_file, raw.bearer_file, path);
        put(&mut found.ca_file, raw.ca_file, path);
        let (found, raw) = (&mut found.source, raw.source);
        put(&mut found.interval, raw.interval, same);
        put(&mut found.engine, raw.engine, |v| v.map(|name| name.0));
        put(&mut found.kind, raw.kind, same);
        put(&mut found.bearer_file, raw.bearer_file, path);
        put(&mut found.ca_file, raw.ca_file, path);
        put(&mut found.keep, raw.keep, patterns);
        put(&mut found.drop, raw.drop, patterns);
        if let Some(sources) = self.source {
            s.sources = sources.into_iter().filter_map(RawSource::source).collect();
        }
    }
}

impl From<&Settings> for Raw {
    fn from(s: &Settings) -> Self {
        Raw {
            listen: key(s.listen),
            workers: key(Auto(Some(s.workers))),
            trusted_proxies: key(Ranges(s.trusted_proxies.clone())),
            upstream: RawUpstream {
                url: key(Upstream(s.upstream.clone())),
                idle: key(s.upstream_pool.idle),
                max_idle: key(s.upstream_pool.max_idle),
                max_age: key(s.upstream_pool.max_age),
            },
            admin: RawAdmin {
                listen: key(s.admin.listen),
                bearer_file: key(s.admin.bearer_file.clone().map(FilePath)),
            },
            scrape: RawScrape {
                interval: key(s.scrape.interval),
                timeout: key(s.scrape.timeout),
                max_age: key(s.scrape.max_age),
                max_page_bytes: size(s.scrape.max_page_bytes),
                max_series: key(s.scrape.max_series),
                max_label_bytes: size(s.scrape.max_label_bytes),
                max_families: key(s.scrape.max_families),
            },
            limits: RawLimits {
                request_body: key(s.limits.request_body.map(Size)),
                header_fields: key(s.limits.header_fields),
                header_bytes: size(s.limits.header_bytes),
                connections: key(Auto(s.limits.connections)),
                in_flight: key(s.limits.in_flight),
            },
            timeouts: RawTimeouts {
                connect: key(s.timeouts.connect),
                request_head: key(s.timeouts.request_head),
                response_head: key(s.timeouts.response_head),
                stream_silence: key(s.timeouts.stream_silence),
                request: key(s.timeouts.request),
                client_idle: key(s.timeouts.client_idle),
            },
            drain: RawDrain {
                delay: key(s.drain.delay),
                timeout: key(s.drain.timeout),
            },
            usage: RawUsage {
                carry_bytes: size(s.usage_carry_bytes),
            },
            log: RawLog {
                queue_bytes: size(s.log_queue_bytes),
            },
            headers: RawHeaders {
                usage: key(HeaderField(s.headers.usage.clone())),
                pools: key(HeaderField(s.headers.pools.clone())),
                audience: key(s.headers.audience.clone()),
                headline: key(s.headers.headline),
            },
            metrics: RawMetrics {
                expose: key(s.metrics.expose),
                source_label: key(LabelName(s.metrics.source_label.clone())),
            },
            discovery: RawDiscovery {
                workers: key(Router(s.discovery.workers.clone())),
                file_sd: key(Paths(s.discovery.file_sd.clone())),
                dns: key(Names(s.discovery.dns.clone())),
                interval: key(s.discovery.interval),
                max_sources: key(s.discovery.max_sources),
                bearer_file: key(s.discovery.bearer_file.clone().map(FilePath)),
                ca_file: key(s.discovery.ca_file.clone().map(FilePath)),
                source: RawFoundSource::from(&s.discovery.source),
            },
            source: Some(s.sources.iter().map(RawSource::from).collect()),
        }
    }
}

impl From<&FoundSource> for RawFoundSource {
    fn from(s: &FoundSource) -> Self {
        let patterns = |list: &[Pattern]| match list {
            [] => key(None),
            some => key(Some(Patterns(some.to_vec()))),
        };
        RawFoundSource {
            interval: key(s.interval),
            engine: key(s.engine.clone().map(EngineName)),
            kind: key(s.kind),
            bearer_file: key(s.bearer_file.clone().map(FilePath)),
            ca_file: key(s.ca_file.clone().map(FilePath)),
            keep: patterns(&s.keep),
            drop: patterns(&s.drop),
        }
    }
}

// === impl RawSource ===

impl RawSource {
    /// The source; `None` without a name or an address, which the layers have refused before.
    fn source(self) -> Option<Source> {
        let name = self.name?.0.0;
        let kind = self.kind.map(|v| v.0).unwrap_or_default();
        let page = self.url?.0.0;
        Some(Source {
            role: self.role.map(|v| v.0).or_else(|| role_in(&name)),
            url: kind.page(page),
            kind,
            interval: self.interval.map(|v| v.0),
            engine: self.engine.map(|v| v.0.0),
            bearer_file: self.bearer_file.map(|v| v.0.0),
            ca_file: self.ca_file.map(|v| v.0.0),
            keep: self.keep.map(|v| v.0.0).unwrap_or_default(),
            drop: self.drop.map(|v| v.0.0).unwrap_or_default(),
            name,
        })
    }
}

impl From<&Source> for RawSource {
    fn from(s: &Source) -> Self {
        RawSource {
            name: key(SourceName(s.name.clone())),
            url: key(Page(s.url.clone())),
            role: s.role.and_then(key),
            interval: s.interval.and_then(key),
            kind: key(s.kind),
            bearer_file: s.bearer_file.clone().map(FilePath).and_then(key),
            ca_file: s.ca_file.clone().map(FilePath).and_then(key),
            engine: s.engine.clone().map(EngineName).and_then(key),
            keep: key(Patterns(s.keep.clone())),
            drop: key(Patterns(s.drop.clone())),
        }
    }
}
