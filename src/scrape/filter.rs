//! Which families of a source's page are shown again. Its reading is taken from all of them.

use crate::config::{Expose, Mapping, Settings, Source};
use crate::engine;
use foldhash::fast::RandomState;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Names whose decision is remembered, as a pattern costs as much for each page as preparing half of it
/// does. A page has some hundred; where there are more than this, all
/// are forgotten and decided anew.
const MOST_KNOWN: usize = 65_536;

/// See the [module](self) description.
pub(super) struct Filter {
    expose: Expose,
    source: Source,
    /// What the page is read by, where it is no known engine's.
    mapping: Option<Arc<Mapping>>,
    /// Decisions by the hash of a name: 64 bits with a seed of this process, so that no page can
    /// choose names that collide.
    known: RefCell<HashMap<u64, bool, RandomState>>,
    hasher: RandomState,
}

// === impl Filter ===

impl Filter {
    pub(super) fn new(settings: &Settings, source: &Source) -> Filter {
        Filter {
            expose: settings.metrics.expose,
            source: source.clone(),
            mapping: settings
                .mapping(source)
                .map(|(_, mapping)| Arc::clone(mapping)),
            known: RefCell::default(),
            hasher: RandomState::default(),
        }
    }

    /// Whether the family of this name, as it is called in classic text, is shown again.
    pub(super) fn passes(&self, name: &str) -> bool {
        match self.expose {
            Expose::None => return false,
            Expose::All if self.source.keep.is_empty() && self.source.drop.is_empty() => {
                return true;
            }
            Expose::All | Expose::Kv => {}
        }
        let mut known = self.known.borrow_mut();
        if known.len() == MOST_KNOWN {
            known.clear();
        }
        let hash = self.hasher.hash_one(name);
        *known.entry(hash).or_insert_with(|| self.decide(name))
    }

    fn decide(&self, name: &str) -> bool {
        let Source { keep, drop, .. } = &self.source;
        let mapped = || self.mapping.as_ref().is_some_and(|m| m.is_kv_family(name));
        (self.expose == Expose::All || engine::is_kv_family(name) || mapped())
            && (keep.is_empty() || keep.iter().any(|pattern| pattern.fits(name)))
            && !drop.iter().any(|pattern| pattern.fits(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Metrics, load_text};
    use std::path::Path;

    fn filter(expose: Expose, source: &str) -> Filter {
        let text = format!("[[source]]\nname = 'a'\nurl = 'http://a'\n{source}\n");
        let (settings, _) =
            load_text(Path::new("test.toml"), &text, [], &Flags::default()).unwrap();
        let settings = Settings {
            metrics: Metrics {
                expose,
                ..settings.metrics
            },
            ..settings
        };
        Filter::new(&settings, &settings.sources[0])
    }

    #[test]
    fn drop_wins_over_keep_and_both_narrow_what_is_exposed() {
        let both = "keep = ['sglang:.*', 'up']\ndrop = ['.*_bytes', 'sglang:num_.*']";
        for (expose, source, name, passes) in [
            (Expose::All, "", "up", true),
            (Expose::All, both, "up", true),
            (Expose::All, both, "upper", false),
            (Expose::All, both, "sglang:e2e_latency_seconds", true),
            (Expose::All, both, "sglang:token_usage", true),
            (Expose::All, both, "sglang:num_queue_reqs", false),
            (Expose::All, both, "sglang:memory_bytes", false),
            (Expose::All, "drop = 'up'", "up", false),
            (Expose::All, "drop = 'up'", "sglang:token_usage", true),
            (Expose::Kv, "", "sglang:token_usage", true),
            (Expose::Kv, "", "sglang_token_usage", true),
            (Expose::Kv, "", "up", false),
            (Expose::Kv, both, "up", false),
            (Expose::Kv, both, "sglang:token_usage", true),
            (Expose::Kv, both, "sglang:num_queue_reqs", false),
            (Expose::None, "", "sglang:token_usage", false),
        ] {
            let filter = filter(expose, source);
            // Once decided, once remembered.
            for _ in 0..2 {
                assert_eq!(filter.passes(name), passes, "{expose:?} {source} {name}");
            }
        }
    }

    #[test]
    fn no_more_names_are_remembered_than_there_is_room_for() {
        let filter = filter(Expose::All, "drop = '.*7'");
        for n in 0..MOST_KNOWN + 100 {
            assert_eq!(filter.passes(&format!("a_{n}")), n % 10 != 7);
            assert!(filter.known.borrow().len() <= MOST_KNOWN);
        }
    }
}
