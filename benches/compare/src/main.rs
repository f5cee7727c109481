//! Plays the upstream, and puts load on proxies as it is told on standard input: a command a line,
//! an answer of JSON a line.
//!
//! ```text
//! load NAME=FILE…     plays the upstream, with each file as the metrics page /NAME
//!
//! json to=ADDRESS connections=32 count=40000
//! turns to=ADDRESS,ADDRESS count=500
//! streams to=ADDRESS connections=200 count=400 events=256 size=190 every_us=5000 spread_ms=200
//! upload to=ADDRESS connections=4 count=20 bytes=10485760
//! idle to=ADDRESS streams=1000
//! release
//! ```

use load::answers::Shape;
use load::client::{self, Ask};
use load::idle::Idle;
use load::tally::Tally;
use load::upstream::{self, Upstream};
use load::wire::Fault;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// Whoever has not answered by then has failed.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("load: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Fault> {
    let mut pages = HashMap::new();
    for page in std::env::args().skip(1) {
        let (name, file) = page.split_once('=').ok_or("usage: load NAME=FILE…")?;
        let text = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        pages.insert(format!("/{name}"), text);
    }
    let (release, released) = watch::channel(0);
    let upstream = Arc::new(Upstream {
        pages,
        release: released,
    });
    let (told, address) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || -> Result<(), Fault> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(in_words)?;
        runtime.block_on(async {
            let (listener, address) = upstream::listen().map_err(in_words)?;
            told.send(address).map_err(in_words)?;
            upstream::serve(listener, upstream).await;
            Ok(())
        })
    });
    let address = address.recv().map_err(|_| "the upstream can't listen")?;
    say(&format!(r#"{{"upstream":"{address}"}}"#))?;

    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(in_words)?;
    let mut idle = Idle::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(in_words)?;
        say(&runtime.block_on(obey(&line, &mut idle, &release))?)?;
    }
    Ok(())
}

fn in_words(error: impl ToString) -> Fault {
    error.to_string()
}

fn say(line: &str) -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(in_words)
}

async fn obey(line: &str, idle: &mut Idle, release: &watch::Sender<u64>) -> Result<String, Fault> {
    let command = Command(line);
    let mut tally = match line.split(' ').next() {
        Some("json") => command.closed_loop(Ask::chat(LIMIT), 0).await?,
        Some("streams") => {
            let shape = Shape {
                events: command.word("events")?,
                size: command.word("size")?,
                every_us: command.word("every_us")?,
                hold: false,
            };
            command
                .closed_loop(Ask::stream(shape, LIMIT), command.word("spread_ms")?)
                .await?
        }
        Some("upload") => {
            command
                .closed_loop(Ask::upload(command.word("bytes")?, LIMIT), 0)
                .await?
        }
        Some("turns") => {
            let to = command.word::<String>("to")?;
            let to: Result<Vec<SocketAddr>, _> = to.split(',').map(str::parse).collect();
            let to = to.map_err(|error| format!("{line}: {error}"))?;
            let tallies = client::turns(&to, &Ask::chat(LIMIT), command.word("count")?).await;
            let lines: Vec<String> = tallies.into_iter().map(|mut tally| tally.json()).collect();
            return Ok(format!("[{}]", lines.join(",")));
        }
        Some("idle") => {
            idle.open(command.word("to")?, command.word("streams")?, LIMIT)
                .await
        }
        Some("release") => idle.close(release, LIMIT).await,
        _ => return Err(format!("no such command: {line}")),
    };
    Ok(tally.json())
}

/// A line of words, some of them NAME=VALUE.
struct Command<'a>(&'a str);

impl Command<'_> {
    fn word<T: FromStr>(&self, name: &str) -> Result<T, Fault> {
        self.0
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .find_map(|(key, value)| {
                if key == name {
                    value.parse().ok()
                } else {
                    None
                }
            })
            .ok_or_else(|| format!("{name}= is missing or wrong: {}", self.0))
    }

    async fn closed_loop(&self, ask: Ask, spread_ms: u64) -> Result<Tally, Fault> {
        let spread = Duration::from_millis(spread_ms);
        let (to, connections) = (self.word("to")?, self.word("connections")?);
        Ok(client::closed_loop(to, ask, connections, self.word("count")?, spread).await)
    }
}
