//! What can be said of settings only when the layers are one: ranges, and what can't go together. Of a key
//! that could not be read nothing is said, nor of what goes together with it: its value is not known.

use super::error::{Origin, Problem, Warning};
use super::keys::{self, shown};
use super::layer::Origins;
use super::names::ENGINES;
use super::settings::{Expose, Headline, Settings, SourceKind};
use super::value::{Format, OffOr, Size};
use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

/// The shortest duration that is not none.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest duration: a week. Longer means `off`, where there is one.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// What hyper needs at least to read a head.
const LEAST_HEAD: u64 = 8 << 10;
/// Bytes of a MiB and a GiB.
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Adds all that is wrong with `settings` to the problems; what is odd about them.
pub(super) fn validate(
    settings: &Settings,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) -> Vec<Warning> {
    let mut check = Check {
        settings,
        origins,
        problems,
        warnings: Vec::new(),
    };
    check.ranges();
    check.pace();
    check.addresses();
    check.sources();
    check.engines();
    check.files();
    check.patterns();
    check.headers();
    check.trust();
    check.warnings
}

struct Check<'s> {
    settings: &'s Settings,
    origins: &'s Origins,
    problems: &'s mut Vec<Problem>,
    warnings: Vec<Warning>,
}

// === impl Check ===

