//! From a host name to its addresses, by the system's resolver, which may block for minutes.
//!
//! Of each name one look-up runs at a time on behalf of one thread: whoever asks meanwhile shares it,
//! and once it has taken longer than somebody would wait, whoever asks fails at once. So a resolver that
//! hangs costs a thread for each name, and names that it does answer nothing. The data path's threads
//! have their own look-ups, which those of the metrics plane can't use up.

use super::DialError;
use super::aside::aside;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// A name with more addresses is cut short.
const MOST_ADDRESSES: usize = 4096;

/// Look-ups at a time for one thread, each of which costs a thread. Names beyond fail meanwhile.
const MOST: usize = 512;

thread_local! {
    static RUNNING: RefCell<HashMap<Arc<str>, Lookup>> = RefCell::default();
}

/// One that runs.
struct Lookup {
    /// Somebody has waited for it in vain, first for so long.
    overdue: Option<Duration>,
    answer: watch::Receiver<Option<Answer>>,
}

/// The addresses, or what the resolver said.
type Answer = Result<Arc<[IpAddr]>, Arc<io::Error>>;

/// Every address of `host`, with `port`, within `limit`; there is at least one. An address is its own,
/// and nobody is asked.
///
/// # Errors
/// [`DialError::Resolve`] where the name has none, [`DialError::Unresolved`] where that took too long.
pub async fn resolve(host: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let mut answer = begun(host)?;
    let answer = match timeout(limit, answer.wait_for(Option::is_some)).await {
        Ok(Ok(answer)) => answer.clone(),
        // Its thread has panicked.
        Ok(Err(_)) => None,
        Err(_) => {
            give_up(host, limit);
            return Err(DialError::Unresolved {
                host: host.to_owned(),
                after: limit,
            });
        }
    };
    let failed = |source: io::Error| DialError::Resolve {
        host: host.to_owned(),
        source,
    };
    match answer {
        Some(Ok(ips)) if ips.is_empty() => Err(failed(io::ErrorKind::NotFound.into())),
        Some(Ok(ips)) => Ok(ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect()),
        Some(Err(error)) => Err(failed(io::Error::new(error.kind(), error))),
        None => Err(failed(io::Error::other("the look-up broke off"))),
    }
}

/// The addresses of a name, for whoever has time: however long that takes, nobody who has a limit is
/// told that it is too long. `None` where there are none, or nobody says.
pub(super) async fn addresses(host: &str) -> Option<Arc<[IpAddr]>> {
    let mut answer = begun(host).ok()?;
    let answer = answer.wait_for(Option::is_some).await.ok()?.clone();
    answer?.ok().filter(|ips| !ips.is_empty())
}

/// The look-up of this name that runs, or a new one.
fn begun(host: &str) -> Result<watch::Receiver<Option<Answer>>, DialError> {
    RUNNING.with_borrow_mut(|running| {
        running.retain(|_, lookup| lookup.runs());
        if let Some(lookup) = running.get(host) {
            if let Some(after) = lookup.overdue {
                let host = host.to_owned();
                return Err(DialError::Unresolved { host, after });
            }
            return Ok(lookup.answer.clone());
        }
        let failed = |source| DialError::Resolve {
            host: host.to_owned(),
            source,
        };
        if running.len() >= MOST {
            let why = format!("{MOST} other names are being looked up and none is answered");
            return Err(failed(io::Error::other(why)));
        }
        let name: Arc<str> = host.into();
        let (tell, answer) = watch::channel(None);
        let asked = Arc::clone(&name);
        aside("lookup", move || {
            let _ = tell.send(Some(ask(&asked)));
        })
        .map_err(failed)?;
        running.insert(
            name,
            Lookup {
                overdue: None,
                answer: answer.clone(),
            },
        );
        Ok(answer)
    })
}

/// Nobody is to wait for this one any more.
fn give_up(host: &str, after: Duration) {
    RUNNING.with_borrow_mut(|running| {
        if let Some(lookup) = running.get_mut(host) {
            lookup.overdue.get_or_insert(after);
        }
    });
}

fn ask(host: &str) -> Answer {
    #[allow(
        clippy::disallowed_methods,
        reason = "this is where names are resolved"
    )]
    let found = (host, 0).to_socket_addrs().map_err(Arc::new)?;
    Ok(found.take(MOST_ADDRESSES).map(|addr| addr.ip()).collect())
}

// === impl Lookup ===

impl Lookup {
    fn runs(&self) -> bool {
        self.answer.has_changed().is_ok() && self.answer.borrow().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn an_address_is_its_own_and_nobody_is_asked() {
        for (host, wanted) in [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")] {
            // No time is needed.
            let found = resolve(host, 7, Duration::ZERO).await.unwrap();
            assert_eq!(found, [wanted.parse().unwrap()]);
        }
        assert!(RUNNING.with_borrow(HashMap::is_empty));
    }

    #[tokio::test]
    async fn whoever_asks_for_the_same_name_shares_the_look_up() {
        let both = tokio::join!(
            resolve("localhost", 7, LIMIT),
            resolve("localhost", 8, LIMIT)
        );
        assert!(both.0.unwrap().iter().all(|addr| addr.port() == 7));
        assert!(both.1.unwrap().iter().all(|addr| addr.port() == 8));
        assert_eq!(RUNNING.with_borrow(HashMap::len), 1);
    }

    #[tokio::test]
    async fn a_look_up_that_hangs_is_waited_for_once() {
        let (hangs, answer) = watch::channel(None);
        let lookup = Lookup {
            overdue: None,
            answer,
        };
        RUNNING.with_borrow_mut(|running| running.insert("h".into(), lookup));
        let limit = Duration::from_millis(10);
        for next in [limit, LIMIT] {
            let error = resolve("h", 7, next).await.unwrap_err().to_string();
            let wanted = "the name \"h\" has not been resolved within 10ms";
            assert_eq!(error, wanted);
        }
        // It is over, and the name is looked up anew.
        drop(hangs);
        RUNNING.with_borrow_mut(|running| running.retain(|_, lookup| lookup.runs()));
        assert!(RUNNING.with_borrow(HashMap::is_empty));
    }
}
