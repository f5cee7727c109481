"""Measures kvgauge side by side with nginx, HAProxy and Envoy."""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from figures import KEYS, chosen
from machine import PROC_STAT_STEAL, TICKS, Others, proc_stat, raise_open_files, split_cores
from peers import PAGES, RIVALS, ROOT, Missing, kvgauge
from report import Report
from rounds import Rounds, Wrong
from servers import Failed, Load, Proxy

CRATE = os.path.join(ROOT, "benches", "compare", "Cargo.toml")
TARGET = os.path.join(ROOT, "target", "compare")
ROUNDS = 8
# On a machine where all takes longer, no round is begun that would not end by then.
ENOUGH_SECONDS = 460
# HAProxy asks for two a connection that it allows, and some.
LEAST_OPEN_FILES = 8192


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/compare/run",
        description=__doc__,
        epilog="Ends with 0; with 1 where an answer was wrong, as then no figure counts; with 2 where something is missing.",
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N",
        help=f"default {ROUNDS}, or as many as there is time for in {ENOUGH_SECONDS} s; 5 are the least for a verdict",
    )  # fmt: skip
    parser.add_argument("--peers", default=",".join(RIVALS), metavar="A,B", help="default %(default)s; none: kvgauge alone")
    parser.add_argument("--figures", default=",".join(KEYS), metavar="A,B", help="default %(default)s")
    parser.add_argument(
        "--kvgauge", action="append", default=[], metavar="[NAME=]PATH",
        help="a program to measure; twice, with names, to compare two builds (default: builds this one)",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="workers of each proxy, and its cores (default 1)")
    parser.add_argument("--md", metavar="FILE", help="write the tables to this file too")
    parser.add_argument("--json", metavar="FILE", help="write every sample to this file")
    parser.add_argument("--self-test", action="store_true", help="only look whether a proxy is caught that alters what it passes on")
    given = parser.parse_args()

    def listed(text, what, allowed):
        words = [word for word in text.split(",") if word and word != "none"]
        for word in words:
            if word not in allowed:
                parser.error(f"no such {what}: {word} (there are {', '.join(allowed)})")
        return words

    given.peers = listed(given.peers, "peer", list(RIVALS))
    given.figures = chosen(listed(given.figures, "figure", KEYS))
    builds = [build.split("=", 1) if "=" in build else ["kvgauge", build] for build in given.kvgauge]
    names = [name for name, _ in builds] + given.peers
    if len(builds) > 2 or len(set(names)) < len(names) or not all(name.isidentifier() for name, _ in builds):
        parser.error("--kvgauge is given once, or twice as NAME=PATH with different names of letters")
    if (given.rounds is not None and given.rounds < 1) or given.workers < 1 or not given.figures:
        parser.error("there must be a round, a worker and a figure")
    given.builds = [(name, os.path.abspath(path)) for name, path in builds]
    return given


