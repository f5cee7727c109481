//! Failures in words: who failed, what was seen, what to do.

use super::fetch::Failed;
use crate::config::{Settings, Source, Target};
use crate::net::{DialError, TlsError};

/// The keys that a cure names, and what the settings say of the address.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) url: &'static str,
    pub(super) kind: &'static str,
    pub(super) bearer_file: &'static str,
    pub(super) ca_file: &'static str,
    /// Whether requests go to this host and port: it is the router's API, or that of an only engine.
    pub(super) upstream: bool,
}

impl Keys {
    /// Of a source that is set.
    pub(super) const SOURCE: Keys = Keys {
        url: "the source's url",
        kind: "the source's kind",
        bearer_file: "the source's bearer_file",
        ca_file: "the source's ca_file",
        upstream: false,
    };
    /// Of a source that was found.
    pub(super) const FOUND: Keys = Keys {
        url: "the list that names it",
        kind: "discovery.source.kind",
        bearer_file: "discovery.source.bearer_file",
        ca_file: "discovery.source.ca_file",
        upstream: false,
    };
    /// Of the router that has a list of sources.
    pub(super) const WORKERS: Keys = Keys {
        url: "discovery.workers",
        kind: "discovery.source.kind",
        bearer_file: "discovery.bearer_file",
        ca_file: "discovery.ca_file",
        upstream: false,
    };

    /// Of a source that is read.
    pub(super) fn of(source: &Source, settings: &Settings) -> Keys {
        let keys = if settings.sources.contains(source) {
            Keys::SOURCE
        } else {
            Keys::FOUND
        };
        Keys {
            upstream: source.url.same_server(&settings.upstream),
            ..keys
        }
    }
}

/// One line for the diagnostics, `/sources` and `doctor`.
pub(super) fn explain(name: &str, url: &Target, failed: &Failed, keys: &Keys) -> String {
    let (path, shown) = (&url.path, url.shown_path());
    let asked = path.split('?').next().unwrap_or_default();
    let path = &shown;
    let at = url.authority();
    let page = keys.url;
    match failed {
        Failed::Tls(error) => explain_tls(name, path, &at, error, keys),
        Failed::NeedsTls => format!(
            "{name} answered 400 at {at}, since it is to be spoken to in TLS: write https:// in {page}"
        ),
        Failed::NotHttp(what) => format!(
            "{name} answered at {at} with what is no HTTP ({what}): see that the port is right, and if it speaks TLS write https:// in {page}"
        ),
        Failed::Dial(error) if error.is_out_of_descriptors() => format!(
            "{name} can't be asked, as kvgauge has no file descriptor left ({error}): raise its limit of open files (ulimit -n)"
        ),
        Failed::Dial(DialError::Resolve { host, source }) => {
            format!("{name}: the name {host:?} does not resolve ({source}): check {page}")
        }
        Failed::Dial(error @ DialError::Unresolved { .. }) => format!(
            "{name}: {error}: see who resolves names on this machine, or write an address in {page}"
        ),
        refused if refused.is_refusal() => {
            format!(
                "{name} refused the connection at {at}: check that the server runs, and on that port"
            )
        }
        Failed::Dial(DialError::Connect { source, .. }) => {
            format!(
                "{name} can't be reached at {at} ({source}): check the address and the network between"
            )
        }
        Failed::Dial(DialError::Timeout { after, .. }) => {
            format!(
                "{name} accepted no connection at {at} within {after:?}: check the address and the network between"
            )
        }
        Failed::Timeout(after) => {
            format!(
                "{name} did not answer at {path} within {after:?}: the server may be busy or hung; raise scrape.timeout if it is only slow"
            )
        }
        Failed::Reset(what) => {
            format!(
                "{name} reset the connection at {path} ({what}): check that the server runs{}; see its own log",
                if url.tls {
                    ""
                } else {
                    ", and that it speaks plain HTTP there"
                }
            )
        }
        Failed::Broken(what) => {
            format!("{name} broke off its answer at {path} ({what}): see the server's own log")
        }
        Failed::NotThere {
            through_kvgauge: true,
            ..
        } => format!(
            "{name} answered 404 at {path}, through a kvgauge that passed the request on to its router: name that kvgauge's operators' listener instead (admin.listen), or an engine's own page"
        ),
        Failed::NotThere { .. } if asked.ends_with("/v1/loads") => {
            format!(
                "{name} answered 404 at {path}: only newer SGLang has it (0.5.23 does); set {} to \"metrics\"",
                keys.kind
            )
        }
        Failed::Neither {
            loads,
            page: there,
            path,
        } => {
            let loads = explain(name, url, loads, keys);
            let cause = loads.rsplit_once(": ").map_or(&*loads, |(cause, _)| cause);
            let url = Target {
                path: path.clone(),
                ..url.clone()
            };
            format!("{cause}, and {}", explain(name, &url, there, keys))
        }
        Failed::NotLoads(why) => {
            format!(
                "{name} answered at {path} no loads of SGLang's that can be used ({why}): set {} to \"metrics\"",
                keys.kind
            )
        }
        Failed::NotThere { empty: true, .. } if keys.upstream => format!(
            "{name} answered 404 at {path}, as this is the API of the router (upstream), and KV gauges live on the decode server: set {page} to that server's own page"
        ),
        Failed::NotThere { .. } if keys.upstream => format!(
            "{name} answered 404 at {path}, at the address of upstream: if that is a router, KV gauges live on the decode server, so set {page} to that server's own page; if it is the engine itself, start it with --enable-metrics (SGLang)"
        ),
        Failed::NotThere { .. } if !asked.trim_end_matches('/').ends_with("/metrics") => {
            format!(
                "{name} answered 404 at {path}, so there is no metrics page: correct {page}, or switch the server's metrics on"
            )
        }
        Failed::NotThere { empty, .. } => {
            let router = if *empty {
                "; the API of sglang-router answers like this too, and KV gauges live on the decode server"
            } else {
                ""
            };
            format!(
                "{name} answered 404 at {path}: metrics are off: start the server with --enable-metrics (SGLang), or correct {page} if they are elsewhere{router}"
            )
        }
        Failed::Status(status, Some(location)) if status.is_redirection() => {
            format!(
                "{name} answered {} at {path} with a redirect to {location}: set {page} to that address",
                status.as_u16()
            )
        }
        Failed::Moved(to, there) => match &**there {
            Failed::Status(status, Some(location)) if status.is_redirection() => {
                format!(
                    "{name} redirects from {path} to {}, and from there to {location}: set {page} to where its page is",
                    to.path()
                )
            }
            there => {
                let name = format!("{name} (redirected from {path} to {})", to.path());
                let url = Target {
                    path: to.path().into(),
                    ..url.clone()
                };
                explain(&name, &url, there, keys)
            }
        },
        Failed::Denied(status, Some(advice)) => {
            format!("{name} answered {} at {path}: {advice}", status.as_u16())
        }
        Failed::Denied(status, None) => format!(
            "{name} answered {} at {path}: it asks for credentials; name a file with its token in {}",
            status.as_u16(),
            keys.bearer_file
        ),
        Failed::Status(status, _) => {
            format!(
                "{name} answered {} at {path}: see the server's own log",
                status.as_u16()
            )
        }
        Failed::TooLarge { seen, key } => {
            format!(
                "{name}'s page at {path} {seen}, so nothing of it is taken: raise {key} if that is right"
            )
        }
        Failed::Encoded(coding) => {
            format!(
                "{name} answered at {path} with Content-Encoding {coding}, which kvgauge had not asked for: switch compression of that page off in the server, or in the proxy before it"
            )
        }
        Failed::Ours => format!(
            "{name} answered at {path} with a kvgauge's own page, which repeats those of others: name the engine's own page in {page}"
        ),
        Failed::NotEvents => {
            format!("{name} answered at {path} with no stream of events: check {page}")
        }
        Failed::NotMetrics("JSON") => {
            format!(
                "{name} answered JSON at {path}, not a Prometheus page: correct {page} (TensorRT-LLM's page is at /prometheus/metrics)"
            )
        }
        Failed::NotMetrics(what) => {
            format!("{name} answered {what} at {path}, not a Prometheus page: correct {page}")
        }
    }
}

