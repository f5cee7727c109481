//! One request of a connection, from its turn to its answer.
//!
//! Its turn is when the answer before it has left, which for all but pipelined requests (RFC 9112,
//! 9.3.2) it has: then it begins at once, within the call, so that a client that has left by the next
//! look is known to have asked.

use super::client::{Asked, Client};
use super::tunnel::Handover;
use super::upgrade::Offer;
use super::worker::{Phase, Worker};
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tower::Service;

/// What a connection's requests share.
pub(super) struct Turns {
    pub(super) worker: Rc<Worker>,
    pub(super) client: Rc<Client>,
    pub(super) handover: Handover,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

pin_project! {
    /// The future of one request's answer.
    pub(super) struct Turn<F: Future> {
        #[pin]
        answer: Begun<F>,
        turns: Rc<Turns>,
        version: Version,
    }
}

pin_project! {
    #[project = BegunProj]
    enum Begun<F: Future> {
        Now { #[pin] answer: F },
        // Boxed, so that other requests need not keep its room.
        Later { answer: Boxed<F::Output> },
    }
}

// === impl Turns ===

impl Turns {
    /// Begins with `request` when it is its turn.
    pub(super) fn begin<S, B>(
        self: &Rc<Self>,
        stack: &RefCell<S>,
        request: Request<B>,
    ) -> Turn<S::Future>
    where
        S: Service<Request<B>, Future: 'static> + Clone + 'static,
        B: Body + 'static,
    {
        let version = request.version();
        let answer = if self.client.all_has_left() {
            self.looks_at(&request);
            Begun::Now {
                answer: stack.borrow_mut().call(request),
            }
        } else {
            let turns = Rc::clone(self);
            let mut stack = stack.borrow().clone();
            let answer = Box::pin(async move {
                poll_fn(|_| turns.client.poll_all_left()).await;
                turns.looks_at(&request);
                stack.call(request).await
            });
            Begun::Later { answer }
        };
        Turn {
            answer,
            turns: Rc::clone(self),
            version,
        }
    }

    fn looks_at<B: Body>(&self, request: &Request<B>) {
        let may_switch = Offer::may_be_in(request);
        self.handover.set_may_come(may_switch);
        if self.leaving() {
            // hyper ends the connection after this request, in the way that the client's version has.
            self.client.ask(Asked::Finish);
        }
    }

    /// What ends its connection says so, so that no client sends a request into one that is being
    /// closed: on the way out each answer, and one that is there before the request's body, of which
    /// hyper takes no more than has come already.
    fn answers<R>(&self, response: &mut Response<R>, version: Version) {
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        self.handover.set_may_come(switched);
        if self.leaving() {
            // An answer that is there at once is written before hyper has been told.
            self.client.ask(Asked::Finish);
        }
        // A 101's `Connection` has another thing to say, and it is the last one by itself.
        if (self.leaving() || self.client.has_body_left()) && !switched {
            if version == Version::HTTP_11 {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            } else {
                // An answer of this version tells hyper not to promise `keep-alive` (RFC 9112, 9.3).
                *response.version_mut() = Version::HTTP_10;
            }
        }
    }

    fn leaving(&self) -> bool {
        self.worker.phase() >= Phase::Leaving
    }
}

// === impl Turn ===

impl<F, R> Future for Turn<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
{
    type Output = Result<Response<R>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.turns.client.asked() == Asked::Gone {
            // It ends with this turn, before anything of it has been sent on.
            return Poll::Pending;
        }
        let Ok(mut response) = ready!(match this.answer.project() {
            BegunProj::Now { answer } => answer.poll(cx),
            BegunProj::Later { answer } => answer.as_mut().poll(cx),
        });
        this.turns.answers(&mut response, *this.version);
        Poll::Ready(Ok(response))
    }
}
