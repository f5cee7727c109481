#!/usr/bin/env python3
"""Writes kvgauge.json, the Grafana dashboard: generate.py [--check]

--check writes nothing, and ends with 1 where the file is not what this script makes of itself.
Needs Python 3.10 or newer and nothing else.

The rules of every query:
- What is unknown has no series, and none is made up: no `or vector(0)`, and `noValue` says "unknown",
  also where the reason may be another one.
- Several kvgauges before the same engines say the same of KV, so there the largest of a deployment is
  taken (`kv`, `engine`). What each kvgauge counts for itself is added up (`own`).
- Engines keep their own names: `A or B` has SGLang's and vLLM's.
"""

import json
import pathlib
import sys

FILE = pathlib.Path(__file__).with_name("kvgauge.json")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNKNOWN = "unknown"

# --- Queries -------------------------------------------------------------------------------------

HERE = 'deployment=~"$deployment",instance=~"$instance"'
OF_ROLE = HERE + ',role=~"$role",model=~"$model"'
OF_SOURCE = HERE + ',source=~"$source"'
# Not by instance: where the engines are scraped directly theirs is not kvgauge's.
OF_ENGINE = 'deployment=~"$deployment",source=~"$source",model_name=~"$model"'
RANGE = "[$__rate_interval]"


def kv(name, more="", by="deployment, role, model"):
    """A family of kvgauge's by role and model."""
    return f"max by ({by}) ({name}{{{OF_ROLE}{more}}})"


def own(name, by, more=""):
    """The rate of what each kvgauge counts for itself."""
    return f"sum by ({by}) (rate({name}{{{HERE}{more}}}{RANGE}))"


def of_source(name, by="deployment, source", more="", how="max"):
    """A family of kvgauge's by source."""
    return f"{how} by ({by}) ({name}{{{OF_SOURCE}{more}}})"


def once(query):
    """The same series from several kvgauges, and from ranks that share a pool, counts once."""
    return f"max without (instance, pod, node, tp_rank, pp_rank, moe_ep_rank, ep_rank) ({query})"


def engine(name, by="deployment, source", how="sum", more=""):
    """A gauge of an engine's own."""
    return f"{how} by ({by}) ({once(f'{name}{{{OF_ENGINE}{more}}}')})"


def engine_rate(name, by="deployment, source", more=""):
    """The rate of a counter of an engine's own."""
    return f"sum by ({by}) ({once(f'rate({name}{{{OF_ENGINE}{more}}}{RANGE})')})"


def own_quantile(q, name):
    return f"histogram_quantile({q}, {own(name + '_bucket', 'deployment, le')})"


def engine_quantile(q, name):
    return f"histogram_quantile({q}, {engine_rate(name + '_bucket', 'deployment, source, le')})"


def either(*queries):
    return "\nor\n".join(queries)


# --- Panels --------------------------------------------------------------------------------------

# 0.85 and 0.95: where `kvgauge status`, its --watch and the page say WARNING and CRITICAL. 0.9: where
# KvCacheNearlyFull fires.
BANDS = [("green", None), ("yellow", 0.85), ("orange", 0.9), ("red", 0.95)]
PLAIN = [("text", None)]
BAD = [("green", None), ("red", 1)]


def steps(of):
    return {"mode": "absolute", "steps": [{"color": c, "value": v} for c, v in of]}


def target(letter, query, legend, kind):
    made = {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query,
        "format": {"table": "table", "heatmap": "heatmap"}.get(kind, "time_series"),
        "instant": kind in ("table", "stat"),
        "legendFormat": legend,
        "range": kind not in ("table", "stat"),
        "refId": letter,
    }
    return made


def panel(kind, title, description, queries, unit="short", width=8, height=8, bands=None, **more):
    """`queries`: pairs of query and legend."""
    defaults = {
        "color": {"mode": "thresholds" if kind in ("stat", "state-timeline") else "palette-classic"},
        "mappings": more.pop("mappings", []),
        "noValue": more.pop("nothing", UNKNOWN),
        "thresholds": steps(bands or PLAIN),
        "unit": unit,
    }
    for key in ("min", "max", "decimals"):
        if key in more:
            defaults[key] = more.pop(key)
    made = {
        "datasource": DATASOURCE,
        "description": description,
        "fieldConfig": {"defaults": defaults, "overrides": more.pop("overrides", [])},
        "gridPos": {"w": width, "h": height, "x": 0, "y": 0},
        "options": more.pop("options", {}),
        "targets": [
            target("ABCDEFGH"[i], query, legend, kind)
            for i, (query, legend) in enumerate(queries)
        ],
        "title": title,
        "type": kind,
    }
    made.update(more)
    return made


