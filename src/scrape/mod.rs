//! Sources: reading their pages once an interval, never for a request.

mod allowance;
mod bearer;
mod explain;
mod fetch;
mod filter;
mod left_out;
mod loads;
mod poller;
mod probe;

pub use poller::{Pages, Scraper};
pub(crate) use probe::{Look, Missed, Whose, get, look, look_at_source};
