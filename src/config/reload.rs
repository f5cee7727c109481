//! What a reload takes over while kvgauge runs, and what needs a restart.

use super::keys;
use super::raw::Raw;
use super::settings::{Admin, Headers, Settings};
use std::fmt;
use std::sync::Arc;

/// When a change of a key is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InForce {
    /// With the reload.
    Reload,
    /// With the next start: a listener is bound once, and the data path holds its settings for good, so
    /// that no request pays for a look whether they have changed.
    Restart,
}

use InForce::{Reload, Restart};

/// Every key, or the section that all of it belongs to (with a dot at its end): the one place that says
/// which is which. [`Reloaded::between`] does it, and a test holds both against each other.
pub const IN_FORCE: [(&str, InForce); 19] = [
    ("listen", Restart),
    ("workers", Restart),
    ("trusted_proxies", Restart),
    ("upstream.", Restart),
    ("admin.listen", Restart),
    ("admin.bearer_file", Reload),
    ("scrape.", Reload),
    ("limits.", Restart),
    ("timeouts.", Restart),
    ("drain.", Reload),
    ("usage.carry_bytes", Restart),
    ("log.queue_bytes", Restart),
    ("headers.usage", Restart),
    ("headers.pools", Restart),
    ("headers.audience", Restart),
    ("headers.headline", Reload),
    ("metrics.", Reload),
    ("discovery.", Reload),
    ("source.", Reload),
];

/// A key that has another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, as in the file.
    pub key: String,
    /// The value that was in force.
    pub old: String,
    /// The value that was read.
    pub new: String,
}

/// What becomes of settings that were read anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Reloaded {
    /// What is in force now: all that was read, but for what needs a restart.
    pub settings: Arc<Settings>,
    /// What changed with this.
    pub changed: Vec<Change>,
    /// Sources and mappings that came, left or are another, each in words.
    pub parts: Vec<String>,
    /// What changes with a restart only.
    pub at_restart: Vec<Change>,
}

/// When a change of this key is in force; `None` for what is no key.
#[must_use]
pub fn in_force(key: &str) -> Option<InForce> {
    // Mappings are sections with names of their own.
    if key.starts_with("engine.") {
        return Some(Reload);
    }
    let belongs = |name: &str| key == name || (name.ends_with('.') && key.starts_with(name));
    let mut all = IN_FORCE.iter();
    all.find(|(name, _)| belongs(name)).map(|(_, when)| *when)
}

// === impl Change ===

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { key, old, new } = self;
        write!(f, "{key} {} -> {}", shown(old), shown(new))
    }
}

/// A value that is empty can be seen.
fn shown(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

// === impl Reloaded ===

impl Reloaded {
    /// What is in force when `new` has been read while `old` is.
    #[must_use]
    pub fn between(old: &Settings, new: Settings) -> Reloaded {
        let flat = |settings: &Settings| keys::flatten(&Raw::from(settings));
        let (mut changed, mut at_restart) = (Vec::new(), Vec::new());
        for ((key, before), (_, now)) in flat(old).into_iter().zip(flat(&new)) {
            let (Some(old), Some(new)) = (before, now) else {
                continue;
            };
            if old == new {
                continue;
            }
            let list = match in_force(&key) {
                Some(Reload) => &mut changed,
                Some(Restart) | None => &mut at_restart,
            };
            let key = keys::shown(&key).to_owned();
            list.push(Change { key, old, new });
        }
        Reloaded {
            parts: parts(old, &new),
            settings: Arc::new(kept(old, new)),
            changed,
            at_restart,
        }
    }

    /// Whether nothing is another than before.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.changed.is_empty() && self.parts.is_empty() && self.at_restart.is_empty()
    }
}

/// The new settings with the old values of what needs a restart. Every setting is named, so that a new
/// one does not compile until somebody has said which it is.
fn kept(old: &Settings, new: Settings) -> Settings {
    let Settings {
        listen: _,
        upstream: _,
        workers: _,
        trusted_proxies: _,
        admin,
        scrape,
        limits: _,
        timeouts: _,
        upstream_pool: _,
        drain,
        usage_carry_bytes: _,
        log_queue_bytes: _,
        headers,
        metrics,
        discovery,
        sources,
        mappings,
    } = new;
    Settings {
        admin: Admin {
            listen: old.admin.listen,
            ..admin
        },
        scrape,
        drain,
        headers: Headers {
            headline: headers.headline,
            ..old.headers.clone()
        },
        metrics,
        discovery,
        sources,
        mappings,
        ..old.clone()
    }
}

