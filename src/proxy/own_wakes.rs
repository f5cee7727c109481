//! Wakes of a connection that come from within its own poll.
//!
//! hyper hands a request's body over through a channel, and wakes the end that reads the socket each
//! time the other takes a piece. Both ends are polled by the connection's one task, and after the last
//! piece there is nothing to go on with: without this each request with a body would be polled once for
//! nothing. All other wakes are passed on.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

thread_local! {
    /// The connection that this thread polls now.
    static POLLED: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Inner {
    outer: Waker,
    woken: AtomicBool,
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
            self.woken.store(true, Ordering::Relaxed);
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
    /// Polls with a waker that knows where it is woken from. A wake from within is passed on unless
    /// nothing is `to_go_on_with` afterwards.
    pub(super) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
        to_go_on_with: impl FnOnce() -> bool,
    ) -> T {
        let (inner, waker) = match self.0.take() {
            Some(same) if same.0.outer.will_wake(cx.waker()) => self.0.insert(same),
            _ => {
                let inner = Arc::new(Inner {
                    outer: cx.waker().clone(),
                    woken: AtomicBool::new(false),
                });
                let waker = Waker::from(Arc::clone(&inner));
                self.0.insert((inner, waker))
            }
        };
        POLLED.set(Some(inner.id()));
        let polled = Polled;
        let result = poll(&mut Context::from_waker(waker));
        drop(polled);
        // A task that has done its share of work in one turn is woken from within too.
        if inner.woken.swap(false, Ordering::Relaxed)
            && (to_go_on_with() || !tokio::task::coop::has_budget_remaining())
        {
            inner.outer.wake_by_ref();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_is_lost_only_from_within_and_with_nothing_to_go_on_with() {
        let count = Arc::new(Count::default());
        let outer = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&outer);
        let woken = || count.0.swap(0, Ordering::Relaxed);
        let mut own = OwnWakes::default();

        own.poll(&cx, |cx| cx.waker().wake_by_ref(), || false);
        assert_eq!(woken(), 0, "nothing to go on with");
        own.poll(&cx, |cx| cx.waker().wake_by_ref(), || true);
        assert_eq!(woken(), 1, "something to go on with");
        own.poll(&cx, |_| (), || true);
        assert_eq!(woken(), 0, "not woken");

        let kept = own.poll(&cx, |cx| cx.waker().clone(), || false);
        kept.wake_by_ref();
        assert_eq!(woken(), 1, "from without");
        own.poll(
            &cx,
            |cx| {
                let waker = cx.waker().clone();
                std::thread::spawn(move || waker.wake()).join().unwrap();
            },
            || false,
        );
        assert_eq!(woken(), 1, "from another thread meanwhile");

        let mut other = OwnWakes::default();
        let waker = other.poll(&cx, |cx| cx.waker().clone(), || false);
        own.poll(&cx, |_| waker.wake_by_ref(), || false);
        assert_eq!(woken(), 1, "of another connection");
    }

    #[test]
    fn a_poll_that_panics_is_over_all_the_same() {
        let count = Arc::new(Count::default());
        let outer = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&outer);
        let mut own = OwnWakes::default();
        let kept = own.poll(&cx, |cx| cx.waker().clone(), || false);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            own.poll(&cx, |_| panic!("in the poll"), || false)
        }));
        assert!(panicked.is_err());
        kept.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
