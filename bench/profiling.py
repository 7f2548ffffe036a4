"""scripts/bench profile: where the CPU time of a lock + release goes, by layer, and what the store's share is.

A timer of the kernel interrupts the client after each 4 ms of its CPU time; the sample counts for the layer of the
innermost Python function, and the C code that it calls counts with it.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Self

import solely

from .curves import calls_for
from .grounds import GROUNDS, Ground
from .harness import pin
from .metering import cpu_seconds, machine
from .workers import TTL

EACH = 0.004  # seconds of CPU time between two samples: the kernel looks no more often
PACKAGE = str(Path(solely.__file__).parent)
TASKS = 50


class Sampler:
    """Counts samples by layer, and measures the CPU time of client and store, while it is entered."""

    def __init__(self, ground: Ground) -> None:
        self.layers: Counter[str] = Counter()
        self.client = self.store = 0.0  # seconds of CPU
        self._ground = ground

    def __enter__(self) -> Self:
        self.client, self.store = -time.process_time(), -cpu_seconds(self._ground.pids())
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, EACH, EACH)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        self.client += time.process_time()
        self.store += cpu_seconds(self._ground.pids())

    def _sample(self, _: int, frame: FrameType | None) -> None:
        self.layers[_layer(frame.f_code.co_filename if frame else "")] += 1


def _layer(file: str) -> str:
    if file.startswith(PACKAGE):
        folder = file.removeprefix(PACKAGE).strip("/").split("/")
        if folder[0] == "stores" and len(folder) > 2:
            return f"solely/stores/{folder[1]} (and the C driver it calls)"
        return f"solely/{folder[0]}" if len(folder) > 1 else "solely (model, ops, events, …)"
    if "site-packages" in file:
        return file.rpartition("site-packages/")[2].split("/")[0]
    if "asyncio" in file or "selectors" in file:
        return "asyncio"
    return "the benchmark" if f"{os.sep}bench{os.sep}" in file else "standard library"


def _blocking(ground: Ground, seconds: float) -> tuple[int, Sampler]:
    with solely.Client(ground.url) as once:

        def pair() -> None:
            with once.lock("key", ttl=TTL):
                pass

        calls_for(0.2, pair)()
        with Sampler(ground) as sampler:
            calls = calls_for(seconds, pair)()
    return calls, sampler


def _tasks(ground: Ground, seconds: float) -> tuple[int, Sampler]:
    return asyncio.run(_of_tasks(ground, seconds))


async def _of_tasks(ground: Ground, seconds: float) -> tuple[int, Sampler]:
    async with solely.AsyncClient(ground.url) as once:
        calls, end = 0, time.perf_counter() + seconds

        async def work(key: str) -> None:
            nonlocal calls
            while time.perf_counter() < end:
                async with once.lock(key, ttl=TTL):
                    calls += 1

        with Sampler(ground) as sampler:
            await asyncio.gather(*(work(f"key-{number}") for number in range(TASKS)))
    return calls, sampler


MODES = {"1 thread": _blocking, f"{TASKS} tasks": _tasks}


def main(arguments: list[str]) -> int:
    """Prints the profile of each store and mode as one JSON object."""
    parser = argparse.ArgumentParser(prog="scripts/bench profile", description=__doc__)
    parser.add_argument("--only", metavar="STORE", default="", help="redis, postgres or sqlite")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each profile (10)")
    options = parser.parse_args(arguments)
    pin(os.getpid(), 0)
    found: dict[str, Any] = {"command": " ".join(["scripts/bench profile", *arguments]), "machine": machine()}
    for store, opened in GROUNDS.items():
        if store.startswith(options.only):
            for mode, run in MODES.items():
                with opened() as ground:
                    calls, sampler = run(ground, options.seconds)
                layers, total = sampler.layers, max(sampler.layers.total(), 1)
                found[f"{store}, {mode}"] = {
                    "calls": calls,
                    "samples": layers.total(),
                    "client_us": round(sampler.client / calls * 1e6, 1),
                    "store_us": round(sampler.store / calls * 1e6, 1),
                    "client_percent": {name: round(n / total * 100, 1) for name, n in layers.most_common(9)},
                }
                print(f"{store}, {mode}", found[f"{store}, {mode}"], file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    return 0