impl Check<'_> {
    fn refuse(&mut self, origin: Origin, key: &str, message: String) {
        self.problems.push(Problem {
            origin,
            key: shown(key).to_owned(),
            message,
            malformed: false,
        });
    }

    fn warn(&mut self, key: &str, message: String) {
        self.warnings.push(Warning {
            origin: self.origins.of(key),
            key: shown(key).to_owned(),
            message,
        });
    }

    /// `key value`, and where it is set if it is, as another key's message names it.
    fn named(&self, key: &str, value: impl Display) -> String {
        match self.origins.of(key) {
            Origin::Default => format!("{} {value} (default)", shown(key)),
            origin => format!("{} {value} ({origin})", shown(key)),
        }
    }

    fn range<T: Format + PartialOrd + Copy>(&mut self, key: &str, value: T, least: T, most: T) {
        self.range_or(key, value, least, most, "");
    }

    /// A value that may be off.
    fn range_off<T: Format + OffOr + PartialOrd + Copy>(
        &mut self,
        key: &str,
        value: Option<T>,
        least: T,
        most: T,
    ) {
        if let Some(value) = value {
            self.range_or(key, value, least, most, ", or \"off\"");
        }
    }

    fn range_or<T: Format + PartialOrd + Copy>(
        &mut self,
        key: &str,
        value: T,
        least: T,
        most: T,
        or: &str,
    ) {
        let what = if !self.origins.know(key) {
            return;
        } else if value < least {
            "too small"
        } else if value > most {
            "too large"
        } else {
            return;
        };
        let (value, least, most) = (value.write(), least.write(), most.write());
        let message = format!("{value} is {what}; write {least} to {most}{or}");
        self.refuse(self.origins.of(key), key, message);
    }

    fn size(&mut self, key: &str, value: usize, least: u64, most: u64) {
        self.range(key, Size(value as u64), Size(least), Size(most));
    }

    fn ranges(&mut self) {
        let s = self.settings;
        self.range("workers", s.workers, 1, 1024);
        self.range("upstream.idle", s.upstream_pool.idle, SHORTEST, LONGEST);
        self.range("upstream.max_idle", s.upstream_pool.max_idle, 0, 1 << 20);
        self.range(
            "upstream.max_age",
            s.upstream_pool.max_age,
            SHORTEST,
            LONGEST,
        );
        self.range("scrape.interval", s.scrape.interval, 10 * SHORTEST, LONGEST);
        self.range("scrape.timeout", s.scrape.timeout, SHORTEST, LONGEST);
        self.range("scrape.max_age", s.scrape.max_age, SHORTEST, LONGEST);
        self.size(
            "scrape.max_page_bytes",
            s.scrape.max_page_bytes,
            1 << 10,
            GIB,
        );
        self.range("scrape.max_series", s.scrape.max_series, 1, 100_000_000);
        self.size("scrape.max_label_bytes", s.scrape.max_label_bytes, 64, MIB);
        self.range("scrape.max_families", s.scrape.max_families, 1, 10_000_000);
        self.range_off(
            "limits.request_body",
            s.limits.request_body.map(Size),
            Size(1),
            Size(1024 * GIB),
        );
        // http::HeaderMap holds at most 24,576 fields.
        self.range("limits.header_fields", s.limits.header_fields, 10, 10_000);
        self.size(
            "limits.header_bytes",
            s.limits.header_bytes,
            LEAST_HEAD,
            16 * MIB,
        );
        if let Some(connections) = s.limits.connections {
            self.range_or(
                "limits.connections",
                connections,
                1,
                1 << 24,
                ", or \"auto\"",
            );
        }
        self.range_off("limits.in_flight", s.limits.in_flight, 1, 1 << 24);
        self.range("timeouts.connect", s.timeouts.connect, SHORTEST, LONGEST);
        self.range(
            "timeouts.request_head",
            s.timeouts.request_head,
            SHORTEST,
            LONGEST,
        );
        self.range_off(
            "timeouts.response_head",
            s.timeouts.response_head,
            SHORTEST,
            LONGEST,
        );
        self.range_off(
            "timeouts.stream_silence",
            s.timeouts.stream_silence,
            SHORTEST,
            LONGEST,
        );
        self.range_off("timeouts.request", s.timeouts.request, SHORTEST, LONGEST);
        self.range(
            "timeouts.client_idle",
            s.timeouts.client_idle,
            SHORTEST,
            LONGEST,
        );
        self.range("drain.delay", s.drain.delay, Duration::ZERO, LONGEST);
        self.range("drain.timeout", s.drain.timeout, Duration::ZERO, LONGEST);
        self.size("usage.carry_bytes", s.usage_carry_bytes, 1 << 10, 16 * MIB);
        self.size("log.queue_bytes", s.log_queue_bytes, 64 << 10, GIB);
        let discovery = &s.discovery;
        self.range(
            "discovery.interval",
            discovery.interval,
            10 * SHORTEST,
            LONGEST,
        );
        self.range("discovery.max_sources", discovery.max_sources, 1, 1024);
    }

    /// How often pages are read against how long a reading holds: with less than three scrapes to
    /// a reading's life, one that is lost turns the value unknown.
    fn pace(&mut self) {
        let scrape = &self.settings.scrape;
        let most = scrape.max_age / 3;
        let why = |interval: Duration, max_age: String| {
            format!(
                "{} is more than a third of {max_age}, so a lost scrape or two would make the \
                 values unknown; write at most {}, or raise scrape.max_age",
                interval.write(),
                whole_millis(most).write(),
            )
        };
        let named = self.named("scrape.max_age", scrape.max_age.write());
        let know = |key| self.origins.know(key);
        let max_age_is_known = know("scrape.max_age");
        if scrape.interval > most && max_age_is_known && know("scrape.interval") {
            let key = self.origins.set_of("scrape.interval", "scrape.max_age");
            let message = if key == "scrape.interval" {
                why(scrape.interval, named.clone())
            } else {
                format!(
                    "{} is less than three times {}; write at least {}, or lower scrape.interval",
                    scrape.max_age.write(),
                    self.named("scrape.interval", scrape.interval.write()),
                    (scrape.interval * 3).write(),
                )
            };
            self.refuse(self.origins.of(key), key, message);
        }
        let sources = self.settings.sources.iter().enumerate();
        let mut intervals: Vec<(Origin, &str, Duration)> = sources
            .filter_map(|(at, source)| {
                let origin = self.source_origin(at, "interval");
                Some((origin, "source.interval", source.interval?))
            })
            .collect();
        let key = "discovery.source.interval";
        let of_found = self.settings.discovery.source.interval;
        let of_found = of_found.filter(|_| know(key));
        intervals.extend(of_found.map(|interval| (self.origins.of(key), key, interval)));
        for (origin, key, interval) in intervals {
            if interval < 10 * SHORTEST {
                let message = format!("{} is too small; write at least 10ms", interval.write());
                self.refuse(origin, key, message);
            } else if interval > most && max_age_is_known {
                self.refuse(origin, key, why(interval, named.clone()));
            }
        }
        if scrape.timeout > scrape.max_age {
            let key = self.origins.set_of("scrape.timeout", "scrape.max_age");
            let message = format!(
                "scrape.timeout {} is longer than scrape.max_age {}: a page that takes that long \
                 has no trustworthy value left while it is read",
                scrape.timeout.write(),
                scrape.max_age.write()
            );
            self.warn(key, message);
        }
    }

    /// Whether the key of that source is known.
    fn know_of(&self, at: usize, key: &str) -> bool {
        self.origins
            .sources
            .get(at)
            .is_none_or(|source| source.know(key))
    }

    fn source_origin(&self, at: usize, key: &str) -> Origin {
        match self.origins.sources.get(at) {
            Some(source) => source.of(key),
            None => Origin::Default,
        }
    }

    /// That kvgauge does not call itself.
    fn addresses(&mut self) {
        let s = self.settings;
        let listeners = [
            ("listen", s.listen, "the proxy"),
            ("admin.listen", s.admin.listen, "kvgauge's own page"),
        ];
        let both = self.origins.know("listen") && self.origins.know("admin.listen");
        if both && same_listener(s.listen, s.admin.listen) {
            let key = self.origins.set_of("listen", "admin.listen");
            let (own, other) = if key == "listen" {
                (s.listen, self.named("admin.listen", s.admin.listen))
            } else {
                (s.admin.listen, self.named("listen", s.listen))
            };
            let message = format!("{own} is also {other}; give each its own port");
            self.refuse(self.origins.of(key), key, message);
        }
        for (key, listener, what) in listeners {
            let known = self.origins.know(key) && self.origins.know(keys::UPSTREAM);
            if !known || !s.upstream.reaches(listener) {
                continue;
            }
            let named = self.named("upstream.url", &s.upstream);
            let set = self.origins.set_of(key, "upstream.url");
            let message = if set == key {
                format!(
                    "{listener} is also {named}, so requests would go round in a circle; to take \
                     over the router's port, start the router on another one and name that one \
                     with --upstream"
                )
            } else {
                format!(
                    "{} is {what}: {}, so requests would go round in a circle; name the router",
                    s.upstream,
                    self.named(key, listener),
                )
            };
            self.refuse(self.origins.of(set), set, message);
        }
        for (key, listener, what) in listeners {
            let workers = "discovery.workers";
            if !self.origins.know(key) || !self.origins.know(workers) {
                continue;
            }
            if let Some(router) = s.discovery.workers.as_ref().filter(|r| r.reaches(listener)) {
                let message = format!(
                    "{router} is {what}: {}; name the router",
                    self.named(key, listener)
                );
                self.refuse(self.origins.of(workers), workers, message);
            }
        }
        for (at, source) in s.sources.iter().enumerate() {
            for (key, listener, what) in listeners {
                let known = self.know_of(at, "url") && self.origins.know(key);
                if !known || !source.url.reaches(listener) {
                    continue;
                }
                let mut origin = self.source_origin(at, "url");
                let mut shown = "source.url";
                if origin == Origin::Default {
                    (origin, shown) = (self.origins.of(key), key);
                }
                let message = format!(
                    "the page of {}, {}, is {what}: {}; {}",
                    self.called(at),
                    source.url,
                    self.named(key, listener),
                    fix(key),
                );
                self.refuse(origin, shown, message);
            }
        }
    }

    fn sources(&mut self) {
        let sources = &self.settings.sources;
        let mut names = HashMap::new();
        for (at, source) in sources.iter().enumerate() {
            if !self.know_of(at, "name") {
                continue;
            }
            if let Some(first) = names.insert(&source.name, at) {
                let message = format!(
                    "two sources are called \"{}\" (the other: {}); names tell series apart, so give \
                     each its own",
                    source.name,
                    self.source_origin(first, "name"),
                );
                self.refuse(self.source_origin(at, "name"), "source.name", message);
            }
        }
        for (at, source) in sources.iter().enumerate() {
            let loads = source.url.loads().page_identity();
            let page = sources.iter().enumerate().position(|(at, other)| {
                self.know_page(at)
                    && other.kind != SourceKind::SglangLoads
                    && other.url.loads().page_identity() == loads
            });
            let page = page.filter(|_| self.know_page(at));
            if let (SourceKind::SglangLoads, Some(page)) = (source.kind, page) {
                let message = format!(
                    "{} is of the same server as {}, so it would be counted twice; leave one out, and \
                     give that kind = \"auto\" for both",
                    source.url,
                    self.other(page),
                );
                self.refuse(self.source_origin(at, "kind"), "source.kind", message);
            }
            let known = self.know_of(at, "kind") && self.know_of(at, "engine");
            if let (true, Some(message)) = (known, no_loads(source.kind, source.engine.as_deref()))
            {
                self.refuse(self.source_origin(at, "kind"), "source.kind", message);
            }
        }
        let found = &self.settings.discovery.source;
        let key = "discovery.source.kind";
        let known = self.origins.know(key) && self.origins.know("discovery.source.engine");
        if let (true, Some(message)) = (known, no_loads(found.kind, found.engine.as_deref())) {
            self.refuse(self.origins.of(key), key, message);
        }
        let mut pages = HashMap::new();
        for (at, source) in sources.iter().enumerate() {
            if !self.know_page(at) {
                continue;
            }
            if let Some(first) = pages.insert(source.url.page_identity(), at) {
                let message = format!(
                    "{} is also the page of {}, so it would be read and counted twice; leave one \
                     out",
                    source.url,
                    self.other(first),
                );
                self.refuse(self.source_origin(at, "url"), "source.url", message);
            }
        }
    }

    /// Whether it is known what is read of that source.
    fn know_page(&self, at: usize) -> bool {
        self.know_of(at, "url") && self.know_of(at, "kind")
    }

    /// That what sources are read as is known, and what is mapped is used.
    fn engines(&mut self) {
        let s = self.settings;
        let sources = s.sources.iter().enumerate();
        let mut engines: Vec<(Origin, &str, &std::sync::Arc<str>)> = sources
            .filter_map(|(at, source)| {
                let origin = self.source_origin(at, "engine");
                Some((origin, "source.engine", source.engine.as_ref()?))
            })
            .collect();
        let (key, of_found) = ("discovery.source.engine", &s.discovery.source.engine);
        engines.extend(
            of_found
                .as_ref()
                .filter(|_| self.origins.know(key))
                .map(|engine| (self.origins.of(key), key, engine)),
        );
        let mut used = Vec::new();
        for (origin, key, engine) in engines {
            used.push(engine);
            if ENGINES.contains(&&**engine) || s.mappings.contains_key(engine) {
                continue;
            }
            if !self.origins.know(&format!("{}.{engine}", keys::ENGINE)) {
                continue;
            }
            let known = ENGINES.iter().copied();
            let all = known.clone().chain(s.mappings.keys().map(|name| &**name));
            let near = match keys::nearest(engine, all) {
                Some(near) => format!("did you mean \"{near}\"? "),
                None => String::new(),
            };
            let message = format!(
                "\"{engine}\" is no engine that is known here; {near}Known are {}, and what a section \
                 [engine.{engine}] maps",
                known.collect::<Vec<_>>().join(", "),
            );
            self.refuse(origin, key, message);
        }
        for (name, (_, origin)) in &self.origins.mappings {
            // A file_sd file may name it for its targets alone.
            if !used.contains(&name) && s.discovery.file_sd.is_empty() {
                let message = format!(
                    "no source has engine = \"{name}\", so no page is read by this mapping"
                );
                self.warnings.push(Warning {
                    origin: origin.clone(),
                    key: format!("engine.{name}"),
                    message,
                });
            }
        }
    }

    /// Files that are named and never looked into.
    fn files(&mut self) {
        let s = self.settings;
        for (at, source) in s.sources.iter().enumerate() {
            if source.ca_file.is_some() && !source.url.tls {
                let message = format!(
                    "{} is http, so there is no certificate to look at; write https:// where TLS is \
                     spoken",
                    source.url
                );
                self.warnings.push(Warning {
                    origin: self.source_origin(at, "ca_file"),
                    key: "source.ca_file".to_owned(),
                    message,
                });
            }
        }
        let router = s.discovery.workers.as_ref();
        if s.discovery.ca_file.is_some() && !router.is_some_and(|router| router.tls) {
            let message = "discovery.workers is no https URL, so there is no certificate to look at; \
                           the CA of sources that are found is discovery.source.ca_file";
            self.warn("discovery.ca_file", message.to_owned());
        }
        if s.discovery.bearer_file.is_some() && router.is_none() {
            let message = "discovery.workers is off, so nobody is sent this token; that of sources \
                           that are found is discovery.source.bearer_file";
            self.warn("discovery.bearer_file", message.to_owned());
        }
    }

    /// Patterns that have nothing left to choose from.
    fn patterns(&mut self) {
        if self.settings.metrics.expose != Expose::None {
            return;
        }
        for (at, source) in self.settings.sources.iter().enumerate() {
            for (key, patterns) in [("keep", &source.keep), ("drop", &source.drop)] {
                if !patterns.is_empty() {
                    let message = "metrics.expose is \"none\", so nothing of any source's page is shown again"
                        .to_owned();
                    self.warnings.push(Warning {
                        origin: self.source_origin(at, key),
                        key: format!("source.{key}"),
                        message,
                    });
                }
            }
        }
    }

    /// Another source, as a message names it.
    fn other(&self, at: usize) -> String {
        format!("{} ({})", self.called(at), self.source_origin(at, "url"))
    }

    /// A source, as a message names it.
    fn called(&self, at: usize) -> String {
        if self.know_of(at, "name") {
            format!("source \"{}\"", self.settings.sources[at].name)
        } else {
            "a source whose name can't be read".to_owned()
        }
    }

    fn headers(&mut self) {
        let headers = &self.settings.headers;
        let same = headers.usage == headers.pools
            && self.origins.know("headers.usage")
            && self.origins.know("headers.pools");
        if let (Some(usage), true) = (&headers.usage, same) {
            let key = self.origins.set_of("headers.pools", "headers.usage");
            let message = format!("{usage} is the name of both headers; give each its own");
            self.refuse(self.origins.of(key), key, message);
        }
        if let Headline::Role(role) = headers.headline {
            let mut roles = self.settings.sources.iter().map(|s| s.role);
            if !self.settings.discovery.is_on() && !roles.any(|r| r == Some(role)) {
                let message = format!(
                    "no source has the role {role}, so the usage header is left out unless a page \
                     names that role itself"
                );
                self.warn("headers.headline", message);
            }
        }
    }

    fn trust(&mut self) {
        let all = |net: &&ipnet::IpNet| net.prefix_len() == 0;
        if let Some(net) = self.settings.trusted_proxies.iter().find(all) {
            let message = format!(
                "{net} is everyone: whoever connects can write any client address into the log"
            );
            self.warn("trusted_proxies", message);
        }
    }
}

