"""scripts/bench costs: what each call costs on each store: CPU of client and store, bytes, round trips, memory.

Prints one JSON object, from which docs/scale.md calculates.
"""

import argparse
import asyncio
import gc
import json
import os
import re
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import solely
from solely.ops import MAX_BATCH

from .curves import calls_for
from .grounds import GROUNDS, Ground
from .harness import pin
from .metering import Spent, cpu_seconds, machine, spend
from .relay import relay
from .workers import TTL

TASKS = 50
RELAYED = 100  # calls whose bytes are counted
STORED = 20_000  # entries whose size is averaged
LEASES, WAITERS = 5_000, 1_000
LEASE_TTL, WINDOW = 20.0, 20.0  # seconds: each lease is renewed twice in a window
DAY = 86_400.0
VALUE = "x" * 100

_numbers = count()


def _fresh() -> str:
    return f"key-{next(_numbers)}"


def _calls(once: solely.Client) -> dict[str, Callable[[], object]]:
    """The calls, each of which leaves the store as the next call of its kind needs it."""
    seen, replayed, suppressed = _fresh(), _fresh(), _fresh()
    lease = once.lock(_fresh(), ttl=DAY, renew=False)
    once.first(seen, ttl=DAY)
    once.claim(replayed).publish(VALUE)
    with once.reserve(suppressed, quiet=DAY):
        pass
    queue = once.queue("costs")

    def pair() -> None:
        with once.lock(_fresh(), ttl=TTL):
            pass

    def claim() -> None:
        once.claim(_fresh(), ttl=TTL).publish(VALUE)

    def reserve() -> None:
        with once.reserve(_fresh(), quiet=DAY):
            pass

    def pass_item() -> None:
        queue.push(_fresh(), VALUE)
        item = queue.take(ttl=TTL)
        assert item
        item.ack()

    return {
        "lock + release": pair,
        "renew": lambda: lease.renew(DAY),
        "first, new": lambda: once.first(_fresh(), ttl=DAY),
        "first, seen before": lambda: once.first(seen, ttl=DAY),
        "first_many, 100 new: each": lambda: once.first_many([_fresh() for _ in range(100)], ttl=DAY),
        "claim + publish": claim,
        "claim, replayed": lambda: once.claim(replayed),
        "reserve + record": reserve,
        "reserve, suppressed": lambda: once.reserve(suppressed, quiet=DAY),
        "limit": lambda: once.limit(_fresh(), limit=20, per=60.0),
        "push + take + ack": pass_item,
    }


