//! Reading the settings anew, while kvgauge runs.

use crate::cli::args;
use crate::config::{self, Change, ConfigError, Holder, Reloaded, Settings};
use crate::telemetry::{ReloadResult, Reloads, Telemetry};
use std::sync::Arc;

/// Reads them as they were read at the start, and puts in force what can be.
pub struct Reloader {
    args: args::Serve,
    holder: Arc<Holder>,
    reloads: Reloads,
}

/// The settings of file, environment and flags.
///
/// # Errors
/// All that is wrong with them.
pub fn read(args: &args::Serve) -> Result<Settings, ConfigError> {
    let (settings, warnings) =
        config::load(args.config.as_deref(), config::environment(), &args.flags())?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(settings)
}

// === impl Reloader ===

impl Reloader {
    /// With what they were read from.
    pub fn new(args: &args::Serve, holder: Arc<Holder>, telemetry: &Telemetry) -> Reloader {
        Reloader {
            args: args.clone(),
            holder,
            reloads: Reloads::new(telemetry),
        }
    }

    /// Reads and says what became of it, in one line for whoever asks how kvgauge is. Settings in which
    /// anything is wrong are refused as a whole.
    pub fn reload(&self) -> String {
        let new = match read(&self.args) {
            Ok(new) => new,
            Err(error) => {
                self.reloads.count(ReloadResult::Refused);
                tracing::error!(
                    "SIGHUP: the settings are refused, and those from before stay in force: {error}"
                );
                return "the settings read last are refused, those from before are in force"
                    .to_owned();
            }
        };
        let reloaded = Reloaded::between(&self.holder.now(), new);
        let (news, at_restart) = (in_words(&reloaded), listed(&reloaded.at_restart));
        // Also where nothing has changed: files of tokens are read again with it.
        self.holder.set(reloaded.settings);
        tracing::info!("SIGHUP: the settings are reloaded: {news}");
        if at_restart.is_empty() {
            self.reloads.count(ReloadResult::Applied);
            return "the settings are reloaded".to_owned();
        }
        self.reloads.count(ReloadResult::Partly);
        tracing::warn!("SIGHUP: restart to apply {at_restart}");
        format!("the settings are reloaded; restart to apply {at_restart}")
    }
}

fn in_words(reloaded: &Reloaded) -> String {
    let changed = reloaded.changed.iter().map(Change::to_string);
    let all: Vec<String> = changed.chain(reloaded.parts.iter().cloned()).collect();
    if all.is_empty() {
        "nothing that can be changed while it runs has changed".to_owned()
    } else {
        all.join(", ")
    }
}

fn listed(changes: &[Change]) -> String {
    let all: Vec<String> = changes.iter().map(Change::to_string).collect();
    all.join(", ")
}
