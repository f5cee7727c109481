//! An allocator that counts, while it is told to, on top of the system's.
//!
//! Whoever includes this has it for a global allocator: that is why it is only in programs of its own.

#![allow(
    unsafe_code,
    reason = "the trait of allocators is unsafe; this one hands everything on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What a piece of work asked of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Allocations, each growth of one counted as another.
    pub(crate) allocations: usize,
    /// Bytes that were allocated at once at the worst moment, those from before left out.
    pub(crate) peak: usize,
}

/// Does `work` and says what it asked for. Counts what every thread does meanwhile, so let there be
/// only one.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Asked) {
    for counter in [&ALLOCATIONS, &NOW, &PEAK] {
        counter.store(0, Relaxed);
    }
    COUNTING.store(true, Relaxed);
    let done = work();
    COUNTING.store(false, Relaxed);
    let asked = Asked {
        allocations: ALLOCATIONS.load(Relaxed),
        peak: PEAK.load(Relaxed),
    };
    (done, asked)
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// === impl Counting ===

impl Counting {
    fn add(bytes: usize) {
        if COUNTING.load(Relaxed) {
            ALLOCATIONS.fetch_add(1, Relaxed);
            let now = NOW.fetch_add(bytes, Relaxed) + bytes;
            PEAK.fetch_max(now, Relaxed);
        }
    }

    /// What was allocated before the count began may be freed while it runs.
    fn take(bytes: usize) {
        if COUNTING.load(Relaxed) {
            let _ = NOW.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(bytes)));
        }
    }
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Counting::take(layout.size());
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::take(layout.size());
        Counting::add(size);
        unsafe { System.realloc(block, layout, size) }
    }
}
