//! Sources: finding them, and reading their pages once an interval, never for a request.

mod allowance;
mod board;
mod discover;
mod explain;
mod fetch;
mod filter;
mod left_out;
mod pace;
mod poller;
mod scraper;

pub use board::{Board, Discovery, View};
pub use scraper::Scraper;
