//! `kvgauge demo`: a simulated deployment that goes through a scenario, kvgauge in front of it, load,
//! and a line that shows how full the pools are.

use super::role_line::number;
use super::scenario::ScenarioParser;
use super::serve::Server;
use crate::config::{Admin, Settings, Source, Target};
use crate::kv::{Role, RoleState, Unknown};
use crate::net;
use crate::sim::{Deployment, LoadStats, Scenario};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::{Instant, interval_at, sleep};

/// The engines publish their gauges with the first batch, about a second after the start.
const FIRST_LINE: Duration = Duration::from_secs(2);

/// For calls of a person's that still run when the demo ends.
const LEAVE: Duration = Duration::from_secs(2);

/// The model that the demo pretends to serve.
pub const MODEL: &str = "demo/llama-70b";

/// Arguments of `kvgauge demo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct DemoArgs {
    /// What happens to the deployment
    #[arg(long, value_name = "NAME", value_parser = ScenarioParser, default_value = Scenario::default().name())]
    pub scenario: Scenario,
    /// Where clients connect [default: 127.0.0.1:30080, or a free port where that is taken]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where operators connect [default: 127.0.0.1:30090, or a free port where that is taken]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// The same seed gives the same requests at the same times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Runs the demo until it is told to end.
#[must_use]
pub fn run(args: &DemoArgs) -> ExitCode {
    // The screen is the demo's; what matters of the diagnostics is in the line it draws.
    match demo(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    let deployment = Deployment::start(args.scenario.deployment(MODEL, args.seed))
        .context("The simulated deployment can't be started")?;
    let server = Server::start(settings(args, &deployment), io::sink())?;
    let stats = deployment.load(server.listen, args.scenario.load(MODEL, args.seed));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("There is no runtime for the demo")?;
    let mut out = io::stdout();
    let drawn = write!(
        out,
        "{}",
        where_to_look(args.scenario, &server, &deployment)
    )
    .and_then(|()| out.flush());
    if drawn.is_ok() {
        runtime.block_on(async {
            tokio::select! {
                ended = told_to_end() => ended,
                // Whoever read it has gone: nothing to say, nothing to complain about.
                _ = draw(&server, &stats, &mut out) => Ok(()),
            }
        })?;
    }
    if out.is_terminal() {
        let _ = writeln!(out);
    }
    // The load ends before kvgauge, so that there is nothing left to drain.
    drop(deployment);
    runtime.block_on(async { server.leave(sleep(LEAVE)).await });
    server.end()
}

/// kvgauge's own defaults, but for the addresses.
fn settings(args: &DemoArgs, deployment: &Deployment) -> Settings {
    let target = |addr: SocketAddr, path: &str| Target {
        tls: false,
        server_name: None,
        host: addr.ip().to_string().into(),
        port: addr.port(),
        path: path.into(),
    };
    let source = |name: &str, addr, role| Source::new(name.into(), target(addr, "/metrics"), role);
    let defaults = Settings::defaults();
    Settings {
        listen: args.listen.unwrap_or_else(|| free(defaults.listen)),
        admin: Admin {
            listen: args.admin.unwrap_or_else(|| free(defaults.admin.listen)),
            bearer_file: None,
        },
        upstream: target(deployment.router, "/"),
        sources: vec![
            source("router", deployment.router_metrics, None),
            source("prefill", deployment.prefill, Some(Role::Prefill)),
            source("decode", deployment.decode, Some(Role::Decode)),
        ],
        ..defaults
    }
}

/// The address itself, or a free port beside it.
fn free(addr: SocketAddr) -> SocketAddr {
    match net::bind(addr) {
        Ok(_) => addr,
        Err(_) => SocketAddr::new(addr.ip(), 0),
    }
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

fn where_to_look(scenario: Scenario, server: &Server, deployment: &Deployment) -> String {
    let (name, story) = (scenario.name(), scenario.story().replace('\n', "\n  "));
    let (listen, admin) = (server.listen, server.admin);
    let Deployment {
        router,
        router_metrics,
        prefill,
        decode,
        ..
    } = deployment;
    format!(
        "A simulated SGLang deployment with kvgauge in front of it, under load. Ctrl-C ends it.\n\
         \n  Scenario {name} (--scenario NAME for another; --help lists them):\n  {story}\n\
         \n  A chat call; look at X-KV-Usage and X-KV-Pools, and call again a second later:\n    \
         curl -i http://{listen}/v1/chat/completions -H 'content-type: application/json' \
         -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}],\"max_tokens\":16}}'\n\
         \n  All of it in a browser:\n    http://{admin}/\n\
         \n  Router, engines and kvgauge as one Prometheus target:\n    curl http://{admin}/metrics\n\
         \n  The KV state, and where each value comes from:\n    curl http://{admin}/kv\n    curl http://{admin}/sources\n\
         \n  Behind it: router http://{router} (metrics http://{router_metrics}/metrics), \
         prefill http://{prefill}, decode http://{decode}\n    \
         kvgauge doctor --upstream http://{router} router=http://{router_metrics} prefill=http://{prefill} decode=http://{decode}\n\n"
    )
}

/// Draws the line once a second; every five seconds, one below the other, where it is no terminal.
async fn draw(
    server: &Server,
    stats: &LoadStats,
    out: &mut (impl Write + IsTerminal),
) -> io::Result<()> {
    let terminal = out.is_terminal();
    let period = Duration::from_secs(if terminal { 1 } else { 5 });
    // By then there is something to show.
    let mut ticks = interval_at(Instant::now() + FIRST_LINE, period);
    loop {
        ticks.tick().await;
        let clients = stats.active.load(Ordering::Relaxed);
        let line = live_line(&server.observe(), clients);
        if terminal {
            write!(out, "\r\x1b[2K{line}")?;
        } else {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}

/// `decode 34.12% [#######.............]   880,768 / 2,581,504 tokens | running 14 queued 0 | …`
fn live_line(states: &[RoleState], clients: u64) -> String {
    let of = |role: Role| states.iter().find(|state| state.role == role);
    let usage = |state: Option<&RoleState>| state.map_or(Err(Unknown::NotRead), |s| s.usage);
    let mut line = String::from("decode ");
    let decode = of(Role::Decode);
    match usage(decode) {
        Ok(usage) => {
            // 0 to 20.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let bar = (usage * 20.0).round() as usize;
            let _ = write!(
                line,
                "{:5.2}% [{:.<20}] {:>9} / {} tokens | running {} queued {}",
                usage * 100.0,
                "#".repeat(bar.min(20)),
                known(decode.and_then(|s| s.used)),
                known(decode.and_then(|s| s.capacity)),
                known(decode.and_then(|s| s.running)),
                known(decode.and_then(|s| s.queued)),
            );
            line.push_str(&more(decode));
        }
        // The engines publish nothing before their first batch.
        Err(Unknown::Absent) => {
            line.push_str("unknown (absent: no gauges before the first requests)");
        }
        Err(why) => {
            let _ = write!(line, "unknown ({why})");
        }
    }
    match usage(of(Role::Prefill)) {
        Ok(usage) => {
            let _ = write!(line, " | prefill {:.2}%", usage * 100.0);
        }
        Err(why) => {
            let _ = write!(line, " | prefill unknown ({why})");
        }
    }
    let _ = write!(line, " | clients {clients}");
    line
}

/// What is said of decode only where there is something to say: requests that wait for room, and the
/// fullest of several pools.
fn more(decode: Option<&RoleState>) -> String {
    let mut more = String::new();
    let Some(decode) = decode else {
        return more;
    };
    if let Some(waiting) = decode.queues.prealloc.filter(|n| *n > 0) {
        let _ = write!(more, " prealloc {}", number(waiting));
    }
    if let Some(max) = decode.max.filter(|_| decode.pools > 1) {
        let _ = write!(
            more,
            " | fullest of {} pools {:.0}%",
            decode.pools,
            max * 100.0
        );
    }
    more
}

/// `?` for what is not known.
fn known(value: Option<u64>) -> String {
    value.map_or_else(|| "?".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_unknown_in_words_and_numbers_with_thousands() {
        let mut decode = RoleState::unknown(Role::Decode, None, Unknown::Absent);
        let line = live_line(std::slice::from_ref(&decode), 3);
        assert_eq!(
            line,
            "decode unknown (absent: no gauges before the first requests) | prefill unknown (not_read) | clients 3"
        );
        decode.usage = Ok(0.5);
        decode.used = Some(1_290_752);
        decode.capacity = Some(2_581_504);
        let line = live_line(std::slice::from_ref(&decode), 3);
        assert!(line.contains("50.00% [##########..........]"), "{line}");
        assert!(line.contains("1,290,752 / 2,581,504 tokens"), "{line}");
        assert!(line.contains("running ? queued ? | prefill"), "{line}");
        decode.queues.prealloc = Some(1_200);
        decode.max = Some(0.973);
        decode.pools = 4;
        let line = live_line(std::slice::from_ref(&decode), 3);
        let said = "queued ? prealloc 1,200 | fullest of 4 pools 97% | prefill";
        assert!(line.contains(said), "{line}");
    }
}
