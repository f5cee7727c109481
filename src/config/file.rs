//! The settings file: TOML 1.1, every value with its line.

use super::error::{Origin, Problem};
use super::keys;
use super::layer::{Layer, unknown};
use super::mapping::{self, Mapping, MappingError, MappingSpec};
use super::names::{ENGINES, EngineName};
use super::value::Val;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// The most bytes of a file. A large one is not a settings file.
const MAX_FILE: u64 = 256 << 10;

/// Reads a file's text.
pub(super) fn read(path: &Path) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let failed = |error: std::io::Error| {
        let message = format!("the settings file can't be read: {error}");
        Problem::file(path, 0, message)
    };
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        let message = "more than 256 KiB; is this a settings file?".to_owned();
        return Err(Problem::file(path, 0, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = line_of(error.as_bytes(), good);
        Problem::file(path, line, "not UTF-8, as TOML has to be".to_owned())
    })
}

/// Reads a file's settings from its text.
pub(super) fn layer(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Layer {
    let mut reader = Reader {
        path: Arc::from(path),
        text,
        layer: Layer::default(),
        problems: Vec::new(),
    };
    match DeTable::parse(text) {
        Ok(table) => reader.section("", table.get_ref()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let message = format!("no valid TOML: {}", one_line(error.message()));
            let line = line_of(text.as_bytes(), at);
            reader.problems.push(Problem::file(path, line, message));
            reader.layer.doubt_all();
        }
    }
    problems.append(&mut reader.problems);
    reader.layer
}

fn one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    lines.join(", ")
}

/// The line of a byte, from 1.
fn line_of(text: &[u8], at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    1 + memchr::memchr_iter(b'\n', before).count()
}

struct Reader<'t> {
    path: Arc<Path>,
    text: &'t str,
    layer: Layer,
    problems: Vec<Problem>,
}

// === impl Reader ===

