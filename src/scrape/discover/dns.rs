//! DNS names: every address that a name has (A and AAAA) is a source, which is asked for by the name:
//! in the `Host` field, and as the one that its certificate must be for.

use super::{Found, Looked, Own, Problem};
use crate::config::{DnsName, Target};
use crate::net::{self, DialError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// See the [module](self) description.
pub(in crate::scrape) struct Dns {
    names: Vec<Known>,
    limit: Duration,
}

struct Known {
    name: DnsName,
    /// What it came to when it was last resolved, if it ever was.
    found: Option<Vec<Found>>,
}

// === impl Dns ===

impl Dns {
    pub(super) fn new(names: &[DnsName], limit: Duration) -> Dns {
        let known = |name: &DnsName| Known {
            name: name.clone(),
            found: None,
        };
        Dns {
            names: names.iter().map(known).collect(),
            limit,
        }
    }

    fn ask(&self, known: &Known) -> JoinHandle<Result<Vec<SocketAddr>, DialError>> {
        let (page, limit) = (known.name.url.clone(), self.limit);
        tokio::task::spawn_local(async move { net::resolve(&page.host, page.port, limit).await })
    }

    pub(super) async fn look(&mut self) -> Looked {
        let mut problem = None;
        // Side by side: a name that nobody resolves must not keep the others waiting.
        let asked: Vec<_> = self.names.iter().map(|known| self.ask(known)).collect();
        for (known, asked) in self.names.iter_mut().zip(asked) {
            let page = &known.name.url;
            let Ok(answer) = asked.await else {
                continue;
            };
            match answer {
                Ok(addresses) => {
                    let mut found: Vec<Found> = Vec::new();
                    for address in addresses {
                        let host: Arc<str> = address.ip().to_canonical().to_string().into();
                        let url = Target {
                            server_name: (host != page.host).then(|| Arc::clone(&page.host)),
                            host,
                            ..page.clone()
                        };
                        found.push(Found {
                            url,
                            role: known.name.role,
                            own: Own::default(),
                        });
                    }
                    known.found = Some(found);
                }
                Err(error) => {
                    let words = format!(
                        "{error} (discovery.dns): check the name, and who resolves it here"
                    );
                    let of_name = Problem::new(words);
                    problem.get_or_insert(match known.found {
                        Some(_) => of_name.while_holds("what it came to before"),
                        None => of_name,
                    });
                }
            }
        }
        let lists = self.names.iter().flat_map(|known| &known.found);
        let all = lists.flat_map(Clone::clone);
        Looked {
            unhealthy: Vec::new(),
            found: Some(all.collect()),
            problem,
        }
    }
}
