//! `kvgauge sim` (hidden): simulated servers in a process of their own, for tests with real routers
//! and for trying `kvgauge serve` without a GPU.

use super::scenario::ScenarioParser;
use crate::kv::Role;
use crate::sim::{Deployment, DeploymentConfig, EngineConfig, Scenario, Worker};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::process::ExitCode;

/// What to simulate.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct SimArgs {
    /// The model's name
    #[arg(long, value_name = "NAME", default_value = super::demo::MODEL)]
    pub model: String,
    /// The deployment's router at this address, in place of 127.0.0.1:30001
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["prefill", "decode", "unified"])]
    pub router: Option<SocketAddr>,
    /// No deployment, but a prefill server at this address; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub prefill: Vec<SocketAddr>,
    /// No deployment, but a decode server at this address; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub decode: Vec<SocketAddr>,
    /// No deployment, but a server that does both at this address; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub unified: Vec<SocketAddr>,
    /// The deployment on free ports, which are printed, in place of those that `serve` expects
    #[arg(long, conflicts_with_all = ["prefill", "decode", "unified"])]
    pub free_ports: bool,
    /// What happens to the deployment, as in `kvgauge demo`
    #[arg(long, value_name = "NAME", value_parser = ScenarioParser, conflicts_with_all = ["prefill", "decode", "unified"])]
    pub scenario: Option<Scenario>,
    /// Put the scenario's load on this address: the deployment's router, or a kvgauge in front of it
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["prefill", "decode", "unified"])]
    pub load: Option<SocketAddr>,
    /// Tokens that each pool can hold [default: 2581504, or what the scenario has]
    #[arg(long, value_name = "N")]
    pub capacity: Option<u64>,
    /// The same seed and requests give the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Runs `kvgauge sim`.
#[must_use]
pub fn run(args: &SimArgs) -> ExitCode {
    match sim(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until it is told to end. Prints a line `NAME http://ADDR` for every server once all of them
/// answer.
///
/// # Errors
/// When an address can't be bound.
fn sim(args: &SimArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start a runtime")?;
    if args.prefill.is_empty() && args.decode.is_empty() && args.unified.is_empty() {
        let deployment = Deployment::start(deployment(args))?;
        for (name, addr) in [
            ("router", deployment.router),
            ("router-metrics", deployment.router_metrics),
            ("prefill", deployment.prefill),
            ("decode", deployment.decode),
        ] {
            println!("{name} http://{addr}");
        }
        if let Some(target) = args.load {
            let scenario = args.scenario.unwrap_or_default();
            deployment.load(target, scenario.load(&args.model, args.seed));
        }
        return runtime.block_on(super::demo::told_to_end());
    }
    runtime.block_on(async {
        let mut workers: Vec<Worker> = Vec::new();
        for (role, addresses) in [
            (Role::Prefill, &args.prefill),
            (Role::Decode, &args.decode),
            (Role::Unified, &args.unified),
        ] {
            for addr in addresses {
                let config = EngineConfig::new(role, &args.model);
                let config = EngineConfig {
                    capacity: args.capacity.unwrap_or(config.capacity),
                    seed: args.seed.wrapping_add(workers.len() as u64),
                    // Nobody to hand over to or from: make the transfers up.
                    alone: args.prefill.is_empty() || args.decode.is_empty(),
                    ..config
                };
                workers.push(Worker::start(*addr, config).await?);
            }
        }
        Worker::pair_all(&workers);
        for worker in &workers {
            println!("{} http://{}", worker.runner.config().role, worker.addr);
        }
        super::demo::told_to_end().await
    })
}

fn deployment(args: &SimArgs) -> DeploymentConfig {
    let scenario = args.scenario.unwrap_or_default();
    let mut config = scenario.deployment(&args.model, args.seed);
    if let Some(capacity) = args.capacity {
        config.prefill_engine.capacity = capacity;
        config.decode_engine.capacity = capacity;
    }
    if !args.free_ports {
        config = config.on_default_ports();
    }
    config.router = args.router.unwrap_or(config.router);
    config
}
