//! The run: load, faults, and the count at the end.

use super::client::Asker;
use super::ledger::{Ledger, Line};
use super::upstream::Upstream;
use crate::support::page::Behaviour;
use crate::support::process::connections_at;
use crate::support::rng::Rng;
use crate::support::wait::within;
use crate::support::{Kvgauge, Page, Process, Setup, data, pause};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Streams in flight.
const STREAMS: usize = 300;

/// Clients with plain requests, uploads among them.
const PLAIN: usize = 12;

/// For what takes time by itself: streams that finish, connections that are given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What memory may have grown by with the first faults, over that after a load without one: what the
/// allocator keeps of the largest moment, when all streams begin again at once.
const FIRST_GROWTH_KIB: u64 = 8 * 1024;

/// And from then on to the end: such a moment has been, so what is more is left over.
const MEMORY_SLACK_KIB: u64 = 4 * 1024;

const PAGE: &str = "sglang-0.5.23-decode-tp4-busy";

const SETTINGS: &str = r#"
scrape.interval = "200ms"
scrape.timeout = "1s"
scrape.max_age = "2s"
timeouts.connect = "1s"
timeouts.response_head = "3s"
timeouts.stream_silence = "2500ms"
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// Killed, and there again at once.
    Restarts,
    /// Killed; refuses for a while.
    Refuses,
    /// Stopped for less time than any limit: nothing may break.
    Pauses,
    /// Stopped for longer than a stream may be silent, and than a head may take.
    Hangs,
    /// Stopped, and killed while it is.
    DiesStopped,
    /// Descriptors run short in kvgauge.
    Descriptors,
}

const FAULTS: [Fault; 6] = [
    Fault::Restarts,
    Fault::Refuses,
    Fault::Pauses,
    Fault::Hangs,
    Fault::DiesStopped,
    Fault::Descriptors,
];

/// What is there when nobody asks for anything.
#[derive(Clone, Copy, Debug)]
struct Level {
    resident_kib: u64,
    descriptors: usize,
    threads: u64,
}

/// Plays faults for this long, and holds everything to account.
pub(crate) fn faults(time: Duration) {
    let seed = std::env::var("KVGAUGE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("seed {seed} (KVGAUGE_SEED=…)");
    let mut rng = Rng::new(seed);
    let mut upstream = Upstream::start();
    let page = Page::real(PAGE);
    let mut kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &page)
        .settings(SETTINGS)
        .start();
    kvgauge.until_up("decode");
    let process = Process::new(kvgauge.pid());
    let ledger = Ledger::default();

    crowd(&kvgauge, &ledger, "first", &mut rng, |_| {
        until_all_are_in_flight(&kvgauge);
    });
    let before = level(&kvgauge, upstream.address());

    let mut played = BTreeMap::new();
    let mut lasted = Duration::ZERO;
    let mut round = |name, time| {
        let start = Instant::now();
        crowd(&kvgauge, &ledger, name, &mut rng, |rng| {
            for (fault, times) in storm(&kvgauge, &mut upstream, &page, time, rng) {
                *played.entry(fault).or_insert(0) += times;
            }
            until_all_are_in_flight(&kvgauge);
        });
        lasted += start.elapsed();
        page.set(Behaviour::Text(data::page(PAGE)));
        kvgauge.until_up("decode");
        level(&kvgauge, upstream.address())
    };
    let between = round("then", time / 3);
    let after = round("last", time - time / 3);
    let peak = process.peak_kib();

    let requests = ledger.len() + ledger.half_heads();
    let metrics = kvgauge.metrics();
    assert_eq!(kvgauge.stop(), 0, "exit code");
    let lines = kvgauge.log.to_the_end();
    let lines: Vec<Line> = lines
        .iter()
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let table = ledger.hold_against(&lines);

    println!(
        "{:.0} s with {STREAMS} streams in flight: {played:?}",
        lasted.as_secs_f64()
    );
    println!("| the client saw | logged as | requests |\n| --- | --- | --- |");
    for ((seen, logged), count) in &table {
        println!("| {seen} | {logged} | {count} |");
    }
    let mut logged: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        *logged.entry(&line.outcome).or_default() += 1;
    }
    println!("| outcome | log lines | kvgauge_requests_total |\n| --- | --- | --- |");
    for (outcome, count) in &logged {
        let counted = if *outcome == "malformed" {
            metrics.sum("kvgauge_malformed_requests_total", &[])
        } else {
            metrics.sum("kvgauge_requests_total", &[("outcome", outcome)])
        };
        println!("| {outcome} | {count} | {counted} |");
        assert_eq!(counted, *count as f64, "{outcome}");
    }
    let all = metrics.sum("kvgauge_requests_total", &[]) as usize;
    println!(
        "{requests} requests, {} log lines, {all} counted",
        lines.len()
    );
    assert_eq!(lines.len(), requests, "one line each");
    assert_eq!(all + ledger.half_heads(), requests, "each counted once");

    let refused = metrics.sum("kvgauge_accept_failures_total", &[]);
    let failures = metrics.sum("kvgauge_source_scrape_failures_total", &[]);
    println!("{refused} accepts and {failures} reads of the source failed");
    assert!(refused > 0.0, "descriptors never ran short");
    assert!(failures > 0.0, "the source never failed");
    let dropped = metrics.value("kvgauge_log_lines_dropped_total", &[]);
    assert_eq!(dropped, Some(0.0), "log lines dropped");

    println!("| | before | after a third | after | peak |\n| --- | --- | --- | --- | --- |");
    let row = |what, of: fn(&Level) -> u64, peak| {
        let [before, between, after] = [&before, &between, &after].map(of);
        println!("| {what} | {before} | {between} | {after} | {peak} |");
    };
    row("resident KiB", |l| l.resident_kib, peak.to_string());
    row("descriptors", |l| l.descriptors as u64, String::new());
    row("threads", |l| l.threads, String::new());
    for level in [between, after] {
        assert_eq!(
            level.descriptors, before.descriptors,
            "descriptors left over"
        );
        assert_eq!(level.threads, before.threads, "threads left over");
    }
    let most = [
        before.resident_kib + FIRST_GROWTH_KIB,
        between.resident_kib + MEMORY_SLACK_KIB,
    ];
    assert!(
        between.resident_kib <= most[0] && after.resident_kib <= most[1],
        "memory left over: {before:?} {between:?} {after:?}"
    );
}

