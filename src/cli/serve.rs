//! `kvgauge serve`: settings, threads, signals, and the way out.

use super::args;
use crate::admin::{Admin, Conflicts, Gate, Live, Shared, Sharing};
use crate::config::{self, Settings};
use crate::engine;
use crate::kv;
use crate::net;
use crate::proxy::{Phase, Plane, Running};
use crate::publish::{Chronicle, Chronicler, Publisher, Stamps};
use crate::scrape::Scraper;
use crate::telemetry::log::Log;
use crate::telemetry::{Meters, Telemetry, init_diagnostics, watch_panics};
use anyhow::Context as _;
use std::future::pending;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
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
    settings: Arc<Settings>,
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
    let settings = match config::load(args.config.as_deref(), config::environment(), &args.flags())
    {
        Ok((settings, warnings)) => {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            settings
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(error.exit_code());
        }
    };
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(settings: Settings) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Before anything is announced, so that a signal that answers the announcement drains.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let server = Server::start(settings, std::io::stdout())?;
    server.announce();
    runtime.block_on(async {
        let name = signals.next().await;
        tracing::info!("{name}: draining. A second signal cuts what still runs.");
        let cut = async move {
            let _ = signals.next().await;
        };
        server.leave(cut).await;
    });
    server.end()
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
        let descriptors = net::raise_descriptor_limit();
        let settings = Arc::new(settings);
        let (clients, listen) = bind(settings.listen, "listen")?;
        let (operators, admin) = bind(settings.admin.listen, "admin.listen")?;

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
            Scraper::new(Arc::clone(&settings), snapshot.clone(), on_read)
        };
        let max_age = settings.scrape.max_age;
        let headline = settings.headers.headline;
        let nothing_yet = engine::observe(&snapshot.load(), Instant::now(), max_age);
        let stamps = Stamps::new(&nothing_yet, headline);

        let chronicle = Chronicle::default();
        let shared = Shared {
            settings: Arc::clone(&settings),
            board: scraper.board(),
            telemetry: Arc::clone(&telemetry),
            phase: phases.clone(),
            conflicts: Conflicts::default(),
            sharing: Sharing::new(&telemetry),
            gate: Gate::new(settings.admin.bearer_file.as_ref()),
            chronicle: chronicle.clone(),
            recent: log.recent(),
            live: Live::default(),
            started: Instant::now(),
        };
        let publisher = Publisher {
            snapshot: snapshot.clone(),
            stamps: stamps.clone(),
            changed,
            max_age,
            headline,
        };
        let chronicler = Chronicler {
            chronicle,
            snapshot: snapshot.clone(),
            telemetry: Arc::clone(&telemetry),
            max_age,
        };
        let metrics_plane = MetricsPlane::start(operators, shared, scraper, publisher, chronicler)
            .context("The metrics plane can't be started")?;
        let running = Plane {
            settings: Arc::clone(&settings),
            connections: settings.limits.connections_within(descriptors),
            stamps,
            telemetry: Arc::clone(&telemetry),
            phase: phases,
        }
        .start(clients, &log)
        .context("The workers can't be started")?;
        Ok(Server {
            listen,
            admin,
            settings,
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
        let max_age = self.settings.scrape.max_age;
        engine::observe(&self.snapshot.load(), Instant::now(), max_age)
    }

    /// Says where to look, on standard error.
    fn announce(&self) {
        let upstream = &self.settings.upstream;
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
        let drain = &self.settings.drain;
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

fn bind(addr: SocketAddr, key: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = net::bind(addr).with_context(|| {
        format!("{addr} ({key}) can't be listened on: choose another address, or end what uses it")
    })?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
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

// === signals ===

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where it was ignored at the start, as `nohup` has it.
    hang_up: Option<Signal>,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("SIGTERM can't be watched")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT can't be watched")?,
            hang_up: (!hang_up_is_ignored())
                .then(|| signal(SignalKind::hangup()).context("SIGHUP can't be watched"))
                .transpose()?,
        })
    }

    async fn next(&mut self) -> &'static str {
        let (name, came) = tokio::select! {
            biased;
            came = received(self.hang_up.as_mut()) => ("SIGHUP", came),
            came = self.interrupt.recv() => ("SIGINT", came),
            came = self.terminate.recv() => ("SIGTERM", came),
        };
        if came.is_none() {
            pending::<()>().await;
        }
        name
    }
}

async fn received(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => pending().await,
    }
}

/// Whether whoever started this process has made it deaf to SIGHUP (proc(5), `SigIgn`). Watching the
/// signal would undo that.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hang_up(&status)
}

fn ignores_hang_up(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}
