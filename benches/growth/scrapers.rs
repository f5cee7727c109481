//! Scrapers that ask at once, while streams run.

use super::crowd::Crowd;
use super::growth::{Cost, Section, short};
use super::machine::{pause, quantile, watch};
use super::pages::real_page;
use super::scale::Scale;
use super::scraping::{Coding, Scraping};
use super::served::Setup;
use super::sources::until_read;
use super::upstream::Upstream;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const SOURCES: usize = 4;
const STREAMS: usize = 50;
const PACE: Duration = Duration::from_millis(10);

/// From one round to the next.
const BETWEEN: Duration = Duration::from_millis(100);

struct Row {
    scrapers: usize,
    /// In milliseconds, of one of them.
    cpu: f64,
    middle: f64,
    slow: f64,
    /// In microseconds: of chunks that came during a round, and between rounds.
    delay: f64,
    delay_between: f64,
    bytes: u64,
}

pub(crate) fn measure(scale: &Scale, kvgauge: &Path) -> Section {
    let rows: Vec<Row> = scale
        .scrapers
        .iter()
        .map(|n| one(scale, kvgauge, *n))
        .collect();
    let mut text = format!(
        "Four sources of the real page, and so many scrapers that ask all at once, as Prometheus does (gzip, {} kB), {} times. \
         Meanwhile {STREAMS} streams run with a chunk each {} ms: the last columns are how long their chunks take through kvgauge, while scrapers are answered and between.\n\n\
         | scrapers at once | CPU of a scrape | p50 | p99 | chunk's delay p50 | between |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        rows.first().map_or(0, |row| row.bytes / 1000),
        scale.rounds,
        PACE.as_millis()
    );
    for row in &rows {
        writeln!(
            text,
            "| {} | {} ms | {} ms | {} ms | {} µs | {} µs |",
            row.scrapers,
            short(row.cpu),
            short(row.middle),
            short(row.slow),
            short(row.delay),
            short(row.delay_between),
        )
        .unwrap();
    }
    let points =
        |of: &dyn Fn(&Row) -> f64| rows.iter().map(|r| (r.scrapers as f64, of(r))).collect();
    Section {
        title: "Scrapers",
        file: "growth-scrapers",
        text,
        over: "scrapers at once",
        costs: vec![
            Cost {
                what: "CPU of all of them, ms",
                points: points(&|r| r.cpu * r.scrapers as f64),
            },
            Cost {
                what: "time of a scrape, p50, ms",
                points: points(&|r| r.middle),
            },
            Cost {
                what: "time of a scrape, p99, ms",
                points: points(&|r| r.slow),
            },
        ],
        broken: Vec::new(),
    }
    .with_exponents()
}

fn one(scale: &Scale, program: &Path, scrapers: usize) -> Row {
    let upstream = Upstream::start();
    let mut setup = Setup::new(program, upstream.address);
    setup.sources = upstream.pages(real_page(), SOURCES);
    let kvgauge = setup.start();
    upstream.pace(PACE);
    let crowd = Crowd::open(kvgauge.listen, STREAMS, &upstream);
    until_read(&upstream, SOURCES as u64);
    // The thread that answers scrapers reads sources too.
    let rest = watch(kvgauge.pid(), scale.window / 4).micros_of("kvgauge-metrics")
        / (scale.window / 4).as_secs_f64();

    let round = Barrier::new(scrapers + 1);
    let scraped = Mutex::new(Vec::new());
    let mut micros = 0.0;
    std::thread::scope(|scope| {
        for _ in 0..scrapers {
            scope.spawn(|| {
                let mut scraping = Scraping::new(kvgauge.admin, Coding::Gzip);
                scraping.scrape();
                for _ in 0..scale.rounds {
                    round.wait();
                    let seen = scraping.scrape();
                    scraped.lock().unwrap().push(seen);
                    round.wait();
                }
            });
        }
        pause(BETWEEN);
        crowd.forget();
        for _ in 0..scale.rounds {
            pause(BETWEEN);
            let (start, ran) = (Instant::now(), kvgauge.ran());
            crowd.mark(true);
            round.wait();
            round.wait();
            crowd.mark(false);
            let ran = kvgauge.ran().since(&ran).micros_of("kvgauge-metrics");
            micros += ran - rest * start.elapsed().as_secs_f64();
        }
    });
    let scraped = scraped.into_inner().unwrap();
    let times: Vec<f64> = scraped.iter().map(|s| s.took.as_secs_f64() * 1e3).collect();
    Row {
        scrapers,
        cpu: micros / 1e3 / scraped.len() as f64,
        middle: quantile(&times, 0.5),
        slow: quantile(&times, 0.99),
        delay: crowd.median_delay(true),
        delay_between: crowd.median_delay(false),
        bytes: scraped[0].bytes,
    }
}
