//! `kvgauge demo`: a simulated deployment, kvgauge in front of it, gentle load, and a line that shows
//! how full the pools are.

use crate::kv::{Handle, Role, Snapshot, Unknown};
use crate::sim::{Deployment, DeploymentConfig, Load, LoadStats};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The model that the demo pretends to serve.
pub const MODEL: &str = "demo/llama-70b";

/// Arguments of `kvgauge demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Where clients connect; port 0 is any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The operators' listener; port 0 is any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,
    /// The same seed gives the same requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Where the simulated servers listen: what kvgauge is to be pointed at.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    /// The router's API: kvgauge's upstream.
    pub router: SocketAddr,
    /// The router's metrics, at `/metrics`.
    pub router_metrics: SocketAddr,
    /// The prefill server, its page at `/metrics`.
    pub prefill: SocketAddr,
    /// The decode server, its page at `/metrics`.
    pub decode: SocketAddr,
}

/// A kvgauge that runs, as far as the demo needs it.
pub struct Front {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The operators' listener.
    pub admin: SocketAddr,
    /// What its scraper has read.
    pub snapshot: Handle,
    /// Ends it; returns when it has ended.
    pub stop: Box<dyn FnOnce()>,
}

/// Runs the demo until it is told to end. `start` starts kvgauge in front of the simulation; its
/// request log must not go to standard output, where the demo draws.
///
/// # Errors
/// When the simulation or kvgauge can't be started.
pub fn demo(
    args: &DemoArgs,
    start: impl FnOnce(&DemoArgs, Simulated) -> anyhow::Result<Front>,
) -> anyhow::Result<()> {
    let deployment = Deployment::start(deployment(MODEL, args.seed))
        .context("can't start the simulated deployment")?;
    let simulated = Simulated {
        router: deployment.router,
        router_metrics: deployment.router_metrics,
        prefill: deployment.prefill,
        decode: deployment.decode,
    };
    let front = start(args, simulated)?;
    let load = Load {
        seed: args.seed,
        ..Load::new(MODEL)
    };
    let stats = deployment.load(front.listen, load);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start a runtime")?;
    let mut out = io::stdout();
    let drawn = write!(out, "{}", where_to_look(&front, simulated)).and_then(|()| out.flush());
    if drawn.is_ok() {
        runtime.block_on(async {
            tokio::select! {
                ended = told_to_end() => ended,
                // Whoever read it has gone: nothing to say, nothing to complain about.
                _ = draw(&front.snapshot, &stats, &mut out) => Ok(()),
            }
        })?;
    }
    if out.is_terminal() {
        let _ = writeln!(out);
    }
    // The load ends before kvgauge, so that there is nothing left to drain.
    drop(deployment);
    (front.stop)();
    Ok(())
}

/// The demo's deployment: quick enough that every scrape finds something new.
pub(super) fn deployment(model: &str, seed: u64) -> DeploymentConfig {
    let mut config = DeploymentConfig::new(model, seed);
    for engine in [&mut config.prefill_engine, &mut config.decode_engine] {
        // Forty steps between two reports: 0.8 s, less than the scrape interval.
        engine.decode_step = Duration::from_millis(20);
        engine.stream_interval = 4;
    }
    config
}

/// Waits for an interrupt or a termination signal.
pub(super) async fn told_to_end() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("can't wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for signals")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn where_to_look(front: &Front, simulated: Simulated) -> String {
    let (listen, admin) = (front.listen, front.admin);
    let Simulated {
        router,
        router_metrics,
        prefill,
        decode,
    } = simulated;
    format!(
        "A simulated SGLang deployment with kvgauge in front of it, under load. Ctrl-C ends it.\n\
         \n  A chat call; look at X-KV-Usage and X-KV-Pools, and call again a second later:\n    \
         curl -i http://{listen}/v1/chat/completions -H 'content-type: application/json' \
         -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}],\"max_tokens\":16}}'\n\
         \n  Router, engines and kvgauge as one Prometheus target:\n    curl http://{admin}/metrics\n\
         \n  The KV state as JSON:\n    curl http://{admin}/kv\n\
         \n  Behind it: router http://{router} (metrics http://{router_metrics}), \
         prefill http://{prefill}, decode http://{decode}\n\n"
    )
}

