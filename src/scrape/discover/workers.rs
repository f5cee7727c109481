//! The router's own list of its workers, `GET /workers`, as sglang-router 0.3.2 writes it: url,
//! `worker_type` (`regular`, `prefill`, `decode`) and more. A worker that the router takes for unhealthy
//! stays a source: its own page says how it is.

use super::{Found, Looked, Own, Problem, json_error, shown};
use crate::config::{Scrape, Target};
use crate::kv::Role;
use crate::net::Trust;
use crate::scrape::explain::{Keys, explain};
use crate::scrape::fetch::{Failed, Fetcher};
use http::StatusCode;
use serde::Deserialize;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of the list: a worker has less than one KiB.
const MOST_BYTES: usize = 4 << 20;

/// Unhealthy workers that are named.
const MOST_NAMED: usize = 16;

/// What messages call the router.
const NAME: &str = "the router (discovery.workers)";

/// What holds on while there is no other.
const LIST: &str = "its last list";

/// See the [module](self) description.
pub(in crate::scrape) struct Workers {
    fetcher: Fetcher,
    url: Target,
    /// Whether there has been a list, which holds on.
    good: bool,
}

#[derive(Deserialize)]
struct Listing {
    workers: Vec<Worker>,
}

#[derive(Deserialize)]
struct Worker {
    url: String,
    worker_type: Option<String>,
    is_healthy: Option<bool>,
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(
        router: &Target,
        scrape: &Scrape,
        token: Option<&Arc<Path>>,
        trust: Rc<Trust>,
    ) -> Workers {
        let url = Target {
            path: Arc::from("/workers"),
            ..router.clone()
        };
        let scrape = Scrape {
            max_page_bytes: MOST_BYTES,
            ..scrape.clone()
        };
        Workers {
            fetcher: Fetcher::json(&url, &scrape)
                .with_token(token)
                .with_trust(trust),
            url,
            good: false,
        }
    }

    pub(super) async fn look(&mut self) -> Looked {
        let mut looked = self.ask().await;
        self.good |= looked.found.is_some();
        if let Some(problem) = looked.problem.as_mut().filter(|_| !self.good) {
            problem.holds = None;
        }
        looked
    }

    async fn ask(&mut self) -> Looked {
        match self.fetcher.fetch().await {
            Ok(text) => read(&text),
            Err(failed) => Looked {
                found: None,
                unhealthy: Vec::new(),
                problem: Some(Problem::new(self.explain(&failed)).while_holds(LIST)),
            },
        }
    }

    fn explain(&self, failed: &Failed) -> String {
        match failed {
            _ if failed.status() == Some(StatusCode::NOT_FOUND) => format!(
                "{NAME} answered 404 at {}: only sglang-router has this list; name its API port, not that of its metrics",
                self.url
            ),
            Failed::TooLarge { seen, .. } => {
                format!("{NAME}'s list at {} {seen}: is it that router?", self.url)
            }
            failed => explain(NAME, &self.url, failed, &Keys::WORKERS),
        }
    }
}

/// The pages of the workers on the list.
fn read(text: &[u8]) -> Looked {
    let listing: Listing = match serde_json::from_slice(text) {
        Ok(listing) => listing,
        Err(error) => {
            return Looked {
                found: None,
                unhealthy: Vec::new(),
                problem: Some(
                    Problem::new(format!(
                        "{NAME} answered at /workers with no list of workers ({}): name sglang-router's API port",
                        json_error(&error)
                    ))
                    .while_holds(LIST),
                ),
            };
        }
    };
    let mut found = Vec::new();
    let mut unhealthy = Vec::new();
    let mut problem = None;
    for worker in &listing.workers {
        // Of a worker with data-parallel ranks that are balanced one by one, `@` and the rank.
        let url = match worker.url.rsplit_once('@') {
            Some((url, rank)) if rank.bytes().all(|b| b.is_ascii_digit()) => url,
            _ => &worker.url,
        };
        let role = match worker.worker_type.as_deref() {
            Some("decode") => Some(Role::Decode),
            Some("prefill") => Some(Role::Prefill),
            Some("regular") => Some(Role::Unified),
            _ => None,
        };
        match Target::page(url) {
            Ok(url) => {
                if worker.is_healthy == Some(false) && unhealthy.len() < MOST_NAMED {
                    unhealthy.push(url.authority().into());
                }
                found.push(Found {
                    url,
                    role,
                    own: Own::default(),
                });
            }
            Err(why) => {
                problem.get_or_insert_with(|| {
                    let url = shown(url);
                    Problem::new(format!(
                        "{NAME} lists the worker \"{url}\", which {why}, so it is left out: name its metrics page in a [[source]] of its own, where it has one"
                    ))
                });
            }
        }
    }
    Looked {
        found: Some(found),
        unhealthy,
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_types_become_pages_and_roles() {
        let looked = read(
            br#"{"workers":[
                {"id":"a","url":"http://10.0.0.1:8000","worker_type":"prefill","is_healthy":true,"bootstrap_port":8998},
                {"id":"b","url":"http://10.0.0.2:8000/","worker_type":"decode","is_healthy":false,"metadata":{"tp_size":"4"}},
                {"id":"c","url":"http://10.0.0.3:8000@1","worker_type":"regular"},
                {"id":"d","url":"http://10.0.0.4:8000","worker_type":"encode"}
            ],"total":4,"stats":{}}"#,
        );
        assert_eq!(looked.problem, None);
        assert_eq!(looked.unhealthy, ["10.0.0.2:8000".into()]);
        let found: Vec<_> = looked.found.unwrap();
        let found: Vec<_> = found.iter().map(|f| (f.url.to_string(), f.role)).collect();
        assert_eq!(
            found,
            [
                (
                    "http://10.0.0.1:8000/metrics".to_owned(),
                    Some(Role::Prefill)
                ),
                (
                    "http://10.0.0.2:8000/metrics".to_owned(),
                    Some(Role::Decode)
                ),
                (
                    "http://10.0.0.3:8000/metrics".to_owned(),
                    Some(Role::Unified)
                ),
                ("http://10.0.0.4:8000/metrics".to_owned(), None),
            ]
        );
    }

    #[test]
    fn an_empty_list_is_a_list_and_anything_else_is_none() {
        let empty = read(br#"{"workers":[],"total":0}"#);
        assert_eq!((empty.found, empty.problem), (Some(Vec::new()), None));
        for text in ["", "[]", "{}", "<html>", r#"{"workers":[{"id":"a"}]}"#] {
            let looked = read(text.as_bytes());
            assert_eq!(looked.found, None, "{text}");
            assert!(looked.problem.is_some(), "{text}");
        }
    }

    #[test]
    fn a_worker_that_can_not_be_read_is_told_and_the_others_are_taken() {
        let looked = read(
            br#"{"workers":[
                {"url":"grpc://10.0.0.1:8000","worker_type":"decode"},
                {"url":"http://10.0.0.2:8000","worker_type":"decode"}
            ]}"#,
        );
        assert_eq!(looked.found.unwrap().len(), 1);
        let problem = looked.problem.unwrap().to_string();
        assert!(problem.contains("grpc://10.0.0.1:8000"), "{problem}");
        assert!(problem.contains("is not an http URL"), "{problem}");
    }
}
