//! Every metric name of kvgauge's own, with its type and help: the one list.

use crate::exposition::MetricType::{self, Counter, Gauge, Histogram};

/// Name, type and help of one family.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The family's name (counters with their `_total`).
    pub name: &'static str,
    /// Its type.
    pub kind: MetricType,
    /// Its help text.
    pub help: &'static str,
}

const fn name(name: &'static str, kind: MetricType, help: &'static str) -> Name {
    Name { name, kind, help }
}

// === recorded through the metrics facade ===

/// Requests by method, route, status code and outcome.
pub const REQUESTS: Name = name(
    "kvgauge_requests_total",
    Counter,
    "Requests ended, by method, route, status code and outcome.",
);
/// Requests in flight.
pub const IN_FLIGHT: Name = name(
    "kvgauge_requests_in_flight",
    Gauge,
    "Requests whose last byte has not left yet.",
);
/// Request durations.
pub const REQUEST_DURATION: Name = name(
    "kvgauge_request_duration_seconds",
    Histogram,
    "From the request's head to the last byte of the answer, tunnels left out.",
);
/// Time to first token.
pub const TIME_TO_FIRST_TOKEN: Name = name(
    "kvgauge_time_to_first_token_seconds",
    Histogram,
    "From the request's head to the first content event of a stream that was answered with 200.",
);
/// Time per output token.
pub const TIME_PER_OUTPUT_TOKEN: Name = name(
    "kvgauge_time_per_output_token_seconds",
    Histogram,
    "(duration - time to first token) / (output tokens - 1), of completed streams that report usage.",
);
/// What kvgauge itself adds.
pub const OVERHEAD: Name = name(
    "kvgauge_overhead_seconds",
    Histogram,
    "Time kvgauge adds: request head read to upstream head written, plus upstream head read to client head written.",
);
/// Tokens that answers reported.
pub const TOKENS: Name = name(
    "kvgauge_tokens_total",
    Counter,
    "Tokens that answers reported, by type (input, output, cached).",
);
/// Tunnels open.
pub const TUNNELS: Name = name(
    "kvgauge_tunnels_in_flight",
    Gauge,
    "Requests in flight that are tunnels, such as WebSocket.",
);
/// How long tunnels lived.
pub const TUNNEL_DURATION: Name = name(
    "kvgauge_tunnel_duration_seconds",
    Histogram,
    "From the request's head to the end of the tunnel that it opened.",
);
/// What tunnels carried.
pub const TUNNEL_BYTES: Name = name(
    "kvgauge_tunnel_bytes_total",
    Counter,
    "Bytes that tunnels carried, by direction (in: from clients, out: to them).",
);
/// What was refused before there was a request.
pub const MALFORMED: Name = name(
    "kvgauge_malformed_requests_total",
    Counter,
    "What a client sent that is not a request, by reason (no_request: nothing at all).",
);
/// Answers of the router's whose framing was cleared.
pub const ODD_ANSWERS: Name = name(
    "kvgauge_upstream_odd_answers_total",
    Counter,
    "Answers of the router's whose framing had to be cleared before they were passed on, by reason.",
);
/// Log lines lost.
pub const LOG_DROPPED: Name = name(
    "kvgauge_log_lines_dropped_total",
    Counter,
    "Request log lines dropped since the writer was too slow or standard output was closed.",
);
/// Streams cut at the end of the drain.
pub const DRAINED: Name = name(
    "kvgauge_drained_requests_total",
    Counter,
    "Requests cut since they had not finished within drain.timeout.",
);
/// Failed accepts.
pub const ACCEPT_FAILURES: Name = name(
    "kvgauge_accept_failures_total",
    Counter,
    "Connections that could not be accepted (out of descriptors, mostly).",
);

/// Panics.
pub const PANICS: Name = name(
    "kvgauge_panics_total",
    Counter,
    "Faults of kvgauge's own that ended what they were about and nothing else, by thread.",
);

/// Merges of the unified page.
pub const METRICS_MERGES: Name = name(
    "kvgauge_metrics_merges_total",
    Counter,
    "Times this page was put together, this time included. Scrapers that ask at once share one.",
);

/// Reloads of the settings.
pub const CONFIG_RELOADS: Name = name(
    "kvgauge_config_reloads_total",
    Counter,
    "Times the settings were read anew, by result (partly: some of them need a restart, or the token's file can't be read; refused: something is wrong with them).",
);

/// Whether the last reload was good.
pub const CONFIG_LAST_RELOAD: Name = name(
    "kvgauge_config_last_reload_successful",
    Gauge,
    "Whether the settings that were read last are good, at the start or in a reload; where not, those from before are in force.",
);

/// What the recorder registers.
pub const RECORDED: [Name; 19] = [
    REQUESTS,
    IN_FLIGHT,
    REQUEST_DURATION,
    TIME_TO_FIRST_TOKEN,
    TIME_PER_OUTPUT_TOKEN,
    OVERHEAD,
    TOKENS,
    TUNNELS,
    TUNNEL_DURATION,
    TUNNEL_BYTES,
    MALFORMED,
    ODD_ANSWERS,
    LOG_DROPPED,
    DRAINED,
    ACCEPT_FAILURES,
    PANICS,
    METRICS_MERGES,
    CONFIG_RELOADS,
    CONFIG_LAST_RELOAD,
];

// === written from the snapshot, so that they can vanish ===

