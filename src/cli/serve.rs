//! `kvgauge serve`: settings, threads, signals, and the way out.

mod reload;
mod signals;
mod sockets;
mod supervisor;

use super::args;
use crate::admin::{Admin, Conflicts, Gate, Live, Shared, Sharing};
use crate::config::{Holder, Settings};
use crate::engine;
use crate::kv;
use crate::net;
use crate::proxy::{Phase, Plane, Running};
use crate::publish::{Chronicle, Chronicler, Publisher, Stamps};
use crate::scrape::Scraper;
use crate::telemetry::log::Log;
use crate::telemetry::{Meters, Telemetry, init_diagnostics, watch_panics};
use anyhow::Context as _;
use reload::Reloader;
use signals::{Signals, Told};
use sockets::Sockets;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use supervisor::Supervisor;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{interval, sleep, timeout};

/// How often recorded samples are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often the end of the last stream is looked for while draining.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// A running kvgauge: both planes, and the lever that ends them.
pub struct Server {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators connect.
    pub admin: SocketAddr,
    settings: Arc<Holder>,
    gate: Gate,
    telemetry: Arc<Telemetry>,
    snapshot: kv::Handle,
    phase: watch::Sender<Phase>,
    running: Running,
    metrics_plane: MetricsPlane,
    log: Log,
}

struct MetricsPlane {
    thread: JoinHandle<()>,
    /// Dropped to end the thread.
    _alive: oneshot::Sender<()>,
}

/// Runs `kvgauge serve`.
#[must_use]
pub fn run(args: &args::Serve) -> ExitCode {
    init_diagnostics();
    let settings = match reload::read(args) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(error.exit_code());
        }
    };
    match serve(args, settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &args::Serve, settings: Settings) -> anyhow::Result<()> {
    // While this is the only thread.
    let sockets = Sockets::open(&settings)?;
    let supervisor = Supervisor::new();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Before anything is announced, so that a signal that answers the announcement drains.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let server = Server::start_on(sockets, settings, std::io::stdout())?;
    let holder = Arc::clone(&server.settings);
    let reloader = Reloader::new(args, holder, server.gate.clone(), &server.telemetry);
    server.announce();
    supervisor.ready(&format!("serving on {}", server.listen));
    let life = async {
        let mut told = None;
        let by_command = loop {
            let next = match told.take() {
                Some(told) => told,
                None => signals.next().await,
            };
            match next {
                Told::End(name) => {
                    tracing::info!("{name}: draining. A second signal cuts what still runs.");
                    break false;
                }
                Told::Drain => {
                    tracing::info!(
                        "SIGUSR1 (kvgauge drain): draining. SIGTERM goes on with that, a second one cuts what still runs."
                    );
                    break true;
                }
                Told::Reload => told = reload(&reloader, &supervisor, &mut signals).await,
            }
        };
        supervisor.stopping();
        server.leave(told_to_cut(signals, by_command)).await;
    };
    runtime.block_on(async {
        tokio::select! {
            () = life => {}
            () = supervisor.watch(&server) => {}
        }
    });
    server.end()
}

/// Reads the settings anew; what kvgauge has been told meanwhile, which is to be done next. Who is to drain
/// does not wait for them.
async fn reload(
    reloader: &Reloader,
    supervisor: &Supervisor,
    signals: &mut Signals,
) -> Option<Told> {
    supervisor.reloading();
    let mut reload = pin!(reloader.reload());
    let mut again = None;
    loop {
        tokio::select! {
            status = &mut reload => {
                supervisor.ready(&status);
                return again;
            }
            // The file may have changed since it was read.
            told = signals.next() => match told {
                Told::Reload => again = Some(told),
                Told::Drain | Told::End(_) => {
                    tracing::warn!("SIGHUP: the settings are not waited for, as kvgauge is to drain");
                    return Some(told);
                }
            },
        }
    }
}

/// Returns when what still runs is to be cut: at the second signal that ends. Where the drain was begun
/// by `kvgauge drain`, the first one after it is that of whoever had it begun so: the SIGTERM that follows
/// a container's `preStop` hook.
async fn told_to_cut(mut signals: Signals, mut by_command: bool) {
    loop {
        match signals.next().await {
            Told::Reload => {
                tracing::warn!(
                    "SIGHUP: the settings are not read any more, as kvgauge is draining"
                );
            }
            Told::Drain => tracing::info!("SIGUSR1 (kvgauge drain): draining already"),
            Told::End(name) if by_command => {
                by_command = false;
                tracing::info!("{name}: draining already. Another signal cuts what still runs.");
            }
            Told::End(_) => return,
        }
    }
}

// === impl Server ===

impl Server {
    /// Binds both listeners and starts all threads. The request log goes to `log`.
    ///
    /// # Errors
    /// When an address can't be bound or a thread can't be started.
    pub fn start(
        settings: Settings,
        log: impl std::io::Write + Send + 'static,
    ) -> anyhow::Result<Server> {
        Server::start_on(Sockets::bind(&settings)?, settings, log)
    }

