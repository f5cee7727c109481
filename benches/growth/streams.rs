//! Open streams: processor time of a chunk, and memory.

use super::crowd::Crowd;
use super::growth::{Cost, Section, grouped, short};
use super::machine::pause;
use super::process::Process;
use super::scale::Scale;
use super::served::Setup;
use super::upstream::Upstream;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Descriptors that this process and kvgauge need beside those of streams.
const RESERVE: u64 = 400;

/// From the last stream opened to the measurement.
const SETTLE: Duration = Duration::from_millis(500);

struct Row {
    streams: usize,
    pace: Duration,
    micros: f64,
    kib: f64,
    delay: f64,
}

pub(crate) fn measure(scale: &Scale, kvgauge: &Path) -> Section {
    let rows: Vec<Row> = scale
        .streams
        .iter()
        .map(|n| one(scale, kvgauge, (*n).min(most())))
        .collect();
    let mut text = format!(
        "As many streams as there are, {} chunks a second over all of them: with more streams each is slower. A chunk is an event of 190 bytes; one worker. \
         *A chunk of each* is the time of a chunk, times the streams.\n\n\
         | streams | a chunk each | CPU µs a chunk | CPU of a chunk of each | KiB a stream | delay p50 |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        grouped(&scale.chunks_a_second.to_string())
    );
    for row in &rows {
        writeln!(
            text,
            "| {} | {} ms | {} | {} ms | {} | {} µs |",
            grouped(&row.streams.to_string()),
            short(row.pace.as_secs_f64() * 1e3),
            short(row.micros),
            short(row.micros * row.streams as f64 / 1e3),
            short(row.kib),
            short(row.delay),
        )
        .unwrap();
    }
    let points =
        |of: &dyn Fn(&Row) -> f64| rows.iter().map(|r| (r.streams as f64, of(r))).collect();
    Section {
        title: "Streams",
        file: "growth-streams",
        text,
        over: "open streams",
        costs: vec![
            Cost {
                what: "CPU ms, a chunk of each stream",
                points: points(&|r| r.micros * r.streams as f64 / 1e3),
            },
            Cost {
                what: "memory above rest, MiB",
                points: points(&|r| r.kib * r.streams as f64 / 1024.0),
            },
        ],
        broken: Vec::new(),
    }
    .with_exponents()
}

/// Streams that the limit of descriptors allows: two of each are this process's, two kvgauge's.
fn most() -> usize {
    let limit = Process::new(std::process::id()).hard_limit();
    limit.map_or(usize::MAX, |limit| {
        (limit.saturating_sub(RESERVE) / 2) as usize
    })
}

fn one(scale: &Scale, program: &Path, streams: usize) -> Row {
    let upstream = Upstream::start();
    let kvgauge = Setup::new(program, upstream.address).start();
    // What the first few need is there for all.
    drop(Crowd::open(kvgauge.listen, 10, &upstream));
    upstream.clear();
    pause(SETTLE);
    let before = kvgauge.process.resident_kib();

    let pace = Duration::from_secs(1) * streams as u32 / scale.chunks_a_second;
    upstream.pace(pace);
    let crowd = Crowd::open(kvgauge.listen, streams, &upstream);
    pause(pace + SETTLE);
    crowd.forget();
    let (chunks, ran) = (crowd.chunks(), kvgauge.ran());
    pause(scale.window.max(pace));
    let ran = kvgauge.ran().since(&ran);
    let chunks = crowd.chunks() - chunks;
    let after = kvgauge.process.resident_kib();
    Row {
        streams,
        pace,
        micros: ran.micros() / chunks as f64,
        kib: after.saturating_sub(before) as f64 / streams as f64,
        delay: crowd.median_delay(false),
    }
}
