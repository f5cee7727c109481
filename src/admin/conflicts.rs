//! Families that the sources type differently: which they are, told once, counted once a page.

use crate::exposition::{Merged, MetricType};
use crate::kv::SourceState;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
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
    /// By the source's name; of sources that have left nothing is kept.
    counted: HashMap<Arc<str>, Counted>,
    told: Vec<(Arc<str>, String)>,
}

/// One family of one source that was left out.
#[derive(Clone, Debug)]
pub(super) struct Named {
    source: Arc<str>,
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
    /// Takes in what a merge says. `sources` are the names of the sources in the order of their pages,
    /// which follow `pinned` pages of our own; `states` are all there are.
    pub(super) fn note(
        &self,
        merged: &Merged,
        pinned: usize,
        sources: &[Arc<str>],
        states: &[Arc<SourceState>],
    ) {
        let mut book = self.0.borrow_mut();
        let Book {
            named,
            counted,
            told,
        } = &mut *book;
        named.clear();
        let source_of = |page: usize| {
            let source = page.checked_sub(pinned).and_then(|at| sources.get(at));
            source.cloned()
        };
        let mut now: HashMap<Arc<str>, Counted> = HashMap::new();
        for (page, n) in &merged.duplicates_of {
            if let Some(source) = source_of(*page) {
                now.entry(source).or_default().duplicates += n;
            }
        }
        for conflict in &merged.conflicts {
            for &(page, kind, n) in &conflict.dropped {
                let Some(source) = source_of(page) else {
                    continue;
                };
                now.entry(Arc::clone(&source)).or_default().conflicts += n;
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
        let names: HashSet<&Arc<str>> = states.iter().map(|state| &state.name).collect();
        counted.retain(|name, _| names.contains(name));
        told.retain(|(name, _)| names.contains(name));
        for state in states {
            let now = now.get(&state.name).copied().unwrap_or_default();
            let counted = counted.entry(Arc::clone(&state.name)).or_default();
            if counted.page == state.taken {
                continue;
            }
            counted.page = state.taken;
            counted.conflicts += now.conflicts;
            counted.duplicates += now.duplicates;
            let key = (Arc::clone(&state.name), String::new());
            if now.duplicates > 0 && !told.contains(&key) {
                let (name, n) = (&state.name, now.duplicates);
                tracing::warn!("{name}: series that /metrics has already are left out ({n} now)");
                told.push(key);
            }
        }
        for conflict in named {
            let key = (Arc::clone(&conflict.source), conflict.family.clone());
            if told.len() < MOST_NAMED && !told.contains(&key) {
                tell(conflict);
                told.push(key);
            }
        }
    }

    /// What was left out of this source's newest page.
    pub(super) fn of(&self, source: &str) -> Vec<Named> {
        let book = self.0.borrow();
        let of_source = book.named.iter().filter(|named| &*named.source == source);
        of_source.cloned().collect()
    }

    /// Samples of this source left out so far, by reason.
    pub(super) fn counts(&self, source: &str) -> impl Iterator<Item = (&'static str, u64)> + use<> {
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

fn tell(conflict: &Named) {
    tracing::warn!(
        "{}: {} is of type {} here and {} elsewhere: left out of /metrics (samples: {})",
        conflict.source,
        conflict.family,
        conflict.kind.as_str(),
        conflict.kept.as_str(),
        conflict.samples
    );
}
