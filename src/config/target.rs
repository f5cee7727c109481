//! `http://host:port/path` or `https://…`: where a router or a page is.

use super::settings::Target;
use super::value::Format;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The router's address: a [`Target`] without a path.
#[derive(Clone, Debug)]
pub(super) struct Upstream(pub(super) Target);

/// A page's address: a [`Target`] with a path, `/metrics` where none is written.
#[derive(Clone, Debug)]
pub(super) struct Page(pub(super) Target);

/// The most bytes of a path with its query.
const MAX_PATH: usize = 2048;

/// Splits an `http://` or `https://` URL (RFC 3986, section 3) and checks each part; what it comes to
/// has the path `/`. The path is empty where none is written. The error says what is wrong with the
/// text.
fn split(text: &str) -> Result<(Target, &str), String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(if text.is_empty() {
            "is no URL".to_owned()
        } else {
            "has no http:// before it".to_owned()
        });
    };
    let tls = scheme.eq_ignore_ascii_case("https");
    if !tls && !scheme.eq_ignore_ascii_case("http") {
        return Err("is not an http URL".to_owned());
    }
    if rest.contains('#') {
        return Err("has a fragment (#), which no server would see".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err(
            "holds a user or password, which would end in logs and process lists; leave them out"
                .to_owned(),
        );
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let Some((host, port)) = inner.split_once(']') else {
                return Err("has an IPv6 address without its closing bracket".to_owned());
            };
            let address: Ipv6Addr = host
                .parse()
                .map_err(|_| "has no IPv6 address between its brackets".to_owned())?;
            (address.to_string(), port)
        }
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            let (host, port) = authority.split_at(end);
            if port.matches(':').count() > 1 {
                return Err("has an IPv6 address without brackets".to_owned());
            }
            (name(host)?, port)
        }
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => {
            if tls {
                443
            } else {
                80
            }
        }
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(port @ 1..) => port,
            _ => return Err("has no port from 1 to 65535 behind its colon".to_owned()),
        },
        _ => return Err("has no port from 1 to 65535 behind its colon".to_owned()),
    };
    let target = Target {
        tls,
        host: Arc::from(host),
        server_name: None,
        port,
        path: Arc::from("/"),
    };
    Ok((target, path))
}

/// The address of an API: without a path of its own.
pub(super) fn api(text: &str) -> Result<Target, String> {
    let (target, path) = split(text)?;
    if !matches!(path, "" | "/") {
        return Err("has a path, but requests keep the path that the client sent".to_owned());
    }
    Ok(target)
}

/// A host name or IPv4 address, in lower case.
fn name(host: &str) -> Result<String, String> {
    if host.is_empty() {
        return Err("names no host".to_owned());
    }
    // Underscores are no host name's (RFC 1123), but container runtimes hand them out.
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.len() > 253 || !host.bytes().all(fine) || host.starts_with(['-', '.']) {
        return Err("has a host that is neither a name in ASCII nor an address".to_owned());
    }
    // `1.2.3` or `127.1`: resolvers disagree on what that is.
    let numeric = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    let last = host.trim_end_matches('.').rsplit('.').next();
    if last.is_none_or(numeric) && host.parse::<Ipv4Addr>().is_err() {
        return Err("has a host that looks like an IPv4 address but is none".to_owned());
    }
    Ok(host.to_ascii_lowercase())
}

// === impl Upstream ===

impl Format for Upstream {
    const ALLOWED: &'static str = "a URL such as \"http://127.0.0.1:30001\"";

