//! From pages to what each role says of its KV cache. Pure: no I/O, clock or async.
//!
//! [`read`] recognises the engine from a page's metric names and reads its pools; [`current`] says
//! whether a source's last reading may still be used; [`aggregate`](fn@aggregate) puts the readings of all
//! sources together, one [`RoleState`] per role and model; [`headline`](fn@headline) picks the one that the
//! usage header speaks of. [`observe`] does the last steps for a whole snapshot.
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
    /// Reads a page of this engine; `None` where the page is not of it. Leaves
    /// [`Reading::engine`] to the caller.
    read: fn(&Page<'_>) -> Option<Reading>,
}

/// Every engine, in the order they are tried.
const ENGINES: &[Engine] = &[Engine {
    name: "sglang",
    read: sglang::read,
}];

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