/// Why there is no TLS.
fn explain_tls(name: &str, path: &str, at: &str, error: &TlsError, keys: &Keys) -> String {
    let Keys { url, ca_file, .. } = keys;
    match error {
        TlsError::NoCas {
            file: Some(file),
            problem,
        } => format!(
            "{name} can't be trusted at {at}, as its ca_file {} {problem}: correct {ca_file}",
            file.display()
        ),
        TlsError::NoCas {
            file: None,
            problem,
        } => format!(
            "{name} can't be trusted at {at}, as this machine's store of CA certificates {problem}: name its CA in {ca_file}, or install the system's (Debian: ca-certificates)"
        ),
        TlsError::Untrusted {
            file: Some(file),
            problem,
        } => {
            let file = file.display();
            let (now, at_fault) = match problem {
                Some(problem) => (format!(", which now {problem}"), "see to that file, and"),
                None => (
                    String::new(),
                    "put the CA that signed it into that file, or",
                ),
            };
            format!(
                "{name} has a certificate at {at} that is of no CA in its ca_file {file}{now}: {at_fault} see who answers there"
            )
        }
        TlsError::Untrusted { file: None, .. } => format!(
            "{name} has a certificate at {at} that is of no CA which this machine trusts: name its CA in {ca_file}, or in SSL_CERT_FILE"
        ),
        TlsError::NotNow(says) => format!(
            "{name}'s certificate at {at} {says}: renew it, or set the clock of this machine if that is wrong"
        ),
        TlsError::WrongName {
            expected,
            presented,
        } => {
            let whom = match presented.join(", ") {
                none if none.is_empty() => {
                    "it names nobody (only subjectAltName counts)".to_owned()
                }
                names => format!("it is for {names}"),
            };
            format!(
                "{name}'s certificate at {at} is not for {expected}, {whom}: write a name that it is for in {url}, or have one made for this name"
            )
        }
        TlsError::Certificate(why) => format!(
            "{name}'s certificate at {at} can't be taken ({why}): have another one made, see the server's own settings"
        ),
        TlsError::NotTls => format!("{name} speaks no TLS at {at}: write http:// in {url}"),
        TlsError::Ended => format!(
            "{name} ended the connection at {at} in the TLS handshake: see that this port speaks TLS (if not, write http:// in {url}), and the server's own log"
        ),
        TlsError::WantsCertificate => format!(
            "{name} asks at {at} for a client certificate, and kvgauge has none: have the server show {path} without one"
        ),
        TlsError::Refused(why) => format!(
            "{name} and kvgauge have no TLS in common at {at} ({why}): kvgauge speaks TLS 1.2 and 1.3, and HTTP/1.1 in it; see the server's own log"
        ),
        TlsError::Timeout(after) => format!(
            "{name} did not finish the TLS handshake at {at} within {after:?}: the server may be busy or hung, or speak no TLS there; raise scrape.timeout if it is only slow"
        ),
        TlsError::Other(why) => {
            format!("{name} can't be spoken to in TLS at {at} ({why}): see the server's own log")
        }
    }
}
