//! One rendering of the unified page for all who wait for it in one form.
//!
//! A page is always rendered after the request came, so that it shows what was counted before. Those
//! whose requests are there when a rendering begins share it, and who comes while it runs shares the
//! next. There is one rendering at a time, and a waiter at most for each connection.

use super::gzip::gzip;
use super::{Shared, page};
use crate::exposition::Format;
use crate::telemetry::Telemetry;
use bytes::Bytes;
use metrics::Counter;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// Looks at all sockets before a rendering begins: in the first a new connection is accepted, in the
/// second its request is read. One more for what came in the meantime.
const LOOKS: usize = 3;

/// Who waits for the page, and how often it was rendered.
pub struct Sharing {
    /// At most one group for each form.
    waiting: RefCell<VecDeque<Group>>,
    rendering: Cell<bool>,
    merges: Counter,
}

/// The page as it is sent.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) body: Bytes,
    pub(super) gzip: bool,
}

/// Those who wait for the page in one form.
struct Group {
    format: Format,
    plain: Vec<oneshot::Sender<Sent>>,
    gzip: Vec<oneshot::Sender<Sent>>,
}

/// Takes note when the rendering task ends, by a panic too.
struct Rendering(Rc<Shared>);

// === impl Sharing ===

impl Sharing {
    /// Nobody waits.
    #[must_use]
    pub fn new(telemetry: &Telemetry) -> Sharing {
        Sharing {
            waiting: RefCell::default(),
            rendering: Cell::new(false),
            merges: telemetry.metrics_merges(),
        }
    }

    /// The page, rendered from now on. `None` where rendering failed.
    pub(super) async fn page(shared: &Rc<Shared>, format: Format, gzip: bool) -> Option<Sent> {
        let (sender, page) = oneshot::channel();
        shared.sharing.join(format, gzip, sender);
        if !shared.sharing.rendering.replace(true) {
            tokio::task::spawn_local(render(Rendering(Rc::clone(shared))));
        }
        page.await.ok()
    }

    fn join(&self, format: Format, gzip: bool, sender: oneshot::Sender<Sent>) {
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.iter().position(|group| group.format == format);
        let at = at.unwrap_or_else(|| {
            waiting.push_back(Group {
                format,
                plain: Vec::new(),
                gzip: Vec::new(),
            });
            waiting.len() - 1
        });
        if let Some(group) = waiting.get_mut(at) {
            let senders = if gzip {
                &mut group.gzip
            } else {
                &mut group.plain
            };
            senders.push(sender);
        }
    }

    /// The group that has waited longest; who comes now is not in it any more.
    fn next(&self) -> Option<Group> {
        self.waiting.borrow_mut().pop_front()
    }
}

// === impl Rendering ===

impl Drop for Rendering {
    fn drop(&mut self) {
        let sharing = &self.0.sharing;
        sharing.rendering.set(false);
        // Empty but after a panic: then nobody is left waiting for what does not come.
        sharing.waiting.borrow_mut().clear();
    }
}

/// Renders until nobody waits.
async fn render(rendering: Rendering) {
    let shared = &rendering.0;
    loop {
        for _ in 0..LOOKS {
            yield_now().await;
        }
        let Some(mut group) = shared.sharing.next() else {
            break;
        };
        group.plain.retain(|waiter| !waiter.is_closed());
        group.gzip.retain(|waiter| !waiter.is_closed());
        if group.plain.is_empty() && group.gzip.is_empty() {
            continue;
        }
        // Before, so that the page counts itself.
        shared.sharing.merges.increment(1);
        let plain = Sent {
            body: page::render(shared, group.format, Instant::now()),
            gzip: false,
        };
        send(group.plain, &plain);
        if group.gzip.is_empty() {
            continue;
        }
        // Writing to memory does not fail; if it did, the page as it is would do.
        let packed = match gzip(&plain.body).await {
            Ok(body) => Sent { body, gzip: true },
            Err(_) => plain,
        };
        send(group.gzip, &packed);
    }
}

fn send(waiters: Vec<oneshot::Sender<Sent>>, sent: &Sent) {
    for waiter in waiters {
        // Who has left does not want it any more.
        let _ = waiter.send(sent.clone());
    }
}
