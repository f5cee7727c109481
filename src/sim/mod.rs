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
mod scenario;
mod wire;
mod worker;

pub use deployment::{Deployment, DeploymentConfig, Servers};
pub use engine::{
    DataParallel, Engine, EngineConfig, Event, Loads, Prefix, Refused, Request, RequestId,
};
pub use load::{Arrivals, Call, Load, LoadStats, Rate, Traffic};
pub use router::{Backend, Router};
pub use runner::{Condition, End, Progress, Runner, Ticket};
pub use scenario::{Scenario, Script};
pub use wire::Handle;
pub use worker::Worker;
