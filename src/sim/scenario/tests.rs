//! Each scenario in virtual time: the engines and the requests are the demo's, the clock is paused.

use super::*;
use crate::sim::load::Call;
use crate::sim::{End, Loads, Request, Runner};
use std::sync::{Arc, Mutex};
use tokio::time::{Instant, sleep_until};

const MODEL: &str = "m";

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

/// What became of the requests: when each came, how long its first token took, how it ended.
type Outcomes = Vec<(Duration, Duration, Option<End>)>;

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
    let outcomes = Arc::new(Mutex::new(Outcomes::new()));
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
                let outcome = (call.at, Duration::ZERO, Some(End::Failed));
                return outcomes.lock().unwrap().push(outcome);
            };
            second.after(0).await;
            let first = Instant::now() - began - call.at;
            let end = second.end().await.end;
            outcomes.lock().unwrap().push((call.at, first, end));
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

/// The value below which so many per cent of the times to the first token are.
fn ttft(outcomes: &Outcomes, span: std::ops::Range<u64>, percent: usize) -> Duration {
    let span = Duration::from_secs(span.start)..Duration::from_secs(span.end);
    let mut times: Vec<Duration> = outcomes
        .iter()
        .filter(|(at, _, end)| span.contains(at) && *end == Some(End::Finished))
        .map(|(_, first, _)| *first)
        .collect();
    times.sort();
    times[(times.len() - 1) * percent / 100]
}

/// `cargo test --lib scenario -- --nocapture` shows how a scenario looks.
fn show(scenario: Scenario, looks: &[Look], outcomes: &Outcomes) {
    println!("{}", scenario.name());
    for look in looks {
        let (decode, prefill) = (look.decode(), &look.prefill);
        println!(
            "{:3} s  {:8?}  usage {:.3?} ranks {:.2?}  running {} prealloc {} transfer {} retracted {}  \
             prefill queued {} usage {:.2}",
            look.second,
            look.condition,
            look.usage(),
            look.ranks(),
            decode.num_running_reqs,
            decode.decode_prealloc_queue_reqs,
            decode.decode_transfer_queue_reqs,
            decode.decode_retracted_queue_reqs,
            prefill.num_waiting_reqs,
            prefill.token_usage,
        );
    }
    let ended = |end| {
        outcomes
            .iter()
            .filter(|outcome| outcome.2 == Some(end))
            .count()
    };
    println!(
        "{} finished, {} failed",
        ended(End::Finished),
        ended(End::Failed)
    );
    for from in (0..looks.len() as u64).step_by(10) {
        let span = from..from + 10;
        let any = outcomes.iter().any(|(at, _, end)| {
            (span.start..span.end).contains(&at.as_secs()) && *end == Some(End::Finished)
        });
        if any {
            let of = |percent| ttft(outcomes, span.clone(), percent);
            println!(
                "{from:3} s  TTFT p50 {:.2?} p90 {:.2?} p99 {:.2?}",
                of(50),
                of(90),
                of(99)
            );
        }
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
            scenario.summary().len() <= 86,
            "one line: {}",
            scenario.summary()
        );
        assert!(
            scenario
                .story()
                .lines()
                .all(|line| line.chars().count() <= 100)
        );
    }
    assert_eq!(Scenario::named("bogus"), None);
    assert_eq!(Scenario::default(), Scenario::ALL[0]);
}

#[tokio::test(start_paused = true)]
async fn calm_is_calm() {
    let (looks, outcomes) = play(Scenario::Calm, 1, 90).await;
    show(Scenario::Calm, &looks, &outcomes);
}

#[tokio::test(start_paused = true)]
async fn rush_comes_in_waves() {
    let (looks, outcomes) = play(Scenario::Rush, 1, 90).await;
    show(Scenario::Rush, &looks, &outcomes);
}

#[tokio::test(start_paused = true)]
async fn full_is_full() {
    let (looks, outcomes) = play(Scenario::Full, 1, 90).await;
    show(Scenario::Full, &looks, &outcomes);
}

#[tokio::test(start_paused = true)]
async fn hot_rank() {
    let (looks, outcomes) = play(Scenario::HotRank, 1, 90).await;
    show(Scenario::HotRank, &looks, &outcomes);
}

#[tokio::test(start_paused = true)]
async fn decode_restart() {
    let (looks, outcomes) = play(Scenario::DecodeRestart, 1, 90).await;
    show(Scenario::DecodeRestart, &looks, &outcomes);
}

#[tokio::test(start_paused = true)]
async fn hung() {
    let (looks, outcomes) = play(Scenario::Hung, 1, 90).await;
    show(Scenario::Hung, &looks, &outcomes);
}
