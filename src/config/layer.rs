//! One layer of settings: what a file, the environment or the flags set, each value checked alone.

use super::error::{Origin, Problem, quote};
use super::keys;
use super::mapping::Mapping;
use super::raw::{Raw, RawSource};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::{Table, Value};

/// What one layer sets.
#[derive(Debug, Default)]
pub(super) struct Layer {
    values: BTreeMap<String, (Value, Origin)>,
    sources: Vec<Entry>,
    mappings: Mappings,
    doubts: Doubts,
}

/// Keys and sections (`scrape`, `engine.acme`) that something was written for which could not be read.
/// Their values are not known, and nothing can be said of them.
#[derive(Clone, Debug, Default)]
struct Doubts {
    /// All of it: the file is none.
    all: bool,
    keys: Vec<String>,
}

/// Mappings by name, each with the place of its section.
pub(super) type Mappings = BTreeMap<Arc<str>, (Arc<Mapping>, Origin)>;

/// A source as it is written.
#[derive(Debug)]
struct Entry {
    fields: Table,
    origins: SourceOrigins,
}

/// Where a source came from, and each of its keys.
#[derive(Clone, Debug)]
pub(super) struct SourceOrigins {
    whole: Origin,
    /// Of the keys that could be read.
    keys: BTreeMap<String, Origin>,
    doubts: Doubts,
}

/// Where every value came from that is not a default.
#[derive(Debug, Default)]
pub(super) struct Origins {
    keys: BTreeMap<String, Origin>,
    /// As many as there are sources, in their order; empty where those are the defaults.
    pub(super) sources: Vec<SourceOrigins>,
    pub(super) mappings: Mappings,
    /// What was written last and could not be read.
    doubts: Doubts,
}

/// How a source is written as a text.
const SOURCE_TEXT: &str = "NAME=URL[,role=ROLE][,interval=TIME][,engine=NAME][,kind=KIND][,bearer_file=FILE][,ca_file=FILE][,keep=PATTERN]…[,drop=PATTERN]…";

/// In place of a source's name and URL where those can't be read; a number follows.
const STAND_INS: [(&str, &str); 2] = [("name", "unread-"), ("url", "http://unread/")];

/// The most sources. Each is a connection and a page in memory.
const MAX_SOURCES: usize = 1024;

/// The most mappings.
const MAX_MAPPINGS: usize = 64;

/// The layers as one, the later over the earlier.
pub(super) fn merge(layers: impl IntoIterator<Item = Layer>) -> Result<(Raw, Origins), Problem> {
    let mut table = Table::new();
    let mut origins = Origins::default();
    let mut sources = Vec::new();
    for layer in layers {
        // Nothing below is in force where something that can't be read stands above it.
        origins.keys.retain(|key, _| !layer.doubts.cover(key));
        origins.doubts.all |= layer.doubts.all;
        let unread_sources = layer.doubts.cover(keys::SOURCE);
        origins.doubts.keys.extend(layer.doubts.keys);
        for (key, (value, origin)) in layer.values {
            place(&mut table, &key, value);
            origins.keys.insert(key, origin);
        }
        origins.mappings.extend(layer.mappings);
        if !layer.sources.is_empty() {
            origins.doubts.keys.retain(|key| key != keys::SOURCE);
            sources = layer.sources;
        } else if unread_sources {
            sources.clear();
        }
    }
    if !sources.is_empty() {
        let mut tables = Vec::new();
        for (at, mut entry) in sources.into_iter().enumerate() {
            // So that what is good about a source can be looked at. Nobody gets to see them.
            for (key, stand_in) in STAND_INS {
                let stand_in = || Value::String(format!("{stand_in}{at}"));
                entry.fields.entry(key).or_insert_with(stand_in);
            }
            tables.push(Value::Table(entry.fields));
            origins.sources.push(entry.origins);
        }
        table.insert(keys::SOURCE.to_owned(), Value::Array(tables));
    }
    // Every value has been read alone before, so this fails only where the two ways disagree.
    let raw = Raw::deserialize(Value::Table(table))
        .map_err(|error| Problem::malformed(Origin::Default, "", error.message().to_owned()))?;
    Ok((raw, origins))
}

