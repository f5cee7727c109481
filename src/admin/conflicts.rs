//! Families that the sources type differently: which they are, told once, counted once a page.

use crate::exposition::{Merged, MetricType};
use crate::kv::SourceState;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// Families that are named; the samples of further ones are counted.
const MOST_NAMED: usize = 256;

/// Characters of a name that are shown.
const MOST_SHOWN: usize = 200;

/// What the last merge left out, and how much all of them did.
#[derive(Default)]
pub struct Conflicts(RefCell<Book>);

#[derive(Default)]
struct Book {
    named: Vec<Named>,
    counted: Vec<Counted>,
    told: Vec<(usize, String)>,
}

/// One family of one source that was left out.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) source: usize,
    pub(super) family: String,
    pub(super) kind: MetricType,
    pub(super) kept: MetricType,
    pub(super) samples: u64,
}

/// Samples of a source left out so far, and the page that was counted last.
#[derive(Clone, Copy, Default)]
struct Counted {
    conflicts: u64,
    duplicates: u64,
    page: Option<Instant>,
}

impl Conflicts {
    /// Takes in what a merge says. `sources` are the sources' indexes in the order of their pages,
    /// which follow `pinned` pages of our own.
    pub(super) fn note(
        &self,
        merged: &Merged,
        pinned: usize,
        sources: &[usize],
        states: &[Arc<SourceState>],
    ) {
        let mut book = self.0.borrow_mut();
        let Book {
            named,
            counted,
            told,
        } = &mut *book;
        named.clear();
        counted.resize(states.len(), Counted::default());
        let source_of = |page: usize| {
            let source = page.checked_sub(pinned).and_then(|at| sources.get(at));
            source.copied().filter(|s| *s < states.len())
        };
        let mut now = vec![Counted::default(); states.len()];
        for (page, n) in &merged.duplicates_of {
            if let Some(source) = source_of(*page) {
                now[source].duplicates += n;
            }
        }
        for conflict in &merged.conflicts {
            for &(page, kind, n) in &conflict.dropped {
                let Some(source) = source_of(page) else {
                    continue;
                };
                now[source].conflicts += n;
                if named.len() < MOST_NAMED && n > 0 {
                    named.push(Named {
                        source,
                        family: shown(&conflict.family),
                        kind,
                        kept: conflict.kept,
                        samples: n,
                    });
                }
            }
        }
        for (source, ((counted, state), now)) in counted.iter_mut().zip(states).zip(now).enumerate()
        {
            if counted.page == state.taken {
                continue;
            }
            counted.page = state.taken;
            counted.conflicts += now.conflicts;
            counted.duplicates += now.duplicates;
            let key = (source, String::new());
            if now.duplicates > 0 && !told.contains(&key) {
                let (name, n) = (&state.name, now.duplicates);
                tracing::warn!("{name}: series that /metrics has already are left out ({n} now)");
                told.push(key);
            }
        }
        for conflict in named {
            let key = (conflict.source, conflict.family.clone());
            if told.len() < MOST_NAMED && !told.contains(&key) {
                tell(conflict, states);
                told.push(key);
            }
        }
    }

    /// What was left out of this source's newest page.
    pub(super) fn of(&self, source: usize) -> Vec<Named> {
        let book = self.0.borrow();
        let of_source = book.named.iter().filter(|named| named.source == source);
        of_source.cloned().collect()
    }

    /// Samples of this source left out so far, by reason.
    pub(super) fn counts(&self, source: usize) -> impl Iterator<Item = (&'static str, u64)> {
        let book = self.0.borrow();
        let counted = book.counted.get(source).copied().unwrap_or_default();
        [
            ("type_conflict", counted.conflicts),
            ("duplicate_of_other", counted.duplicates),
        ]
        .into_iter()
        .filter(|(_, n)| *n > 0)
    }
}

/// A name that no terminal acts on, and not more of it than a log line should have.
fn shown(family: &str) -> String {
    family
        .chars()
        .take(MOST_SHOWN)
        .flat_map(char::escape_debug)
        .collect()
}

fn tell(conflict: &Named, states: &[Arc<SourceState>]) {
    let name = states.get(conflict.source).map_or("?", |s| &*s.name);
    tracing::warn!(
        "{name}: {} is of type {} here and {} elsewhere: left out of /metrics (samples: {})",
        conflict.family,
        conflict.kind.as_str(),
        conflict.kept.as_str(),
        conflict.samples
    );
}