def cargo(*words):
    if subprocess.run(["cargo", *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise Missing(f"'cargo {' '.join(words)}' failed")


def self_test():
    cargo("test", "--quiet", "--locked", "--manifest-path", CRATE, "--target-dir", TARGET)
    tests = [sys.executable, "-m", "unittest", "discover", "--quiet", "--start-directory", os.path.dirname(os.path.abspath(__file__))]
    return subprocess.run(tests, stdin=subprocess.DEVNULL, check=False).returncode


def find_peers(given):
    for name, path in given.builds:
        if not os.access(path, os.X_OK):
            raise Missing(f"{name}: {path} is no program")
    rivals, missing = [], []
    for name in given.peers:
        try:
            rivals.append(RIVALS[name]())
        except Missing as why:
            missing.append(str(why))
    if missing:
        raise Missing("\n".join(dict.fromkeys(missing)))
    if not given.builds:
        say("building kvgauge")
        target = os.path.join(ROOT, "target")
        cargo("build", "--quiet", "--release", "--locked", "--bin", "kvgauge", "--target-dir", target)
        given.builds = [("kvgauge", os.path.join(target, "release", "kvgauge"))]
    return [kvgauge(name, path) for name, path in given.builds] + rivals


def measure(given, peers, folder, running):
    """(samples by round, cores that others used, loud moments); what it starts is in `running`."""
    start = time.monotonic()
    proxy_cores, load_cores = split_cores(given.workers)
    pages = {name: os.path.join(ROOT, "tests", "data", "expositions", file) for name, file in PAGES.items()}
    load = Load(os.path.join(TARGET, "release", "load"), load_cores, folder, pages)
    running.append(load)

    def started(peer, place):
        proxy = Proxy(peer, proxy_cores, os.path.join(folder, f"{peer.name}-{place}"), load.upstream, given.workers)
        running.append(proxy)
        return proxy

    proxies = [started(peer, "long") for peer in peers]
    others = Others(lambda: [server.process.pid for server in running if server.process.poll() is None])
    rounds = Rounds(load, proxies, given.figures, others, started)
    for proxy in proxies:
        rounds.warm_up(proxy)
    samples, longest = [], 0.0
    for number in range(given.rounds or ROUNDS):
        begun = time.monotonic()
        if not given.rounds and begun - start + longest > ENOUGH_SECONDS:
            say("no time for another round")
            break
        for name, sample in rounds.run(number):
            if name is None:
                samples.append(sample)
            else:
                # Delays are not there yet: they are differences to direct.
                shown = " ".join(f"{key} {value:.1f}" for key, value in sample.items() if not key.startswith("delay"))
                say(f"round {number + 1}: {name:15} {shown} (others used {rounds.busy[-1]:.2f} of a core)")
        longest = max(longest, time.monotonic() - begun)
    return samples, rounds.busy, others.noisy


def about(given, peers, rounds, seconds):
    proxy_cores, load_cores = split_cores(given.workers)

    def cores(of):
        return f"core{'s' * (len(of) > 1)} {', '.join(map(str, sorted(of)))}"

    shared = " (not enough cores: they share)" if proxy_cores & load_cores else ""
    lines = [
        f"{datetime.date.today()}, {rounds} round{'s' * (rounds > 1)} in {seconds:.0f} s; {given.workers} "
        f"worker{'s' * (given.workers > 1)} each, on {cores(proxy_cores)}; load and upstream on {cores(load_cores)}{shared}. "
        f"{platform.system()} {platform.release()}.",
        "",
        ", ".join(f"{peer.name} {peer.version_number()}" for peer in peers) + ".",
    ]
    return "\n".join(lines)


def main():
    given = arguments()
    if sys.version_info < (3, 10):
        raise Missing(f"Python 3.10 or newer is needed; this is {platform.python_version()}")
    if given.self_test:
        return self_test()
    open_files = raise_open_files()
    if open_files < LEAST_OPEN_FILES:
        raise Missing(f"{LEAST_OPEN_FILES} open files are needed, and {open_files} are allowed (ulimit -n)")
    peers = find_peers(given)
    say("building the load")
    cargo("build", "--quiet", "--release", "--locked", "--manifest-path", CRATE, "--target-dir", TARGET)
    folder = tempfile.mkdtemp(prefix="run-", dir=TARGET)
    running = []
    start, steal = time.monotonic(), proc_stat()[PROC_STAT_STEAL]
    try:
        samples, busy, noisy = measure(given, peers, folder, running)
    finally:
        for server in reversed(running):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - start
    stolen = (proc_stat()[PROC_STAT_STEAL] - steal) / TICKS / seconds
    ordered = sorted(busy)
    heard = (
        f"Others used {ordered[len(ordered) // 2]:.2f} of a core while it was measured (median; at most {ordered[-1]:.2f}), "
        f"the host took {stolen:.2f}; {noisy} of {len(busy)} measurements began without a quiet moment. "
        "Every answer was what the upstream sent."
    )
    report = Report(given.figures, peers, samples)
    measured = about(given, peers, len(samples), seconds)
    text = report.text(measured, heard)
    print(text, end="")
    if given.md:
        with open(given.md, "w") as file:
            file.write(text)
    if given.json:
        whole = {"about": measured, "others": busy, "steal": stolen, **report.data()}
        with open(given.json, "w") as file:
            json.dump(whole, file, indent=1)
    return 0


if __name__ == "__main__":
    # So that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except (Wrong, Failed) as why:
        say(f"benches/compare/run: {why}")
        sys.exit(1)
    except Missing as why:
        say(f"benches/compare/run: {why}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
