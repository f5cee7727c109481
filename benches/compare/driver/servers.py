"""Starts and stops the load and the proxies."""

import http.client
import json
import os
import selectors
import signal
import socket
import subprocess
import time

from machine import cpu_ns
from peers import PAGES, Place


class Failed(Exception):
    """Something that was started does not work; says what and where to look."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(argv, cores, folder, **streams):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVGAUGE_")}
    return subprocess.Popen(
        argv, cwd=folder, env=environment, start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores), **streams,
    )  # fmt: skip


class Load:
    """The upstream and the client, in one process."""

    LIMIT = 90.0  # seconds for an answer; the client itself gives up sooner

    def __init__(self, program, cores, folder, pages):
        argv = [program, *(f"{name}={path}" for name, path in pages.items())]
        self.process = start(argv, cores, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.process.stdout, selectors.EVENT_READ)
        self.upstream = self.answer("start")["upstream"]

    def answer(self, to):
        line = self.process.stdout.readline() if self.ready.select(self.LIMIT) else ""
        if not line:
            raise Failed(f"the load gave no answer to '{to}'")
        return json.loads(line)

    def ask(self, command, **words):
        line = " ".join([command, *(f"{name}={value}" for name, value in words.items())])
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer(line)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Proxy:
    """A running instance of a peer."""

    COMES_UP = 20.0  # seconds

    def __init__(self, peer, cores, folder, upstream, workers):
        self.peer, self.folder = peer, folder
        os.makedirs(folder)
        self.place = Place(folder, free_port(), free_port(), upstream, workers)
        with open(os.path.join(folder, "out.log"), "ab") as out, open(os.path.join(folder, "err.log"), "ab") as err:
            argv = [peer.program, *peer.arguments(self.place)]
            self.process = start(argv, cores, folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    @property
    def address(self):
        return f"127.0.0.1:{self.place.port}"

    def fail(self, why):
        with open(os.path.join(self.folder, "err.log"), errors="replace") as err:
            said = err.read()[-1000:].strip()
        return Failed(f"{self.peer.name} {why}" + (f"; it said: {said}" if said else ""))

    def until_up(self):
        """Waits until it accepts; kvgauge must have read all its pages too."""
        end = time.monotonic() + self.COMES_UP
        while not (self.accepts() and self.reads_pages()):
            if self.process.poll() is not None:
                raise self.fail(f"ended with {self.process.returncode}")
            if time.monotonic() > end:
                raise self.fail(f"is not up after {self.COMES_UP:.0f} s")
            time.sleep(0.05)

    def accepts(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.place.port)) == 0

    def reads_pages(self):
        if not self.peer.kvgauge:
            return True
        admin = http.client.HTTPConnection("127.0.0.1", self.place.admin, timeout=5)
        try:
            admin.request("GET", "/metrics")
            text = admin.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            admin.close()
        return all(f'kvgauge_source_up{{source="{name}"}} 1\n' in text for name in PAGES)

    def cpu_ns(self):
        return cpu_ns(self.process.pid)

    def empty_logs(self):
        """So that the disk has nothing to write in the middle of a measurement."""
        for name in ("out.log", "access.log"):
            try:
                os.truncate(os.path.join(self.folder, name), 0)
            except FileNotFoundError:
                pass

    def stop(self):
        for signal_number, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
            if self.process.poll() is None:
                try:
                    # Its own session: whatever it started goes with it.
                    os.killpg(self.process.pid, signal_number)
                    self.process.wait(seconds)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
