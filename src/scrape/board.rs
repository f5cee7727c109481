//! What is known of all sources at one moment, readings and pages together: whoever looks works on one
//! [`View`], however the sources come and go meanwhile.

use crate::exposition::Prepared;
use crate::kv::{Handle, Snapshot, SourceState};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Instant;

/// Tells one source from every other that there is or was, also from one of the same name that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) u64);

/// A source, and what is known of it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) state: Arc<SourceState>,
    /// The newest page, ready for merging, if one was read and is not known to be gone.
    pub(super) page: Option<Arc<Prepared>>,
}

/// One way in which sources are found, and how that goes.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The name of its key, `discovery.…`.
    pub kind: &'static str,
    /// `None` until it was looked for the first time; then whether the last look saw all there is to see.
    pub up: Option<bool>,
    /// Pages on the newest list.
    pub found: usize,
    /// Of those, how many are beyond `discovery.max_sources`.
    pub left_out: usize,
    /// Of those, whom the list itself calls unhealthy; the first few. They are read like the others.
    pub unhealthy: Vec<Arc<str>>,
    /// When the newest list came.
    pub taken: Option<Instant>,
    /// Looks so far that did not see all.
    pub failures: u64,
    /// What was wrong with the last look, and what to do.
    pub problem: Option<Arc<str>>,
}

/// All sources at one moment; never changed.
#[derive(Clone, Default)]
pub struct View {
    snapshot: Arc<Snapshot>,
    /// As many as the snapshot has sources, in their order.
    kept: Vec<(Id, Option<Arc<Prepared>>)>,
    discoveries: Arc<[Discovery]>,
}

/// Shared handle to the current view: written by the scraper, from one thread, and read by everyone
/// without a lock.
#[derive(Clone)]
pub struct Board {
    view: Arc<ArcSwap<View>>,
    snapshot: Handle,
}

// === impl View ===

impl View {
    fn new(entries: impl IntoIterator<Item = Entry>, discoveries: Arc<[Discovery]>) -> View {
        let (kept, sources) = entries
            .into_iter()
            .map(|entry| ((entry.id, entry.page), entry.state))
            .unzip();
        View {
            snapshot: Arc::new(Snapshot { sources }),
            kept,
            discoveries,
        }
    }

    /// How sources are found, for each way that is set.
    #[must_use]
    pub fn discoveries(&self) -> &[Discovery] {
        &self.discoveries
    }

    /// What is known of the sources: those of the settings first, in their order.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Every source with its newest page, if one was read and is not known to be gone.
    pub fn sources(&self) -> impl Iterator<Item = (&Arc<SourceState>, Option<&Arc<Prepared>>)> {
        let pages = self.kept.iter().map(|(_, page)| page.as_ref());
        self.snapshot.sources.iter().zip(pages)
    }

    /// What is known of one source, if it is still there.
    pub(super) fn entry(&self, id: Id) -> Option<Entry> {
        let at = self.kept.iter().position(|(kept, _)| *kept == id)?;
        Some(Entry {
            id,
            state: Arc::clone(self.snapshot.sources.get(at)?),
            page: self.kept.get(at)?.1.clone(),
        })
    }
}

// === impl Board ===

impl Board {
    /// Without sources. What is put on it stands in `snapshot` too, for those who need no pages.
    pub(super) fn new(snapshot: Handle) -> Board {
        Board {
            view: Arc::default(),
            snapshot,
        }
    }

    /// All sources as they are now.
    #[must_use]
    pub fn load(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces all sources.
    pub(super) fn set(&self, entries: impl IntoIterator<Item = Entry>) {
        let discoveries = Arc::clone(&self.view.load().discoveries);
        self.store(View::new(entries, discoveries));
    }

    /// Replaces what is known of how sources are found.
    pub(super) fn found(&self, discoveries: impl Into<Arc<[Discovery]>>) {
        let view = View::clone(&self.view.load());
        self.view.store(Arc::new(View {
            discoveries: discoveries.into(),
            ..view
        }));
    }

    /// Replaces what is known of one source; of one that has left nothing is kept.
    pub(super) fn report(&self, entry: Entry) {
        let view = self.view.load_full();
        let Some(at) = view.kept.iter().position(|(id, _)| *id == entry.id) else {
            return;
        };
        let mut sources = view.snapshot.sources.clone();
        let mut kept = view.kept.clone();
        if let (Some(source), Some(page)) = (sources.get_mut(at), kept.get_mut(at)) {
            *source = entry.state;
            page.1 = entry.page;
        }
        self.store(View {
            snapshot: Arc::new(Snapshot { sources }),
            kept,
            discoveries: Arc::clone(&view.discoveries),
        });
    }

    fn store(&self, view: View) {
        self.snapshot.store(Arc::clone(&view.snapshot));
        self.view.store(Arc::new(view));
    }
}