def _of_calls(ground: Ground, seconds: float, repetitions: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with solely.Client(ground.url) as once:
        for name, call in _calls(once).items():
            spent = spend(calls_for(seconds, call), ground.pids, repetitions)
            share = 100 if name.endswith("each") else 1
            found[name] = Spent(spent.client_us / share, spent.store_us / share, spent.per_s * share).rounded()
            print("   ", name, found[name], file=sys.stderr, flush=True)
    found[f"lock + release, {TASKS} tasks"] = asyncio.run(_of_tasks(ground, seconds, repetitions)).rounded()
    if ground.pids():
        for name, traffic in _traffic(ground).items():
            found[name] |= traffic
    return found


async def _of_tasks(ground: Ground, seconds: float, repetitions: int) -> Spent:
    rounds: list[Spent] = []
    async with solely.AsyncClient(ground.url) as once:
        for _ in range(repetitions + 1):
            calls, end = 0, time.perf_counter() + seconds
            store, client, begun = cpu_seconds(ground.pids()), time.process_time(), time.perf_counter()

            async def work(end: float = end) -> None:
                nonlocal calls
                while time.perf_counter() < end:
                    async with once.lock(_fresh(), ttl=TTL):
                        calls += 1

            await asyncio.gather(*(work() for _ in range(TASKS)))
            took, client = time.perf_counter() - begun, time.process_time() - client
            store = cpu_seconds(ground.pids()) - store
            rounds.append(Spent(client / calls * 1e6, store / calls * 1e6, calls / took))
    return Spent(*(sorted(column)[repetitions // 2] for column in zip(*rounds[1:], strict=True)))


def _traffic(ground: Ground) -> dict[str, dict[str, float]]:
    """Bytes and round trips per call, counted by a relay between client and store."""
    address = urlsplit(ground.url)
    assert address.hostname
    assert address.port
    found = {}
    with relay((address.hostname, address.port)) as counting:
        url = re.sub(rf":{address.port}\b", f":{counting.port}", ground.url)
        with solely.Client(url) as once:
            for name, call in _calls(once).items():
                call()
                before = counting.traffic()
                for _ in range(RELAYED):
                    call()
                passed = [after - then for after, then in zip(counting.traffic(), before, strict=True)]
                share = RELAYED * (100 if name.endswith("each") else 1)
                sent, received, trips = (round(each / share, 2) for each in passed)
                found[name] = {"sent_bytes": sent, "received_bytes": received, "round_trips": trips}
    return found


# -- memory


def _of_entries(ground: Ground) -> dict[str, int]:
    """Bytes that an entry occupies in the store."""
    found = {}
    with solely.Client(ground.url, timeout=60.0) as once:
        once.first(_fresh())  # makes the tables
        queue = once.queue("stored")
        holding: list[Any] = []
        kinds: dict[str, Callable[[list[str]], object]] = {
            "mark": partial(once.first_many, ttl=DAY),
            "lock, held": lambda keys: holding.extend(once.lock(key, ttl=DAY, renew=False) for key in keys),
            "claim with a result of 100 bytes": lambda keys: [each.publish(VALUE) for each in once.claim_many(keys)],
            "reservation": lambda keys: [once.reserve(key, hold=DAY, quiet=DAY) for key in keys],
            "queue item of 100 bytes": lambda keys: [queue.push(key, VALUE) for key in keys],
        }
        for name, store in kinds.items():
            keys = [os.urandom(8).hex() for _ in range(STORED if name == "mark" else STORED // 10)]
            before = ground.size()
            for begin in range(0, len(keys), MAX_BATCH):
                store(keys[begin : begin + MAX_BATCH])
            found[name] = round((ground.size() - before) / len(keys))
            print("   ", name, found[name], "bytes", file=sys.stderr, flush=True)
    return found


async def _at_rest(ground: Ground) -> dict[str, float]:
    """What leases that are renewed and callers that wait cost while nothing else happens."""
    renewals = 0

    def on_event(event: solely.Event) -> None:
        nonlocal renewals
        renewals += type(event).__name__ == "Renewed"

    async with solely.AsyncClient(ground.url, hooks=[on_event], timeout=30.0) as once:
        leases = await asyncio.gather(*(once.lock(_fresh(), ttl=LEASE_TTL) for _ in range(LEASES)))
        renewals = 0
        store, client = cpu_seconds(ground.pids()), time.process_time()
        await asyncio.sleep(WINDOW)
        store, client = cpu_seconds(ground.pids()) - store, time.process_time() - client
        found = {
            "renewals": renewals,
            "client_us_per_renewal": client / max(renewals, 1) * 1e6,
            "store_us_per_renewal": store / max(renewals, 1) * 1e6,
        }
        await asyncio.gather(*(lease.release() for lease in leases))
    found |= await _client_memory(ground)
    return {name: round(value, 1) for name, value in found.items()}


async def _client_memory(ground: Ground) -> dict[str, float]:
    """Bytes of Python objects that a renewed lease and a waiting task keep in the client."""
    async with solely.AsyncClient(ground.url, timeout=30.0) as once:
        await once.first(_fresh())
        tracemalloc.start()
        empty = _traced()
        leases = await asyncio.gather(*(once.lock(_fresh(), ttl=DAY) for _ in range(WAITERS)))
        held = _traced()

        async def wait() -> None:
            await once.lock(leases[0].key, ttl=TTL, wait=300.0)

        waiting = [asyncio.create_task(wait()) for _ in range(WAITERS)]
        await asyncio.sleep(2.0)
        waits = _traced()
        tracemalloc.stop()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*(lease.release() for lease in leases))
    return {"bytes_per_lease": (held - empty) / WAITERS, "bytes_per_waiter": (waits - held) / WAITERS}


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main(arguments: list[str]) -> int:
    """Measures the stores whose name begins with --only, and prints one JSON object."""
    parser = argparse.ArgumentParser(prog="scripts/bench costs", description=__doc__)
    parser.add_argument("--only", metavar="STORE", default="", help="redis, postgres or sqlite")
    parser.add_argument("--quick", action="store_true", help="shorter rounds: a rough look")
    options = parser.parse_args(arguments)
    seconds, repetitions = (0.1, 3) if options.quick else (0.5, 5)
    pin(os.getpid(), 0)
    found: dict[str, Any] = {"command": " ".join(["scripts/bench costs", *arguments]), "machine": machine()}
    for store, opened in GROUNDS.items():
        if store.startswith(options.only):
            print(store, file=sys.stderr, flush=True)
            with opened() as ground:
                calls = _of_calls(ground, seconds, repetitions)
            with opened() as ground:
                entries = _of_entries(ground)
            with opened() as ground:
                found[store] = {"calls": calls, "bytes_per_entry": entries, "at_rest": asyncio.run(_at_rest(ground))}
    print(json.dumps(found, indent=1))
    return 0
