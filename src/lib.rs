//! kvgauge: a sidecar reverse proxy for LLM inference that shows how full the KV cache is.
//!
//! It forwards `OpenAI` traffic to a router untouched, reads the Prometheus pages of the router and
//! of the engines behind it, and writes the KV state into the headers of every response, into one
//! log line per request, and onto one Prometheus target. `docs/design.md` is the contract and the
//! map of the rooms; `tests/arrows.rs` holds which room may use which.

pub mod admin;
pub mod cli;
pub mod config;
pub mod engine;
pub mod exposition;
pub mod kv;
pub mod net;
pub mod proxy;
pub mod publish;
pub mod scrape;
pub mod sim;
pub mod telemetry;

pub use cli::run;
