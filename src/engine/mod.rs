//! From pages to what each role says of its KV cache. Pure: no I/O, clock or async.
//!
//! [`read`] recognises the engine from a page's metric names and reads its pools; [`current`] says
//! whether a source's last reading may still be used; [`aggregate`](fn@aggregate) puts the readings of all
//! sources together, one [`RoleState`] per role and model; [`headline`](fn@headline) picks the one that the
//! usage header speaks of. [`observe`] does the last steps for a whole snapshot. [`is_kv_family`] says
//! which names on a page carry KV state at all.
//!
//! A new engine is one file here and one row of [`ENGINES`].

mod aggregate;
mod freshness;
mod gauges;
mod headline;
mod sglang;

pub use crate::kv::RoleState;
pub use aggregate::{SourceReading, aggregate};
pub use freshness::{current, observe};
pub use headline::headline;

use crate::exposition::Page;
use crate::kv::Reading;

/// An engine that kvgauge can read.
struct Engine {
    /// The name in [`Reading::engine`].
    name: &'static str,
    /// Whether a metric family of this name, in any spelling that `read` knows, carries KV state: what
    /// `read` takes values from, takes them from where another is missing, or only shows.
    is_kv: fn(&str) -> bool,
    /// Reads a page of this engine; `None` where the page is not of it. Leaves
    /// [`Reading::engine`] to the caller.
    read: fn(&Page<'_>) -> Option<Reading>,
}

/// Every engine, in the order they are tried.
const ENGINES: &[Engine] = &[Engine {
    name: "sglang",
    is_kv: sglang::is_kv,
    read: sglang::read,
}];

/// Whether a metric family of this name carries the KV state of an engine: usage, capacity, tokens
/// used, requests running and queued, hit rate and the like. The answer comes from the tables that
/// [`read`] reads by, of every engine.
#[must_use]
pub fn is_kv_family(name: &str) -> bool {
    ENGINES.iter().any(|engine| (engine.is_kv)(name))
}

/// What a page says of its engine's pools.
///
/// The engine is recognised from the names on the page. A page of no known engine (a router's, for
/// one) gives a reading without engine and without pools. The order of lines does not matter.
#[must_use]
pub fn read(page: &Page<'_>) -> Reading {
    for engine in ENGINES {
        if let Some(mut reading) = (engine.read)(page) {
            reading.engine = Some(engine.name);
            return reading;
        }
    }
    Reading {
        engine: None,
        role: None,
        pools: Vec::new(),
        chosen: Vec::new(),
        odd: Vec::new(),
    }
}
