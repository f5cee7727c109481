//! The names of all keys, in the file and in the environment, and the nearest to a mistyped one.

use super::mapping;
use super::raw::{Raw, RawSource};
use serde::Serialize;
use serde_json::Value;
use std::sync::LazyLock;

/// What every environment variable of ours starts with.
pub(super) const PREFIX: &str = "KVGAUGE_";

/// The key that a file also may write as `upstream = "URL"`.
pub(super) const UPSTREAM: &str = "upstream.url";

/// The key of the sources.
pub(super) const SOURCE: &str = "source";

/// Every key of the file but those of a source, dots between section and key.
static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| names(&Raw::default()));

/// The ways in which sources are found.
pub(super) const FINDERS: [&str; 3] = ["discovery.workers", "discovery.file_sd", "discovery.dns"];

/// The section of the mappings.
pub(super) const ENGINE: &str = "engine";

/// The keys of a source.
static SOURCE_KEYS: LazyLock<Vec<String>> = LazyLock::new(|| names(&RawSource::default()));

/// Keys of a source that its text form may hold several times.
pub(super) const LISTS: [&str; 2] = ["keep", "drop"];

fn names(raw: &impl Serialize) -> Vec<String> {
    flatten(raw).into_iter().map(|(key, _)| key).collect()
}

/// Every key of `raw` with its value's text; `None` where it is not set.
pub(super) fn flatten(raw: &impl Serialize) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(raw) {
        walk(String::new(), &value, &mut found);
    }
    found
}

fn walk(at: String, value: &Value, found: &mut Vec<(String, Option<String>)>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let key = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                walk(key, field, found);
            }
        }
        Value::String(text) => found.push((at, Some(text.clone()))),
        _ => found.push((at, None)),
    }
}

/// Every key of a settings file, dots between section and key (`scrape.interval`); those of
/// `[[source]]` as `source.name`, those of a mapping as `engine.NAME.usage`. The router's address is `upstream.url`, which may be written as
/// `upstream = "URL"` too.
#[must_use]
pub fn keys() -> Vec<String> {
    let own = KEYS.iter().filter(|k| *k != SOURCE).cloned();
    let source = SOURCE_KEYS.iter().map(|k| format!("{SOURCE}.{k}"));
    let mapping = mapping::KEYS.iter().map(|k| format!("{ENGINE}.NAME.{k}"));
    own.chain(source).chain(mapping).collect()
}

/// The environment variable of a key: `KVGAUGE_` and the key in capitals, `_` for the dot. The
/// router's address is `KVGAUGE_UPSTREAM`, all sources together are `KVGAUGE_SOURCES`. `None` for
/// what is no key or has no variable of its own.
#[must_use]
pub fn environment_name(key: &str) -> Option<String> {
    match key {
        UPSTREAM => Some(format!("{PREFIX}UPSTREAM")),
        SOURCE => Some(format!("{PREFIX}SOURCES")),
        _ if is_key(key) => {
            let name = key.to_ascii_uppercase().replace('.', "_");
            Some(format!("{PREFIX}{name}"))
        }
        _ => None,
    }
}

/// Every key that has an environment variable, with its name.
pub(super) fn environment_names() -> impl Iterator<Item = (&'static str, String)> {
    let named = |key: &'static String| Some((key.as_str(), environment_name(key)?));
    KEYS.iter().filter_map(named)
}

/// Whether this is a key of the file, `source` among them.
pub(super) fn is_key(key: &str) -> bool {
    KEYS.iter().any(|k| k == key)
}

/// Whether this is a section of the file, or one within a section.
pub(super) fn is_section(name: &str) -> bool {
    let within = |key: &String| key.strip_prefix(name).is_some_and(|k| k.starts_with('.'));
    KEYS.iter().any(within)
}

/// Whether this is a key of a source.
pub(super) fn is_source_key(key: &str) -> bool {
    SOURCE_KEYS.iter().any(|k| k == key)
}

/// The key as it is shown.
pub(super) fn shown(key: &str) -> &str {
    if key == UPSTREAM { "upstream" } else { key }
}

/// The key or section nearest to an unknown one.
pub(super) fn nearest_key(unknown: &str) -> Option<&'static str> {
    // A known key in the wrong section, or outside of any.
    let last = unknown.rsplit('.').next().unwrap_or(unknown);
    let mut same = KEYS.iter().filter(|k| k.rsplit('.').next() == Some(last));
    if let (Some(only), None) = (same.next(), same.next()) {
        return Some(only);
    }
    // Of a section that there is, only its keys: the more of a name is right, the more would be near.
    if let Some((section, own)) = unknown.rsplit_once('.')
        && is_section(section)
    {
        let within = KEYS.iter().filter(|key| {
            let key = key.strip_prefix(section).and_then(|k| k.strip_prefix('.'));
            key.is_some_and(|key| !key.contains('.'))
        });
        let own_names = within.clone().map(|key| &key[section.len() + 1..]);
        let near = nearest(own, own_names)?;
        return within
            .map(String::as_str)
            .find(|key| key[section.len() + 1..] == *near);
    }
    let sections = KEYS
        .iter()
        .filter_map(|k| k.rsplit_once('.'))
        .map(|(s, _)| s)
        .chain([ENGINE]);
    let keys = KEYS.iter().map(String::as_str);
    nearest(unknown, keys.chain(sections))
}

/// The key of a source nearest to an unknown one.
pub(super) fn nearest_source_key(unknown: &str) -> Option<&'static str> {
    nearest(unknown, SOURCE_KEYS.iter().map(String::as_str))
}

/// The key of a mapping nearest to an unknown one.
pub(super) fn nearest_mapping_key(unknown: &str) -> Option<&'static str> {
    nearest(unknown, mapping::KEYS)
}

/// The nearest of `known`, where one is near enough to be meant.
pub(super) fn nearest<T: AsRef<str>>(
    unknown: &str,
    known: impl IntoIterator<Item = T>,
) -> Option<T> {
    // A bound for the work, and nothing longer is a mistyped key.
    if unknown.len() > 64 {
        return None;
    }
    let far = |a: &T| strsim::damerau_levenshtein(unknown, a.as_ref());
    let (distance, name) = known
        .into_iter()
        .map(|name| (far(&name), name))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= (unknown.chars().count() / 3).max(1)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        for (unknown, meant) in [
            ("lisen", Some("listen")),
            ("scrape.intervall", Some("scrape.interval")),
            ("scarpe", Some("scrape")),
            ("sources", Some("source")),
            ("limits.max_series", Some("scrape.max_series")),
            ("client_idle", Some("timeouts.client_idle")),
            ("upstraem", Some("upstream")),
            ("upstream.uri", Some("upstream.url")),
            ("completely_different", None),
        ] {
            assert_eq!(nearest_key(unknown), meant, "{unknown}");
        }
        assert_eq!(nearest_source_key("rol"), Some("role"));
        assert_eq!(nearest_key(&"x".repeat(1_000_000)), None);
    }

    #[test]
    fn every_key_has_a_variable_of_its_own() {
        let mut names: Vec<String> = environment_names().map(|(_, name)| name).collect();
        assert!(names.contains(&"KVGAUGE_SCRAPE_MAX_AGE".to_owned()));
        let all = names.len();
        assert_eq!(all, KEYS.len());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
