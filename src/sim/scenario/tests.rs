//! Each scenario in virtual time: the engines and the requests are the demo's, the clock is paused.

use super::*;
use crate::sim::load::Call;
use crate::sim::{End, Loads, Request, Runner};
use std::sync::{Arc, Mutex};
use tokio::time::{Instant, sleep_until};

const MODEL: &str = "m";

/// For which what is said of a scenario is tried, in seconds.
const MINUTES_5: u64 = 300;

/// One second of a scenario, as the engines' pages show it.
#[derive(Debug)]
struct Look {
    /// Since the begin.
    second: u64,
    page: String,
    decode: Vec<Loads>,
    prefill: Loads,
    condition: Condition,
}

impl Look {
    /// A gauge of the decode server's page, a value for each data-parallel rank, in their order.
    fn gauges(&self, name: &str) -> Vec<f64> {
        let mut found: Vec<(&str, f64)> = self
            .page
            .lines()
            .filter(|line| line.starts_with(&format!("sglang:{name}{{")))
            .map(|line| {
                let rank = line.split("tp_rank=\"").nth(1).unwrap_or("0");
                let value = line.rsplit(' ').next().unwrap().parse().unwrap();
                (rank.split('"').next().unwrap(), value)
            })
            .collect();
        found.sort_by_key(|(rank, _)| rank.to_owned());
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// Used over capacity, all ranks together. None without gauges.
    fn usage(&self) -> Option<f64> {
        let used = self.gauges("kv_used_tokens");
        let capacity: u64 = self
            .decode
            .iter()
            .map(|rank| rank.max_total_num_tokens)
            .sum();
        (!used.is_empty()).then(|| used.iter().sum::<f64>() / capacity as f64)
    }

    /// Used over capacity of each rank.
    fn ranks(&self) -> Vec<f64> {
        self.gauges("full_token_usage")
    }

    fn decode(&self) -> Loads {
        Loads::together(&self.decode)
    }
}

/// What became of the requests.
#[derive(Debug, Default)]
struct Outcomes {
    /// When each came that got its first token, and how long that took.
    first: Vec<(Duration, Duration)>,
    finished: usize,
    failed: usize,
}

/// Plays a scenario for so many seconds.
async fn play(scenario: Scenario, seed: u64, seconds: u64) -> (Vec<Look>, Outcomes) {
    let config = scenario.deployment(MODEL, seed);
    let prefill = Runner::start(config.prefill_engine);
    let decode = Runner::start(config.decode_engine);
    prefill.pair(&decode);
    let began = Instant::now();
    if let Some(script) = config.decode_script {
        tokio::spawn(script.run(decode.clone()));
    }
    let outcomes = Arc::new(Mutex::new(Outcomes::default()));
    let load = scenario.load(MODEL, seed);
    let calls = comes(load, prefill.clone(), decode.clone(), Arc::clone(&outcomes));
    let calls = tokio::spawn(calls);
    let mut looks = Vec::new();
    for second in 1..=seconds {
        sleep_until(began + Duration::from_secs(second)).await;
        looks.push(Look {
            second,
            page: decode.page(),
            decode: decode.loads_of_ranks(),
            prefill: prefill.loads(),
            condition: *decode.condition().borrow(),
        });
    }
    calls.abort();
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    (looks, outcomes)
}

/// What the load and the router do, without HTTP.
async fn comes(load: Load, prefill: Runner, decode: Runner, outcomes: Arc<Mutex<Outcomes>>) {
    let began = Instant::now();
    let active: Vec<_> = load.traffic.iter().map(|_| Arc::new(())).collect();
    for (room, call) in (1..).zip(load.arrivals()) {
        sleep_until(began + call.at).await;
        let token = &active[call.kind];
        if Arc::strong_count(token) > load.traffic[call.kind].most {
            continue;
        }
        let token = Arc::clone(token);
        let request = request(&call, room);
        let tickets = prefill
            .submit(request)
            .and_then(|first| Ok((first, decode.submit(request)?)));
        let outcomes = Arc::clone(&outcomes);
        tokio::spawn(async move {
            let _token = token;
            let Ok((_first, mut second)) = tickets else {
                outcomes.lock().unwrap().failed += 1;
                return;
            };
            if second.after(0).await.tokens > 0 {
                let took = Instant::now() - began - call.at;
                outcomes.lock().unwrap().first.push((call.at, took));
            }
            let end = second.end().await.end;
            let mut outcomes = outcomes.lock().unwrap();
            match end {
                Some(End::Finished) => outcomes.finished += 1,
                _ => outcomes.failed += 1,
            }
        });
    }
}

fn request(call: &Call, room: u64) -> Request {
    Request {
        prompt: call.prompt,
        output: call.output,
        prefix: Some(crate::sim::Prefix {
            key: call.prefix,
            tokens: call.prefix,
        }),
        stream: call.stream,
        room: Some(room),
        dp_rank: call.dp_rank,
    }
}

/// The time to the first token, in seconds, that so many per cent of the requests of a span of seconds
/// did not exceed. None where none of them has a token yet.
fn ttft(outcomes: &Outcomes, span: std::ops::Range<u64>, percent: usize) -> Option<f64> {
    let mut times: Vec<Duration> = outcomes
        .first
        .iter()
        .filter(|(at, _)| span.contains(&at.as_secs()))
        .map(|(_, took)| *took)
        .collect();
    times.sort();
    let last = times.len().checked_sub(1)?;
    times.get(last * percent / 100).map(Duration::as_secs_f64)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// How a scenario looks, for whom a test fails; `cargo test --lib scenario -- --nocapture` for all.
fn show(scenario: Scenario, looks: &[Look], outcomes: &Outcomes) {
    println!("{}", scenario.name());
    for look in looks {
        let (decode, prefill) = (look.decode(), &look.prefill);
        println!(
            "{:3} s  {:8?}  usage {:.3?} ranks {:.2?}  running {} prealloc {} transfer {} retracted {:.0?}  \
             prefill queued {} usage {:.2}",
            look.second,
            look.condition,
            look.usage(),
            look.ranks(),
            decode.num_running_reqs,
            decode.decode_prealloc_queue_reqs,
            decode.decode_transfer_queue_reqs,
            look.gauges("num_retracted_requests_total"),
            prefill.num_waiting_reqs,
            prefill.token_usage,
        );
    }
    println!("{} finished, {} failed", outcomes.finished, outcomes.failed);
    for from in (0..looks.len() as u64).step_by(10) {
        let of = |percent| ttft(outcomes, from..from + 10, percent).unwrap_or(f64::NAN);
        println!(
            "{from:3} s  TTFT p50 {:.2} p90 {:.2} p99 {:.2}",
            of(50),
            of(90),
            of(99)
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_requests_at_the_same_times() {
    for scenario in Scenario::ALL {
        let first =
            |seed| -> Vec<Call> { scenario.load(MODEL, seed).arrivals().take(500).collect() };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() {
    let of = |seed| async move {
        let (looks, _) = play(Scenario::HotRank, seed, 8).await;
        looks
            .iter()
            .map(|look| (look.ranks(), look.decode()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(1).await, of(1).await);
    assert_ne!(of(1).await, of(2).await);
}

#[test]
fn names_are_those_that_are_typed() {
    for scenario in Scenario::ALL {
        assert_eq!(Scenario::named(scenario.name()), Some(scenario));
        assert!(
            scenario.summary().len() <= 62,
            "one line: {}",
            scenario.summary()
        );
        assert!(scenario.story().lines().all(|line| line.len() <= 79));
    }
    assert_eq!(Scenario::named("bogus"), None);
    assert_eq!(Scenario::default(), Scenario::ALL[0]);
}

#[tokio::test(start_paused = true)]
async fn calm_is_5_to_40_percent_full_and_nothing_queues() {
    let (looks, outcomes) = play(Scenario::Calm, 1, MINUTES_5).await;
    show(Scenario::Calm, &looks, &outcomes);
    for look in looks.iter().filter(|look| look.second > 6) {
        let usage = look.usage().unwrap();
        assert!(
            (0.05..0.4).contains(&usage),
            "{usage} after {} s",
            look.second
        );
        assert_eq!(look.decode().decode_prealloc_queue_reqs, 0);
        assert!(look.prefill.num_waiting_reqs <= 1);
    }
    assert_eq!(outcomes.failed, 0);
    assert!(ttft(&outcomes, 0..290, 99).unwrap() < 1.0);
}

#[tokio::test(start_paused = true)]
async fn rush_swings_and_its_queues_and_ttft_come_and_go() {
    let (looks, outcomes) = play(Scenario::Rush, 1, 136).await;
    show(Scenario::Rush, &looks, &outcomes);
    let usage = |span: std::ops::Range<u64>| -> Vec<f64> {
        let within = looks.iter().filter(|look| span.contains(&look.second));
        within.filter_map(Look::usage).collect()
    };
    let queued = |second: usize| {
        looks[second].prefill.num_waiting_reqs + looks[second].decode().decode_prealloc_queue_reqs
    };
    for crest in [30, 90] {
        let high = usage(crest - 10..crest + 15)
            .into_iter()
            .fold(0.0, f64::max);
        let low = usage(crest + 32..crest + 45)
            .into_iter()
            .fold(1.0, f64::min);
        assert!(high > 0.7 && low < 0.3, "{low} to {high} around {crest} s");
        assert!((crest..crest + 10).any(|second| queued(second as usize) > 10));
        assert!((crest + 34..crest + 42).all(|second| queued(second as usize) <= 1));
        let slow = ttft(&outcomes, crest..crest + 8, 50).unwrap();
        let quick = ttft(&outcomes, crest + 33..crest + 40, 50).unwrap();
        assert!(slow > 3.0 && quick < 1.0, "{slow} s, then {quick} s");
    }
    assert_eq!(outcomes.failed, 0);
}

#[tokio::test(start_paused = true)]
async fn full_rises_into_the_bands_and_stays_with_queue_and_retractions() {
    let (looks, outcomes) = play(Scenario::Full, 1, MINUTES_5).await;
    show(Scenario::Full, &looks, &outcomes);
    let over = |share| {
        looks
            .iter()
            .find(|look| look.usage() > Some(share))
            .unwrap()
            .second
    };
    assert!((12..=25).contains(&over(0.85)), "{} s", over(0.85));
    assert!(over(0.95) <= 30, "{} s", over(0.95));
    for look in looks.iter().filter(|look| look.second > 30) {
        let usage = look.usage().unwrap();
        assert!(usage > 0.9, "{usage} after {} s", look.second);
        assert!(look.decode().decode_prealloc_queue_reqs > 10);
    }
    let steady = looks.iter().filter(|look| look.second > 30);
    let over_95 = steady
        .clone()
        .filter(|look| look.usage() > Some(0.95))
        .count();
    assert!(
        over_95 * 100 >= steady.clone().count() * 98,
        "{over_95} s over 95 %"
    );
    let mean = mean(steady.filter_map(Look::usage));
    assert!((0.975..0.995).contains(&mean), "{mean}");
    let retracted = |second: usize| {
        let counts = looks[second - 1].gauges("num_retracted_requests_total");
        counts.first().copied().unwrap_or(0.0)
    };
    assert_eq!(retracted(15), 0.0);
    assert!(
        retracted(60) > 0.0 && retracted(120) > retracted(60),
        "{}",
        retracted(120)
    );
    for from in (60..260).step_by(20) {
        let median = ttft(&outcomes, from..from + 20, 50).unwrap();
        assert!(
            (20.0..40.0).contains(&median),
            "{median} s from {from} s on"
        );
    }
    assert_eq!(outcomes.failed, 0);
}

#[tokio::test(start_paused = true)]
async fn hot_rank_is_full_where_the_total_looks_harmless() {
    let (looks, outcomes) = play(Scenario::HotRank, 1, MINUTES_5).await;
    show(Scenario::HotRank, &looks, &outcomes);
    let steady: Vec<&Look> = looks.iter().filter(|look| look.second > 30).collect();
    let mut over_90 = 0;
    for look in &steady {
        let (ranks, total) = (look.ranks(), look.usage().unwrap());
        assert_eq!(ranks.len(), 4);
        assert!(
            (0.35..0.55).contains(&total),
            "{total} after {} s",
            look.second
        );
        for (rank, usage) in ranks.iter().enumerate() {
            let fits = if rank == 2 { 0.8..1.001 } else { 0.1..0.5 };
            assert!(
                fits.contains(usage),
                "rank {rank} {usage} after {} s",
                look.second
            );
        }
        over_90 += usize::from(ranks[2] > 0.9);
        for (rank, loads) in look.decode.iter().enumerate() {
            assert_eq!(loads.decode_prealloc_queue_reqs > 0, rank == 2);
        }
    }
    assert!(
        over_90 * 10 >= steady.len() * 8,
        "{over_90} s of {} over 90 %",
        steady.len()
    );
    let hot = mean(steady.iter().map(|look| look.ranks()[2]));
    assert!((0.93..0.97).contains(&hot), "{hot}");
    let whole = mean(steady.iter().filter_map(|look| look.usage()));
    assert!((0.42..0.48).contains(&whole), "{whole}");
    for from in (60..260).step_by(20) {
        let [median, p99] = [50, 99].map(|percent| ttft(&outcomes, from..from + 20, percent));
        let (median, p99) = (median.unwrap(), p99.unwrap());
        assert!(
            median < 1.0 && (15.0..25.0).contains(&p99),
            "{median} s, {p99} s from {from} s on"
        );
    }
    assert!(ttft(&outcomes, 0..5, 99).unwrap() < 2.0);
}

#[tokio::test(start_paused = true)]
async fn decode_restart_takes_requests_along_and_comes_back_without_gauges() {
    let (looks, outcomes) = play(Scenario::DecodeRestart, 1, 110).await;
    show(Scenario::DecodeRestart, &looks, &outcomes);
    for round in [0, 60] {
        let at = |second: usize| &looks[round + second - 1];
        assert!(at(14).usage().is_some());
        for second in 16..=25 {
            assert_eq!(at(second).condition, Condition::Down);
            assert_eq!(at(second).prefill.num_running_reqs, 0);
        }
        // The page is there again, its counters begin anew, and it has no gauge of usage.
        for second in 26..=28 {
            assert_eq!(at(second).condition, Condition::Starting);
            assert_eq!(at(second).usage(), None);
            assert_eq!(at(second).gauges("max_total_num_tokens").len(), 4);
            assert!(at(second).gauges("generation_tokens_total").is_empty());
        }
        let back = at(32).usage().unwrap();
        assert!((0.01..0.35).contains(&back), "{back}");
    }
    assert!(
        outcomes.failed > 20 && outcomes.finished > 100,
        "{outcomes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn hung_stands_still_while_requests_run_and_goes_on() {
    let (looks, outcomes) = play(Scenario::Hung, 1, 295).await;
    show(Scenario::Hung, &looks, &outcomes);
    for (from, to) in [(15, 95), (120, 270)] {
        let still = |look: &Look| {
            let names = [
                "kv_used_tokens",
                "num_running_reqs",
                "gen_throughput",
                "num_queue_reqs",
            ];
            names.map(|name| look.gauges(name))
        };
        let first = still(&looks[from]);
        assert!(first[1][0] > 0.0, "requests run");
        for look in &looks[from..to - 1] {
            assert_eq!(still(look), first, "after {} s", look.second);
        }
        assert_ne!(still(&looks[to + 3]), first, "it goes on");
    }
    // Whoever came meanwhile waited for it.
    assert!(ttft(&outcomes, 16..40, 50).unwrap() > 10.0);
    assert!(ttft(&outcomes, 112..119, 99).unwrap() < 2.0);
    assert_eq!(outcomes.failed, 0);
}

#[test]
fn metrics_are_off_on_decode_alone() {
    let config = Scenario::MetricsOff.deployment(MODEL, 1);
    assert!(config.prefill_engine.metrics && !config.decode_engine.metrics);
    for scenario in Scenario::ALL {
        let off = !scenario.deployment(MODEL, 1).decode_engine.metrics;
        assert_eq!(off, scenario == Scenario::MetricsOff);
    }
}