/// Usage by role and model.
pub const KV_USAGE: Name = name(
    "kvgauge_kv_usage_ratio",
    Gauge,
    "Share of the KV pools held by running requests, 0 to 1. Absent when unknown.",
);
/// The fullest pool's usage.
pub const KV_USAGE_MAX: Name = name(
    "kvgauge_kv_usage_max_ratio",
    Gauge,
    "Usage of the fullest single KV pool, 0 to 1. Absent when unknown.",
);
/// Why usage is not known.
pub const KV_UNKNOWN: Name = name(
    "kvgauge_kv_unknown",
    Gauge,
    "1 while the role's usage is unknown, with the gravest reason; no series while it is known.",
);
/// What is not in a known usage.
pub const KV_MISSING: Name = name(
    "kvgauge_kv_missing",
    Gauge,
    "Sources and pools of the role that are not in a usage that is known.",
);
/// Physical occupation.
pub const KV_FILL: Name = name(
    "kvgauge_kv_fill_ratio",
    Gauge,
    "Share of the KV pools that is physically occupied, evictable cache included, 0 to 1.",
);
/// Tokens used.
pub const KV_USED: Name = name(
    "kvgauge_kv_used_tokens",
    Gauge,
    "Tokens held by running requests.",
);
/// Tokens that fit.
pub const KV_CAPACITY: Name = name(
    "kvgauge_kv_capacity_tokens",
    Gauge,
    "Tokens that the KV pools can hold.",
);
/// Requests running.
pub const ENGINE_RUNNING: Name = name(
    "kvgauge_engine_requests_running",
    Gauge,
    "Requests running on the engines.",
);
/// Requests queued.
pub const ENGINE_QUEUED: Name = name(
    "kvgauge_engine_requests_queued",
    Gauge,
    "Requests in the engines' scheduler queues.",
);
/// PD queues.
pub const PD_REQUESTS: Name = name(
    "kvgauge_pd_requests",
    Gauge,
    "Requests in the queues of prefill/decode disaggregation, by queue.",
);
/// Prefix cache hit rate.
pub const HIT_RATIO: Name = name(
    "kvgauge_prefix_cache_hit_ratio",
    Gauge,
    "Prefix cache hit rate as the engines give it (SGLang: of the last prefill batch), 0 to 1.",
);
/// Whether the last read of a source was good.
pub const SOURCE_UP: Name = name(
    "kvgauge_source_up",
    Gauge,
    "Whether the last attempt to read the source was good.",
);
/// What a source is.
pub const SOURCE_INFO: Name = name(
    "kvgauge_source_info",
    Gauge,
    "Always 1; role and engine of the source are in the labels, one series for each of its roles.",
);
/// Requests running on one source.
pub const SOURCE_RUNNING: Name = name(
    "kvgauge_source_requests_running",
    Gauge,
    "Requests running on the source's engine, as its newest reading says.",
);
/// Requests waiting on one source.
pub const SOURCE_WAITING: Name = name(
    "kvgauge_source_requests_waiting",
    Gauge,
    "Requests in the queues of the source's engine (scheduler, prefill and decode), as its newest reading says.",
);
/// Requests that lost their KV.
pub const SOURCE_PREEMPTED: Name = name(
    "kvgauge_source_preempted_requests_total",
    Counter,
    "Requests that lost their KV to others (retracted, preempted) since the engine's start, by pool (rank).",
);
/// Age of the last good page.
pub const SOURCE_AGE: Name = name(
    "kvgauge_source_age_seconds",
    Gauge,
    "Age of the source's last good page.",
);
/// How long the gauges that are read have not moved.
pub const SOURCE_UNCHANGED: Name = name(
    "kvgauge_source_unchanged_seconds",
    Gauge,
    "For how long no gauge that is read has changed; of a source without such, nothing on its page.",
);
/// Scrape duration.
pub const SOURCE_DURATION: Name = name(
    "kvgauge_source_scrape_duration_seconds",
    Gauge,
    "Duration of the last attempt to read the source.",
);
/// Samples on the page.
pub const SOURCE_SAMPLES: Name = name(
    "kvgauge_source_samples",
    Gauge,
    "Samples on the source's last good page.",
);
/// Samples dropped.
pub const SOURCE_DROPPED: Name = name(
    "kvgauge_source_dropped_samples_total",
    Counter,
    "Lines and samples of the source's pages that are not passed on, by reason.",
);
/// Failed scrapes.
pub const SOURCE_FAILURES: Name = name(
    "kvgauge_source_scrape_failures_total",
    Counter,
    "Failed attempts to read the source, by reason.",
);
/// Values out of range.
pub const SOURCE_ODD: Name = name(
    "kvgauge_source_odd_values_total",
    Counter,
    "Values of KV gauges that can't be right, by reason.",
);
/// Whether the last look for sources saw all there is to see.
pub const DISCOVERY_UP: Name = name(
    "kvgauge_discovery_up",
    Gauge,
    "Whether the last look for sources saw all there is to see.",
);
/// Pages on the newest list.
pub const DISCOVERY_FOUND: Name = name(
    "kvgauge_discovery_found_sources",
    Gauge,
    "Pages on the newest list of sources.",
);
/// Pages on it beyond the limit.
pub const DISCOVERY_LEFT_OUT: Name = name(
    "kvgauge_discovery_left_out_sources",
    Gauge,
    "Pages on the newest list of sources that are beyond discovery.max_sources, and so not read.",
);
/// Looks for sources that failed.
pub const DISCOVERY_FAILURES: Name = name(
    "kvgauge_discovery_failures_total",
    Counter,
    "Looks for sources that did not see all there is to see.",
);
/// Build information.
pub const BUILD_INFO: Name = name(
    "kvgauge_build_info",
    Gauge,
    "Always 1; the version is in the label.",
);
