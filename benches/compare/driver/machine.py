"""Processors, clocks and memory, and how busy others keep the machine."""

import ctypes
import os
import re
import resource
import time

LIBC = ctypes.CDLL(None, use_errno=True)
TICKS = os.sysconf("SC_CLK_TCK")
PROC_STAT_BUSY = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq
PROC_STAT_STEAL = 8


def split_cores(workers):
    """(cores of the proxies, cores of load and upstream); the same where there are not enough."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[:workers]), set(cores[workers:] or cores)


def raise_open_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def tree(pid):
    """A process and all below it."""
    pids = [pid]
    for parent in pids:  # grows while it is gone through
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{parent}/task/{thread}/children") as children:
                    pids += [int(child) for child in children.read().split()]
            except OSError:
                pass
    return pids


def cpu_ns(pid):
    """CPU time of a process and all below it, by their CPU clocks (ended threads included)."""
    total = 0
    for each in tree(pid):
        clock = ctypes.c_int()
        if LIBC.clock_getcpuclockid(each, ctypes.byref(clock)) == 0:
            try:
                total += time.clock_gettime_ns(clock.value)
            except OSError:
                pass  # it has ended since
    return total


def resident_kib(pid):
    """Resident memory of a process and all below it."""
    total = 0
    for each in tree(pid):
        with open(f"/proc/{each}/smaps_rollup") as rollup:
            total += int(re.search(r"^Rss:\s+(\d+) kB", rollup.read(), re.MULTILINE)[1])
    return total


def proc_stat():
    with open("/proc/stat") as stat:
        return [int(word) if word.isdigit() else 0 for word in stat.readline().split()]


class Others:
    """How many cores those keep busy that are none of ours."""

    QUIET = 0.2  # of a core
    WINDOW = 0.25  # seconds
    WAIT_ONCE, WAIT_IN_ALL = 5.0, 45.0

    def __init__(self, servers):
        self.servers = servers  # pids of running servers of ours, asked for each time
        self.left = self.WAIT_IN_ALL
        self.noisy = 0

    def look(self):
        ours = sum(os.times()[:4]) + sum(cpu_ns(pid) for pid in self.servers()) / 1e9
        busy = sum(proc_stat()[place] for place in PROC_STAT_BUSY) / TICKS
        return time.monotonic(), busy - ours

    def since(self, before):
        now = self.look()
        return max(0.0, (now[1] - before[1]) / (now[0] - before[0]))

    def wait_for_quiet(self):
        """Returns when the machine is quiet, or when there has been enough waiting."""
        start = time.monotonic()
        while True:
            before = self.look()
            time.sleep(self.WINDOW)
            if self.since(before) < self.QUIET:
                break
            waited = time.monotonic() - start
            if waited > min(self.WAIT_ONCE, self.left):
                self.noisy += 1
                break
        self.left = max(0.0, self.left - (time.monotonic() - start - self.WINDOW))
