//! The promise that requests do not notice that sources are scraped: two kvgauges, one with four
//! sources and one with none that answers, by turns under the same streams; and what scraping costs.

use super::crowd::Crowd;
use super::growth::{Section, short};
use super::machine::{Ran, pause, quantile};
use super::pages::real_page;
use super::scale::Scale;
use super::served::{Served, Setup};
use super::sources::{share, until_read};
use super::upstream::Upstream;
use rustix::process::Signal;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

const SOURCES: usize = 4;
const PACE: Duration = Duration::from_millis(5);

/// Percent of a core that scraping may cost.
const MOST_SHARE: f64 = 1.0;

/// By so much of itself a chunk's delay may be longer beside scraping.
const MOST_LONGER: f64 = 1.05;

/// From the last stream opened to the measurement.
const SETTLE: Duration = Duration::from_millis(400);

/// One side's turns.
#[derive(Default)]
struct Side {
    delays: Vec<f64>,
    cpu: Vec<f64>,
}

pub(crate) fn measure(scale: &Scale, program: &Path) -> Section {
    let upstream = Upstream::start();
    let mut setup = Setup::new(program, upstream.address);
    let without = setup.start();
    setup.sources = upstream.pages(real_page(), SOURCES);
    let with = setup.start();
    until_read(&upstream, SOURCES as u64);

    let before = [&with, &without].map(Served::ran);
    pause(scale.rest);
    let since = |kvgauge: &Served, before: &Ran| kvgauge.ran().since(before);
    let (ran, idle) = (since(&with, &before[0]), since(&without, &before[1]));
    let scraping = share(ran.micros() - idle.micros(), scale.rest);

    upstream.pace(PACE);
    let mut sides = [Side::default(), Side::default()];
    without.signal(Signal::STOP);
    for turn in 0..2 * scale.turns {
        // Which of the two comes first changes from turn to turn.
        let which = (turn / 2 + turn) % 2;
        let [kvgauge, other] = if which == 0 {
            [&with, &without]
        } else {
            [&without, &with]
        };
        // What is stopped neither scrapes nor runs.
        other.signal(Signal::STOP);
        kvgauge.signal(Signal::CONT);
        one(scale, kvgauge, &upstream, &mut sides[which]);
    }
    let [with, without] = &sides;
    // Of two turns that follow each other: what else the machine does is the same for both.
    let pairs = with.delays.iter().zip(&without.delays);
    let ratios: Vec<f64> = pairs.map(|(with, without)| with / without).collect();
    let ratio = quantile(&ratios, 0.5);
    let mut text = format!(
        "Two kvgauges, one that reads four sources of the real page each second, one whose only source refuses. At rest the first needs {} % of a core more \
         ({} % and {} %), over {} s. Then by turns, {} each, while the other stands still: {} streams with a chunk each {} ms.\n\n\
         | | chunk's delay p50: median of the turns | quarter and three quarters | CPU µs a chunk |\n\
         | --- | --- | --- | --- |\n",
        short(scraping),
        short(share(ran.micros(), scale.rest)),
        short(share(idle.micros(), scale.rest)),
        scale.rest.as_secs(),
        scale.turns,
        scale.beside,
        PACE.as_millis(),
    );
    for (what, side) in [("four sources", with), ("none", without)] {
        writeln!(
            text,
            "| {what} | {} µs | {} to {} µs | {} |",
            short(quantile(&side.delays, 0.5)),
            short(quantile(&side.delays, 0.25)),
            short(quantile(&side.delays, 0.75)),
            short(quantile(&side.cpu, 0.5)),
        )
        .unwrap();
    }
    writeln!(
        text,
        "\nA chunk's delay beside scraping is {ratio:.3} of that without: the median of the pairs of turns, a quarter of which are below {:.3} and a quarter above {:.3}.",
        quantile(&ratios, 0.25),
        quantile(&ratios, 0.75)
    )
    .unwrap();
    let mut broken = Vec::new();
    if scraping > MOST_SHARE {
        broken.push(format!(
            "scraping costs {scraping:.2} % of a core, more than {MOST_SHARE}"
        ));
    }
    if ratio > MOST_LONGER {
        broken.push(format!(
            "a chunk's delay is {ratio:.3} times as long beside scraping, more than {MOST_LONGER}"
        ));
    }
    Section {
        title: "Beside scraping",
        text,
        broken,
        ..Section::default()
    }
}

fn one(scale: &Scale, kvgauge: &Served, upstream: &Upstream, side: &mut Side) {
    let crowd = Crowd::open(kvgauge.listen, scale.beside, upstream);
    pause(SETTLE);
    crowd.forget();
    let (chunks, ran) = (crowd.chunks(), kvgauge.ran());
    pause(scale.turn);
    let ran = kvgauge.ran().since(&ran);
    side.cpu
        .push(ran.micros() / (crowd.chunks() - chunks) as f64);
    side.delays.push(crowd.median_delay(false));
    drop(crowd);
    upstream.clear();
}
