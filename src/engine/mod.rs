//! From pages to what each role says of its KV cache. Pure: no I/O, clock or async.
//!
//! [`read`] recognises the engine from a page's metric names and reads its pools, [`read_as`] takes a
//! page for a given engine's, [`read_mapped`] reads by a [`Mapping`] instead, [`read_source`] as a source's
//! settings say, and [`read_loads`] SGLang's `/v1/loads`; [`current`] says
//! whether a source's last reading may still be used; [`aggregate`](fn@aggregate) puts the readings of all
//! sources together, one [`RoleState`] per role and model; [`headline`](fn@headline) picks the one that the
//! usage header speaks of. [`observe`] does the last steps for a whole snapshot. [`is_kv_family`] says
//! which names on a page carry KV state at all, and [`suspects`](fn@suspects) which look like it on a page of no
//! known engine; [`lacking`](fn@lacking) what a reading lacks, and what to do.
//!
//! A new engine is one file here, most often nothing but a [`table`], one row of [`ENGINES`], and its
//! name in `config/names.rs`, so that settings can say it.

mod aggregate;
mod dynamo;
mod freshness;
mod gauges;
mod headline;
mod label;
mod lacking;
mod llamacpp;
mod lmdeploy;
mod mapping;
mod mindie;
mod nim;
mod notes;
mod sglang;
mod suspects;
mod table;
mod tgi;
mod triton;
mod trtllm;
mod vllm;

pub use crate::config::{BlockSize, MappedGauge, MappedUnit, Mapping, MappingError, MappingSpec};
pub use crate::kv::RoleState;
pub use aggregate::{SourceReading, aggregate, pools_not_read};
pub use freshness::{STANDS_STILL, current, observe, stands_still};
pub use headline::headline;
pub use label::{fullest, pool_label, pool_role};
pub use lacking::{Lacking, lacking};
pub use mapping::read_mapped;
pub use sglang::{LoadsError, read_loads};
pub use suspects::{Suspect, suspects};

use crate::config::{Settings, Source};
use crate::exposition::Page;
use crate::kv::Reading;

/// An engine that kvgauge can read.
trait Engine: Sync {
    /// The name in [`Reading::engine`].
    fn name(&self) -> &'static str;
    /// Whether a metric family of this name, in any spelling that `read` knows, carries KV state: what
    /// `read` takes values from, takes them from where another is missing, or only shows.
    fn is_kv(&self, family: &str) -> bool;
    /// Whether the page is this engine's, from the names on it.
    fn claim(&self, page: &Page<'_>) -> Option<Claim>;
    /// What is known of the values that its pages lack: of several for one value, the first that fits.
    fn lacks(&self) -> &'static [Lacking];
    /// Reads the page as one of this engine.
    fn read(&self, page: &Page<'_>) -> Reading;
}

/// How surely a page is an engine's: the greater, the surer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It has families by the engine's names.
    Names,
    /// It has samples of gauges that are read.
    Samples,
}

/// Every engine. Where a page has the samples of several, the first counts: a Dynamo worker passes
/// on those of the engine in it, which say more than its own.
const ENGINES: &[&dyn Engine] = &[
    &sglang::Sglang,
    &vllm::TABLE,
    &trtllm::TABLE,
    &triton::TABLE,
    &tgi::TABLE,
    &llamacpp::TABLE,
    &lmdeploy::TABLE,
    &nim::TABLE,
    &mindie::TABLE,
    &dynamo::TABLE,
];

/// The names of every engine, as in [`Reading::engine`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().map(|engine| engine.name())
}

/// Whether a metric family of this name carries the KV state of an engine: usage, capacity, tokens
/// used, requests running and queued, hit rate and the like. The answer comes from the tables that
/// [`read`] reads by, of every engine.
#[must_use]
pub fn is_kv_family(name: &str) -> bool {
    ENGINES.iter().any(|engine| engine.is_kv(name))
}

/// The engines whose names are on the page. [`read`] takes the surest, the first of several: on a page
/// of one engine there is one.
pub fn claimants(page: &Page<'_>) -> impl Iterator<Item = &'static str> {
    ENGINES
        .iter()
        .filter(|engine| engine.claim(page).is_some())
        .map(|engine| engine.name())
}

/// What a page says of its engine's pools.
///
/// The engine is recognised from the names on the page. A page of no known engine (a router's, for
/// one) gives a reading without engine and without pools. The order of lines does not matter.
#[must_use]
pub fn read(page: &Page<'_>) -> Reading {
    let mut surest: Option<(&dyn Engine, Claim)> = None;
    for engine in ENGINES {
        if let Some(claim) = engine.claim(page)
            && surest.is_none_or(|(_, before)| claim > before)
        {
            surest = Some((*engine, claim));
        }
    }
    surest.map_or_else(Reading::none, |(engine, _)| engine.read(page))
}

/// What a page says when it is taken for one of the engine of this name, whatever is on it. Where it
/// has none of that engine's gauges there are no pools, so its usage is unknown (`absent`). `None`
/// where no engine is called so: [`names`] has all.
#[must_use]
pub fn read_as(engine: &str, page: &Page<'_>) -> Option<Reading> {
    let engine = ENGINES.iter().find(|e| e.name() == engine)?;
    Some(engine.read(page))
}

/// What the page of a source says: read by the mapping or as the engine that its settings name, else
/// as [`read`] recognises it.
#[must_use]
pub fn read_source(page: &Page<'_>, source: &Source, settings: &Settings) -> Reading {
    if let Some((name, mapping)) = settings.mapping(source) {
        return read_mapped(page, name, mapping);
    }
    match &source.engine {
        Some(engine) => read_as(engine, page).unwrap_or_else(Reading::none),
        None => read(page),
    }
}

/// The engine of a reading in words: its name, and that it is a mapping's where it is.
#[must_use]
pub fn in_words(reading: &Reading) -> Option<String> {
    let name = reading.engine.as_deref()?;
    Some(if names().any(|engine| engine == name) {
        name.to_owned()
    } else {
        format!("{name} (mapping in the settings)")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn settings_can_name_every_engine_and_no_other() {
        assert!(super::names().eq(crate::config::ENGINES.iter().copied()));
    }
}
