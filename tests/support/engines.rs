//! Simulated engines for the real router, served from this process.

use kvgauge::kv::Role;
use kvgauge::sim::{EngineConfig, Worker};
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

pub(crate) const MODEL: &str = "/models/tiny";

/// Engines on a thread of their own.
pub(crate) struct Engines {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engines {
    /// One of each role, which hand over to each other; warmed up, so that gauges exist.
    pub(crate) fn start(roles: &[Role]) -> Self {
        Self::with(roles, true)
    }

    /// The same, warmed up or as they have just started.
    pub(crate) fn with(roles: &[Role], warmup: bool) -> Self {
        let roles = roles.to_vec();
        let (stop, stopped) = oneshot::channel();
        let (started, addresses) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut workers = Vec::new();
                for role in roles {
                    let config = EngineConfig {
                        warmup,
                        decode_step: Duration::from_millis(5),
                        ..EngineConfig::new(role, MODEL)
                    };
                    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
                    workers.push(Worker::start(anywhere, config).await.unwrap());
                }
                pair(&workers);
                started
                    .send(workers.iter().map(|worker| worker.addr).collect())
                    .unwrap();
                // Ends when the test drops its half.
                let _ = stopped.await;
            });
        });
        let addresses = addresses.recv().unwrap();
        Self {
            addresses,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self, n: usize) -> SocketAddr {
        self.addresses[n]
    }

    pub(crate) fn metrics_url(&self, n: usize) -> String {
        format!("http://{}/metrics", self.addresses[n])
    }
}

/// Lets each prefill engine hand over to each decode engine.
fn pair(workers: &[Worker]) {
    let of = |role| {
        workers
            .iter()
            .filter(move |worker| worker.runner.config().role == role)
    };
    for prefill in of(Role::Prefill) {
        for decode in of(Role::Decode) {
            prefill.runner.pair(&decode.runner);
        }
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
