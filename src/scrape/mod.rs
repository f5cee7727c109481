//! Sources: reading their pages once an interval, never for a request.

mod explain;
mod fetch;
mod poller;

pub use poller::{Pages, Scraper};
