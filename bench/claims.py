"""Claims and reservations: the first call, the replay, a burst of callers for one key, and a suppressed alert."""

import asyncio
import multiprocessing
from functools import partial
from itertools import count
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import redis

import solely

from .harness import Case, Effort, Figures, Goal, Place, interleave, print_medians, rates, ratios, valkey
from .postgres import postgres
from .workers import Loop, thread_rate

PROCESSES, CALLERS = 4, 250  # of each process: 1,000 in all
WORK = 0.3  # seconds that the winner of a burst works: by then every caller has requested the claim
RESERVERS, RESERVES = 20, 100  # tasks, and reservations of each, per repetition


def _charge(amount: int) -> dict[str, int]:
    return {"charged": amount}


def _replay_cached(place: Place, effort: Effort) -> Figures:
    with valkey(place) as server, solely.Client(server.url, cache=True) as once:
        once.claim("order").publish(_charge(1))
        calls = int(20_000 * effort.seconds)

        def microseconds() -> float:
            begun = perf_counter()
            for _ in range(calls):
                assert once.claim("order").value is not None
            return (perf_counter() - begun) / calls * 1e6

        return {"claim.redis.replay_cached.us": interleave({"ours": microseconds}, effort.repetitions)["ours"]}


# -- a burst


async def _burst(url: str, key: str) -> tuple[list[float], float, int]:
    """Returns when each caller here got the value, when the winner published (0 if it is elsewhere), and the ops."""
    performed, published = 0, 0.0
    async with solely.AsyncClient(url) as once:
        await once.check()
        perform = once._store.perform

        def counting(ops: Any) -> Any:
            nonlocal performed
            performed += len(ops)
            return perform(ops)

        once._store.perform = counting  # type: ignore[method-assign]

        async def caller() -> float:
            nonlocal published
            claim = await once.claim(key, wait=30.0)
            if claim.won:
                await asyncio.sleep(WORK)
                published = perf_counter()
                await claim.publish("value")
            assert claim.won or claim.value == "value"
            return perf_counter()

        moments = await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return list(moments), published, performed


def _run_burst(url: str, key: str) -> tuple[list[float], float, int]:
    return asyncio.run(_burst(url, key))


def _bursts(place: Place, effort: Effort) -> Figures:
    losers: list[float] = []
    shares: list[float] = []
    with valkey(place) as server, multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for number in range(effort.repetitions):
            results = pool.starmap(_run_burst, [(server.url, f"burst-{number}")] * PROCESSES, chunksize=1)
            (published,) = [moment for _, moment, _ in results if moment]
            losers.append(median(at - published for moments, _, _ in results for at in moments) * 1000)
            shares.append(sum(performed for _, _, performed in results) / (PROCESSES * CALLERS))
    print_medians({"loser p50 µs": [each * 1000 for each in losers]}, unit="")
    return {"claim.redis.1000x4.loser_p50_ms": losers, "claim.redis.1000x4.store_ops_per_caller": shares}


# -- reservations


def _suppressed(place: Place, effort: Effort) -> Figures:
    with valkey(place) as server, solely.Client(server.url) as once, redis.Redis.from_url(server.url) as client:

        def ours(key: str) -> None:
            assert not once.reserve(key, quiet=3600.0)

        def raw_roundtrip(key: str) -> None:
            assert client.get(key) == b"1"

        with once.reserve("key-0", quiet=3600.0):
            client.set("key-0", 1)
        sides = {work.__name__: partial(thread_rate, work, 1, effort.seconds) for work in (ours, raw_roundtrip)}
        measured = rates(sides, effort.repetitions)
    return {"reserve.redis.vs_raw_roundtrip": ratios(measured["ours"], measured["raw_roundtrip"])}


async def _reserve(once: solely.AsyncClient, numbers: "count[int]") -> list[float]:
    took: list[float] = []

    async def reserver() -> None:
        for _ in range(RESERVES):
            begun = perf_counter()
            hold = await once.reserve(f"alert-{next(numbers)}", quiet=60.0, limit=20, per=3600.0)
            took.append(perf_counter() - begun)
            assert hold
            await hold.record()

    await asyncio.gather(*(reserver() for _ in range(RESERVERS)))
    return took


def _reserve_on_postgres(place: Place, effort: Effort) -> Figures:
    with postgres(place) as server, Loop() as loop:
        once = loop.enter(solely.AsyncClient(server.url))
        numbers = count()

        def p95() -> float:
            return quantiles(loop.run(_reserve(once, numbers)), n=20)[-1] * 1000

        return {"reserve.postgres.p95_ms": interleave({"ours": p95}, effort.repetitions)["ours"]}


CASES = [
    Case([Goal("claim.redis.replay_cached.us", 15.0, "µs per call", at_most=True)], Place.TOGETHER, _replay_cached),
    Case(
        [
            Goal("claim.redis.1000x4.loser_p50_ms", 10.0, "ms from publish to a loser's value", at_most=True),
            Goal(
                "claim.redis.1000x4.store_ops_per_caller",
                0.05,
                "ops that 1,000 callers of one key cost, each",
                at_most=True,
            ),
        ],
        Place.APART,
        _bursts,
    ),
    Case(
        [Goal("reserve.redis.vs_raw_roundtrip", 0.7, "redis-py's get, 1 thread; the suppressed path")],
        Place.TOGETHER,
        _suppressed,
    ),
    Case(
        [Goal("reserve.postgres.p95_ms", 20.0, "ms of a granted reserve, 20 tasks", at_most=True)],
        Place.APART,
        _reserve_on_postgres,
    ),
]