/// Draws the line once a second; every five seconds, one below the other, where it is no terminal.
async fn draw(
    snapshot: &Handle,
    stats: &LoadStats,
    out: &mut (impl Write + IsTerminal),
) -> io::Result<()> {
    let terminal = out.is_terminal();
    let mut ticks = tokio::time::interval(Duration::from_secs(if terminal { 1 } else { 5 }));
    loop {
        ticks.tick().await;
        let clients = stats.active.load(Ordering::Relaxed);
        let line = live_line(&snapshot.load(), clients);
        if terminal {
            write!(out, "\r\x1b[2K{line}")?;
        } else {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}

/// `decode 34.12% [#######.............]   880,768 / 2,581,504 tokens | running 14 queued 0 | …`
fn live_line(snapshot: &Snapshot, clients: u64) -> String {
    let mut line = String::from("decode ");
    match State::of(snapshot, Role::Decode) {
        Ok(state) => {
            let bar = (state.usage * 20.0).round() as usize;
            let _ = write!(
                line,
                "{:5.2}% [{:.<20}] {:>9} / {} tokens | running {} queued {}",
                state.usage * 100.0,
                "#".repeat(bar.min(20)),
                number(state.used),
                number(state.capacity),
                number(state.running),
                number(state.queued),
            );
        }
        Err(why) => {
            let _ = write!(line, "unknown ({why})");
        }
    }
    match State::of(snapshot, Role::Prefill) {
        Ok(state) => {
            let _ = write!(line, " | prefill {:.2}%", state.usage * 100.0);
        }
        Err(why) => {
            let _ = write!(line, " | prefill unknown ({why})");
        }
    }
    let _ = write!(line, " | clients {clients}");
    line
}

/// A role's pools together.
#[derive(Debug, PartialEq)]
struct State {
    usage: f64,
    used: Option<u64>,
    capacity: Option<u64>,
    running: Option<u64>,
    queued: Option<u64>,
}

impl State {
    /// Of the first pool of the role: the demo has one.
    fn of(snapshot: &Snapshot, role: Role) -> Result<State, Unknown> {
        let source = snapshot
            .sources
            .iter()
            .find(|source| source.role == Some(role))
            .ok_or(Unknown::NotRead)?;
        let reading = source.reading.as_ref().ok_or(Unknown::NotRead)?;
        let pool = reading.pools.first().ok_or(Unknown::Absent)?;
        Ok(State {
            usage: pool.usage?,
            used: pool.used,
            capacity: pool.capacity,
            running: pool.running,
            queued: pool.queued,
        })
    }
}

/// With thousands separated; `?` for what is not known.
fn number(value: Option<u64>) -> String {
    let Some(value) = value else {
        return "?".to_owned();
    };
    let digits = value.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Pool, Reading, SourceState};
    use std::sync::Arc;

    fn source(role: Role, pool: Pool) -> Arc<SourceState> {
        Arc::new(SourceState {
            name: role.as_str().into(),
            url: "http://127.0.0.1:1/metrics".into(),
            role: Some(role),
            up: Some(true),
            reading: Some(Arc::new(Reading {
                engine: Some("sglang"),
                role: Some(role),
                pools: vec![pool],
                chosen: Vec::new(),
                odd: Vec::new(),
            })),
            taken: None,
            unchanged_since: None,
            duration: None,
            samples: None,
            bytes: None,
            failure: None,
        })
    }

    #[test]
    fn the_live_line_shows_what_was_read() {
        let decode = Pool {
            usage: Ok(0.5),
            used: Some(1_290_752),
            capacity: Some(2_581_504),
            running: Some(14),
            ..Pool::unknown(Unknown::Absent)
        };
        let snapshot = Snapshot {
            sources: vec![
                source(Role::Prefill, Pool::unknown(Unknown::Absent)),
                source(Role::Decode, decode),
            ],
        };
        assert_eq!(
            live_line(&snapshot, 15),
            "decode 50.00% [##########..........] 1,290,752 / 2,581,504 tokens | running 14 queued ? \
             | prefill unknown (absent) | clients 15"
        );
    }

    #[test]
    fn before_the_first_reading_nothing_is_known() {
        assert_eq!(
            live_line(&Snapshot::default(), 0),
            "decode unknown (not_read) | prefill unknown (not_read) | clients 0"
        );
    }

    #[test]
    fn thousands_are_separated() {
        for (value, shown) in [
            (0, "0"),
            (999, "999"),
            (12_034, "12,034"),
            (2_581_504, "2,581,504"),
        ] {
            assert_eq!(number(Some(value)), shown);
        }
    }

    #[test]
    fn the_demo_runs_with_a_front_and_says_where_to_look() {
        let front = Front {
            listen: SocketAddr::from(([127, 0, 0, 1], 30_080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 30_090)),
            snapshot: Handle::default(),
            stop: Box::new(|| {}),
        };
        let deployment = Deployment::start(deployment(MODEL, 1)).unwrap();
        let text = where_to_look(
            &front,
            Simulated {
                router: deployment.router,
                router_metrics: deployment.router_metrics,
                prefill: deployment.prefill,
                decode: deployment.decode,
            },
        );
        for part in [
            "curl -i http://127.0.0.1:30080/v1/chat/completions -H 'content-type: application/json' -d '{\"model\":\"demo/llama-70b\"",
            "curl http://127.0.0.1:30090/metrics\n",
            "curl http://127.0.0.1:30090/kv\n",
        ] {
            assert!(text.contains(part), "{part}\nin\n{text}");
        }
    }
}