/// Plays faults for so long, and each once at least. How often each was.
fn storm(
    kvgauge: &Kvgauge,
    upstream: &mut Upstream,
    page: &Page,
    time: Duration,
    rng: &mut Rng,
) -> BTreeMap<Fault, u32> {
    let process = Process::new(kvgauge.pid());
    let start = Instant::now();
    let mut played = BTreeMap::new();
    let over = AtomicBool::new(false);
    let mut sources = rng.split();
    std::thread::scope(|scope| {
        let _over = SetAtTheEnd(&over);
        scope.spawn(|| failing_source(page, &mut sources, &over));
        let mut round: Vec<Fault> = Vec::new();
        while start.elapsed() < time || played.len() < FAULTS.len() {
            let fault = round.pop().unwrap_or_else(|| {
                round = FAULTS.to_vec();
                rng.shuffle(&mut round);
                round.remove(0)
            });
            // What went wrong before must be overcome.
            until_all_are_in_flight(kvgauge);
            play(fault, upstream, process, rng);
            *played.entry(fault).or_insert(0) += 1;
        }
    });
    played
}

/// Lets the clients ask while `during` runs; returns when all they have asked for has ended.
fn crowd(
    kvgauge: &Kvgauge,
    ledger: &Ledger,
    name: &str,
    rng: &mut Rng,
    during: impl FnOnce(&mut Rng),
) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetAtTheEnd(&stop);
        for n in 0..STREAMS + PLAIN {
            let (name, rng) = (format!("{name}-{n}"), rng.split());
            let asker = Asker::new(name, kvgauge.listen, rng, ledger, &stop);
            scope.spawn(move || {
                if n < STREAMS {
                    asker.streams();
                } else {
                    asker.plain_ones();
                }
            });
        }
        during(rng);
    });
}

/// However the work ends, others learn that it has.
struct SetAtTheEnd<'a>(&'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn until_all_are_in_flight(kvgauge: &Kvgauge) {
    within(PATIENCE, "all streams are in flight", || {
        let now = kvgauge.metrics().value("kvgauge_requests_in_flight", &[]);
        (now >= Some(STREAMS as f64)).then_some(())
    });
}

fn play(fault: Fault, upstream: &mut Upstream, process: Process, rng: &mut Rng) {
    let mut some = |from: u64, to: u64| {
        pause(Duration::from_millis(from + rng.below(to - from)));
    };
    match fault {
        Fault::Restarts => {
            upstream.kill();
            upstream.run();
        }
        Fault::Refuses => {
            upstream.kill();
            some(500, 2000);
            upstream.run();
        }
        Fault::Pauses => {
            upstream.stop();
            some(200, 1200);
            upstream.go_on();
        }
        Fault::Hangs => {
            upstream.stop();
            some(3500, 4500);
            upstream.go_on();
        }
        Fault::DiesStopped => {
            upstream.stop();
            some(100, 1500);
            upstream.kill();
            upstream.run();
        }
        Fault::Descriptors => {
            let there = process.descriptors() as u64;
            let before = process.limit_descriptors(there * 2 / 3);
            some(1000, 2500);
            process.limit_descriptors(before);
        }
    }
}

/// The source fails in one way after the other until it is over.
fn failing_source(page: &Page, rng: &mut Rng, over: &AtomicBool) {
    let text = data::page(PAGE);
    while !over.load(Ordering::Relaxed) {
        page.set(match rng.below(7) {
            0 => Behaviour::Hang,
            1 => Behaviour::Status(500),
            2 => Behaviour::Raw(b"\0\xff garbage\r\n\r\n".to_vec()),
            3 => Behaviour::Text("decode} 1 2 3 4\n# TYPE\n\"".repeat(1000)),
            4 => Behaviour::Refuse,
            5 => Behaviour::Reset,
            _ => Behaviour::Text(text.clone()),
        });
        pause(Duration::from_millis(500 + rng.below(1500)));
    }
}

/// Waits until nothing is in flight and connected, then looks.
fn level(kvgauge: &Kvgauge, upstream: SocketAddr) -> Level {
    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
    within(
        PATIENCE,
        "no connection to client or upstream is left",
        || (connections_at(kvgauge.listen) + connections_at(upstream) == 0).then_some(()),
    );
    // The operators' own connections go at once; the source's stays.
    let process = Process::new(kvgauge.pid());
    within(PATIENCE, "no operator is connected", || {
        (connections_at(kvgauge.admin) == 0).then_some(())
    });
    Level {
        resident_kib: process.resident_kib(),
        descriptors: process.descriptors(),
        threads: process.threads(),
    }
}