    fn read(text: &str) -> Result<Self, String> {
        let target = api(text)?;
        if target.tls {
            return Err(
                "is https, but the router is spoken to in plain HTTP; put what speaks TLS to it \
                 between"
                    .to_owned(),
            );
        }
        Ok(Upstream(target))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

// === impl Page ===

impl Format for Page {
    const ALLOWED: &'static str =
        "a URL such as \"http://127.0.0.1:30002\" (without a path: /metrics)";

    fn read(text: &str) -> Result<Self, String> {
        let (target, path) = split(text)?;
        let path = if matches!(path, "" | "/") {
            "/metrics".to_owned()
        } else if path.starts_with('?') {
            format!("/metrics{path}")
        } else {
            path.to_owned()
        };
        if path.len() > MAX_PATH {
            return Err("has a path that is too long".to_owned());
        }
        if http::uri::PathAndQuery::try_from(path.as_str()).is_err() || !path.is_ascii() {
            return Err("has a character in its path that must be percent-encoded".to_owned());
        }
        Ok(Page(Target {
            path: Arc::from(path),
            ..target
        }))
    }

    fn write(&self) -> String {
        self.0.in_full()
    }
}

// === impl Target ===

impl Target {
    /// A page's address, `/metrics` where no path is written. The error says what is wrong with the
    /// text, as in "is no URL".
    ///
    /// # Errors
    /// When it is no `http://` or `https://` URL that can be read.
    pub fn page(text: &str) -> Result<Target, String> {
        Page::read(text).map(|page| page.0)
    }

    /// Where an SGLang server has its loads, when this is its page: beside `/metrics`.
    #[must_use]
    pub fn loads(&self) -> Target {
        let path = self.path.split('?').next().unwrap_or_default();
        let before = path
            .strip_suffix("/metrics")
            .or_else(|| path.strip_suffix("/v1/loads"))
            .unwrap_or_default();
        Target {
            path: Arc::from(format!("{before}/v1/loads")),
            ..self.clone()
        }
    }

    /// The path as people may see it: a query may hold a secret.
    #[must_use]
    pub fn shown_path(&self) -> String {
        match self.path.split_once('?') {
            Some((path, _)) => format!("{path}?…"),
            None => self.path.to_string(),
        }
    }

    /// As it is written in settings, query and all.
    #[must_use]
    pub fn in_full(&self) -> String {
        self.with_path(&self.path)
    }

    fn with_path(&self, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let path = if path == "/" { "" } else { path };
        format!("{scheme}://{}{path}", self.authority())
    }

    /// Where to connect: `host:port`, IPv6 addresses in brackets.
    #[must_use]
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// The `Host` field: the authority, by the name where that is known.
    #[must_use]
    pub fn host_field(&self) -> String {
        authority(self.known_as(), self.port)
    }

    /// The name or address that its certificate must be for.
    #[must_use]
    pub fn known_as(&self) -> &str {
        self.server_name.as_ref().unwrap_or(&self.host)
    }

    /// Whether connecting here reaches `listener`, as far as that can be told without looking
    /// names up: a name other than `localhost` is taken for another machine's, and so is an
    /// address that `listener` covers only by listening on every one.
    #[must_use]
    pub fn reaches(&self, listener: SocketAddr) -> bool {
        if self.port != listener.port() {
            return false;
        }
        let at = listener.ip().to_canonical();
        let any = at.is_unspecified();
        match self.address() {
            // `localhost` may be either family's.
            None => self.is_localhost() && (any || at.is_loopback()),
            Some(ip) if ip == at => true,
            // Connecting to 0.0.0.0 or :: reaches loopback.
            Some(ip) if ip.is_unspecified() => any || at.is_loopback(),
            // 0.0.0.0 takes no IPv6; [::] takes IPv4 as well.
            Some(ip) => any && ip.is_loopback() && (at.is_ipv6() || ip.is_ipv4()),
        }
    }

    /// What is the same for targets that surely are the same page: host under one of its names,
    /// port and path. A port speaks TLS or it does not, so the scheme is no difference.
    #[must_use]
    pub fn page_identity(&self) -> (String, u16, Arc<str>) {
        let home = match self.address() {
            // Not all of loopback: 127.0.0.2 may be another server than 127.0.0.1.
            Some(ip)
                if ip.is_unspecified()
                    || ip == Ipv4Addr::LOCALHOST
                    || ip == Ipv6Addr::LOCALHOST =>
            {
                "localhost".to_owned()
            }
            Some(ip) => ip.to_string(),
            None if self.is_localhost() => "localhost".to_owned(),
            None => self.host.trim_end_matches('.').to_owned(),
        };
        (home, self.port, self.path.clone())
    }

    /// Whether both surely are on one server, as [`page_identity`](Target::page_identity) tells it.
    #[must_use]
    pub fn same_server(&self, other: &Target) -> bool {
        let at = |target: &Target| {
            let (host, port, _) = target.page_identity();
            (host, port)
        };
        at(self) == at(other)
    }

    fn address(&self) -> Option<IpAddr> {
        let ip: Option<IpAddr> = self.host.parse().ok();
        ip.map(|ip| ip.to_canonical())
    }

    fn is_localhost(&self) -> bool {
        let host = self.host.trim_end_matches('.');
        host == "localhost" || host.ends_with(".localhost")
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// As people may see it, without the text of its query: [`in_full`](Target::in_full) has that.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_path(&self.shown_path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Target {
        Page::read(text).map(|p| p.0).unwrap()
    }

    #[test]
    fn pages_and_upstreams_are_read_and_written() {
        for (text, written) in [
            ("http://127.0.0.1:30002", "http://127.0.0.1:30002/metrics"),
            ("http://127.0.0.1:30002/", "http://127.0.0.1:30002/metrics"),
            (
                "HTTP://Engine_1.pod:8000/a/b?c=d,e",
                "http://engine_1.pod:8000/a/b?c=d,e",
            ),
            ("http://h?x=1", "http://h:80/metrics?x=1"),
            ("http://[2001:DB8::1]:81/m", "http://[2001:db8::1]:81/m"),
            ("http://[::1]", "http://[::1]:80/metrics"),
            ("http://h.", "http://h.:80/metrics"),
            ("HTTPS://h", "https://h:443/metrics"),
            ("https://[::1]:80/m", "https://[::1]:80/m"),
        ] {
            let target = page(text);
            assert_eq!(target.in_full(), written);
            assert_eq!(page(written), target);
            let (shown, query) = written.split_once('?').unwrap_or((written, ""));
            let query = if query.is_empty() { "" } else { "?…" };
            assert_eq!(target.to_string(), format!("{shown}{query}"));
        }
        let router = Upstream::read("http://127.0.0.1:30001/").unwrap().0;
        assert_eq!(router.to_string(), "http://127.0.0.1:30001");
        assert_eq!(&*router.path, "/");
    }

    #[test]
    fn what_is_no_page_is_said() {
        for (text, why) in [
            ("", "is no URL"),
            ("127.0.0.1:30000", "has no http:// before it"),
            ("unix:///run/x", "is not an http URL"),
            ("http://", "names no host"),
            ("http://:80", "names no host"),
            ("http://h:", "has no port from 1 to 65535 behind its colon"),
            ("http://h:0", "has no port from 1 to 65535 behind its colon"),
            (
                "http://h:+80",
                "has no port from 1 to 65535 behind its colon",
            ),
            (
                "http://h:65536",
                "has no port from 1 to 65535 behind its colon",
            ),
            ("http://::1:80", "has an IPv6 address without brackets"),
            (
                "http://[::1",
                "has an IPv6 address without its closing bracket",
            ),
            (
                "http://[::1]80",
                "has no port from 1 to 65535 behind its colon",
            ),
            (
                "http://[fe80::1%eth0]",
                "has no IPv6 address between its brackets",
            ),
            (
                "http://256.0.0.1",
                "has a host that looks like an IPv4 address but is none",
            ),
            (
                "http://127.1",
                "has a host that looks like an IPv4 address but is none",
            ),
            (
                "http://bücher",
                "has a host that is neither a name in ASCII nor an address",
            ),
            (
                "http://a b",
                "has a host that is neither a name in ASCII nor an address",
            ),
            (
                "http://h/#x",
                "has a fragment (#), which no server would see",
            ),
            (
                "http://h/a b",
                "has a character in its path that must be percent-encoded",
            ),
            (
                "http://h/ü",
                "has a character in its path that must be percent-encoded",
            ),
        ] {
            assert_eq!(Page::read(text).unwrap_err(), why, "{text}");
        }
        let error = Upstream::read("http://h/v1").unwrap_err();
        assert_eq!(
            error,
            "has a path, but requests keep the path that the client sent"
        );
        let error = Upstream::read("http://u:p@h").unwrap_err();
        assert!(error.starts_with("holds a user or password"), "{error}");
        let error = Upstream::read("https://h").unwrap_err();
        assert!(error.starts_with("is https, but the router"), "{error}");
    }

    #[test]
    fn an_address_that_reaches_our_own_listener_is_told() {
        for (url, listener, reaches) in [
            ("http://127.0.0.1:1", "127.0.0.1:1", true),
            ("http://127.0.0.1:1", "127.0.0.1:2", false),
            ("http://127.0.0.1:1", "0.0.0.0:1", true),
            ("http://127.0.0.1:1", "[::]:1", true),
            ("http://127.0.0.1:1", "127.0.0.2:1", false),
            ("http://127.0.0.1:1", "[::1]:1", false),
            ("http://[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
            ("http://[::1]:1", "0.0.0.0:1", false),
            ("http://[::1]:1", "[::]:1", true),
            ("http://0.0.0.0:1", "127.0.0.1:1", true),
            ("http://localhost:1", "127.0.0.1:1", true),
            ("http://localhost.:1", "[::1]:1", true),
            ("http://a.localhost:1", "0.0.0.0:1", true),
            ("http://localhost:1", "10.0.0.1:1", false),
            ("http://10.0.0.1:1", "10.0.0.1:1", true),
            ("http://10.0.0.1:1", "0.0.0.0:1", false),
            ("http://router:1", "0.0.0.0:1", false),
        ] {
            let found = page(url).reaches(listener.parse().unwrap());
            assert_eq!(found, reaches, "{url} {listener}");
        }
    }

    #[test]
    fn the_same_page_is_told_under_its_other_names() {
        for (a, b, same) in [
            ("http://127.0.0.1:1", "http://localhost:1/metrics", true),
            ("http://127.0.0.1:1", "http://0.0.0.0:1", true),
            ("http://127.0.0.1:1", "http://127.0.0.2:1", false),
            ("http://127.0.0.1:1", "http://127.0.0.1:1/other", false),
            ("http://h:1", "http://H.:1", true),
            ("http://h:1", "http://i:1", false),
            ("http://h:1", "https://h:1", true),
            ("http://h", "https://h", false),
            ("http://[::ffff:10.0.0.1]:1", "http://10.0.0.1:1", true),
        ] {
            assert_eq!(
                page(a).page_identity() == page(b).page_identity(),
                same,
                "{a} {b}"
            );
        }
    }
}
