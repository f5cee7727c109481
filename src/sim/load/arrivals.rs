//! Which requests come, and when: the same for the same seed, whatever becomes of them.

use crate::sim::rng::Rng;
use std::f64::consts::TAU;
use std::time::Duration;

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// How often they come.
    pub rate: Rate,
    /// Prompt lengths in tokens, from and to.
    pub prompt: (u64, u64),
    /// Output lengths in tokens, from and to.
    pub output: (u64, u64),
    /// The decode server's data-parallel rank that all of them are for. None: any.
    pub dp_rank: Option<u32>,
    /// The most of them at a time; one that comes when there are so many is left out.
    pub most: usize,
}

/// Requests a second: a wave that starts at its trough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// At the trough.
    pub low: f64,
    /// At the crest.
    pub high: f64,
    /// From one trough to the next.
    pub period: Duration,
}

/// One request of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// When it comes, since the load's begin.
    pub at: Duration,
    /// Which kind it is of: its place in the load's list.
    pub kind: usize,
    /// The model that it asks for.
    pub model: String,
    /// Prompt tokens.
    pub prompt: u64,
    /// Output tokens.
    pub output: u64,
    /// Prompt tokens that it shares with all that share as many.
    pub prefix: u64,
    /// Whether it is streamed.
    pub stream: bool,
    /// The decode server's data-parallel rank that it is for.
    pub dp_rank: Option<u32>,
}

/// The requests of a load in the order in which they come. Endless, unless there is no traffic.
#[derive(Clone, Debug)]
pub struct Arrivals {
    model: String,
    kinds: Vec<Kind>,
}

#[derive(Clone, Debug)]
struct Kind {
    traffic: Traffic,
    rng: Rng,
    /// When its next one comes.
    next: Duration,
}

impl Arrivals {
    /// Of `model`, from the begin of the load.
    #[must_use]
    pub fn new(model: &str, traffic: &[Traffic], seed: u64) -> Arrivals {
        let kind = |(index, traffic): (u64, &Traffic)| {
            let mut kind = Kind {
                traffic: traffic.clone(),
                rng: Rng::new(seed.wrapping_mul(1_000_003) ^ index),
                next: Duration::ZERO,
            };
            kind.wait();
            kind
        };
        Arrivals {
            model: model.to_owned(),
            kinds: (0..).zip(traffic).map(kind).collect(),
        }
    }
}

impl Iterator for Arrivals {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        let soonest = |(_, kind): &(usize, &mut Kind)| kind.next;
        let (index, kind) = self.kinds.iter_mut().enumerate().min_by_key(soonest)?;
        let (traffic, rng, at) = (&kind.traffic, &mut kind.rng, kind.next);
        let call = Call {
            at,
            kind: index,
            model: self.model.clone(),
            prompt: rng.between(traffic.prompt.0, traffic.prompt.1),
            output: rng.between(traffic.output.0, traffic.output.1),
            // A part of every prompt is one of a few system prompts that many share.
            prefix: traffic.prompt.0 / 6 * (1 + rng.below(3)),
            // Three of four.
            stream: rng.below(4) > 0,
            dp_rank: traffic.dp_rank,
        };
        kind.wait();
        Some(call)
    }
}

impl Kind {
    /// Until the next one: up to two fifths shorter or longer than the rate says.
    fn wait(&mut self) {
        let gap = (0.6 + 0.8 * self.rng.unit()) / self.traffic.rate.after(self.next);
        self.next += Duration::from_secs_f64(gap);
    }
}

impl Rate {
    /// The same all the time.
    #[must_use]
    pub const fn steady(rate: f64) -> Rate {
        Rate {
            low: rate,
            high: rate,
            period: Duration::from_secs(60),
        }
    }

    /// Requests a second so long after the begin; never none.
    fn after(self, time: Duration) -> f64 {
        let phase = time.as_secs_f64() / self.period.as_secs_f64().max(1e-3);
        let height = (1.0 - (phase * TAU).cos()) / 2.0;
        (self.low + (self.high - self.low) * height).max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(low: f64, high: f64) -> Traffic {
        Traffic {
            rate: Rate {
                low,
                high,
                period: Duration::from_secs(60),
            },
            prompt: (600, 900),
            output: (10, 20),
            dp_rank: None,
            most: 10,
        }
    }

    #[test]
    fn as_many_come_as_the_wave_says() {
        let calls: Vec<Call> = Arrivals::new("m", &[traffic(1.0, 9.0)], 1)
            .take_while(|call| call.at < Duration::from_secs(600))
            .collect();
        // Five a second on the average.
        assert!((2_900..3_100).contains(&calls.len()), "{}", calls.len());
        let within = |from: u64, to: u64| {
            let span = Duration::from_secs(from)..Duration::from_secs(to);
            calls.iter().filter(|call| span.contains(&call.at)).count()
        };
        assert!(within(0, 5) < 10 && within(28, 33) > 40);
        assert!(calls.is_sorted_by_key(|call| call.at));
        for call in &calls {
            assert!((600..=900).contains(&call.prompt) && (10..=20).contains(&call.output));
            assert!(call.prefix < call.prompt);
        }
    }

    #[test]
    fn kinds_come_each_at_its_own_rate() {
        let both = [
            traffic(4.0, 4.0),
            Traffic {
                dp_rank: Some(2),
                ..traffic(1.0, 1.0)
            },
        ];
        let calls: Vec<Call> = Arrivals::new("m", &both, 1).take(1_000).collect();
        let second = calls.iter().filter(|call| call.kind == 1).count();
        assert!((190..210).contains(&second), "{second}");
        assert!(
            calls
                .iter()
                .all(|call| (call.kind == 1) == (call.dp_rank == Some(2)))
        );
        assert_eq!(Arrivals::new("m", &[], 1).next(), None);
    }
}