/// What is wrong with asking for SGLang's loads, if they are asked for.
fn no_loads(kind: SourceKind, engine: Option<&str>) -> Option<String> {
    let engine = engine.filter(|engine| *engine != "sglang")?;
    matches!(kind, SourceKind::SglangLoads | SourceKind::Auto).then(|| {
        format!(
            "{} asks for SGLang's loads, and engine is \"{engine}\"; leave one of them out",
            kind.write(),
        )
    })
}

/// Without what is below a millisecond, which nobody wants to read.
fn whole_millis(duration: Duration) -> Duration {
    let below = duration.subsec_nanos() % 1_000_000;
    duration.saturating_sub(Duration::from_nanos(u64::from(below)))
}

/// What to do about a page that is our own listener's.
fn fix(key: &str) -> &'static str {
    if key == "listen" {
        "name the engine's or the router's own metrics port, or listen elsewhere"
    } else {
        "kvgauge adds its own series by itself; name another page, or move admin.listen"
    }
}

/// Whether two listeners can't both be had.
fn same_listener(a: SocketAddr, b: SocketAddr) -> bool {
    // Port 0 is another free one each time.
    if a.port() != b.port() || a.port() == 0 {
        return false;
    }
    let (a, b) = (a.ip().to_canonical(), b.ip().to_canonical());
    // [::] takes IPv4 as well.
    let covers = |any: std::net::IpAddr, other: std::net::IpAddr| {
        any.is_unspecified() && (any.is_ipv6() || other.is_ipv4())
    };
    a == b || covers(a, b) || covers(b, a)
}

#[cfg(test)]
mod tests {
    use super::same_listener;

    #[test]
    fn listeners_that_overlap_are_the_same() {
        for (a, b, same) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("[::1]:1", "0.0.0.0:1", false),
            ("[::]:1", "0.0.0.0:1", true),
            ("0.0.0.0:0", "0.0.0.0:0", false),
        ] {
            let [one, two] = [a, b].map(|text| text.parse().unwrap());
            assert_eq!(same_listener(one, two), same, "{a} {b}");
            assert_eq!(same_listener(two, one), same, "{b} {a}");
        }
    }
}
