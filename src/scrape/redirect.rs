//! Where a redirect leads. One that stays on the server that was asked is followed, once: mounted
//! applications in Python answer `/metrics` with a redirect to `/metrics/`. What is sent along (a
//! token) is for that server alone, so scheme, host and port have to be the same, as they are written.

use crate::config::Target;
use http::uri::{Scheme, Uri};
use http::{HeaderMap, StatusCode, header::LOCATION};

/// The most bytes of an address that is followed.
const MOST_BYTES: usize = 2048;

/// The path and query on the same server that an answer sends to, when `asked` was asked for there.
pub(super) fn on_same_server(
    status: StatusCode,
    headers: &HeaderMap,
    asked: &Uri,
    server: &Target,
) -> Option<Uri> {
    if !matches!(status.as_u16(), 301 | 302 | 307 | 308) {
        return None;
    }
    let location = headers.get(LOCATION)?.to_str().ok()?;
    if location.len() > MOST_BYTES {
        return None;
    }
    let to = resolve(location, asked, server)?;
    (to != *asked).then_some(to)
}

/// What RFC 3986, 5.2 makes of a reference; none where it leads elsewhere, or has dot segments.
fn resolve(location: &str, asked: &Uri, server: &Target) -> Option<Uri> {
    let scheme = if server.tls { "https" } else { "http" };
    // By the name that it is asked by, which is what it makes addresses of.
    let own: Uri = format!("{scheme}://{}", server.host_field()).parse().ok()?;
    let location = location.split('#').next()?;
    let path = if location.starts_with('/') && !location.starts_with("//") {
        location.to_owned()
    } else if location.starts_with("//") || location.contains("://") {
        let whole = match location.strip_prefix("//") {
            Some(rest) => format!("{}://{rest}", own.scheme_str()?),
            None => location.to_owned(),
        };
        let whole: Uri = whole.parse().ok()?;
        if !same_server(&whole, &own) {
            return None;
        }
        whole.path_and_query()?.as_str().to_owned()
    } else {
        let first = location.split(['/', '?']).next()?;
        if first.is_empty() || first.contains(':') {
            return None;
        }
        let folder = asked.path().rsplit_once('/')?.0;
        format!("{folder}/{location}")
    };
    let to: Uri = path.parse().ok()?;
    let dots = |path: &str| path.split('/').any(|part| matches!(part, "." | ".."));
    (to.authority().is_none() && !dots(to.path())).then_some(to)
}

fn same_server(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| {
        let usual = if uri.scheme() == Some(&Scheme::HTTPS) {
            443
        } else {
            80
        };
        uri.port_u16().unwrap_or(usual)
    };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    let no_user = |uri: &Uri| uri.authority().is_some_and(|a| !a.as_str().contains('@'));
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b) && no_user(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn to(location: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_str(location).unwrap());
        let server = Target::page("http://Engine:30002/a/metrics").unwrap();
        let asked: Uri = server.path.parse().unwrap();
        let status = StatusCode::TEMPORARY_REDIRECT;
        on_same_server(status, &headers, &asked, &server).map(|uri| uri.to_string())
    }

    #[test]
    fn every_form_of_a_place_on_the_same_server_is_understood() {
        for (location, wanted) in [
            ("/a/metrics/", "/a/metrics/"),
            ("/other?x=1#part", "/other?x=1"),
            ("http://engine:30002/a/metrics/", "/a/metrics/"),
            ("HTTP://ENGINE:30002/a/metrics/?x=1", "/a/metrics/?x=1"),
            ("//engine:30002/a/metrics/", "/a/metrics/"),
            ("metrics/", "/a/metrics/"),
        ] {
            assert_eq!(to(location).as_deref(), Some(wanted), "{location}");
        }
    }

    #[test]
    fn an_address_of_a_name_is_called_by_the_name() {
        let mut headers = HeaderMap::new();
        let there = HeaderValue::from_static("https://engine.svc/metrics/");
        headers.insert(LOCATION, there);
        let server = Target {
            host: "10.0.0.7".into(),
            server_name: Some("engine.svc".into()),
            ..Target::page("https://engine.svc").unwrap()
        };
        let asked = Uri::from_static("/metrics");
        let status = StatusCode::TEMPORARY_REDIRECT;
        let to = on_same_server(status, &headers, &asked, &server);
        assert_eq!(to, Some(Uri::from_static("/metrics/")));
    }

    #[test]
    fn nothing_else_is_followed() {
        for location in [
            "http://engine/a/metrics/",
            "http://engine:30003/a/metrics/",
            "https://engine:30002/a/metrics/",
            "http://engine.evil:30002/a/metrics/",
            "http://other@engine:30002/a/metrics/",
            "//evil:30002/a/metrics/",
            "///evil/metrics",
            "mailto:me",
            "../metrics",
            "/a/../../metrics",
            "?x=1",
            "",
            "#part",
            // Itself.
            "/a/metrics",
            "http://engine:30002/a/metrics",
        ] {
            assert_eq!(to(location), None, "{location}");
        }
    }

    #[test]
    fn only_a_redirect_is_one() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_static("/b"));
        let server = Target::page("http://h:1/a").unwrap();
        let asked = Uri::from_static("/a");
        let follows = |status| {
            let status = StatusCode::from_u16(status).unwrap();
            on_same_server(status, &headers, &asked, &server).is_some()
        };
        for status in [301, 302, 307, 308] {
            assert!(follows(status), "{status}");
        }
        for status in [200, 201, 300, 303, 304, 404] {
            assert!(!follows(status), "{status}");
        }
        let headers = HeaderMap::new();
        let status = StatusCode::FOUND;
        assert_eq!(on_same_server(status, &headers, &asked, &server), None);
    }
}
