//! A whole simulated deployment: router, prefill and decode server, on a thread of its own.

use super::engine::EngineConfig;
use super::load::{Load, LoadStats};
use super::router::{Backend, Router};
use super::runner::AbortOnDrop;
use super::scenario::Script;
use super::worker::Worker;
use crate::kv::Role;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

/// What to simulate, and where it listens. Port 0 is any free one.
#[derive(Clone, Debug)]
pub struct DeploymentConfig {
    /// The router's API.
    pub router: SocketAddr,
    /// The router's metrics.
    pub router_metrics: SocketAddr,
    /// The prefill server.
    pub prefill: SocketAddr,
    /// The decode server.
    pub decode: SocketAddr,
    /// The prefill engine; its role is set.
    pub prefill_engine: EngineConfig,
    /// The decode engine; its role is set.
    pub decode_engine: EngineConfig,
    /// What happens to the decode server.
    pub decode_script: Option<Script>,
}

impl DeploymentConfig {
    /// A deployment of `model` on free ports of loopback.
    #[must_use]
    pub fn new(model: &str, seed: u64) -> DeploymentConfig {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let engine = |role| EngineConfig {
            seed,
            ..EngineConfig::new(role, model)
        };
        DeploymentConfig {
            router: free,
            router_metrics: free,
            prefill: free,
            decode: free,
            prefill_engine: engine(Role::Prefill),
            decode_engine: engine(Role::Decode),
            decode_script: None,
        }
    }

    /// On the ports that `kvgauge serve` expects without settings.
    #[must_use]
    pub fn on_default_ports(self) -> DeploymentConfig {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        DeploymentConfig {
            router: at(30_001),
            router_metrics: at(29_001),
            prefill: at(30_000),
            decode: at(30_002),
            ..self
        }
    }
}

/// The servers of a deployment, on whatever runtime they were started. Dropping it ends them.
#[derive(Debug)]
pub struct Servers {
    /// The router.
    pub router: Router,
    /// The prefill server.
    pub prefill: Worker,
    /// The decode server.
    pub decode: Worker,
    _script: Option<AbortOnDrop>,
}

impl Servers {
    /// Starts the servers on the current runtime, so that a test can pause their clock.
    ///
    /// # Errors
    /// When an address can't be bound.
    pub async fn start(config: DeploymentConfig) -> io::Result<Servers> {
        let engine = |role, engine| EngineConfig { role, ..engine };
        let seed = config.decode_engine.seed;
        let prefill = engine(Role::Prefill, config.prefill_engine);
        let decode = engine(Role::Decode, config.decode_engine);
        let prefill = Worker::start(config.prefill, prefill).await?;
        let decode = Worker::start(config.decode, decode).await?;
        prefill.runner.pair(&decode.runner);
        let backend = |worker: &Worker| Backend {
            url: format!("http://{}", worker.addr),
            runner: worker.runner.clone(),
        };
        let (from, to) = (backend(&prefill), backend(&decode));
        let router = Router::start(config.router, config.router_metrics, from, to, seed).await?;
        let play = |script: Script| AbortOnDrop(tokio::spawn(script.run(decode.runner.clone())));
        Ok(Servers {
            _script: config.decode_script.map(play),
            router,
            prefill,
            decode,
        })
    }
}

/// A deployment on a thread and a runtime of its own, so that it never runs where kvgauge does.
/// Dropping it ends it and waits for its thread.
#[derive(Debug)]
pub struct Deployment {
    /// The router's API.
    pub router: SocketAddr,
    /// The router's metrics.
    pub router_metrics: SocketAddr,
    /// The prefill server.
    pub prefill: SocketAddr,
    /// The decode server.
    pub decode: SocketAddr,
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Deployment {
    /// Starts a deployment; its servers answer when this returns.
    ///
    /// # Errors
    /// When the thread can't be started or an address can't be bound.
    pub fn start(config: DeploymentConfig) -> io::Result<Deployment> {
        let (started, wait) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("sim".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                let handle = runtime.handle().clone();
                runtime.block_on(async move {
                    match Servers::start(config).await {
                        Ok(servers) => {
                            let addresses = [
                                servers.router.addr,
                                servers.router.metrics,
                                servers.prefill.addr,
                                servers.decode.addr,
                            ];
                            if started.send(Ok((addresses, handle))).is_ok() {
                                let _ = stopped.await;
                            }
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })?;
        let ended = || io::Error::other("the simulation's thread ended before it had started");
        let ([router, router_metrics, prefill, decode], runtime) =
            wait.recv().map_err(|_| ended())??;
        Ok(Deployment {
            router,
            router_metrics,
            prefill,
            decode,
            runtime,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Puts load on `target`, an HTTP server that speaks the router's API: the router itself or what
    /// stands in front of it. It runs on the deployment's thread, as long as the deployment does.
    pub fn load(&self, target: SocketAddr, load: Load) -> Arc<LoadStats> {
        let stats = Arc::new(LoadStats::default());
        self.runtime.spawn(load.run(target, Arc::clone(&stats)));
        stats
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
