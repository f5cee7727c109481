//! The exposition room by itself: it uses no other, and is built in seconds where kvgauge takes
//! minutes.

#[path = "../../../src/exposition/mod.rs"]
pub mod exposition;
