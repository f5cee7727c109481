//! The process's limit of open descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Client connections at most, whatever the descriptors allow.
const MOST_CONNECTIONS: usize = 65_536;

/// Descriptors that are not for clients: listeners, sources, standard streams, the runtime's own.
const RESERVE: u64 = 64;

/// Raises the soft limit of open descriptors to the hard one, as servers do.
/// Where that is refused the old limit stands.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        );
    }
}

/// How many client connections the descriptor limit leaves room for: each may need a second
/// descriptor for its connection to the router. At least 16, at most 65,536.
#[must_use]
pub fn connection_limit() -> usize {
    match getrlimit(Resource::Nofile).current {
        Some(n) => usize::try_from(n.saturating_sub(RESERVE) / 2)
            .unwrap_or(MOST_CONNECTIONS)
            .clamp(16, MOST_CONNECTIONS),
        None => MOST_CONNECTIONS,
    }
}
