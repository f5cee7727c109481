//! From snapshot to stamp: one renderer file for each header and one for the log; and what is kept of the
//! past.

mod chronicle;
mod history;
mod incidents;
mod log;
mod pools;
mod publisher;
mod stamp;
mod usage;

pub use chronicle::{Chronicle, Chronicler, Now, Past};
pub use history::{History, MOST_ROLES, MOST_STEPS, RoleHistory, STEP};
pub use incidents::{Incidents, MOST_MESSAGES, Mark, Message};
pub use publisher::Publisher;
pub use stamp::{LoadStamp, OwnStamps, Stamp, Stamps};

use std::fmt::Write as _;
use std::time::Duration;

/// An age as headers, log and JSON show it.
pub(crate) fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// Appends a fraction from 0 to 1 with so many places.
fn write_fraction(out: &mut String, value: f64, places: usize) {
    let _ = write!(out, "{value:.places$}");
}