impl Reader<'_> {
    fn origin(&self, at: usize) -> Origin {
        Origin::File(self.path.clone(), line_of(self.text.as_bytes(), at))
    }

    fn refuse(&mut self, at: usize, key: &str, message: String) {
        let problem = Problem::malformed(self.origin(at), key, message);
        self.problems.push(problem);
    }

    /// The keys of the file (`name` is empty) or of one of its sections.
    fn section(&mut self, name: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let at = key.span().start;
            let full = if name.is_empty() {
                key.get_ref().to_string()
            } else {
                format!("{name}.{}", key.get_ref())
            };
            match value.get_ref() {
                DeValue::Array(_) | DeValue::Table(_) if full == keys::SOURCE => {
                    self.sources(at, value.get_ref());
                }
                DeValue::Table(inner) if keys::is_section(&full) => {
                    self.section(&full, inner);
                }
                DeValue::String(_) if format!("{full}.url") == keys::UPSTREAM => {
                    self.set(keys::UPSTREAM, value.get_ref(), at);
                }
                DeValue::Table(inner) if full == keys::ENGINE => self.mappings(inner),
                _ if full == keys::ENGINE => {
                    self.layer.doubt(keys::ENGINE);
                    self.no_mapping(at);
                }
                _ if full == keys::SOURCE => self.no_sources(at),
                other if keys::is_key(&full) => self.set(&full, other, at),
                _ if keys::is_section(&full) => {
                    let mut message = format!("is a section; write [{full}] and its keys below");
                    if format!("{full}.url") == keys::UPSTREAM {
                        message.push_str(", or upstream = \"http://127.0.0.1:30001\"");
                    }
                    self.layer.doubt(&full);
                    self.refuse(at, &full, message);
                }
                _ => {
                    let near = keys::nearest_key(&full);
                    // It may be what was meant.
                    if let Some(near) = near {
                        self.layer.doubt(near);
                    }
                    self.refuse(at, "", unknown(&full, near));
                }
            }
        }
    }

    fn set(&mut self, key: &str, value: &DeValue<'_>, at: usize) {
        let origin = self.origin(at);
        if let Err(problem) = self.layer.set(key, plain(value), origin) {
            self.problems.push(problem);
        }
    }

    fn sources(&mut self, at: usize, value: &DeValue<'_>) {
        let DeValue::Array(list) = value else {
            return self.no_sources(at);
        };
        if list.is_empty() {
            self.layer.doubt(keys::SOURCE);
            let message = "is empty; leave it out for the default sources".to_owned();
            self.refuse(at, keys::SOURCE, message);
        }
        for entry in list {
            let at = entry.span().start;
            let DeValue::Table(table) = entry.get_ref() else {
                self.no_sources(at);
                continue;
            };
            let mut fields = Vec::new();
            for (key, value) in table {
                let origin = self.origin(key.span().start);
                fields.push((key.get_ref().to_string(), plain(value.get_ref()), origin));
            }
            let whole = self.origin(at);
            self.layer.add_source(whole, fields, &mut self.problems);
        }
    }

    /// `[engine.NAME]`, one for each engine that kvgauge does not know.
    fn mappings(&mut self, engines: &DeTable<'_>) {
        for (name, value) in engines {
            let at = name.span().start;
            let name = name.get_ref().to_string();
            let DeValue::Table(table) = value.get_ref() else {
                self.layer.doubt(keys::ENGINE);
                self.no_mapping(at);
                continue;
            };
            if let Err(message) = Val::<EngineName>::parse(&name) {
                self.layer.doubt(keys::ENGINE);
                self.refuse(at, keys::ENGINE, message);
                continue;
            }
            let full = format!("{}.{name}", keys::ENGINE);
            if ENGINES.contains(&&*name) {
                let message = "is an engine that is read without a mapping; choose another name";
                self.refuse(at, &full, message.to_owned());
                continue;
            }
            self.mapping(at, &full, &name, table);
        }
    }

    fn mapping(&mut self, at: usize, full: &str, name: &str, table: &DeTable<'_>) {
        let before = self.problems.len();
        let mut spec = MappingSpec::default();
        let mut places = Vec::new();
        for (key, value) in table {
            let (place, key) = (key.span().start, key.get_ref());
            let shown = format!("{full}.{key}");
            if !mapping::KEYS.contains(&&**key) {
                let message = unknown(key, keys::nearest_mapping_key(key));
                self.refuse(place, full, message);
            } else if let Err(message) = spec.set(key, value.get_ref()) {
                self.refuse(place, &shown, message);
            }
            places.push((key.to_string(), place));
        }
        let unread = self.problems.len() > before;
        for error in spec.faults() {
            // What could not be read may be the usage.
            if unread && error == MappingError::NoUsage {
                continue;
            }
            let wrong = places.iter().find(|(key, _)| Some(&**key) == error.key());
            let (at, shown) = match wrong {
                Some((key, place)) => (*place, format!("{full}.{key}")),
                None => (at, full.to_owned()),
            };
            self.refuse(at, &shown, error.to_string());
        }
        if self.problems.len() > before {
            self.layer.doubt(full);
        } else if let Ok(mapping) = Mapping::new(spec) {
            let origin = self.origin(at);
            if let Err(message) = self.layer.add_mapping(name, mapping, origin) {
                self.layer.doubt(keys::ENGINE);
                self.refuse(at, full, message);
            }
        }
    }

    fn no_mapping(&mut self, at: usize) {
        let message = "is a section for each engine that kvgauge does not know; write [engine.NAME], \
                       or engine = \"NAME\" below [[source]]";
        self.refuse(at, keys::ENGINE, message.to_owned());
    }

    fn no_sources(&mut self, at: usize) {
        self.layer.doubt(keys::SOURCE);
        let message = "is a list of tables; write [[source]] above the keys of each".to_owned();
        self.refuse(at, keys::SOURCE, message);
    }
}

/// The value without its place. Of what no key takes only the kind is kept.
fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                // Too large: as a text, so that the message can show it.
                Err(_) => Value::String(number.to_string()),
            }
        }
        DeValue::Float(_) => Value::Float(0.0),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(list) => {
            let inner = list.iter().map(|entry| match entry.get_ref() {
                DeValue::String(text) => Value::String(text.to_string()),
                _ => Value::Boolean(false),
            });
            Value::Array(inner.collect())
        }
        DeValue::Table(_) => Value::Table(toml::Table::new()),
    }
}
