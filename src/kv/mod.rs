//! The vocabulary: roles, pools, readings, the snapshot and its handle. Uses no other room.
//!
//! Unknown is never a number: a value that is not known is `None`, and where the *reason* matters
//! it is an [`Unknown`].

mod reading;
mod role_state;
mod roles;
mod snapshot;

pub use reading::{Pool, PoolKind, Queues, Reading, Unmapped, Usage};
pub use role_state::RoleState;
pub use roles::Roles;
pub use snapshot::{Failure, FailureReason, Handle, LeftOut, Problem, Snapshot, SourceState};

use std::fmt;
use std::str::FromStr;

/// What a source's engine does. A router has no role.
///
/// The order is the order of members in `X-KV-Pools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Generates tokens from KV that a prefill server sent (prefill/decode disaggregation).
    Decode,
    /// Computes the KV of prompts and hands it to a decode server.
    Prefill,
    /// Does both.
    Unified,
}

impl Role {
    /// Every role, in order.
    pub const ALL: [Role; 3] = [Role::Decode, Role::Prefill, Role::Unified];

    /// The name used in headers, labels, logs and settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Decode => "decode",
            Role::Prefill => "prefill",
            Role::Unified => "unified",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        Role::ALL.into_iter().find(|r| r.as_str() == s).ok_or(())
    }
}

/// Why there is no trustworthy value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// The source has not been read yet.
    NotRead,
    /// The source refused, reset or could not be reached.
    Unreachable,
    /// The last good reading is older than `scrape.max_age`.
    Stale,
    /// The page is good but holds no KV gauges (a fresh engine, or an engine not recognised).
    Absent,
    /// The gauge holds a value that can't be one (NaN, negative, far over 1).
    Invalid,
    /// The publisher has not rendered for too long, so nothing it said may be used.
    Stalled,
}

impl Unknown {
    /// The token used in headers, logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Unknown::NotRead => "not_read",
            Unknown::Unreachable => "unreachable",
            Unknown::Stale => "stale",
            Unknown::Absent => "absent",
            Unknown::Invalid => "invalid",
            Unknown::Stalled => "stalled",
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
