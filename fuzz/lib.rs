//! The exposition room by itself, for fuzzing.

#[path = "../src/exposition/mod.rs"]
pub mod exposition;
