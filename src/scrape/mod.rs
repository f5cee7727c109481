//! Sources: finding them, and reading their pages once an interval, never for a request.

mod allowance;
mod bearer;
mod board;
mod discover;
mod explain;
mod fetch;
mod filter;
mod left_out;
mod loads;
mod ours;
mod pace;
mod poller;
mod probe;
mod redirect;
mod scraper;

pub use board::{Board, Discovery, View};
pub(crate) use discover::{Way, search};
pub(crate) use probe::{Access, Look, Missed, Whose, get, look, look_at_source};
pub use scraper::Scraper;
