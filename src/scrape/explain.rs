//! Failures in words: who failed, what was seen, what to do.

use super::fetch::Failed;
use crate::config::Target;
use crate::net::DialError;
use http::StatusCode;

/// One line for the diagnostics, `/sources` and `doctor`.
pub(super) fn explain(name: &str, url: &Target, failed: &Failed) -> String {
    let path = &url.path;
    let at = url.authority();
    match failed {
        Failed::Dial(DialError::Resolve { host, source }) => {
            format!("{name}: the name {host:?} does not resolve ({source}): check the source's url")
        }
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
                "{name} reset the connection at {path} ({what}): check that the server runs; see its own log"
            )
        }
        Failed::Broken(what) => {
            format!("{name} broke off its answer at {path} ({what}): see the server's own log")
        }
        Failed::Status(StatusCode::NOT_FOUND, _) if path.ends_with("/v1/loads") => {
            format!(
                "{name} answered 404 at {path}: only newer SGLang has it (0.5.23 does); set the source's kind to \"metrics\""
            )
        }
        Failed::NotLoads(why) => {
            format!(
                "{name} answered at {path} no loads of SGLang's that can be used ({why}): set the source's kind to \"metrics\""
            )
        }
        Failed::Status(StatusCode::NOT_FOUND, _)
            if !path.trim_end_matches('/').ends_with("/metrics") =>
        {
            format!(
                "{name} answered 404 at {path}, so there is no metrics page: correct the source's url, or switch the server's metrics on"
            )
        }
        Failed::Status(StatusCode::NOT_FOUND, _) => {
            format!(
                "{name} answered 404 at {path}: metrics are off: start the server with --enable-metrics (SGLang), or correct the source's url if they are elsewhere"
            )
        }
        Failed::Status(status, Some(location)) if status.is_redirection() => {
            format!(
                "{name} answered {} at {path} with a redirect to {location}: set the source's url to that address",
                status.as_u16()
            )
        }
        Failed::Moved(to, there) => match &**there {
            Failed::Status(status, Some(location)) if status.is_redirection() => {
                format!(
                    "{name} redirects from {path} to {}, and from there to {location}: set the source's url to where its page is",
                    to.path()
                )
            }
            there => {
                let name = format!("{name} (redirected from {path} to {})", to.path());
                let url = Target {
                    path: to.path().into(),
                    ..url.clone()
                };
                explain(&name, &url, there)
            }
        },
        Failed::Denied(status, advice) => {
            format!("{name} answered {} at {path}: {advice}", status.as_u16())
        }
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
        Failed::NotMetrics("JSON") => {
            format!(
                "{name} answered JSON at {path}, not a Prometheus page: correct the source's url (TensorRT-LLM's page is at /prometheus/metrics)"
            )
        }
        Failed::NotMetrics(what) => {
            format!(
                "{name} answered {what} at {path}, not a Prometheus page: correct the source's url"
            )
        }
    }
}
