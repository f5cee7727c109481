//! How much is measured.

use std::time::Duration;

/// Sizes and times of all sections.
pub(crate) struct Scale {
    /// Only to try whether it runs.
    pub(crate) is_trial: bool,
    /// Open streams; the last is as many as the limit of descriptors allows, if that is less.
    pub(crate) streams: &'static [usize],
    /// Chunks a second, over however many streams.
    pub(crate) chunks_a_second: u32,
    pub(crate) sources: &'static [usize],
    /// Series of a page, and milliseconds from one of its scrapes to the next.
    pub(crate) series: &'static [(usize, u64)],
    /// Scrapes of each such page, and requests for the merged one.
    pub(crate) scrapes: u32,
    pub(crate) gets: u32,
    pub(crate) scrapers: &'static [usize],
    /// How often all scrapers ask at once.
    pub(crate) rounds: usize,
    /// How long the cost of streams, and of sources, is watched.
    pub(crate) window: Duration,
    /// Alternations with and without scraping, and the time of one side.
    pub(crate) turns: usize,
    pub(crate) turn: Duration,
    /// How long the cost at rest is watched.
    pub(crate) rest: Duration,
    /// Streams beside which sources are scraped.
    pub(crate) beside: usize,
}

impl Scale {
    pub(crate) fn full() -> Scale {
        Scale {
            is_trial: false,
            streams: &[10, 100, 1000, 10_000],
            chunks_a_second: 8000,
            sources: &[1, 4, 16, 64],
            series: &[
                (1000, 250),
                (10_000, 250),
                (100_000, 500),
                (1_000_000, 3000),
            ],
            scrapes: 6,
            gets: 3,
            scrapers: &[1, 4, 16, 64],
            rounds: 50,
            window: Duration::from_secs(8),
            turns: 12,
            turn: Duration::from_millis(2000),
            rest: Duration::from_secs(20),
            beside: 200,
        }
    }

    pub(crate) fn quick() -> Scale {
        Scale {
            sources: &[1, 4, 16, 64],
            series: &[
                (1000, 250),
                (10_000, 250),
                (100_000, 500),
                (1_000_000, 2000),
            ],
            scrapes: 1,
            gets: 1,
            rounds: 10,
            window: Duration::from_millis(1200),
            turns: 3,
            turn: Duration::from_millis(800),
            rest: Duration::from_secs(3),
            ..Scale::full()
        }
    }

    pub(crate) fn trial() -> Scale {
        Scale {
            is_trial: true,
            streams: &[5, 10],
            sources: &[1, 2],
            series: &[(1000, 200), (2000, 200)],
            scrapers: &[1, 2],
            rounds: 2,
            window: Duration::from_millis(300),
            turns: 1,
            turn: Duration::from_millis(300),
            rest: Duration::from_millis(300),
            beside: 5,
            ..Scale::quick()
        }
    }
}
