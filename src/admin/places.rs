//! Who has a connection: so many at a time, and there is always room for one more. Where all places are
//! taken, the connection that can be spared most easily is let go for the one that comes, so that nobody
//! who holds places, with or without a token, keeps a probe out.
//!
//! What can be spared: first who waits between two requests, or has sent no whole one yet; then who is
//! answered without having shown a token where one is asked for; of these and of those the one with which
//! nothing has moved for longest.

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// That connections are let go is told no more often than this.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// See the [module](self) description.
pub(super) struct Places {
    most: usize,
    taken: RefCell<Vec<Rc<Place>>>,
    told: Cell<Option<Instant>>,
}

/// One connection.
pub(super) struct Place {
    answering: Cell<bool>,
    /// Something of an answer waits for the peer to take it.
    blocked: Cell<bool>,
    /// It was let in to what asks for a token.
    let_in: Cell<bool>,
    /// When it came, was last asked for something, or took something of an answer.
    moved: Cell<Instant>,
    leave: Notify,
}

/// Gives the place back when it is dropped.
pub(super) struct Held {
    places: Rc<Places>,
    place: Rc<Place>,
}

/// An answer is under way until this is dropped.
pub(super) struct Answering(Rc<Place>);

pin_project! {
    /// The body of an answer, which is under way for as long as that lives.
    pub(super) struct Answer<B> {
        #[pin]
        body: B,
        answering: Answering,
    }
}

// === impl Places ===

impl Places {
    pub(super) fn new(most: usize) -> Rc<Places> {
        Rc::new(Places {
            most,
            taken: RefCell::default(),
            told: Cell::new(None),
        })
    }

    /// A place for who has come. Where none is free somebody is told to leave, whose place counts as free
    /// at once.
    pub(super) fn take(self: &Rc<Places>, now: Instant) -> Held {
        let mut taken = self.taken.borrow_mut();
        if taken.len() >= self.most {
            let spared = (0..taken.len()).min_by_key(|at| taken[*at].claim());
            if let Some(at) = spared {
                taken.remove(at).leave.notify_one();
                self.tell(now);
            }
        }
        let place = Rc::new(Place {
            answering: Cell::new(false),
            blocked: Cell::new(false),
            let_in: Cell::new(false),
            moved: Cell::new(now),
            leave: Notify::new(),
        });
        taken.push(Rc::clone(&place));
        Held {
            places: Rc::clone(self),
            place,
        }
    }

    fn tell(&self, now: Instant) {
        let again = |told: Instant| now.saturating_duration_since(told) >= TOLD_AGAIN;
        if self.told.get().is_none_or(again) {
            self.told.set(Some(now));
            tracing::warn!(
                "admin.listen: all {} connections are taken, so for each one that comes the one that has been idle for longest is closed; look who holds so many (ss -tn), and keep away who has no business there",
                self.most
            );
        }
    }
}

// === impl Place ===

impl Place {
    /// The less, the sooner it is let go.
    fn claim(&self) -> (bool, bool, Instant) {
        let busy = self.answering.get() || self.blocked.get();
        (busy, self.let_in.get(), self.moved.get())
    }

    /// A request is there.
    pub(super) fn asked(self: &Rc<Place>, now: Instant) -> Answering {
        self.answering.set(true);
        self.moved.set(now);
        Answering(Rc::clone(self))
    }

    /// It may see what asks for a token.
    pub(super) fn let_in(&self) {
        self.let_in.set(true);
    }

    /// The peer has taken something.
    pub(super) fn took(&self) {
        self.blocked.set(false);
        self.moved.set(Instant::now());
    }

    /// The peer takes nothing at the moment.
    pub(super) fn takes_nothing(&self) {
        self.blocked.set(true);
    }
}

// === impl Held ===

impl Held {
    pub(super) fn place(&self) -> Rc<Place> {
        Rc::clone(&self.place)
    }

    /// Waits until the place is another's.
    pub(super) async fn told_to_leave(&self) {
        self.place.leave.notified().await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.places.taken.borrow_mut();
        taken.retain(|place| !Rc::ptr_eq(place, &self.place));
    }
}

// === impl Answering ===

impl Answering {
    /// Until this body has been handed over, or given up.
    pub(super) fn with<B>(self, body: B) -> Answer<B> {
        Answer {
            body,
            answering: self,
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(false);
        self.0.moved.set(Instant::now());
    }
}

// === impl Answer ===

impl<B: Body> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of them is told to leave when one more comes.
    fn leaves(held: &[Held], one_more: impl FnOnce() -> Held) -> Option<usize> {
        let before: Vec<_> = held.iter().map(|held| Rc::clone(&held.place)).collect();
        let more = one_more();
        let taken = more.places.taken.borrow();
        let gone = |place: &Rc<Place>| !taken.iter().any(|taken| Rc::ptr_eq(taken, place));
        before.iter().position(gone)
    }

    #[test]
    fn who_is_idle_longest_goes_first_and_who_was_let_in_and_is_answered_last() {
        let start = Instant::now();
        let at = |n: u64| start + Duration::from_millis(n);
        let places = Places::new(4);
        let held: Vec<_> = (0..4).map(|n| places.take(at(n))).collect();
        let order = || {
            let mut order: Vec<usize> = (0..held.len()).collect();
            order.sort_by_key(|n| held[*n].place.claim());
            order
        };
        assert_eq!(order(), [0, 1, 2, 3], "as they came");
        let first = held[0].place.asked(at(10));
        held[1].place.takes_nothing();
        held[2].place.let_in();
        let third = held[2].place.asked(at(5));
        assert_eq!(order(), [3, 1, 0, 2]);
        assert_eq!(leaves(&held, || places.take(at(20))), Some(3));
        drop((first, third));
        held[1].place.took();
        assert!(held.iter().all(|held| !held.place.claim().0));
    }

    #[test]
    fn there_are_never_more_and_each_that_goes_makes_room() {
        let now = Instant::now();
        let places = Places::new(2);
        let (one, two) = (places.take(now), places.take(now));
        drop(one);
        let three = places.take(now);
        assert_eq!(places.taken.borrow().len(), 2);
        let four = places.take(now);
        assert_eq!(places.taken.borrow().len(), 2);
        // Who was told to leave has no place to give back.
        drop((two, three, four));
        assert!(places.taken.borrow().is_empty());
        assert!(places.told.get().is_some());
    }
}
