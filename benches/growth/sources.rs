//! Sources: what reading them costs, and a page of all of them.

use super::growth::{Cost, Section, short};
use super::machine::{pause, watch};
use super::pages::real_page;
use super::scale::Scale;
use super::scraping::{Coding, Scraping};
use super::served::{Served, Setup};
use super::upstream::Upstream;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// For all sources to have been read: the first reads are spread over an interval.
const PATIENCE: Duration = Duration::from_secs(30);

/// Each source is read at least once in it.
const LEAST: Duration = Duration::from_secs(2);

/// Pages asked of kvgauge, one after the other.
const GETS: u32 = 10;

struct Row {
    sources: usize,
    /// Of one core, in percent.
    metrics: f64,
    worker: f64,
    all: f64,
    mib: f64,
    rate: f64,
    /// In milliseconds, of reading a page.
    read: f64,
    get_cpu: f64,
    get_time: f64,
}

pub(crate) fn measure(scale: &Scale, kvgauge: &Path) -> Section {
    let rest = at_rest(scale, kvgauge);
    let rows: Vec<Row> = scale
        .sources
        .iter()
        .map(|n| one(scale, kvgauge, *n))
        .collect();
    let (cpu, mib) = rest;
    let mut text = format!(
        "Each source is the real page of {} kB, read every second; nobody is served meanwhile. Without any that answers kvgauge needs {} % of a core and {} MiB. \
         *GET /metrics* is the page of all of them, not packed, over a connection that is kept.\n\n\
         | sources | read a second | CPU, of one core | metrics plane | worker | CPU a page | resident | CPU of GET /metrics | its time |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        real_page().len() / 1000,
        short(cpu),
        short(mib)
    );
    for row in &rows {
        writeln!(
            text,
            "| {} | {} MB | {} % | {} % | {} % | {} ms | {} MiB | {} ms | {} ms |",
            row.sources,
            short(row.rate),
            short(row.all),
            short(row.metrics),
            short(row.worker),
            short(row.read),
            short(row.mib),
            short(row.get_cpu),
            short(row.get_time),
        )
        .unwrap();
    }
    let points =
        |of: &dyn Fn(&Row) -> f64| rows.iter().map(|r| (r.sources as f64, of(r))).collect();
    Section {
        title: "Sources",
        file: "growth-sources",
        text,
        over: "sources",
        costs: vec![
            Cost {
                what: "CPU of reading each once, ms",
                points: points(&|r| r.read * r.sources as f64),
            },
            Cost {
                what: "memory above rest, MiB",
                points: points(&|r| r.mib - mib),
            },
            Cost {
                what: "CPU of GET /metrics, ms",
                points: points(&|r| r.get_cpu),
            },
        ],
        broken: Vec::new(),
    }
    .with_exponents()
}

/// Percent of a core, and MiB, of a kvgauge that reads nobody.
fn at_rest(scale: &Scale, program: &Path) -> (f64, f64) {
    let upstream = Upstream::start();
    let kvgauge = Setup::new(program, upstream.address).start();
    pause(Duration::from_secs(1).min(scale.window));
    let ran = watch(kvgauge.pid(), scale.window);
    (share(ran.micros(), scale.window), resident(&kvgauge))
}

fn one(scale: &Scale, program: &Path, sources: usize) -> Row {
    let upstream = Upstream::start();
    let mut setup = Setup::new(program, upstream.address);
    setup.sources = upstream.pages(real_page(), sources);
    let kvgauge = setup.start();
    until_read(&upstream, 2 * sources as u64);

    let (sent, start) = (upstream.pages_sent(), Instant::now());
    let ran = watch(kvgauge.pid(), scale.window.max(LEAST));
    let took = start.elapsed();
    let sent = upstream.pages_sent() - sent;
    assert!(sent > 0, "sources are read");

    // Before anybody asks for a page, which is memory too.
    let mib = resident(&kvgauge);
    let mut scraping = Scraping::new(kvgauge.admin, Coding::Plain);
    scraping.scrape();
    let (before, start) = (kvgauge.ran(), Instant::now());
    let mut times = 0.0;
    for _ in 0..GETS {
        times += scraping.scrape().took.as_secs_f64() * 1e3;
    }
    let gets = kvgauge.ran().since(&before);
    let meanwhile = start.elapsed().as_secs_f64() / took.as_secs_f64() * ran.micros();
    Row {
        sources,
        metrics: share(ran.micros_of("kvgauge-metrics"), took),
        worker: share(ran.micros_of("kvgauge-0"), took),
        all: share(ran.micros(), took),
        mib,
        rate: sent as f64 * real_page().len() as f64 / 1e6 / took.as_secs_f64(),
        read: ran.micros_of("kvgauge-metrics") / 1e3 / sent as f64,
        get_cpu: (gets.micros() - meanwhile).max(0.0) / 1e3 / f64::from(GETS),
        get_time: times / f64::from(GETS),
    }
}

/// Percent of one core.
pub(crate) fn share(micros: f64, time: Duration) -> f64 {
    micros / 1e4 / time.as_secs_f64()
}

pub(crate) fn resident(kvgauge: &Served) -> f64 {
    kvgauge.process.resident_kib() as f64 / 1024.0
}

/// Waits until so many pages have been sent, and what they hold has been read.
pub(crate) fn until_read(upstream: &Upstream, pages: u64) {
    let start = Instant::now();
    while upstream.pages_sent() < pages {
        assert!(start.elapsed() < PATIENCE, "sources are read");
        pause(Duration::from_millis(5));
    }
    pause(Duration::from_millis(100));
}
