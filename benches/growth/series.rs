//! Series of one page: what a scrape of it costs, how much memory, and what showing it again takes.

use super::growth::{Cost, Section, grouped, short};
use super::machine::pause;
use super::pages::generated_page;
use super::scale::Scale;
use super::scraping::{Coding, Scraping};
use super::served::Setup;
use super::sources::resident;
use super::upstream::Upstream;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Above the defaults of 32 MiB and 1,000,000: a page of a million series has 122 MB.
const LIMITS: &str = "scrape.max_page_bytes = \"1GiB\"\nscrape.max_series = 2000000\n";

struct Row {
    series: usize,
    bytes: usize,
    cpu: f64,
    peak: f64,
    /// Once the page has been asked for.
    peak_of_all: f64,
    get_time: f64,
}

pub(crate) fn measure(scale: &Scale, kvgauge: &Path) -> Section {
    let rows: Vec<Row> = scale
        .series
        .iter()
        .map(|(series, ms)| one(scale, kvgauge, *series, Duration::from_millis(*ms)))
        .collect();
    let mut text = format!(
        "One source with so many series, generated as above. The last takes higher limits than the defaults: `{}`. \
         CPU is the metrics plane's, of reading, comparing and preparing the page; memory is the most that the process ever had, less what it has at rest. \
         *With GET* is once the page has been asked for as well.\n\n\
         | series | page | CPU of a scrape | of a series | memory | of the page | with GET | time of GET /metrics |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        LIMITS.trim_end().replace('\n', "`, `")
    );
    for row in &rows {
        let page = row.bytes as f64 / 1e6;
        writeln!(
            text,
            "| {} | {} MB | {} ms | {} ns | {} MiB | {:.1} times | {} MiB | {} ms |",
            grouped(&row.series.to_string()),
            short(page),
            short(row.cpu),
            short(row.cpu * 1e6 / row.series as f64),
            short(row.peak),
            row.peak * 1.048_576 / page,
            short(row.peak_of_all),
            short(row.get_time),
        )
        .unwrap();
    }
    let points = |of: &dyn Fn(&Row) -> f64| rows.iter().map(|r| (r.series as f64, of(r))).collect();
    Section {
        title: "Series",
        file: "growth-series",
        text,
        over: "series of a page",
        costs: vec![
            Cost {
                what: "CPU of a scrape, ms",
                points: points(&|r| r.cpu),
            },
            Cost {
                what: "peak memory above rest, MiB",
                points: points(&|r| r.peak),
            },
            Cost {
                what: "time of GET /metrics, ms",
                points: points(&|r| r.get_time),
            },
        ],
        broken: Vec::new(),
    }
    .with_exponents()
}

fn one(scale: &Scale, program: &Path, series: usize, interval: Duration) -> Row {
    let upstream = Upstream::start();
    let rest = {
        let kvgauge = Setup::new(program, upstream.address).start();
        pause(Duration::from_millis(300));
        resident(&kvgauge)
    };
    let page = generated_page(series);
    let bytes = page.len();
    let mut setup = Setup::new(program, upstream.address);
    setup.sources = upstream.pages(page, 1);
    // No pause is then stretched, however long a scrape takes.
    let max_age = 3 * interval;
    setup.settings = format!(
        "{LIMITS}scrape.interval = \"{}ms\"\nscrape.max_age = \"{}ms\"\nscrape.timeout = \"30s\"\n",
        interval.as_millis(),
        max_age.as_millis()
    );
    let kvgauge = setup.start();

    // Looks between two scrapes, at the same moment of each pause.
    let quiet = |scrapes: u64| {
        let start = Instant::now();
        while upstream.pages_sent() < scrapes {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the page is read"
            );
            pause(Duration::from_millis(1));
        }
        pause(interval / 2);
        (upstream.pages_sent(), kvgauge.ran())
    };
    let (first, before) = quiet(2);
    let (last, after) = quiet(first + u64::from(scale.scrapes));
    let cpu = after.since(&before).micros_of("kvgauge-metrics") / 1e3 / (last - first) as f64;
    let peak = kvgauge.process.peak_kib() as f64 / 1024.0 - rest;

    let mut scraping = Scraping::new(kvgauge.admin, Coding::Plain);
    let mut times = Vec::new();
    for _ in 0..scale.gets {
        quiet(upstream.pages_sent() + 1);
        let scraped = scraping.scrape();
        assert!(
            scraped.bytes > bytes as u64,
            "the source's page is shown again"
        );
        times.push(scraped.took.as_secs_f64() * 1e3);
    }
    Row {
        series,
        bytes,
        cpu,
        peak,
        peak_of_all: kvgauge.process.peak_kib() as f64 / 1024.0 - rest,
        get_time: super::machine::quantile(&times, 0.5),
    }
}
