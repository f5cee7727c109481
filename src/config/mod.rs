//! Settings: defaults, file, environment, flags, validation.
//!
//! Three layers lie over the defaults: a TOML file, the variables `KVGAUGE_…`, the flags. Each is
//! read on its own into the same raw form (`raw.rs`), so that every value keeps the place that it
//! came from; the layers are merged key by key (the sources as a whole), put over the defaults, and
//! validated as [`Settings`]. Everything that is wrong is reported at once, each with its place; of a key
//! that can't be read nothing else is said, as its value is not known. Read anew
//! while kvgauge runs, a part of them is in force at once (`reload.rs`).
//!
//! `config/kvgauge.toml` is the reference of all keys; `docs/design.md` has them in one table.

mod current;
mod defaults;
mod discovery;
mod env;
mod error;
mod file;
mod keys;
mod layer;
mod mapping;
mod names;
mod pattern;
mod raw;
mod reload;
mod settings;
mod target;
mod validate;
mod value;

pub use current::{Current, Holder};
pub use defaults::{CRIT, WARN};
pub use env::environment;
pub use error::{ConfigError, Origin, Problem, Warning, without_credentials, without_queries};
pub use keys::{environment_name, keys};
pub use mapping::{BlockSize, MappedGauge, MappedUnit, Mapping, MappingError, MappingSpec};
pub use names::ENGINES;
pub use pattern::Pattern;
pub use reload::{Change, IN_FORCE, InForce, Reloaded, in_force};
pub use settings::*;

use layer::Layer;
use raw::Raw;
use std::path::Path;
use std::time::Duration;
use toml::Value;
use value::{Format, Val};

/// The command line's share of the settings, as it was typed; what is not given is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--listen ADDR`
    pub listen: Option<String>,
    /// `--upstream URL`
    pub upstream: Option<String>,
    /// `--admin ADDR`
    pub admin: Option<String>,
    /// `--source NAME=URL[,role=ROLE][,interval=TIME][,engine=NAME][,kind=KIND][,bearer_file=FILE][,ca_file=FILE][,keep=PATTERN]…[,drop=PATTERN]…`, each one given.
    pub sources: Vec<String>,
    /// `--workers N`
    pub workers: Option<String>,
}

/// A key whose value is not the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key, as in the file.
    pub key: String,
    /// What it is, as it may be written in the file.
    pub value: String,
    /// What it would be.
    pub default: String,
}

/// A duration as settings write it: `1m30s`.
#[must_use]
pub fn written(duration: Duration) -> String {
    duration.write()
}

/// A number of bytes as settings write it: `256KiB`, `1000`.
#[must_use]
pub fn written_size(bytes: u64) -> String {
    value::Size(bytes).write()
}

/// The duration that a text says, as settings write it. The error says what is wrong with the text and
/// what may be written.
///
/// # Errors
/// When it is none.
pub fn read_duration(text: &str) -> Result<Duration, String> {
    Val::parse(text).map(|value| value.0)
}

/// What is read of a source, by its name in settings. The error is as that of [`read_duration`].
///
/// # Errors
/// When it is none.
pub fn read_kind(text: &str) -> Result<SourceKind, String> {
    Val::parse(text).map(|value| value.0)
}

/// The settings of the file (where there is one), the environment and the flags, the later over the
/// earlier. `env` may hold any variables; those of the process are [`environment`].
///
/// # Errors
/// All that is wrong, if anything is: the file can't be read or is not TOML, unknown keys, values
/// that are malformed, out of range, or can't go together.
pub fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<(Settings, Vec<Warning>), ConfigError> {
    let mut problems = Vec::new();
    let read = file.map(|path| (path, file::read(path)));
    let text = match &read {
        Some((path, Ok(text))) => Some((*path, text.as_str())),
        Some((_, Err(problem))) => {
            problems.push(problem.clone());
            None
        }
        None => None,
    };
    layered(text, env, flags, problems)
}

/// [`load`] for a file whose text is at hand; `name` is what messages call it.
///
/// # Errors
/// As [`load`], but for reading the file.
pub fn load_text(
    name: &Path,
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<(Settings, Vec<Warning>), ConfigError> {
    layered(Some((name, text)), env, flags, Vec::new())
}

fn layered(
    file: Option<(&Path, &str)>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
    mut problems: Vec<Problem>,
) -> Result<(Settings, Vec<Warning>), ConfigError> {
    let mut warnings = Vec::new();
    let file_is_unread = !problems.is_empty();
    let mut file = match file {
        Some((path, text)) => file::layer(path, text, &mut problems),
        None => Layer::default(),
    };
    if file_is_unread {
        file.doubt_all();
    }
    let env = env::layer(env, &mut problems, &mut warnings);
    let flags = flags.layer(&mut problems);
    let (raw, origins) = match layer::merge([file, env, flags]) {
        Ok(merged) => merged,
        Err(problem) => {
            problems.push(problem);
            return Err(ConfigError::of(problems));
        }
    };
    let mut settings = Settings::defaults();
    raw.apply(&mut settings);
    // Who has sources found has none where the defaults are, nor has who names some that can't be read.
    let finds = settings.discovery.is_on() || keys::FINDERS.iter().any(|key| !origins.know(key));
    if origins.sources.is_empty() && (finds || !origins.know(keys::SOURCE)) {
        settings.sources.clear();
    }
    let mappings = origins.mappings.iter();
    settings.mappings = mappings
        .map(|(name, (mapping, _))| (name.clone(), mapping.clone()))
        .collect();
    warnings.extend(validate::validate(&settings, &origins, &mut problems));
    ConfigError::unless_empty(problems)?;
    Ok((settings, warnings))
}

// === impl Flags ===

impl Flags {
    fn layer(&self, problems: &mut Vec<Problem>) -> Layer {
        let mut layer = Layer::default();
        let single = [
            ("--listen", "listen", &self.listen),
            ("--upstream", keys::UPSTREAM, &self.upstream),
            ("--admin", "admin.listen", &self.admin),
            ("--workers", "workers", &self.workers),
        ];
        for (flag, key, text) in single {
            let Some(text) = text else { continue };
            let value = Value::String(text.clone());
            if let Err(problem) = layer.set(key, value, Origin::Flag(flag)) {
                problems.push(problem);
            }
        }
        for text in &self.sources {
            layer.add_source_text(text, &Origin::Flag("--source"), problems);
        }
        layer
    }
}

// === impl Settings ===

impl Settings {
    /// Every key but the sources whose value is not the default, in the order of their names.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        let own = keys::flatten(&Raw::from(self));
        let defaults = keys::flatten(&Raw::from(&Settings::defaults()));
        own.into_iter()
            .zip(defaults)
            .filter(|(own, default)| own != default)
            .filter_map(|((key, value), (_, default))| {
                Some(Difference {
                    key: keys::shown(&key).to_owned(),
                    value: value?,
                    default: default?,
                })
            })
            .collect()
    }
}
