//! kvgauge: a sidecar reverse proxy for LLM inference that shows how full the KV cache is.
//!
//! It forwards `OpenAI` traffic to a router untouched, reads the Prometheus pages of the router and
//! of the engines behind it, and writes the KV state into the headers of every response, into one
//! log line per request, and onto one Prometheus target. `docs/design.md` is the contract and the
//! map of the rooms; `tests/arrows.rs` holds which room may use which.

#![forbid(unsafe_code)]

// The public API. What is hidden is for the binary, the tests and the benches, and may change.
pub mod exposition;
pub mod kv;
pub mod scrape;

#[doc(hidden)]
pub mod admin;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod net;
#[doc(hidden)]
pub mod proxy;
#[doc(hidden)]
pub mod publish;
#[doc(hidden)]
pub mod sim;
#[doc(hidden)]
pub mod telemetry;

pub use cli::run;
pub use proxy::{Stamp, StampLayer, StampNames};
pub use publish::{LoadStamp, Stamps};
