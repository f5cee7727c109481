//! The request log: one JSON object a line on standard output, written per worker into blocks and
//! carried out by one writer thread.

mod clock;
mod failures;
mod line;
mod queue;
mod recent;
mod room;
mod sink;

pub use clock::Clock;
pub use failures::{Failure, MOST_FAILURES};
pub use line::{Record, Usage};
pub use recent::{MOST_LINES, Recent};
pub use sink::{Log, Sink};
