//! Sources: finding them, and reading their pages once an interval, never for a request.

mod allowance;
mod board;
mod discover;
mod events;
mod explain;
mod fetch;
mod filter;
mod left_out;
mod loads;
mod pace;
mod paste;
mod poller;
mod probe;
mod read;
mod redirect;
mod scraper;
mod stranger;
mod verdict;
mod whose;

pub use board::{Board, Discovery, View};
pub(crate) use discover::{Way, search};
pub(crate) use events::EventStream;
pub(crate) use probe::{Access, Look, Missed, get, look_at_source};
pub use scraper::Scraper;
pub(crate) use verdict::{Case, Stands, Verdict, named};
pub(crate) use whose::Whose;
