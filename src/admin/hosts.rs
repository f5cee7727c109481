//! By which names the operators' listener is asked, where it is for this machine alone: a page of somebody
//! else's, whose name has been made to lead here (DNS rebinding), could otherwise read it with the browser
//! of who works at this machine. To the browser that is the page's own server; only `Host` tells.
//!
//! No such page has an address or `localhost` for a name, or one without a dot, which nobody can register.
//! Where the listener can be reached from elsewhere, it is asked by names that kvgauge can't know (Services,
//! proxies), and nothing is refused; nor where a token is asked for, which such a page does not have.

use super::{Answer, text};
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
use std::net::{IpAddr, SocketAddr};

/// Where the kernel says what this machine is called.
const OWN_NAME: &str = "/proc/sys/kernel/hostname";

/// See the [module](self) description.
pub(super) struct Hosts {
    /// Nobody from elsewhere reaches the listener.
    here_alone: bool,
    own: String,
}

// === impl Hosts ===

impl Hosts {
    /// Of a listener at this address.
    pub(super) fn of(listener: SocketAddr) -> Hosts {
        let own = std::fs::read_to_string(OWN_NAME).unwrap_or_default();
        Hosts {
            here_alone: listener.ip().to_canonical().is_loopback(),
            own: own.trim().to_ascii_lowercase(),
        }
    }

    /// The answer to who asks by a name that is nobody's here.
    pub(super) fn refusal(&self, target: &Uri, headers: &HeaderMap) -> Option<Answer> {
        if !self.here_alone {
            return None;
        }
        let said = headers.get_all(HOST).iter();
        let strange = said.map(|host| host.to_str().ok()).any(|host| {
            // What can't be read is no name of ours.
            host.is_none_or(|host| !self.is_ours(host))
        });
        let elsewhere = |target: &Authority| !self.is_ours(target.as_str());
        (strange || target.authority().is_some_and(elsewhere)).then(|| {
            text(
                StatusCode::FORBIDDEN,
                "this listener is for its own machine, and Host is neither an address nor a name of that: \
                 ask by 127.0.0.1 or localhost, or have the proxy before it send Host: localhost; with \
                 admin.bearer_file set any name will do\n",
            )
        })
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        !name.contains('.')
            || name.ends_with(".localhost")
            || name == self.own
            || address.parse::<IpAddr>().is_ok()
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn refused(listener: &str, target: &str, hosts: &[&'static str]) -> bool {
        let mut fields = HeaderMap::new();
        for host in hosts {
            fields.append(HOST, HeaderValue::from_static(host));
        }
        let hosts = Hosts {
            own: "node-1.cluster.test".to_owned(),
            ..Hosts::of(listener.parse().unwrap())
        };
        let target = target.parse().unwrap();
        hosts.refusal(&target, &fields).is_some()
    }

    #[test]
    fn a_listener_for_its_machine_is_asked_by_its_names() {
        for (host, foreign) in [
            ("127.0.0.1:30090", false),
            ("10.0.0.7", false),
            ("[::1]:30090", false),
            ("[::1]", false),
            ("localhost:30090", false),
            ("LOCALHOST.", false),
            ("kvgauge.localhost:1", false),
            ("k", false),
            ("router:30090", false),
            ("Node-1.cluster.test:30090", false),
            ("", false),
            ("evil.com", true),
            ("evil.com.:30090", true),
            ("127.0.0.1.evil.com:30090", true),
            ("localhost.evil.com", true),
            ("evil.com:30090:1", true),
            ("xlocalhost.com", true),
            ("1.2.3.4.5", true),
        ] {
            for listener in ["127.0.0.1:30090", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
                assert_eq!(refused(listener, "/kv", &[host]), foreign, "{host}");
            }
            for listener in ["0.0.0.0:30090", "[::]:30090", "10.0.0.7:30090"] {
                assert!(!refused(listener, "/kv", &[host]), "{host}");
            }
        }
        let here = "127.0.0.1:30090";
        // HTTP/1.0.
        assert!(!refused(here, "/kv", &[]));
        assert!(refused(here, "/kv", &["localhost", "evil.com"]));
        assert!(refused(here, "http://evil.com/kv", &["localhost"]));
        assert!(!refused(here, "http://localhost/kv", &["localhost"]));
    }
}
