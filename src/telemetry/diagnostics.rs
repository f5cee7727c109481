//! Diagnostics on standard error; the request log has standard output to itself.

use std::io::{IsTerminal, stderr};
use tracing_subscriber::fmt;

/// Sends `tracing` events to standard error, a line each. Call once, before anything is said.
/// A second call changes nothing.
pub fn init_diagnostics() {
    let _ = fmt()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .with_max_level(tracing::Level::INFO)
        .try_init();
}
