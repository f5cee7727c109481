//! The exposition room against readers of other people: the prometheus client for Python, which has
//! one for classic text and the strictest there is for `OpenMetrics`. `tests/run` installs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod agree;
#[path = "../exposition/kit.rs"]
mod kit;
mod oracle;
mod pages;
mod props;
#[path = "../support/mod.rs"]
mod support;
