//! The defaults: they fit SGLang with prefill/decode disaggregation on one host.

use super::settings::*;
use crate::kv::Role;
use http::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The share of a pool from which on its usage is worth a warning, where nobody says otherwise.
pub const WARN: f64 = 0.85;
/// And from which on it is critical.
pub const CRIT: f64 = 0.95;

/// Bytes in a KiB.
const KIB: usize = 1024;
/// Bytes in a MiB.
const MIB: usize = 1024 * KIB;

impl Settings {
    /// The settings of `kvgauge serve` with no file, no variable and no flag. `workers` asks the
    /// operating system how many cores this process may use (1 where it can't say).
    #[must_use]
    pub fn defaults() -> Self {
        Settings {
            listen: loopback(30080),
            upstream: target(30001, "/"),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            trusted_proxies: vec![
                IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
                IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
            ],
            admin: Admin {
                listen: loopback(30090),
                bearer_file: None,
            },
            scrape: Scrape {
                interval: Duration::from_secs(1),
                timeout: Duration::from_secs(3),
                max_age: Duration::from_secs(10),
                max_page_bytes: 32 * MIB,
                max_series: 1_000_000,
                max_label_bytes: 16 * KIB,
                max_families: 50_000,
            },
            limits: Limits {
                request_body: None,
                header_fields: 100,
                header_bytes: 256 * KIB,
                connections: None,
                in_flight: None,
            },
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                request_head: Duration::from_secs(30),
                response_head: None,
                stream_silence: None,
                request: None,
                client_idle: Duration::from_secs(75),
            },
            upstream_pool: UpstreamPool {
                idle: Duration::from_secs(4),
                max_idle: 1024,
                max_age: Duration::from_secs(600),
            },
            drain: Drain {
                delay: Duration::ZERO,
                timeout: Duration::from_secs(300),
            },
            usage_carry_bytes: 64 * KIB,
            log_queue_bytes: 8 * MIB,
            headers: Headers {
                usage: Some(HeaderName::from_static("x-kv-usage")),
                pools: Some(HeaderName::from_static("x-kv-pools")),
                audience: Audience::All,
                headline: Headline::Auto,
            },
            metrics: Metrics {
                expose: Expose::All,
                source_label: Arc::from("source"),
            },
            discovery: Discovery {
                workers: None,
                file_sd: Vec::new(),
                dns: Vec::new(),
                interval: Duration::from_secs(5),
                max_sources: 256,
                bearer_file: None,
                ca_file: None,
                source: FoundSource::default(),
            },
            sources: vec![
                source("router", 29001, None),
                source("prefill", 30000, Some(Role::Prefill)),
                source("decode", 30002, Some(Role::Decode)),
            ],
            mappings: BTreeMap::new(),
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn target(port: u16, path: &str) -> Target {
    Target {
        tls: false,
        host: Arc::from("127.0.0.1"),
        server_name: None,
        port,
        path: Arc::from(path),
    }
}

fn source(name: &str, port: u16, role: Option<Role>) -> Source {
    Source::new(Arc::from(name), target(port, "/metrics"), role)
}

impl Source {
    /// A source of which nothing else is set.
    #[must_use]
    pub fn new(name: Arc<str>, url: Target, role: Option<Role>) -> Source {
        Source {
            name,
            url,
            role,
            interval: None,
            engine: None,
            kind: SourceKind::default(),
            bearer_file: None,
            ca_file: None,
            keep: Vec::new(),
            drop: Vec::new(),
        }
    }
}