/// Puts a value at a dotted key.
fn place(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let section = table
                .entry(section)
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                place(section, rest, value);
            }
        }
    }
}

// === impl Layer ===

impl Layer {
    /// Sets a known key, if its value can be read.
    pub(super) fn set(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), Problem> {
        let mut alone = Table::new();
        place(&mut alone, key, value.clone());
        match Raw::deserialize(Value::Table(alone)) {
            Ok(_) => {
                self.values.insert(key.to_owned(), (value, origin));
                Ok(())
            }
            Err(error) => {
                self.doubt(key);
                let message = error.message().to_owned();
                Err(Problem::malformed(origin, keys::shown(key), message))
            }
        }
    }

    /// Something was written for this key or section, and can't be read.
    pub(super) fn doubt(&mut self, key: &str) {
        self.doubts.keys.push(key.to_owned());
    }

    /// Nothing of it can be read.
    pub(super) fn doubt_all(&mut self) {
        self.doubts.all = true;
    }

    /// Adds a mapping, unless there are too many.
    pub(super) fn add_mapping(
        &mut self,
        name: &str,
        mapping: Mapping,
        origin: Origin,
    ) -> Result<(), String> {
        if self.mappings.len() == MAX_MAPPINGS {
            return Err(format!(
                "more than {MAX_MAPPINGS} mappings; no more are read"
            ));
        }
        let entry = (Arc::new(mapping), origin);
        self.mappings.insert(Arc::from(name), entry);
        Ok(())
    }

    /// Adds a source. `fields` are its keys with their values and origins.
    pub(super) fn add_source(
        &mut self,
        whole: Origin,
        fields: Vec<(String, Value, Origin)>,
        problems: &mut Vec<Problem>,
    ) {
        if self.sources.len() == MAX_SOURCES {
            let message = format!("more than {MAX_SOURCES} sources; no more are read");
            problems.push(Problem::malformed(whole, keys::SOURCE, message));
            return;
        }
        let mut entry = Entry {
            fields: Table::new(),
            origins: SourceOrigins {
                whole: whole.clone(),
                keys: BTreeMap::new(),
                doubts: Doubts::default(),
            },
        };
        let mut seen = Vec::new();
        for (key, value, origin) in fields {
            if let Err(message) = source_key(&key, &value) {
                let shown = if keys::is_source_key(&key) {
                    format!("{}.{key}", keys::SOURCE)
                } else {
                    keys::SOURCE.to_owned()
                };
                problems.push(Problem::malformed(origin.clone(), &shown, message));
                let near = keys::nearest_source_key(&key);
                let meant = near.map_or_else(|| key.clone(), str::to_owned);
                entry.origins.doubts.keys.push(meant);
            } else {
                entry.fields.insert(key.clone(), value);
                entry.origins.keys.insert(key.clone(), origin);
            }
            seen.push(key);
        }
        for needed in ["name", "url"] {
            if !seen.iter().any(|key| key == needed) {
                let key = format!("{}.{needed}", keys::SOURCE);
                let message = "is missing; every source has a name and a url".to_owned();
                problems.push(Problem::malformed(whole.clone(), &key, message));
                entry.origins.doubts.keys.push(needed.to_owned());
            }
        }
        self.sources.push(entry);
    }

