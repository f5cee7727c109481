//! Prometheus text: read, merge, write, negotiate. Pure: no I/O, clock or async; uses no other room.
//!
//! A page's way: [`Page::read`] slices the text into rows that borrow from it; [`Prepared::new`]
//! turns a page into ready-made blocks, one a family, with the source label already in each line, and
//! the lines of `OpenMetrics` beside those of classic text where they differ; [`merge`](fn@merge) puts
//! the blocks of several pages together, one block a family, in the [`Format`] that a client
//! [negotiates](Format::negotiate). The first two happen once a scrape, the last once a request.
//!
//! # What is read
//! Classic text 0.0.4 and 1.0.0, and `OpenMetrics` line by line: the type words, the suffixes,
//! `# UNIT`, `# EOF`, exemplars and quoted UTF-8 names are understood wherever they stand. Lines may
//! end in CRLF, begin with blanks, hold tabs and be empty. Text after `# EOF` is read too, since
//! pages glued together by others have it in the middle.
//!
//! # What is dropped
//! - A line that is none of these is dropped, counted by reason, and costs no other line
//!   ([`Page::dropped`]).
//! - The last line of a page is kept without its newline if it is well-formed by itself. A page cut
//!   in the middle of a number can't be told from a whole one: whoever fetched it must know.
//! - A page over a limit is an error as a whole, never half a page.
//! - Of a series that a page has twice the first is kept ([`Prepared::duplicates`]).
//!
//! # Which family a sample is in
//! On one page, in this order: the histogram or summary that its suffix (`_bucket`, `_sum`,
//! `_count`) points to; the family typed by its own name; a counter, info or gauge histogram that
//! its suffix (`_total`, `_created`, `_info`, `_gsum`, `_gcount`) points to; else a family of its own
//! name and unknown type. The order of lines does not matter. Where HELP and TYPE say `a:b` and the
//! samples say `a_b` (an escaping that some servers do by half), the samples keep their name and get
//! the type.

mod bounds;
mod draft;
mod escape;
mod facts;
mod format;
mod forms;
mod group;
mod kind;
mod labels;
mod line;
mod merge;
mod names;
mod negotiate;
mod open;
mod page;
mod plain;
mod prepare;
mod prepared;
mod reader;
mod relabel;
mod scan;
mod series;
mod write;
mod writer;

pub use format::{Escaping, Format, Version};
pub use kind::MetricType;
pub use labels::Labels;
pub use line::DROP_REASONS;
pub use merge::{Conflict, Merged, conflicts, merge};
pub use negotiate::takes_gzip;
pub use page::{Dropped, Family, Limits, Page, PageError, Sample};
pub use prepared::Prepared;
pub use writer::TextWriter;
