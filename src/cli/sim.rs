//! `kvgauge sim` (hidden): simulated servers in a process of their own, for tests with real routers
//! and for trying `kvgauge serve` without a GPU.

use crate::kv::Role;
use crate::sim::{EngineConfig, Worker};
use anyhow::Context as _;
use std::net::SocketAddr;

/// What to simulate. Without any address: a whole deployment on the ports that `kvgauge serve`
/// expects.
#[derive(Clone, Debug, clap::Args)]
pub struct SimArgs {
    /// The model's name.
    #[arg(long, default_value = "demo/llama-70b")]
    pub model: String,
    /// A prefill server at this address; may be repeated.
    #[arg(long, value_name = "ADDR")]
    pub prefill: Vec<SocketAddr>,
    /// A decode server at this address; may be repeated.
    #[arg(long, value_name = "ADDR")]
    pub decode: Vec<SocketAddr>,
    /// A server that does both at this address; may be repeated.
    #[arg(long, value_name = "ADDR")]
    pub unified: Vec<SocketAddr>,
    /// Tokens that each pool can hold.
    #[arg(long, default_value_t = 2_581_504)]
    pub capacity: u64,
    /// The same seed and requests give the same run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs until it is told to end.
///
/// # Errors
/// When an address can't be bound.
pub fn sim(args: &SimArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start a runtime")?;
    runtime.block_on(async {
        let mut workers: Vec<Worker> = Vec::new();
        for (role, addresses) in [
            (Role::Prefill, &args.prefill),
            (Role::Decode, &args.decode),
            (Role::Unified, &args.unified),
        ] {
            for addr in addresses {
                let config = EngineConfig {
                    capacity: args.capacity,
                    seed: args.seed + workers.len() as u64,
                    ..EngineConfig::new(role, &args.model)
                };
                workers.push(Worker::start(*addr, config).await?);
            }
        }
        Worker::pair_all(&workers);
        for worker in &workers {
            println!("{} http://{}", worker.runner.config().role, worker.addr);
        }
        tokio::signal::ctrl_c()
            .await
            .context("can't wait for a signal")
    })
}
