//! Reading the settings anew, while kvgauge runs: on a thread that nobody waits for who is to end, as a file
//! system may hang.

use crate::admin::{Gate, Reading, TokenNews};
use crate::cli::args;
use crate::config::{self, Change, ConfigError, Holder, Reloaded, Settings, Warning};
use crate::net::aside;
use crate::telemetry::{ReloadResult, Reloads, Telemetry};
use std::fs::metadata;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// For reading the files. One that is there is read within milliseconds.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Threads that may hang in a read at a time.
const MOST_HANGING: usize = 4;

/// Reads them as they were read at the start, and puts in force what can be.
pub struct Reloader {
    args: args::Serve,
    holder: Arc<Holder>,
    gate: Gate,
    reloads: Reloads,
    /// Each thread that reads has one more.
    reading: Arc<()>,
}

/// What has been read.
struct Read {
    settings: Settings,
    warnings: Vec<Warning>,
    token: Reading,
}

/// The settings of file, environment and flags.
///
/// # Errors
/// All that is wrong with them.
pub fn read(args: &args::Serve) -> Result<Settings, ConfigError> {
    let (settings, warnings) = load(args)?;
    warn(&warnings);
    Ok(settings)
}

fn load(args: &args::Serve) -> Result<(Settings, Vec<Warning>), ConfigError> {
    config::load(args.config.as_deref(), config::environment(), &args.flags())
}

fn warn(warnings: &[Warning]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// The same again. At the start a pipe is a file as any other; what was in it has been read.
fn read_again(args: &args::Serve, gate: &Gate) -> Result<Read, String> {
    if let Some(path) = &args.config
        && metadata(path).is_ok_and(|data| data.file_type().is_fifo())
    {
        return Err(format!(
            "{}: is a pipe, which can't be read again: start kvgauge with a file",
            path.display()
        ));
    }
    let (settings, warnings) = load(args).map_err(|error| error.to_string())?;
    Ok(Read {
        token: gate.read_for(&settings),
        settings,
        warnings,
    })
}

// === impl Reloader ===

impl Reloader {
    /// With what they were read from.
    pub fn new(
        args: &args::Serve,
        holder: Arc<Holder>,
        gate: Gate,
        telemetry: &Telemetry,
    ) -> Reloader {
        Reloader {
            args: args.clone(),
            holder,
            gate,
            reloads: Reloads::new(telemetry),
            reading: Arc::default(),
        }
    }

    /// Reads and says what became of it, in one line for whoever asks how kvgauge is. Settings in which
    /// anything is wrong are refused as a whole. Nothing is in force of what is dropped before its end.
    pub async fn reload(&self) -> String {
        match self.read_aside().await {
            Ok(read) => self.apply(read),
            Err(wrong) => self.refuse(&wrong),
        }
    }

    async fn read_aside(&self) -> Result<Read, String> {
        if Arc::strong_count(&self.reading) > MOST_HANGING {
            return Err(format!(
                "{MOST_HANGING} threads hang in reading them, and there will be no more: mend the file system, \
                 or restart kvgauge"
            ));
        }
        let (args, gate, reading) = (
            self.args.clone(),
            self.gate.clone(),
            Arc::clone(&self.reading),
        );
        let read = aside("reload", move || {
            let read = read_again(&args, &gate);
            drop(reading);
            read
        });
        let read = read.map_err(|error| format!("no thread can be had to read them ({error})"))?;
        match timeout(MOST_TIME, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err("reading them failed".to_owned()),
            Err(_) => {
                let file = self.args.config.as_deref();
                let file = file.map_or_else(String::new, |path| format!("{}, or ", path.display()));
                Err(format!(
                    "{file}a file that they name, could not be read within {} s: look whether its file system \
                     hangs, then send SIGHUP again",
                    MOST_TIME.as_secs()
                ))
            }
        }
    }

    fn refuse(&self, wrong: &str) -> String {
        self.reloads.count(ReloadResult::Refused);
        tracing::error!(
            "SIGHUP: the settings are refused, and those from before stay in force: {wrong}"
        );
        "the settings read last are refused, those from before are in force".to_owned()
    }

    fn apply(&self, read: Read) -> String {
        warn(&read.warnings);
        let reloaded = Reloaded::between(&self.holder.now(), read.settings);
        let mut news = in_words(&reloaded);
        let at_restart = listed(&reloaded.at_restart);
        // First, so that nobody is let in by the new settings with the old token.
        let token = self.gate.follow(read.token);
        self.holder.set(reloaded.settings);
        if token == TokenNews::Another {
            news.push("the token in admin.bearer_file is another".to_owned());
        }
        let news = if news.is_empty() {
            "nothing that can be changed while it runs has changed".to_owned()
        } else {
            news.join(", ")
        };
        tracing::info!("SIGHUP: the settings are reloaded: {news}");
        let mut but = Vec::new();
        if let TokenNews::Unread(complaint) = token {
            tracing::warn!("SIGHUP: {complaint}");
            but.push("admin.bearer_file can't be read".to_owned());
        }
        if !at_restart.is_empty() {
            tracing::warn!("SIGHUP: restart to apply {at_restart}");
            but.push(format!("restart to apply {at_restart}"));
        }
        let done = "the settings are reloaded";
        if but.is_empty() {
            self.reloads.count(ReloadResult::Applied);
            return done.to_owned();
        }
        self.reloads.count(ReloadResult::Partly);
        format!("{done}; {}", but.join("; "))
    }
}

fn in_words(reloaded: &Reloaded) -> Vec<String> {
    let changed = reloaded.changed.iter().map(Change::to_string);
    changed.chain(reloaded.parts.iter().cloned()).collect()
}

fn listed(changes: &[Change]) -> String {
    let all: Vec<String> = changes.iter().map(Change::to_string).collect();
    all.join(", ")
}