/// Sources and mappings that are not as they were.
fn parts(old: &Settings, new: &Settings) -> Vec<String> {
    /// Of a list that is another altogether so many are named.
    const MOST: usize = 20;
    let mut said = Vec::new();
    let before = |name: &str| old.sources.iter().find(|s| *s.name == *name);
    for source in &new.sources {
        match before(&source.name) {
            None => said.push(format!("source {} is new", source.name)),
            Some(old) if old != source => said.push(format!("source {} is changed", source.name)),
            Some(_) => {}
        }
    }
    for source in &old.sources {
        if !new.sources.iter().any(|s| s.name == source.name) {
            said.push(format!("source {} is gone", source.name));
        }
    }
    for (name, mapping) in &new.mappings {
        match old.mappings.get(name) {
            None => said.push(format!("engine.{name} is new")),
            Some(old) if old != mapping => said.push(format!("engine.{name} is changed")),
            Some(_) => {}
        }
    }
    for name in old.mappings.keys() {
        if !new.mappings.contains_key(name) {
            said.push(format!("engine.{name} is gone"));
        }
    }
    if said.len() > MOST {
        let more = said.len() - MOST;
        said.truncate(MOST);
        said.push(format!("and {more} more"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, load_text};
    use std::path::Path;

    fn read(text: &str) -> Settings {
        let flags = Flags::default();
        load_text(Path::new("f.toml"), text, [], &flags).unwrap().0
    }

    #[test]
    fn every_key_is_in_the_table_once_and_nothing_else_is() {
        let keys = keys::keys();
        for key in &keys {
            assert!(in_force(key).is_some(), "{key} is missing in IN_FORCE");
        }
        for (name, _) in IN_FORCE {
            let section = name.ends_with('.') && keys.iter().any(|key| key.starts_with(name));
            assert!(section || keys.iter().any(|key| key == name), "{name}");
            let others = IN_FORCE.iter().filter(|(other, _)| {
                other.ends_with('.') && name.starts_with(other) && *other != name
            });
            assert_eq!(others.count(), 0, "{name} is in the table twice");
        }
    }

    #[test]
    fn sources_and_mappings_are_told_one_by_one() {
        let old = read(
            "[[source]]\nname = 'a'\nurl = 'http://a'\n[[source]]\nname = 'b'\nurl = 'http://b'\n\
             [engine.acme]\nusage = { metric = 'u', unit = 'fraction' }\n",
        );
        let new = read(
            "[[source]]\nname = 'b'\nurl = 'http://b'\ninterval = '2s'\n\
             [[source]]\nname = 'c'\nurl = 'http://c'\n",
        );
        let reloaded = Reloaded::between(&old, new);
        let said = [
            "source b is changed",
            "source c is new",
            "source a is gone",
            "engine.acme is gone",
        ];
        assert_eq!(reloaded.parts, said);
        assert_eq!(reloaded.settings.sources.len(), 2);
        assert!(reloaded.changed.is_empty() && reloaded.at_restart.is_empty());
    }

    #[test]
    fn what_needs_a_restart_is_told_until_it_has_been_one_or_is_taken_back() {
        let old = read("");
        for _ in 0..2 {
            let new = read("listen = ':1'\nscrape.interval = '2s'\n");
            let reloaded = Reloaded::between(&old, new);
            assert_eq!(
                reloaded.at_restart[0].to_string(),
                "listen 127.0.0.1:30080 -> 0.0.0.0:1"
            );
            assert_eq!(reloaded.changed[0].to_string(), "scrape.interval 1s -> 2s");
            let again = Reloaded::between(
                &reloaded.settings,
                read("listen = ':1'\nscrape.interval = '2s'\n"),
            );
            assert_eq!(again.at_restart, reloaded.at_restart);
            assert!(again.changed.is_empty());
            let back = Reloaded::between(&reloaded.settings, read("scrape.interval = '2s'\n"));
            assert!(back.is_nothing(), "{back:?}");
        }
    }
}
