"""Pairs: acquire + release of a free key, per second."""

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import redis
import redis.asyncio

import solely

from .harness import Case, Effort, Figures, Goal, Place, rates, ratios, valkey
from .peers import RawConnection, RawSqlite
from .workers import TTL, Loop, task_rate, thread_rate


def _redis_threads(workers: int, place: Place, effort: Effort) -> Figures:
    with valkey(place) as server, solely.Client(server.url) as once, redis.Redis.from_url(server.url) as peer:

        def ours(key: str) -> None:
            with once.lock(key, ttl=TTL):
                pass

        def redispy(key: str) -> None:
            with peer.lock(key, timeout=TTL):
                pass

        sides = {work.__name__: partial(thread_rate, work, workers, effort.seconds) for work in (ours, redispy)}
        measured = rates(sides, effort.repetitions)
    return {f"pair.redis.sync.{workers}.vs_redispy": ratios(measured["ours"], measured["redispy"])}


def _redis_tasks(workers: int, place: Place, effort: Effort) -> Figures:
    with valkey(place) as server, Loop() as loop:
        once = loop.enter(solely.AsyncClient(server.url))
        peer = loop.enter(redis.asyncio.Redis.from_url(server.url))
        raw = loop.enter(RawConnection.open(server))

        async def ours(key: str) -> None:
            async with once.lock(key, ttl=TTL):
                pass

        async def redispy(key: str) -> None:
            async with peer.lock(key, timeout=TTL):
                pass

        def side(work: Callable[[str], Awaitable[object]]) -> Callable[[], float]:
            return lambda: loop.run(task_rate(work, workers, effort.seconds))

        sides = {"ours": side(ours), "redispy": side(redispy), "raw_mux": side(raw.pair)}
        measured = rates(sides, effort.repetitions)
    ours_first, *peers = measured
    return {f"pair.redis.async.{workers}.vs_{peer}": ratios(measured[ours_first], measured[peer]) for peer in peers}


def _sqlite_threads(place: Place, effort: Effort) -> Figures:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        once = stack.enter_context(solely.Client(f"sqlite:///{folder / 'ours.db'}"))
        raw = stack.enter_context(closing(RawSqlite(folder / "raw.db")))

        def ours(key: str) -> None:
            with once.lock(key, ttl=TTL):
                pass

        sides = {
            "ours": partial(thread_rate, ours, 1, effort.seconds),
            "raw": partial(thread_rate, raw.pair, 1, effort.seconds),
        }
        measured = rates(sides, effort.repetitions)
    return {"pair.sqlite.sync.1.vs_raw": ratios(measured["ours"], measured["raw"])}


def _sqlite_tasks(place: Place, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory() as folder, Loop() as loop:
        url = f"sqlite:///{folder}/ours.db"
        tasked = loop.enter(solely.AsyncClient(url))
        with solely.Client(url) as once:

            def by_thread(key: str) -> None:
                with once.lock(key, ttl=TTL):
                    pass

            async def by_task(key: str) -> None:
                async with tasked.lock(key, ttl=TTL):
                    pass

            sides: dict[str, Callable[[], float]] = {
                "50 tasks": lambda: loop.run(task_rate(by_task, 50, effort.seconds)),
                "1 thread": partial(thread_rate, by_thread, 1, effort.seconds),
            }
            measured = rates(sides, effort.repetitions)
    return {"pair.sqlite.async.50.vs_sync.1": ratios(measured["50 tasks"], measured["1 thread"])}


_REDISPY = "redis-py's Lock"
_RAW_MUX = "SET NX PX + compare-and-delete on one shared connection"

CASES = [
    Case(
        [Goal("pair.redis.sync.1.vs_redispy", 2.0, f"{_REDISPY}, 1 thread")], Place.TOGETHER, partial(_redis_threads, 1)
    ),
    Case(
        [Goal("pair.redis.sync.16.vs_redispy", 1.8, f"{_REDISPY}, 16 threads")],
        Place.APART,
        partial(_redis_threads, 16),
    ),
    Case([Goal("pair.redis.async.1.vs_redispy", 1.5, f"{_REDISPY}, 1 task")], Place.TOGETHER, partial(_redis_tasks, 1)),
    Case(
        [
            Goal("pair.redis.async.50.vs_redispy", 5.0, f"{_REDISPY}, 50 tasks"),
            Goal("pair.redis.async.50.vs_raw_mux", 0.5, _RAW_MUX),
        ],
        Place.APART,
        partial(_redis_tasks, 50),
    ),
    Case(
        [Goal("pair.sqlite.sync.1.vs_raw", 0.6, "two bare statements, WAL, NORMAL")],
        Place.CLIENT_ONLY,
        _sqlite_threads,
    ),
    Case(
        [Goal("pair.sqlite.async.50.vs_sync.1", 1.5, "our blocking client, 1 thread")],
        Place.CLIENT_ONLY,
        _sqlite_tasks,
    ),
]
