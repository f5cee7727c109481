//! A simulated SGLang deployment: a router with prefill/decode disaggregation, a prefill server and a
//! decode server, for the demo, tests and benches.
//!
//! The pages carry SGLang 0.5.23's names, labels, lazy gauges, rank layout and rounding, and the KV
//! pool fills and drains with the requests that are given. No model runs.

mod deployment;
mod engine;
mod load;
mod page;
mod rng;
mod router;
mod runner;
mod wire;
mod worker;

pub use deployment::{Deployment, DeploymentConfig, Servers};
pub use engine::{Engine, EngineConfig, Event, Loads, Prefix, Refused, Request, RequestId};
pub use load::{Load, LoadStats};
pub use router::{Backend, Router};
pub use runner::{End, Progress, Runner, Ticket};
pub use wire::Handle;
pub use worker::Worker;