    fn start_on(
        sockets: Sockets,
        settings: Settings,
        log: impl std::io::Write + Send + 'static,
    ) -> anyhow::Result<Server> {
        let Sockets { clients, operators } = sockets;
        let (listen, admin) = (clients.addr, operators.addr);
        let descriptors = net::raise_descriptor_limit();
        let settings = Arc::new(settings);
        let holder = Arc::new(Holder::new(Arc::clone(&settings)));

        let telemetry = Telemetry::new();
        watch_panics(&telemetry);
        // Before anybody can ask: the first page has every family that the workers will count in.
        drop(Meters::new(&telemetry));
        let log = Log::start(log, settings.log_queue_bytes, telemetry.log_lines_dropped())
            .context("The log's writer can't be started")?;
        let (phase, phases) = watch::channel(Phase::Serving);
        let snapshot = kv::Handle::default();
        let changed = Arc::new(Notify::new());
        let scraper = {
            let changed = Arc::clone(&changed);
            let on_read = move || changed.notify_one();
            Scraper::new(holder.current(), snapshot.clone(), on_read)
        };
        let max_age = settings.scrape.max_age;
        let headline = settings.headers.headline;
        let nothing_yet = engine::observe(&snapshot.load(), Instant::now(), max_age);
        let stamps = Stamps::new(&nothing_yet, headline);

        let chronicle = Chronicle::default();
        let gate = Gate::new(&settings);
        let shared = Shared {
            settings: holder.current(),
            board: scraper.board(),
            telemetry: Arc::clone(&telemetry),
            phase: phases.clone(),
            conflicts: Conflicts::default(),
            sharing: Sharing::new(&telemetry),
            gate: gate.clone(),
            chronicle: chronicle.clone(),
            recent: log.recent(),
            live: Live::default(),
            started: Instant::now(),
        };
        let publisher = Publisher {
            snapshot: snapshot.clone(),
            stamps: stamps.clone(),
            changed,
            settings: holder.current(),
        };
        let chronicler = Chronicler {
            chronicle,
            snapshot: snapshot.clone(),
            telemetry: Arc::clone(&telemetry),
            settings: holder.current(),
        };
        let metrics_plane =
            MetricsPlane::start(operators.listener, shared, scraper, publisher, chronicler)
                .context("The metrics plane can't be started")?;
        let running = Plane {
            connections: settings.limits.connections_within(descriptors),
            settings,
            stamps,
            telemetry: Arc::clone(&telemetry),
            phase: phases,
        }
        .start(clients.listener, &log)
        .context("The workers can't be started")?;
        Ok(Server {
            listen,
            admin,
            settings: holder,
            gate,
            telemetry,
            snapshot,
            phase,
            running,
            metrics_plane,
            log,
        })
    }

    /// What each role says now.
    #[must_use]
    pub fn observe(&self) -> Vec<kv::RoleState> {
        let max_age = self.settings.now().scrape.max_age;
        engine::observe(&self.snapshot.load(), Instant::now(), max_age)
    }

    /// Says where to look, on standard error.
    fn announce(&self) {
        let upstream = &self.settings.now().upstream;
        tracing::info!(
            "listening on {}, forwarding to http://{}",
            self.listen,
            upstream.authority()
        );
        tracing::info!(
            "admin on {} (metrics: http://{}/metrics)",
            self.admin,
            self.admin
        );
    }

    /// Readiness off, the listener closed after `drain.delay`, streams given `drain.timeout` to
    /// finish; `cut` ends all waiting.
    pub async fn leave(&self, cut: impl Future<Output = ()>) {
        let drain = self.settings.now().drain.clone();
        self.phase.send_replace(Phase::Leaving);
        let orderly = async {
            sleep(drain.delay).await;
            self.phase.send_replace(Phase::Draining);
            timeout(drain.timeout, self.drained()).await.is_ok()
        };
        let finished = tokio::select! {
            finished = orderly => finished,
            () = cut => false,
        };
        if finished {
            tracing::info!("drained: every request has finished");
        } else {
            let left = self.running.requests();
            self.telemetry.drained().increment(left as u64);
            tracing::warn!(requests = left, "cutting what still runs");
        }
        self.phase.send_replace(Phase::Cutting);
    }

    async fn drained(&self) {
        while !self.running.ended() {
            sleep(DRAIN_POLL).await;
        }
    }

    /// Waits for the threads; the last log line is written when this returns.
    ///
    /// # Errors
    /// What a worker failed with.
    pub fn end(self) -> anyhow::Result<()> {
        self.phase.send_replace(Phase::Cutting);
        let result = self.running.join().context("A worker failed");
        self.log.finish();
        self.metrics_plane.end();
        result
    }
}

// === impl MetricsPlane ===

impl MetricsPlane {
    fn start(
        operators: TcpListener,
        shared: Shared,
        scraper: Scraper,
        publisher: Publisher,
        chronicler: Chronicler,
    ) -> std::io::Result<MetricsPlane> {
        let (alive, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("kvgauge-metrics".into())
            .spawn(move || {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default());
                match runtime {
                    Ok(runtime) => runtime.block_on(watch_and_tell(
                        operators, shared, scraper, publisher, chronicler, ended,
                    )),
                    Err(error) => tracing::error!(%error, "The metrics plane has no runtime: everything stays unknown."),
                }
            })?;
        Ok(MetricsPlane {
            thread,
            _alive: alive,
        })
    }

    fn end(self) {
        drop(self._alive);
        let _ = self.thread.join();
    }
}

/// The metrics plane: sources, stamp, operators, upkeep.
async fn watch_and_tell(
    operators: TcpListener,
    shared: Shared,
    scraper: Scraper,
    publisher: Publisher,
    chronicler: Chronicler,
    ended: oneshot::Receiver<()>,
) {
    let telemetry = Arc::clone(&shared.telemetry);
    scraper.spawn();
    tokio::task::spawn_local(publisher.run());
    tokio::task::spawn_local(chronicler.run());
    match Admin::new(operators, shared) {
        Ok(admin) => drop(tokio::task::spawn_local(admin.run())),
        Err(error) => tracing::error!(%error, "The operators' listener can't be used."),
    }
    tokio::task::spawn_local(async move {
        let mut ticks = interval(UPKEEP);
        loop {
            ticks.tick().await;
            telemetry.upkeep();
        }
    });
    let _ = ended.await;
}
