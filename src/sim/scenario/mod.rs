//! What operators meet, as deployments under a load, with what happens to them: each scenario is one
//! entry of `Scenario::plan`.

mod script;

pub use script::Script;

use super::deployment::DeploymentConfig;
use super::load::{Load, Rate, Traffic};
use super::runner::Condition;
use std::time::Duration;

/// A scenario by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scenario {
    /// `calm`
    #[default]
    Calm,
    /// `rush`
    Rush,
    /// `full`
    Full,
    /// `hot-rank`
    HotRank,
    /// `decode-restart`
    DecodeRestart,
    /// `metrics-off`
    MetricsOff,
    /// `hung`
    Hung,
}

/// What a scenario is.
struct Plan {
    name: &'static str,
    /// In one line.
    summary: &'static str,
    /// What will be seen, and where to look: lines for a terminal.
    story: &'static str,
    /// What comes.
    traffic: Vec<Traffic>,
    /// What is special about the deployment.
    change: fn(&mut DeploymentConfig),
}

impl Scenario {
    /// All of them, the default one first.
    pub const ALL: [Scenario; 7] = [
        Scenario::Calm,
        Scenario::Rush,
        Scenario::Full,
        Scenario::HotRank,
        Scenario::DecodeRestart,
        Scenario::MetricsOff,
        Scenario::Hung,
    ];

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.plan().name
    }

    /// What it is, in one line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.plan().summary
    }

    /// What will be seen, and where to look; lines for a terminal.
    #[must_use]
    pub fn story(self) -> &'static str {
        self.plan().story
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Scenario> {
        Scenario::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The deployment, on free ports of loopback.
    #[must_use]
    pub fn deployment(self, model: &str, seed: u64) -> DeploymentConfig {
        let mut config = DeploymentConfig::new(model, seed);
        for engine in [&mut config.prefill_engine, &mut config.decode_engine] {
            // Forty steps between two reports: 0.8 s, less than the scrape interval.
            engine.decode_step = Duration::from_millis(20);
            engine.stream_interval = 8;
        }
        (self.plan().change)(&mut config);
        config
    }

    /// What comes to it.
    #[must_use]
    pub fn load(self, model: &str, seed: u64) -> Load {
        Load {
            model: model.to_owned(),
            traffic: self.plan().traffic,
            seed,
        }
    }

    fn plan(self) -> Plan {
        match self {
            Scenario::Calm => Plan {
                name: "calm",
                summary: "light load: decode 5 to 40 % full, next to nothing queues",
                story: "Decode stays between 5 and 40 % full, and next to nothing queues.",
                traffic: vec![light()],
                change: |_| {},
            },
            Scenario::Rush => Plan {
                name: "rush",
                summary: "waves of load: usage swings, queues and TTFT come and go",
                story: "\
A wave of requests comes each minute. Towards its crest prefill can't keep up:
queues grow, TTFT with them, and decode fills; then all of it ebbs away.
Look at usage, at queued, and at the queues of both roles in X-KV-Pools.",
                traffic: vec![Traffic {
                    rate: Rate {
                        low: 0.3,
                        high: 7.5,
                        period: Duration::from_secs(60),
                    },
                    prompt: (30_000, 90_000),
                    output: (150, 450),
                    dp_rank: None,
                    most: 96,
                }],
                change: |_| {},
            },
            Scenario::Full => Plan {
                name: "full",
                summary: "more than fits: some 98 % full, requests wait, some preempted",
                story: "\
Decode is over 85 % full after some 20 s and some 98 % soon after; it stays so,
if a little less (over 90 %) for a moment after a long request. Requests wait
for room (prealloc), TTFT grows to half a minute, and now and then one loses
its room to others. Look at usage and prealloc in X-KV-Pools, and at preempted
at /kv.",
                traffic: vec![Traffic {
                    rate: Rate::steady(5.0),
                    prompt: (12_000, 38_000),
                    output: (1_200, 2_800),
                    dp_rank: None,
                    most: 160,
                }],
                change: |config| {
                    config.decode_engine.reserved_output = Some(128);
                    for engine in [&mut config.prefill_engine, &mut config.decode_engine] {
                        engine.stream_interval = 16;
                    }
                },
            },
            Scenario::HotRank => Plan {
                name: "hot-rank",
                summary: "one decode rank of four full and queueing, the total harmless",
                story: "\
Decode has four data-parallel ranks with a pool each, and long prompts are all
sent to rank 2: it is some 95 % full, down to 80 when a long request ends, and
others wait there. The other ranks are less than half full, and decode as a
whole about 45 %. Look at max= beside usage= in X-KV-Pools, at decode's pools
at /sources, and at TTFT's p99.",
                traffic: vec![
                    Traffic {
                        rate: Rate::steady(3.6),
                        prompt: (8_000, 24_000),
                        output: (400, 800),
                        dp_rank: None,
                        most: 120,
                    },
                    Traffic {
                        rate: Rate::steady(1.8),
                        prompt: (20_000, 34_000),
                        output: (600, 1_200),
                        dp_rank: Some(2),
                        most: 32,
                    },
                ],
                change: |config| {
                    config.decode_engine.dp_ranks = 4;
                    config.decode_engine.capacity /= 4;
                },
            },
            Scenario::DecodeRestart => Plan {
                name: "decode-restart",
                summary: "decode gone for 10 s each minute: unknown, then back fresh",
                story: "\
After 15 s, and each minute from then on, the decode server is gone for 10 s:
streams break off, calls get the router's 502, decode's usage is unknown
(unreachable). Then it is back without gauges (absent), until its first
requests have run a second. Look at X-KV-Pools and at /sources.",
                traffic: vec![light()],
                change: |config| {
                    config.decode_script = Some(Script {
                        changes: &[
                            (15, Condition::Down),
                            (25, Condition::Starting),
                            (28, Condition::Serving),
                        ],
                        every: 60,
                    });
                },
            },
            Scenario::MetricsOff => Plan {
                name: "metrics-off",
                summary: "decode serves without --enable-metrics: usage unknown",
                story: "\
The decode server runs without --enable-metrics: it serves, and its usage is
unknown. Look at /sources: it says what is wrong and what to do, as
kvgauge doctor does.",
                traffic: vec![light()],
                change: |config| config.decode_engine.metrics = false,
            },
            Scenario::Hung => Plan {
                name: "hung",
                summary: "decode's scheduler hangs now and then: its page stands still",
                story: "\
After 15 s decode's scheduler hangs for 80 s, after two minutes for 150 s; so
it goes on every five minutes. Its HTTP server still answers, so that its page
stands still: usage does not move, while requests wait. Look at
kvgauge_source_unchanged_seconds on /metrics, and at a call without a token.",
                traffic: vec![light()],
                change: |config| {
                    config.decode_script = Some(Script {
                        // The second one is long enough for KvPageUnchanged: a minute until it counts
                        // as still, and a minute more until the alert fires.
                        changes: &[
                            (15, Condition::Hung),
                            (95, Condition::Serving),
                            (120, Condition::Hung),
                            (270, Condition::Serving),
                        ],
                        every: 300,
                    });
                },
            },
        }
    }
}

/// Decode 5 to 40 % full.
fn light() -> Traffic {
    Traffic {
        rate: Rate {
            low: 2.4,
            high: 4.0,
            period: Duration::from_secs(60),
        },
        prompt: (20_000, 60_000),
        output: (100, 300),
        dp_rank: None,
        most: 64,
    }
}

#[cfg(test)]
mod tests;