    /// Adds a source from its text form, [`SOURCE_TEXT`].
    pub(super) fn add_source_text(
        &mut self,
        text: &str,
        origin: &Origin,
        problems: &mut Vec<Problem>,
    ) {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let Some((name, url)) = first.split_once('=') else {
            let missing = if first.contains("://") { "name" } else { "URL" };
            let message = format!(
                "{} has no {missing}; write {SOURCE_TEXT}, such as \
                 decode=http://127.0.0.1:30002,role=decode",
                quote(text)
            );
            self.doubt(keys::SOURCE);
            problems.push(Problem::malformed(origin.clone(), keys::SOURCE, message));
            return;
        };
        let field = |key: &str, value: &str| {
            let value = Value::String(value.trim().to_owned());
            (key.trim().to_owned(), value, origin.clone())
        };
        let mut fields = vec![field("name", name), field("url", url)];
        for part in parts {
            let option = part.split_once('=').map(|(key, value)| field(key, value));
            let added = option.is_some_and(|(key, value, origin)| {
                let seen = fields.iter_mut().find(|(seen, ..)| *seen == key);
                match seen {
                    None => fields.push((key, value, origin)),
                    Some((_, list, _)) if keys::LISTS.contains(&key.as_str()) => {
                        append(list, value);
                    }
                    Some(_) => return false,
                }
                true
            });
            if !added {
                let message = format!(
                    "{} is not understood; after the URL may stand role=ROLE, interval=TIME, \
                     engine=NAME, kind=KIND, bearer_file=FILE and ca_file=FILE, each once, keep=PATTERN and drop=PATTERN (a comma in a URL is written %2C, \
                     one in a pattern \\x2C)",
                    quote(part)
                );
                problems.push(Problem::malformed(origin.clone(), keys::SOURCE, message));
                // A comma may have cut in two what stands before it.
                self.doubt(keys::SOURCE);
                return;
            }
        }
        self.add_source(origin.clone(), fields, problems);
    }
}

/// Makes a list of what is there and another value.
fn append(list: &mut Value, value: Value) {
    match list {
        Value::Array(values) => values.push(value),
        one => *one = Value::Array(vec![one.clone(), value]),
    }
}

/// Whether a source takes this key with this value.
fn source_key(key: &str, value: &Value) -> Result<(), String> {
    if !keys::is_source_key(key) {
        return Err(unknown(key, keys::nearest_source_key(key)));
    }
    let alone = Table::from_iter([(key.to_owned(), value.clone())]);
    match RawSource::deserialize(Value::Table(alone)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.message().to_owned()),
    }
}

/// The message for a key that there is not.
pub(super) fn unknown(key: &str, nearest: Option<&str>) -> String {
    let key = quote(key);
    match nearest {
        Some(near) => format!("unknown key {key}; did you mean `{near}`?"),
        None => format!("unknown key {key}; config/kvgauge.toml lists all there are"),
    }
}

// === impl Origins ===

impl Origins {
    /// Where a key's value came from.
    pub(super) fn of(&self, key: &str) -> Origin {
        self.keys.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// Whether the value in force is known: it is a default that nobody wanted to change, or was read. A
    /// mapping's key is `engine.NAME`; `source` is whether there are others than could be read.
    pub(super) fn know(&self, key: &str) -> bool {
        self.keys.contains_key(key) || !self.doubts.cover(key)
    }

    /// Of two keys that don't go together the one that was set, the first where both were.
    pub(super) fn set_of<'k>(&self, first: &'k str, second: &'k str) -> &'k str {
        if self.keys.contains_key(first) || !self.keys.contains_key(second) {
            first
        } else {
            second
        }
    }
}

// === impl Doubts ===

impl Doubts {
    fn cover(&self, key: &str) -> bool {
        let within = |section: &String| {
            let rest = key.strip_prefix(section.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.all || self.keys.iter().any(within)
    }
}

// === impl SourceOrigins ===

impl SourceOrigins {
    /// Whether one of its keys is known: it was read, or nobody wanted to set it.
    pub(super) fn know(&self, key: &str) -> bool {
        self.keys.contains_key(key) || !self.doubts.cover(key)
    }

    /// Where one of its keys came from; the source as a whole where the key is not set.
    pub(super) fn of(&self, key: &str) -> Origin {
        self.keys.get(key).unwrap_or(&self.whole).clone()
    }
}
