//! Families that the sources type differently: which they are, told once, counted once a page.

use crate::exposition::{Conflict, MetricType};
use crate::kv::SourceState;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// Families that are named; the samples of further ones are counted.
const MOST_NAMED: usize = 256;

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
    samples: u64,
    page: Option<Instant>,
}

impl Conflicts {
    /// Takes in what a merge says. `sources` are the sources' indexes in the order of their pages,
    /// which follow `pinned` pages of our own.
    pub(super) fn note(
        &self,
        conflicts: Vec<Conflict>,
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
        let mut samples = vec![0; states.len()];
        for conflict in conflicts {
            for (page, kind, n) in conflict.dropped {
                let source = page.checked_sub(pinned).and_then(|at| sources.get(at));
                let Some(source) = source.copied().filter(|s| *s < samples.len()) else {
                    continue;
                };
                samples[source] += n;
                if named.len() < MOST_NAMED {
                    named.push(Named {
                        source,
                        family: conflict.family.clone(),
                        kind,
                        kept: conflict.kept,
                        samples: n,
                    });
                }
            }
        }
        for ((counted, state), samples) in counted.iter_mut().zip(states).zip(samples) {
            if counted.page != state.taken {
                counted.page = state.taken;
                counted.samples += samples;
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

    /// Samples of this source left out so far.
    pub(super) fn samples(&self, source: usize) -> u64 {
        self.0.borrow().counted.get(source).map_or(0, |c| c.samples)
    }
}

fn tell(conflict: &Named, states: &[Arc<SourceState>]) {
    let name = states.get(conflict.source).map_or("?", |s| &*s.name);
    tracing::warn!(
        "{name}: {} is a {} here and a {} elsewhere: its {} samples are left out of /metrics",
        conflict.family,
        conflict.kind.as_str(),
        conflict.kept.as_str(),
        conflict.samples
    );
}
