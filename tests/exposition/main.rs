//! The exposition room from outside: real pages, public cases, odd pages, and strict readers that
//! share no code with it. Other people's readers: `tests/real_readers`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod checkers;
mod filter;
mod kit;
mod odd;
mod pages;
mod props;

use kit::{LIMITS, case, check, error, merge_texts, prepare, read, real, strict};
