//! Work that may block for ever, on a thread of its own: a dead mount, a resolver that does not answer.
//! tokio's threads for that are those of one runtime, which waits for them at its end.

use std::io;
use std::thread;
use tokio::sync::oneshot;

/// Starts `work`; what it comes to is received, unless it panics. Nobody waits for it who does not
/// want to.
///
/// # Errors
/// When there is no thread to be had.
pub fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    thread::Builder::new()
        .name(format!("kvgauge-{name}"))
        .spawn(move || drop(done.send(work())))?;
    Ok(result)
}
