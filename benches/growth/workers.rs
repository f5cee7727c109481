//! One worker and two: how evenly streams are spread, and what a request costs.

use super::crowd::{Crowd, requests};
use super::growth::{Section, grouped, short};
use super::machine::{pause, watch};
use super::scale::Scale;
use super::served::Setup;
use super::upstream::Upstream;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_millis(20);
const CONNECTIONS: usize = 64;
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) fn measure(scale: &Scale, kvgauge: &Path) -> Section {
    let mut text = format!(
        "{} streams with a chunk each {} ms, and then {CONNECTIONS} connections with one small request at a time, as fast as it goes. \
         Clients and upstream run on the same cores.\n\n\
         | workers | of the streams' CPU, each worker | CPU µs a chunk | requests a second | CPU µs a request | cores used |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        scale.beside,
        PACE.as_millis()
    );
    for workers in [1, 2] {
        let upstream = Upstream::start();
        let mut setup = Setup::new(kvgauge, upstream.address);
        setup.workers = workers;
        let kvgauge = setup.start();
        upstream.pace(PACE);
        let crowd = Crowd::open(kvgauge.listen, scale.beside, &upstream);
        pause(SETTLE);
        let chunks = crowd.chunks();
        let ran = watch(kvgauge.pid(), scale.window / 3);
        let chunks = crowd.chunks() - chunks;
        drop(crowd);
        upstream.clear();
        let each: Vec<f64> = (0..workers)
            .map(|worker| ran.micros_of(&format!("kvgauge-{worker}")))
            .collect();
        let all: f64 = each.iter().sum();
        let shares: Vec<String> = each
            .iter()
            .map(|micros| format!("{:.0} %", 100.0 * micros / all))
            .collect();

        let (before, start) = (kvgauge.ran(), Instant::now());
        let answered = requests(kvgauge.listen, CONNECTIONS, scale.window / 3);
        let took = start.elapsed().as_secs_f64();
        let used = kvgauge.ran().since(&before).micros();
        writeln!(
            text,
            "| {workers} | {} | {} | {} | {} | {:.2} |",
            shares.join(", "),
            short(ran.micros() / chunks as f64),
            grouped(&format!("{:.0}", answered as f64 / took)),
            short(used / answered as f64),
            used / 1e6 / took,
        )
        .unwrap();
    }
    Section {
        title: "Workers",
        text,
        ..Section::default()
    }
}
