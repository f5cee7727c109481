"""What is measured, how it is shown, and what kvgauge is held to."""

from dataclasses import dataclass, field

BASE = "nginx"


@dataclass(frozen=True)
class Figure:
    key: str  # as --figures and the JSON name it
    title: str
    digits: int
    load: str  # the load that gives it
    # (rival, most of the ratio to it); the rival None means the figure itself.
    goals: list = field(default_factory=list)
    # Shown, never compared: a few slow answers of a shared machine decide it.
    shown_only: bool = False


FIGURES = [
    Figure("request", "CPU a request, µs (32 connections)", 1, "json", [("nginx", 0.95), ("haproxy", 1.00), ("envoy", 0.28)]),
    Figure("chunk", "CPU a chunk, µs (200 streams, one each 5 ms)", 2, "paced", [("nginx", 1.05)]),
    Figure("burst", "CPU a chunk, µs (64 streams without a pause)", 2, "burst", [("nginx", 1.10)]),
    Figure("latency", "added latency, µs, median (one at a time)", 0, "turns", [("nginx", 0.80)]),
    Figure("latency_p99", "the same, 99th percentile", 0, "turns", shown_only=True),
    Figure("delay", "added delay of a chunk, µs, median (each 5 ms)", 0, "paced", [("nginx", 1.20)]),
    Figure("delay_p99", "the same, 99th percentile", 0, "paced", shown_only=True),
    Figure("upload", "CPU an upload of 10 MB, ms", 2, "upload", [("nginx", 0.75)]),
    Figure("rest", "resident memory at rest, MiB (after 2,000 requests)", 1, "memory", [(None, 8.0)]),
    Figure("stream", "resident memory an open stream, KiB (1,000 of them)", 1, "memory", [(None, 20.0)]),
]


def chosen(keys):
    """The figures of these keys, with the percentiles that belong to them."""
    return [figure for figure in FIGURES if figure.key.removesuffix("_p99") in keys]


KEYS = [figure.key for figure in FIGURES if not figure.shown_only]
