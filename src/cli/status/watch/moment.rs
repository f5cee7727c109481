//! What `/kv/stream` and `/kv/history` say, as far as it is used here. What is not known is `None`.

use crate::cli::role_line::RoleSays;
use crate::cli::status::report::{PoolSays, Said, SourceSays};
use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Moment {
    /// RFC 3339.
    pub(super) timestamp: String,
    /// `None` where pages are read without a kvgauge.
    pub(super) kvgauge: Option<KvgaugeSays>,
    pub(super) roles: Vec<RoleSays>,
    pub(super) roles_left_out: u64,
    /// The fullest first.
    pub(super) pools: Vec<PoolSays>,
    pub(super) pools_left_out: u64,
    pub(super) traffic: Option<Traffic>,
    pub(super) sources: Vec<SourceSeen>,
    /// The newest first.
    pub(super) requests: Vec<RequestSays>,
    /// The newest first.
    pub(super) errors: Vec<ErrorSays>,
    /// Somebody was asked whose answer is in no role.
    #[serde(skip)]
    pub(super) unanswered: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KvgaugeSays {
    pub(super) version: String,
    pub(super) uptime_s: Option<u64>,
    /// `serving` or `draining`.
    pub(super) phase: Option<String>,
    pub(super) upstream: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Traffic {
    pub(super) window_s: Option<u64>,
    pub(super) in_flight: Option<u64>,
    pub(super) requests_per_s: Option<f64>,
    pub(super) failed_per_s: Option<f64>,
    pub(super) input_tokens_per_s: Option<f64>,
    pub(super) output_tokens_per_s: Option<f64>,
    pub(super) ttft_ms: Quantiles,
    pub(super) tpot_ms: Quantiles,
    pub(super) duration_ms: Quantiles,
}

/// In ms.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Quantiles {
    pub(super) p50: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p99: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SourceSeen {
    #[serde(flatten)]
    pub(super) says: SourceSays,
    /// Of its last good reading.
    pub(super) age_ms: Option<u64>,
    /// For how long no gauge that is read has changed.
    pub(super) unchanged_ms: Option<u64>,
    /// Whether it says that requests run or wait, and has said nothing else for too long.
    pub(super) stands_still: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RequestSays {
    pub(super) timestamp: String,
    pub(super) path: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) outcome: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) ttft_ms: Option<f64>,
    pub(super) duration_ms: Option<f64>,
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) kv_start_usage: Option<f64>,
    pub(super) kv_end_usage: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ErrorSays {
    pub(super) timestamp: String,
    /// How often, where that is counted.
    pub(super) count: Option<u64>,
    pub(super) who: Option<String>,
    pub(super) message: String,
}

/// Up to an hour of the past.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct History {
    /// Unix seconds, the oldest first.
    pub(super) times: Vec<i64>,
    pub(super) roles: Vec<RoleHistory>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RoleHistory {
    pub(super) role: String,
    pub(super) model: Option<String>,
    /// 0 to 1, a value for each of the times.
    pub(super) usage: Vec<Option<f64>>,
    /// Why it is unknown; where neither is there, nobody had heard of the role.
    pub(super) unknown: Vec<Option<String>>,
}

// === impl Moment ===

impl Moment {
    /// Of what was answered just now.
    pub(super) fn of(said: Said) -> Moment {
        let seen = |says: SourceSays| SourceSeen {
            // Read just now, or not.
            age_ms: (says.state == "up").then_some(0),
            says,
            ..SourceSeen::default()
        };
        let mut pools = said.pools;
        let usage = |pool: &PoolSays| pool.usage.unwrap_or(-1.0);
        pools.sort_by(|a, b| usage(b).total_cmp(&usage(a)));
        Moment {
            timestamp: jiff::Timestamp::now().to_string(),
            roles: said.roles,
            sources: said.sources.into_iter().map(seen).collect(),
            pools,
            unanswered: said.unanswered,
            ..Moment::default()
        }
    }

    /// The sources of a role that can be read, have work and stand still.
    pub(super) fn standing_still(&self, role: &RoleSays) -> Vec<&SourceSeen> {
        // Of a role with several models those that serve this one, as far as that is known.
        let serves_others = |source: &SourceSeen| {
            let pools = self
                .pools
                .iter()
                .filter(|pool| pool.source == source.says.name);
            let mut models = pools.filter_map(|pool| pool.model.as_ref()).peekable();
            role.model.as_ref().is_some_and(|model| {
                models.peek().is_some() && !models.any(|served| served == model)
            })
        };
        let of_role = |source: &&SourceSeen| source.says.role.as_deref() == Some(&*role.role);
        self.sources
            .iter()
            .filter(of_role)
            .filter(|source| source.stands_still && !serves_others(source))
            .collect()
    }

    /// As `status` reports it.
    pub(super) fn said(&self) -> Said {
        Said {
            roles: self.roles.clone(),
            sources: self.sources.iter().map(|s| s.says.clone()).collect(),
            pools: Vec::new(),
            unanswered: self.unanswered,
        }
    }

    /// Unix seconds.
    pub(super) fn unix(&self) -> i64 {
        let time: Result<jiff::Timestamp, _> = self.timestamp.parse();
        time.unwrap_or_else(|_| jiff::Timestamp::now()).as_second()
    }
}
