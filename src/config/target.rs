//! `http://host:port/path`: where a router or a page is.

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

/// Splits an `http://` URL (RFC 3986, section 3) and checks each part. The path is empty where
/// none is written. The error says what is wrong with the text.
fn split(text: &str) -> Result<(String, u16, &str), String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(if text.is_empty() {
            "is no URL".to_owned()
        } else {
            "has no http:// before it".to_owned()
        });
    };
    if scheme.eq_ignore_ascii_case("https") {
        return Err("is https, which is not supported yet".to_owned());
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err("is not an http URL".to_owned());
    }
    if rest.contains('#') {
        return Err("has a fragment (#), which no server would see".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err(
            "holds a user or password, which would end in logs and process lists; leave them out \
             (the connection is plain HTTP)"
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
        None if port.is_empty() => 80,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(port @ 1..) => port,
            _ => return Err("has no port from 1 to 65535 behind its colon".to_owned()),
        },
        _ => return Err("has no port from 1 to 65535 behind its colon".to_owned()),
    };
    Ok((host, port, path))
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

fn target(host: String, port: u16, path: &str) -> Target {
    Target {
        host: Arc::from(host),
        port,
        path: Arc::from(path),
    }
}

// === impl Upstream ===

impl Format for Upstream {
    const ALLOWED: &'static str = "a URL such as \"http://127.0.0.1:30001\"";

    fn read(text: &str) -> Result<Self, String> {
        let (host, port, path) = split(text)?;
        if !matches!(path, "" | "/") {
            return Err("has a path, but requests keep the path that the client sent".to_owned());
        }
        Ok(Upstream(target(host, port, "/")))
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
        let (host, port, path) = split(text)?;
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
        Ok(Page(target(host, port, &path)))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

// === impl Target ===

impl Target {
    /// A page's address, `/metrics` where no path is written. The error says what is wrong with the
    /// text, as in "is no URL".
    ///
    /// # Errors
    /// When it is no `http://` URL that can be read.
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
        target(
            self.host.to_string(),
            self.port,
            &format!("{before}/v1/loads"),
        )
    }

    /// `host:port`, IPv6 addresses in brackets, as in a `Host` field.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
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
    /// port and path.
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

    fn address(&self) -> Option<IpAddr> {
        let ip: Option<IpAddr> = self.host.parse().ok();
        ip.map(|ip| ip.to_canonical())
    }

    fn is_localhost(&self) -> bool {
        let host = self.host.trim_end_matches('.');
        host == "localhost" || host.ends_with(".localhost")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())?;
        f.write_str(if &*self.path == "/" { "" } else { &self.path })
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
        ] {
            let target = page(text);
            assert_eq!(target.to_string(), written);
            assert_eq!(page(written), target);
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
            ("https://h", "is https, which is not supported yet"),
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
