//! A task that is to run as long as its thread, though it may panic.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

/// Runs what `start` makes until it ends; after a panic, which the hook tells of, waits for `pause` and
/// starts another one.
pub async fn again<F: Future<Output = ()>>(pause: Duration, mut start: impl FnMut() -> F) {
    loop {
        let mut task = Box::pin(start());
        let ended = poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)))
                .map_or(Poll::Ready(false), |polled| polled.map(|()| true))
        });
        if ended.await {
            return;
        }
        drop(task);
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_started_again_after_a_pause() {
        let (starts, pause) = (Cell::new(0), Duration::from_secs(5));
        let start = tokio::time::Instant::now();
        again(pause, || {
            starts.set(starts.get() + 1);
            let starts = starts.get();
            async move {
                tokio::task::yield_now().await;
                assert!(starts == 3, "a test's");
            }
        })
        .await;
        assert_eq!(starts.get(), 3);
        assert_eq!(start.elapsed(), pause * 2);
    }
}