def lines(title, description, queries, unit="short", bands=None, stack=False, **more):
    """A time series. Gaps stay gaps."""
    made = panel("timeseries", title, description, queries, unit, bands=bands, **more)
    made["fieldConfig"]["defaults"]["custom"] = {
        "drawStyle": "line",
        "fillOpacity": 20 if stack else 5,
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stack else "none"},
        "thresholdsStyle": {"mode": "area" if bands else "off"},
    }
    made["options"] = {
        "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return made


def ratio(title, description, queries, bands=BANDS, **more):
    return lines(title, description, queries, "percentunit", bands, min=0, max=1, **more)


def stat(title, description, queries, unit="percentunit", bands=BANDS, **more):
    made = panel("stat", title, description, queries, unit, bands=bands, height=5, **more)
    made["options"] = {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name",
    }
    return made


def heat(title, description, query, unit="s"):
    made = panel("heatmap", title, description, [(query, "{{le}}")], unit, width=12)
    made["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {"exponent": 0.5, "fill": "dark-orange", "mode": "scheme", "reverse": False, "scale": "exponential", "scheme": "Oranges", "steps": 64},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"show": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    return made


def quantiles(title, description, quantile, names, unit="s", by="{{source}} ", **more):
    """p50, p90 and p99 of a histogram."""
    queries = []
    for q, word in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
        queries.append((either(*(quantile(q, name) for name in names)), f"{by}{word}"))
    return lines(title, description, queries, unit, **more)


def mapped(**words):
    options = {
        value.removeprefix("v"): {"color": color, "index": i, "text": text}
        for i, (value, (text, color)) in enumerate(words.items())
    }
    return [{"options": options, "type": "value"}]


ROLE = "{{role}} {{model}}"

KV = [
    stat(
        "KV usage, fullest pool",
        "Share of the fullest KV pool that running requests hold, by role and model. Yellow from 85 %, orange from 90 % (KvCacheNearlyFull), red from 95 %: WARNING and CRITICAL of `kvgauge status` are at 85 and 95 %. No number means that nobody knows: see the next panel.",
        [(kv("kvgauge_kv_usage_max_ratio"), ROLE)],
        width=8,
    ),
    panel(
        "state-timeline",
        "Is it known?",
        "Whether the usage of each role is known. Grey is a gap: kvgauge itself was not scraped. Unknown is never fine: the pool may be full.",
        [
            (
                f"(max by (deployment, role) (kvgauge_kv_usage_ratio{{{OF_ROLE}}}) * 0 + 1)\n"
                # A role of which nothing is known names no model.
                f"or max by (deployment, role) (kvgauge_kv_unknown{{{HERE},role=~\"$role\"}}) * 0",
                "{{role}}",
            )
        ],
        width=8,
        height=5,
        bands=[("red", None), ("green", 1)],
        mappings=mapped(v0=("unknown", "red"), v1=("known", "green")),
        options={
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    ),
    stat(
        "Known, or why not",
        "A field for each role. An unknown one is named with the reason: unreachable (nobody answers, or the certificate is not trusted), stale (the last good reading is too old), not_read (no good page since kvgauge started: metrics are off, if it stays), absent (a good page without a usage: no request yet, or the engine never publishes it), invalid (a gauge holds what can't be), stalled (kvgauge gets no processor time). No field: kvgauge itself is not scraped.",
        [
            (
                f"max by (deployment, role, reason) (kvgauge_kv_unknown{{{HERE},role=~\"$role\"}})\n"
                f"or max by (deployment, role) (kvgauge_kv_usage_ratio{{{OF_ROLE}}}) * 0",
                "{{role}} {{reason}}",
            )
        ],
        unit="none",
        bands=[("green", None), ("red", 1)],
        mappings=mapped(v0=("known", "green"), v1=("unknown", "red")),
        width=8,
    ),
    ratio(
        "KV usage",
        "Share of all KV pools of a role that running requests hold (evictable cache left out). A gap is unknown.",
        [(kv("kvgauge_kv_usage_ratio"), ROLE)],
    ),
    ratio(
        "Hottest pool beside the whole",
        "The fullest single pool, and the role as a whole. Far apart: requests pile up on one engine or rank while there is room elsewhere.",
        [
            (kv("kvgauge_kv_usage_max_ratio"), ROLE + " fullest"),
            (kv("kvgauge_kv_usage_ratio"), ROLE + " whole"),
        ],
    ),
    ratio(
        "Fill, and evictable cache",
        "Fill is the share of the pools that is occupied, prefix cache included. Cache is what could be evicted for new requests; when it comes near 0 prefixes are computed again.",
        [
            (kv("kvgauge_kv_fill_ratio"), ROLE + " fill"),
            (kv("kvgauge_kv_fill_ratio") + " - " + kv("kvgauge_kv_usage_ratio"), ROLE + " cache"),
        ],
        bands=None,
    ),
    lines(
        "Tokens used and capacity",
        "Tokens that running requests hold, and tokens that fit, summed over the pools of a role. Unknown where an engine gives no exact number.",
        [
            (kv("kvgauge_kv_used_tokens"), ROLE + " used"),
            (kv("kvgauge_kv_capacity_tokens"), ROLE + " capacity"),
        ],
        min=0,
    ),
    ratio(
        "Usage by engine, as the engine says it",
        "SGLang's token_usage (two decimals) or vLLM's kv_cache_usage_perc (a fraction, despite its name), by source and data-parallel rank.",
        [
            (
                either(
                    engine("sglang:token_usage", "deployment, source, dp_rank", "max"),
                    engine("vllm:kv_cache_usage_perc", "deployment, source, engine", "max"),
                ),
                "{{source}} {{dp_rank}}{{engine}}",
            )
        ],
    ),
    lines(
        "Not in the usage",
        "Sources and pools whose usage is not known while others of their role are. Above 0 the usage is that of a part.",
        [(kv("kvgauge_kv_missing"), ROLE)],
        bands=BAD,
        min=0,
        decimals=0,
    ),
]

PD = [
    lines(
        "Prefill queues",
        "Bootstrap: requests waiting for the decode side to take them. Inflight: requests whose KV is being sent.",
        [(kv("kvgauge_pd_requests", ',queue=~"bootstrap|inflight"', "deployment, role, model, queue"), "{{role}} {{queue}}")],
        min=0,
    ),
    lines(
        "Decode queues",
        "Prealloc: requests waiting for KV space; they grow when the decode pool is full. Transfer: requests whose KV is arriving; they grow when the network is slow.",
        [(kv("kvgauge_pd_requests", ',queue=~"prealloc|transfer"', "deployment, role, model, queue"), "{{role}} {{queue}}")],
        min=0,
    ),
    lines(
        "KV transferred",
        "Bytes of KV sent from prefill to decode servers (SGLang).",
        [(engine_rate("sglang:kv_transfer_total_mb_sum") + " * 1e6", "{{source}}")],
        "Bps",
        min=0,
    ),
    lines(
        "Transfer speed",
        "Speed of single KV transfers (SGLang, in GB/s): the median and the slowest tenth. Before 0.5.10 a gauge of the last one.",
        [
            (
                either(
                    engine_quantile(0.5, "sglang:kv_transfer_speed_gb_s"),
                    engine("sglang:kv_transfer_speed_gb_s", how="avg"),
                ),
                "{{source}} p50",
            ),
            (engine_quantile(0.1, "sglang:kv_transfer_speed_gb_s"), "{{source}} p10"),
        ],
        "GBs",
        min=0,
    ),
    quantiles(
        "Transfer latency",
        "Duration of single KV transfers (SGLang).",
        engine_quantile,
        ["sglang:kv_transfer_latency_ms"],
        "ms",
        min=0,
    ),
    lines(
        "Transfer handshake and space",
        "How long transfers wait, 90th percentile: for the handshake of both sides (bootstrap) and for KV space on the decode side (alloc) (SGLang).",
        [
            (engine_quantile(0.9, "sglang:kv_transfer_bootstrap_ms"), "{{source}} bootstrap"),
            (engine_quantile(0.9, "sglang:kv_transfer_alloc_ms"), "{{source}} alloc"),
        ],
        "ms",
        min=0,
    ),
    lines(
        "Prompt tokens by where their KV came from",
        "vLLM: computed here, found in the prefix cache, or transferred from another engine. vLLM's own label `source` is `exported_source` here.",
        [
            (
                engine_rate("vllm:prompt_tokens_by_source_total", "deployment, source, exported_source"),
                "{{source}} {{exported_source}}",
            )
        ],
        "short",
        stack=True,
        width=24,
        height=7,
    ),
]

LOAD = [
    lines(
        "Requests running",
        "Requests that hold KV on the engines, by role.",
        [(kv("kvgauge_engine_requests_running"), ROLE)],
        min=0,
    ),
    lines(
        "Requests queued",
        "Requests in the engines' scheduler queues, by role. The queues of prefill/decode disaggregation are above.",
        [(kv("kvgauge_engine_requests_queued"), ROLE)],
        min=0,
    ),
    lines(
        "Retractions and preemptions",
        "Requests a second that lost their KV to others and must be computed again (SGLang: retracted, vLLM: preempted), and SGLang's requests that wait to get it back. SGLang has no counter before the first.",
        [
            (
                "sum by (deployment, source) (max by (deployment, source, rank) "
                + f"(rate(kvgauge_source_preempted_requests_total{{{OF_SOURCE}}}{RANGE})))",
                "{{source}} a second",
            ),
            (engine("sglang:num_retracted_reqs"), "{{source}} waiting"),
        ],
        min=0,
    ),
    lines(
        "Tokens generated, as the engines say",
        "SGLang's gen_throughput (it keeps its last value while idle) or the rate of vLLM's generation_tokens_total, in tokens a second.",
        [(either(engine("sglang:gen_throughput"), engine_rate("vllm:generation_tokens_total")), "{{source}}")],
        min=0,
    ),
    lines(
        "Tokens through kvgauge",
        "Tokens a second in the answers that report usage: prompt (input), of it found in a cache (cached), and output.",
        [(own("kvgauge_tokens_total", "deployment, type"), "{{deployment}} {{type}}")],
        min=0,
    ),
    ratio(
        "Prefix cache hits",
        "Share of prompt tokens found in the prefix cache: SGLang's gauge of the last prefill batch (kvgauge), and the share over time from the engines' counters. A decode server has none.",
        [
            (kv("kvgauge_prefix_cache_hit_ratio"), ROLE + " last batch"),
            (
                either(
                    engine_rate("sglang:cached_tokens_total") + " / " + engine_rate("sglang:prompt_tokens_total"),
                    engine_rate("vllm:prefix_cache_hits_total") + " / " + engine_rate("vllm:prefix_cache_queries_total"),
                ),
                "{{source}} over time",
            ),
        ],
        bands=None,
    ),
    quantiles(
        "Time in the engines' queues",
        "How long requests waited in the scheduler before they ran.",
        engine_quantile,
        ["sglang:queue_time_seconds", "vllm:request_queue_time_seconds"],
        width=12,
        min=0,
    ),
    lines(
        "Prompt and output tokens of the engines",
        "Tokens a second of requests, as the engines count them. A prefill and a decode server both count a request's.",
        [
            (either(engine_rate("sglang:prompt_tokens_total"), engine_rate("vllm:prompt_tokens_total")), "{{source}} prompt"),
            (
                either(engine_rate("sglang:generation_tokens_total"), engine_rate("vllm:generation_tokens_total")),
                "{{source}} output",
            ),
        ],
        width=12,
        min=0,
    ),
]


def own_heat(name):
    return f"sum by (le) (increase({name}_bucket{{{HERE}}}{RANGE}))"


def engine_heat(sglang, vllm):
    """One engine's buckets: bounds of different engines can't be put together."""

    def of(name):
        return f"sum by (le) ({once(f'increase({name}_bucket{{{OF_ENGINE}}}{RANGE})')})"

    return of(sglang) + "\nor on ()\n" + of(vllm)


ONE_KIND = " With both SGLang and vLLM among the chosen sources: SGLang's; choose vLLM's sources to see theirs. A prefill and a decode server both count a request: choose one."

LATENCY = [
    quantiles(
        "Time to first token, at kvgauge",
        "From the request's head to the first content event of a stream, as clients see it.",
        own_quantile,
        ["kvgauge_time_to_first_token_seconds"],
        by="{{deployment}} ",
        width=12,
        min=0,
    ),
    quantiles(
        "Time to first token, of the engines",
        "As the engines measure it. What kvgauge has above this is router, network and, with disaggregation, the other side.",
        engine_quantile,
        ["sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"],
        width=12,
        min=0,
    ),
    quantiles(
        "Time per output token, at kvgauge",
        "(duration - time to first token) / (output tokens - 1), of completed streams that report usage.",
        own_quantile,
        ["kvgauge_time_per_output_token_seconds"],
        by="{{deployment}} ",
        width=12,
        min=0,
    ),
    quantiles(
        "Time per output token, of the engines",
        "Mean of each request. SGLang 0.5.10 and older have none.",
        engine_quantile,
        ["sglang:request_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"],
        width=12,
        min=0,
    ),
    quantiles(
        "Time between tokens, of the engines",
        "Every gap between two tokens: its tail shows stalls that a request's mean hides.",
        engine_quantile,
        ["sglang:inter_token_latency_seconds", "vllm:inter_token_latency_seconds"],
        width=8,
        min=0,
    ),
    quantiles(
        "End to end, at kvgauge",
        "From the request's head to the last byte of the answer; tunnels left out.",
        own_quantile,
        ["kvgauge_request_duration_seconds"],
        by="{{deployment}} ",
        width=8,
        min=0,
    ),
    quantiles(
        "End to end, of the engines",
        "As the engines measure whole requests.",
        engine_quantile,
        ["sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"],
        width=8,
        min=0,
    ),
    heat(
        "Time to first token, at kvgauge",
        "How many streams had which time to first token.",
        own_heat("kvgauge_time_to_first_token_seconds"),
    ),
    heat(
        "Time to first token, of the engines",
        "The same by the engines' own buckets." + ONE_KIND,
        engine_heat("sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
    ),
    heat(
        "Time per output token, at kvgauge",
        "How many streams had which time per output token.",
        own_heat("kvgauge_time_per_output_token_seconds"),
    ),
    heat(
        "Time between tokens, of the engines",
        "By the engines' own buckets." + ONE_KIND,
        engine_heat("sglang:inter_token_latency_seconds", "vllm:inter_token_latency_seconds"),
    ),
    heat(
        "End to end, at kvgauge",
        "How many requests took how long.",
        own_heat("kvgauge_request_duration_seconds"),
    ),
    heat(
        "End to end, of the engines",
        "By the engines' own buckets." + ONE_KIND,
        engine_heat("sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"),
    ),
]

PROXY = [
    stat(
        "kvgauge scraped",
        "Whether Prometheus gets each kvgauge's page.",
        [(f'up{{job="kvgauge",{HERE}}}', "{{instance}}")],
        unit="none",
        bands=[("red", None), ("green", 1)],
        mappings=mapped(v0=("down", "red"), v1=("up", "green")),
        width=12,
    ),
    stat(
        "Sources",
        "Whether each source's page could be read the last time; down as soon as one kvgauge can't.",
        [(of_source("kvgauge_source_up", how="min"), "{{source}}")],
        unit="none",
        bands=[("red", None), ("green", 1)],
        mappings=mapped(v0=("down", "red"), v1=("up", "green")),
        width=12,
    ),
    lines(
        "Requests by outcome",
        "Requests a second by how they ended: complete (whatever the status), client_gone, upstream_aborted, upstream_unreachable, timeout, rejected, overloaded, drained, malformed, internal, upgraded.",
        [(own("kvgauge_requests_total", "deployment, outcome"), "{{deployment}} {{outcome}}")],
        "reqps",
        stack=True,
        min=0,
    ),
    lines(
        "Requests by status",
        "Requests a second by status code; `none` where nothing of an answer had left.",
        [(own("kvgauge_requests_total", "deployment, code"), "{{deployment}} {{code}}")],
        "reqps",
        stack=True,
        min=0,
    ),
    lines(
        "In flight",
        "Requests whose last byte has not left yet, and of them tunnels (WebSocket).",
        [
            (f"sum by (deployment) (kvgauge_requests_in_flight{{{HERE}}})", "{{deployment}} requests"),
            (f"sum by (deployment) (kvgauge_tunnels_in_flight{{{HERE}}})", "{{deployment}} tunnels"),
        ],
        min=0,
    ),
    quantiles(
        "Overhead",
        "What kvgauge adds to a request: its head read to the router's head written, plus the answer's head read to the client's written.",
        own_quantile,
        ["kvgauge_overhead_seconds"],
        by="{{deployment}} ",
        min=0,
    ),
    lines(
        "Log lines dropped",
        "Lines a second that whoever reads standard output was too slow for. Always 0 in health.",
        [(own("kvgauge_log_lines_dropped_total", "deployment, instance"), "{{instance}}")],
        bands=[("green", None), ("red", 0.001)],
        min=0,
    ),
    lines(
        "What was odd",
        "A second: requests that were none (malformed), answers of the router's whose framing had to be cleared (odd answers), connections that could not be accepted, faults of kvgauge's own (panics).",
        [
            (own("kvgauge_malformed_requests_total", "deployment"), "{{deployment}} malformed"),
            (own("kvgauge_upstream_odd_answers_total", "deployment"), "{{deployment}} odd answers"),
            (own("kvgauge_accept_failures_total", "deployment"), "{{deployment}} not accepted"),
            (own("kvgauge_panics_total", "deployment"), "{{deployment}} panics"),
        ],
        min=0,
    ),
    lines(
        "Age of the sources' pages",
        "Age of each source's last good page. Past scrape.max_age (10 s) what it said is unknown.",
        [(of_source("kvgauge_source_age_seconds"), "{{source}}")],
        "s",
        bands=[("green", None), ("red", 10)],
        min=0,
    ),
    lines(
        "Unchanged while requests run",
        "For how long no KV gauge of a source has moved although it says that requests run or wait. Near 0: it moves. Past a minute its scheduler has probably hung. No series: it is idle, or nothing is known of it.",
        [
            (
                of_source("kvgauge_source_unchanged_seconds")
                + "\nand on (deployment, source) "
                + "(\n"
                + of_source("kvgauge_source_requests_running")
                + " > 0\nor "
                + of_source("kvgauge_source_requests_waiting")
                + " > 0\n)",
                "{{source}}",
            )
        ],
        "s",
        bands=[("green", None), ("red", 60)],
        min=0,
        nothing="nothing runs, or unknown",
    ),
    lines(
        "Reading the sources",
        "How long the last read of each page took: what kvgauge costs the engines.",
        [(of_source("kvgauge_source_scrape_duration_seconds"), "{{source}}")],
        "s",
        min=0,
    ),
    lines(
        "Failed reads, and what was left out",
        "A second: failed attempts to read a source by reason; lines and samples of its page that are not passed on; values of KV gauges that can't be right.",
        [
            (
                f"sum by (deployment, source, reason) (rate(kvgauge_source_scrape_failures_total{{{OF_SOURCE}}}{RANGE}))",
                "{{source}} failed: {{reason}}",
            ),
            (
                f"sum by (deployment, source, reason) (rate(kvgauge_source_dropped_samples_total{{{OF_SOURCE}}}{RANGE}))",
                "{{source}} left out: {{reason}}",
            ),
            (
                f"sum by (deployment, source, reason) (rate(kvgauge_source_odd_values_total{{{OF_SOURCE}}}{RANGE}))",
                "{{source}} odd value: {{reason}}",
            ),
        ],
        min=0,
    ),
    lines(
        "Processor and memory of kvgauge",
        "Cores in use (left), and resident memory (right).",
        [
            (f'rate(process_cpu_seconds_total{{{HERE},source="kvgauge"}}{RANGE})', "{{instance}} cores"),
            (f'process_resident_memory_bytes{{{HERE},source="kvgauge"}}', "{{instance}} memory"),
        ],
        min=0,
        overrides=[
            {
                "matcher": {"id": "byFrameRefID", "options": "B"},
                "properties": [
                    {"id": "unit", "value": "bytes"},
                    {"id": "custom.axisPlacement", "value": "right"},
                ],
            }
        ],
    ),
    panel(
        "table",
        "What is read",
        "Each source, its role, and the engine recognised on its page. Empty where there is none, or none is known yet.",
        [(f"max by (deployment, source, role, engine) (kvgauge_source_info{{{OF_SOURCE}}})", "")],
        "none",
        options={"cellHeight": "sm", "showHeader": True, "sortBy": [{"desc": False, "displayName": "source"}]},
        transformations=[
            {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}, "indexByName": {}, "renameByName": {}}}
        ],
    ),
    lines(
        "Sources found by discovery",
        "Pages on the newest list of each way that is set, and those beyond discovery.max_sources, which are not read. No series: nothing is discovered here.",
        [
            (f"max by (deployment, discovery) (kvgauge_discovery_found_sources{{{HERE}}})", "{{discovery}} found"),
            (f"max by (deployment, discovery) (kvgauge_discovery_left_out_sources{{{HERE}}})", "{{discovery}} left out"),
        ],
        min=0,
        decimals=0,
        nothing="no discovery, or unknown",
    ),
]

ROWS = [
    ("KV cache", KV),
    ("Prefill/decode disaggregation", PD),
    ("Load", LOAD),
    ("Latency", LATENCY),
    ("kvgauge and its sources", PROXY),
]


# --- The dashboard -------------------------------------------------------------------------------


def placed():
    """All panels below each other, in rows of 24."""
    panels, y = [], 0
    for title, of_row in ROWS:
        panels.append(
            {"collapsed": False, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "id": 0, "panels": [], "title": title, "type": "row"}
        )
        y += 1
        x = tallest = 0
        for one in of_row:
            grid = one["gridPos"]
            if x + grid["w"] > 24:
                x, y, tallest = 0, y + tallest, 0
            grid["x"], grid["y"] = x, y
            x += grid["w"]
            tallest = max(tallest, grid["h"])
            panels.append(one)
        y += tallest
    for number, one in enumerate(panels, 1):
        one["id"] = number
    return panels


def variable(name, label, query, description, all_value=".*"):
    made = {
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "description": description,
        "hide": 0,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "options": [],
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        "type": "query",
    }
    if all_value is not None:
        made["allValue"] = all_value
    return made


def dashboard():
    known = '{__name__=~"kvgauge_kv_usage_ratio|kvgauge_kv_unknown",' + HERE
    variables = [
        {
            "current": {},
            "hide": 0,
            "includeAll": False,
            "label": "Data source",
            "multi": False,
            "name": "datasource",
            "options": [],
            "query": "prometheus",
            "refresh": 1,
            "regex": "",
            "skipUrlSync": False,
            "type": "datasource",
        },
        variable(
            "deployment",
            "Deployment",
            "label_values(kvgauge_build_info, deployment)",
            "A router with its engines; set by the scrape configuration.",
        ),
        variable(
            "instance",
            "Instance",
            'label_values(kvgauge_build_info{deployment=~"$deployment"}, instance)',
            "Each kvgauge.",
        ),
        variable("role", "Role", f"label_values({known}}}, role)", "decode, prefill or unified."),
        variable("model", "Model", f'label_values({known},role=~"$role"}}, model)', "As the engines' pages name it."),
        # All is the list of what there is, so that the choice of a role counts here.
        variable(
            "source",
            "Source",
            f'label_values(kvgauge_source_info{{{HERE},role=~"$role"}}, source)',
            "The pages that kvgauge reads, of the roles that are chosen.",
            all_value=None,
        ),
    ]
    return {
        "annotations": {"list": []},
        "description": "How full the KV caches behind kvgauge are, what waits, how long it takes, and how kvgauge itself does. What is unknown is a gap, or the word: never 0.",
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [],
        "panels": placed(),
        "refresh": "10s",
        # Grafana 10.0; later ones migrate it when they load it.
        "schemaVersion": 38,
        "tags": ["kvgauge", "llm", "kv-cache"],
        "templating": {"list": variables},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": "kvgauge",
        "uid": "kvgauge",
        "version": 1,
    }


def main():
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text(encoding="utf-8") != text:
            sys.exit(f"{FILE.name} is not what {pathlib.Path(__file__).name} makes: run it, and commit both")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
