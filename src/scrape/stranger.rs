//! What looks like KV usage on a page of nobody known, not looked for at every read.

use crate::engine::{self, Suspect};
use crate::exposition::Page;
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

/// A page with the same names is looked at again after so long: values tell percent from fractions.
const AGAIN: Duration = Duration::from_secs(60);

/// What was found last.
#[derive(Default)]
pub(super) struct Stranger {
    looked: Option<(Instant, u64)>,
    suspects: Vec<Suspect>,
}

impl Stranger {
    /// What looks like it on this page.
    pub(super) fn suspects(&mut self, page: &Page<'_>, now: Instant) -> &[Suspect] {
        let names = names(page);
        let known = self
            .looked
            .is_some_and(|(at, of)| of == names && now.saturating_duration_since(at) < AGAIN);
        if !known {
            self.looked = Some((now, names));
            self.suspects = engine::suspects(page);
        }
        &self.suspects
    }
}

/// A hash of the names on a page.
fn names(page: &Page<'_>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    for family in page.families() {
        hasher.write(family.name().as_bytes());
        hasher.write_u8(b'\n');
    }
    hasher.finish()
}
