//! Wakes of a connection that come from within its own poll.
//!
//! hyper hands a request's body over through a channel, and wakes the end that reads the socket each
//! time the other takes a piece. Both ends are polled by the connection's one task, and after the last
//! piece there is nothing to go on with: without this each request with a body would be polled once for
//! nothing. All other wakes are passed on, those from within too: hyper wakes itself when it has gone
//! round sixteen times in one poll, and tokio when a task has done its share.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

thread_local! {
    /// The connection that this thread polls now.
    static POLLED: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Inner {
    outer: Waker,
    woken: AtomicUsize,
}

/// One for each connection. See the [module](self) description.
#[derive(Default)]
pub(super) struct OwnWakes(Option<(Arc<Inner>, Waker)>);

impl Inner {
    fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if POLLED.get() == Some(self.id()) {
            self.woken.fetch_add(1, Ordering::Relaxed);
        } else {
            self.outer.wake_by_ref();
        }
    }
}

/// Ends the poll, also where it panics.
struct Polled;

impl Drop for Polled {
    fn drop(&mut self) {
        POLLED.set(None);
    }
}

impl OwnWakes {
    /// Polls with a waker that knows where it is woken from. Wakes from within are passed on unless
    /// `accounted_for`, which is given their number, says that all are of the kind that leads to nothing.
    pub(super) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
        accounted_for: impl FnOnce(usize) -> bool,
    ) -> T {
        self.0
            .take_if(|(inner, _)| !inner.outer.will_wake(cx.waker()));
        let (inner, waker) = self.0.get_or_insert_with(|| {
            let inner = Arc::new(Inner {
                outer: cx.waker().clone(),
                woken: AtomicUsize::new(0),
            });
            let waker = Waker::from(Arc::clone(&inner));
            (inner, waker)
        });
        POLLED.set(Some(inner.id()));
        let polled = Polled;
        let result = poll(&mut Context::from_waker(waker));
        drop(polled);
        let woken = inner.woken.load(Ordering::Relaxed);
        if woken > 0 {
            inner.woken.store(0, Ordering::Relaxed);
            if !accounted_for(woken) || !tokio::task::coop::has_budget_remaining() {
                inner.outer.wake_by_ref();
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_is_lost_only_from_within_and_where_it_is_accounted_for() {
        let count = Arc::new(Count::default());
        let outer = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&outer);
        let woken = || count.0.swap(0, Ordering::Relaxed);
        let mut own = OwnWakes::default();

        let twice = |cx: &mut Context<'_>| {
            cx.waker().wake_by_ref();
            cx.waker().wake_by_ref();
        };
        own.poll(&cx, twice, |woken| woken <= 2);
        assert_eq!(woken(), 0, "both accounted for");
        own.poll(&cx, twice, |woken| woken <= 1);
        assert_eq!(woken(), 1, "one of them not");
        own.poll(&cx, |_| (), |_| false);
        assert_eq!(woken(), 0, "not woken");

        let kept = own.poll(&cx, |cx| cx.waker().clone(), |_| true);
        kept.wake_by_ref();
        assert_eq!(woken(), 1, "from without");
        own.poll(
            &cx,
            |cx| {
                let waker = cx.waker().clone();
                std::thread::spawn(move || waker.wake()).join().unwrap();
            },
            |_| true,
        );
        assert_eq!(woken(), 1, "from another thread meanwhile");

        let mut other = OwnWakes::default();
        let waker = other.poll(&cx, |cx| cx.waker().clone(), |_| true);
        own.poll(&cx, |_| waker.wake_by_ref(), |_| true);
        assert_eq!(woken(), 1, "of another connection");
    }

    #[test]
    fn a_poll_that_panics_is_over_all_the_same() {
        let count = Arc::new(Count::default());
        let outer = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&outer);
        let mut own = OwnWakes::default();
        let kept = own.poll(&cx, |cx| cx.waker().clone(), |_| true);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            own.poll(&cx, |_| panic!("in the poll"), |_| true)
        }));
        assert!(panicked.is_err());
        kept.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
