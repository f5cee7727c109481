//! What stands around a proxy while `benches/compare/run` measures it: an upstream that plays an LLM
//! router, and a client that checks every byte of every answer.
//!
//! Both live in one process, so that they share a clock: an event says when it was sent.

pub mod answers;
pub mod client;
pub mod clock;
pub mod idle;
pub mod tally;
pub mod upstream;
pub mod wire;
