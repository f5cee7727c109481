//! kvgauge's own metrics (registered once, handles held, no global recorder), the request log and
//! the diagnostics.

mod buckets;
mod diagnostics;
pub mod log;
mod look;
mod meters;
pub mod names;
mod panics;
mod process;
mod recorder;
mod routes;
mod traffic;

pub use diagnostics::init_diagnostics;
pub use look::{Look, went_wrong};
pub use meters::{Direction, Finished, Meters};
pub use panics::watch_panics;
pub use recorder::Telemetry;
pub use routes::{method_label, route_label};
pub use traffic::{Quantiles, Traffic, WINDOW, Window};
