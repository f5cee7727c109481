//! From a host name to a connected socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name does not resolve.
    #[error("the name {host:?} does not resolve: {source}")]
    Resolve {
        /// The name asked for.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Every address refused or failed; this is the last one's error.
    #[error("connecting to {addr} failed: {source}")]
    Connect {
        /// The address tried last.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No address answered in time.
    #[error("no connection to {host}:{port} within {after:?}")]
    Timeout {
        /// The host asked for.
        host: String,
        /// The port asked for.
        port: u16,
        /// The limit.
        after: Duration,
    },
}

/// Resolves `host` and connects to the first of its addresses that answers.
///
/// The limit is for all of it: the name, and every address tried.
///
/// # Errors
/// [`DialError`], which says who failed and what was seen.
pub async fn dial(host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
    timeout(limit, connect(host, port))
        .await
        .unwrap_or_else(|_| {
            Err(DialError::Timeout {
                host: host.to_owned(),
                port,
                after: limit,
            })
        })
}

/// Every address of `host`, with `port`, within `limit`; there is at least one.
///
/// # Errors
/// [`DialError::Resolve`] where the name has none, or the look-up took too long.
pub async fn resolve(host: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>, DialError> {
    /// A name with more is cut short.
    const MOST: usize = 4096;
    let unresolved = |source| DialError::Resolve {
        host: host.to_owned(),
        source,
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "this is where names are resolved"
    )]
    let asked = tokio::net::lookup_host((host, port));
    let found = match timeout(limit, asked).await {
        Ok(found) => found.map_err(unresolved)?,
        Err(_) => return Err(unresolved(io::ErrorKind::TimedOut.into())),
    };
    let found: Vec<SocketAddr> = found.take(MOST).collect();
    if found.is_empty() {
        return Err(unresolved(io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let unresolved = |source| DialError::Resolve {
        host: host.to_owned(),
        source,
    };
    let mut last = None;
    #[allow(
        clippy::disallowed_methods,
        reason = "this is where names are resolved"
    )]
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(unresolved)?;
    for addr in addresses {
        match TcpStream::connect(addr).await {
            Ok(stream) => {
                super::prepare(&stream);
                return Ok(stream);
            }
            Err(source) => last = Some(DialError::Connect { addr, source }),
        }
    }
    Err(last.unwrap_or_else(|| unresolved(io::ErrorKind::NotFound.into())))
}
