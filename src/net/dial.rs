//! From a host to a connected socket.

use super::resolve;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
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
    /// Nobody has said in time what the name resolves to.
    #[error("the name {host:?} has not been resolved within {after:?}")]
    Unresolved {
        /// The name asked for.
        host: String,
        /// How long it has been looked up.
        after: Duration,
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

impl DialError {
    /// Whether it is for want of a descriptor: this process's limit, or the system's.
    #[must_use]
    pub fn is_out_of_descriptors(&self) -> bool {
        match self {
            DialError::Resolve { source, .. } | DialError::Connect { source, .. } => {
                out_of_descriptors(source)
            }
            DialError::Unresolved { .. } | DialError::Timeout { .. } => false,
        }
    }
}

/// Whether what failed did so for want of a descriptor (EMFILE, ENFILE).
#[must_use]
pub fn out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| {
        [Errno::MFILE, Errno::NFILE]
            .iter()
            .any(|e| e.raw_os_error() == code)
    })
}

/// Resolves `host` and connects to the first of its addresses that answers.
///
/// The limit is for all of it: the name, of which a tenth is left so that it is told from whatever else
/// ends with the same limit, and every address tried.
///
/// # Errors
/// [`DialError`], which says who failed and what was seen.
pub async fn dial(host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
    let start = Instant::now();
    let addresses = resolve(host, port, limit - limit / 10).await?;
    let left = limit.saturating_sub(start.elapsed());
    timeout(left, connect(host, &addresses))
        .await
        .unwrap_or_else(|_| {
            Err(DialError::Timeout {
                host: host.to_owned(),
                port,
                after: limit,
            })
        })
}

async fn connect(host: &str, addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
    let mut last = DialError::Resolve {
        host: host.to_owned(),
        source: io::ErrorKind::NotFound.into(),
    };
    for &addr in addresses {
        match TcpStream::connect(addr).await {
            Ok(stream) => {
                super::prepare(&stream);
                return Ok(stream);
            }
            Err(source) => last = DialError::Connect { addr, source },
        }
    }
    Err(last)
}
