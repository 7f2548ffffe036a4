"""scripts/bench curves: how cost and speed change with the number of entries, waiters, keys per batch and processes.

Prints one JSON object; `scripts/bench draw FILE` draws it.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import solely

from .curve_processes import WAIT, Pairs, Waiters
from .filling import LASTS, fill
from .grounds import GROUNDS, Ground
from .harness import pin
from .metering import Spent, cpu_seconds, machine, spend
from .workers import TTL

ENTRIES = (1_000, 10_000, 100_000, 1_000_000)
WAITERS = (1, 3, 10, 30, 100, 300, 1_000)
KEYS = (1, 3, 10, 30, 100, 300, 1_000)
PROCESSES = (1, 2, 4, 8)
LONG, SHORT = 0.8, 0.2  # seconds per round
REPETITIONS = 5

Curve = list[dict[str, float]]
Curves = dict[str, Curve]


def calls_for(seconds: float, work: Callable[[], object]) -> Callable[[], int]:
    """Returns a function that repeats `work` for that long and returns how often."""

    def repeat() -> int:
        calls, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            work()
            calls += 1
        return calls

    return repeat


def _point(x: int, spent: Spent, **more: float) -> dict[str, float]:
    point = {"x": x, **spent.rounded(), **more}
    print("   ", json.dumps(point), file=sys.stderr, flush=True)
    return point


# -- entries


def _entries(ground: Ground, seconds: float, points: tuple[int, ...]) -> Iterator[dict[str, float]]:
    with solely.Client(ground.url) as once:

        def pair() -> None:
            with once.lock(os.urandom(8).hex(), ttl=TTL):
                pass

        pair()
        empty, written = ground.size(), 0
        for entries in points:
            fill(ground.url, entries - written)
            written = entries
            spent = spend(calls_for(seconds, pair), ground.pids, REPETITIONS)
            yield _point(entries, spent, bytes_per_entry=round((ground.size() - empty) / entries))


# -- keys per batch


def _keys(ground: Ground, seconds: float) -> Iterator[dict[str, float]]:
    numbers = count()
    with solely.Client(ground.url) as once:
        for size in KEYS:

            def mark(size: int = size) -> None:
                assert all(once.first_many([f"key-{next(numbers)}" for _ in range(size)], ttl=LASTS))

            spent = spend(calls_for(seconds, mark), ground.pids, REPETITIONS)
            yield _point(size, Spent(spent.client_us / size, spent.store_us / size, spent.per_s * size))


# -- waiters


def _waiters_of_one_process(ground: Ground, seconds: float) -> Iterator[dict[str, float]]:
    for tasks in WAITERS:
        spent = asyncio.run(_pass_on(ground, tasks, seconds))
        yield _point(tasks, spent)


async def _pass_on(ground: Ground, tasks: int, seconds: float) -> Spent:
    """That many tasks and one more pass a key on, without holding it."""
    async with solely.AsyncClient(ground.url) as once:
        turns, stopped = 0, False

        async def wait() -> None:
            nonlocal turns
            while not stopped:
                async with once.lock("key", ttl=TTL, wait=WAIT):
                    turns += 1

        running = [asyncio.create_task(wait()) for _ in range(tasks + 1)]
        await asyncio.sleep(seconds / 2)

        rounds = []
        for _ in range(REPETITIONS):
            begun, before = time.perf_counter(), turns
            store, client = _cpu(ground), time.process_time()
            await asyncio.sleep(seconds)
            client, store = time.process_time() - client, _cpu(ground) - store
            calls = max(turns - before, 1)
            rounds.append(Spent(client / calls * 1e6, store / calls * 1e6, calls / (time.perf_counter() - begun)))
        stopped = True
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return Spent(*(sorted(column)[len(rounds) // 2] for column in zip(*rounds, strict=True)))


def _cpu(ground: Ground) -> float:
    return cpu_seconds(ground.pids())


# -- many processes


def _processes(ground: Ground, seconds: float) -> Iterator[dict[str, float]]:
    for size in PROCESSES:
        with Pairs(ground, size) as processes:
            yield _point(size, processes.measure(seconds, REPETITIONS))


def _waiters_of_four_processes(ground: Ground, seconds: float) -> Iterator[dict[str, float]]:
    for waiters in WAITERS:
        with Waiters(ground, min(4, waiters + 1), waiters + 1) as processes:
            yield _point(waiters, processes.measure(seconds, REPETITIONS))


FAMILIES: dict[str, Callable[..., Iterator[dict[str, float]]]] = {
    "entries": _entries,
    "keys": _keys,
    "waiters": _waiters_of_one_process,
    "waiters4": _waiters_of_four_processes,
    "processes": _processes,
}


def main(arguments: list[str]) -> int:
    """Measures the curves whose name begins with --only, and prints them as one JSON object."""
    parser = argparse.ArgumentParser(prog="scripts/bench curves", description=__doc__)
    parser.add_argument("--only", metavar="PREFIX", default="", help="e.g. entries, or entries.sqlite")
    parser.add_argument("--quick", action="store_true", help="shorter rounds, and 10,000 entries at most")
    parser.add_argument("--entries", type=int, metavar="N", help="add a point with so many entries, e.g. 10000000")
    options = parser.parse_args(arguments)
    points = ENTRIES[:2] if options.quick else ENTRIES
    if options.entries:
        points += (options.entries,)
    pin(os.getpid(), 0)
    result: dict[str, Any] = {"command": " ".join(["scripts/bench curves", *arguments]), "machine": machine()}
    curves: Curves = {}
    for family, measure in FAMILIES.items():
        for store, opened in GROUNDS.items():
            if f"{family}.{store}".startswith(options.only):
                print(f"{family}.{store}", file=sys.stderr, flush=True)
                more = (points,) if family == "entries" else ()
                with opened() as ground:
                    curves[f"{family}.{store}"] = list(measure(ground, SHORT if options.quick else LONG, *more))
    if not curves:
        print(f"no curve begins with {options.only!r}: {', '.join(FAMILIES)}", file=sys.stderr)
        return 2
    print(json.dumps(result | {"curves": curves}, indent=1))
    return 0
