"""One round: every proxy once under each load, in an order that is another one each time."""

import os
import shutil
import time

from machine import resident_kib

DIRECT = "direct"
# A moment for what a proxy does behind the last answer: its log.
SETTLES = 0.05
# A fresh instance is at rest when its start is over.
COMES_TO_REST = 2.0
WARM_UP = {"connections": 32, "count": 2000}
UPLOAD_BYTES = 10 * 1024 * 1024
IDLE_STREAMS = 1000

LOADS = {
    "json": ("json", {"connections": 32, "count": 40_000}),
    "burst": ("streams", {"connections": 64, "count": 640, "events": 256, "size": 190, "every_us": 0, "spread_ms": 0}),
    "paced": ("streams", {"connections": 200, "count": 200, "events": 400, "size": 190, "every_us": 5000, "spread_ms": 200}),
    "upload": ("upload", {"connections": 4, "count": 24, "bytes": UPLOAD_BYTES}),
}
# What direct is asked for: delays are differences to it.
OF_DIRECT = ("paced",)
TURNS = 500


class Wrong(Exception):
    """An answer was not what the upstream sent: nothing measured counts."""


class Rounds:
    def __init__(self, load, proxies, figures, others, fresh):
        self.load, self.proxies, self.others, self.fresh = load, proxies, others, fresh
        self.loads = {figure.load for figure in figures}
        self.busy = []  # cores that others used, a number a measurement

    def ask(self, whom, command, **words):
        answer = self.load.ask(command, **words)
        for each in answer if isinstance(answer, list) else [answer]:
            if each["wrong"]:
                raise Wrong(f"{whom}: {each['wrong']} of {each['wrong'] + each['right']} answers to '{command}' were wrong: {each['why']}")
        return answer

    def warm_up(self, proxy):
        proxy.until_up()
        self.ask(proxy.peer.name, "json", to=proxy.address, **WARM_UP)

    def run(self, number):
        """The figures of each proxy, and the delays of direct, by name."""
        targets = [None, *self.proxies]
        first = number % len(targets)
        samples = {proxy.peer.name if proxy else DIRECT: {} for proxy in targets}
        for proxy in targets[first:] + targets[:first]:
            if self.loads & set(LOADS if proxy else OF_DIRECT):
                name = proxy.peer.name if proxy else DIRECT
                self.quietly(lambda: self.visit(name, proxy, samples[name]))
                yield name, samples[name]
        if "turns" in self.loads:
            self.quietly(lambda: self.turns(targets, samples))
        if "memory" in self.loads:
            self.quietly(lambda: self.memory(number, samples))
        subtract_direct(samples)
        yield None, samples

    def quietly(self, measure):
        self.others.wait_for_quiet()
        before = self.others.look()
        measure()
        self.busy.append(self.others.since(before))

    def visit(self, name, proxy, sample):
        to = proxy.address if proxy else self.load.upstream
        for load, (command, words) in LOADS.items():
            if load not in self.loads or not (proxy or load in OF_DIRECT):
                continue
            before = proxy.cpu_ns() if proxy else 0
            answer = self.ask(name, command, to=to, **words)
            if load == "paced":
                sample["delay"], sample["delay_p99"] = answer["p50_us"], answer["p99_us"]
            if proxy:
                time.sleep(SETTLES)
                used_us = (proxy.cpu_ns() - before) / 1000
                if load == "json":
                    sample["request"] = used_us / answer["right"]
                elif load == "upload":
                    sample["upload"] = used_us / 1000 / answer["right"]
                else:
                    sample["chunk" if load == "paced" else "burst"] = used_us / answer["events"]
        if proxy:
            proxy.empty_logs()

    def turns(self, targets, samples):
        names = [proxy.peer.name if proxy else DIRECT for proxy in targets]
        addresses = [proxy.address if proxy else self.load.upstream for proxy in targets]
        for name, answer in zip(names, self.ask("one at a time", "turns", to=",".join(addresses), count=TURNS)):
            samples[name]["latency"], samples[name]["latency_p99"] = answer["p50_us"], answer["p99_us"]

    def memory(self, number, samples):
        """Of fresh instances: memory that was once used is not given back, so the first use counts."""
        started = time.monotonic()
        proxies = []
        try:
            for proxy in self.proxies:
                proxies.append(self.fresh(proxy.peer, number))
            for proxy in proxies:
                proxy.until_up()
            time.sleep(max(0.0, started + COMES_TO_REST - time.monotonic()))
            for proxy in proxies:
                name = proxy.peer.name
                self.warm_up(proxy)
                rest = resident_kib(proxy.process.pid)
                opened = self.ask(name, "idle", to=proxy.address, streams=IDLE_STREAMS)
                grown = resident_kib(proxy.process.pid) - rest
                samples[name]["rest"], samples[name]["stream"] = rest / 1024, grown / opened["right"]
                self.ask(name, "release")
        finally:
            for proxy in proxies:
                proxy.stop()
                shutil.rmtree(proxy.folder, ignore_errors=True)


def subtract_direct(samples):
    """Latencies and delays become what a proxy adds."""
    direct = samples[DIRECT]
    for name, sample in samples.items():
        if name != DIRECT:
            for key in ("latency", "latency_p99", "delay", "delay_p99"):
                if key in sample:
                    sample[key] -= direct[key]
