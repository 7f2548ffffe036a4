"""Marks: new keys that are marked per second, and what `seen` costs for a mark that the cache contains."""

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count, cycle, islice
from time import perf_counter

import redis

import solely

from .harness import Case, Effort, Figures, Goal, Place, interleave, rates, ratios, valkey
from .workers import Loop, task_rate, thread_rate

DAY = 86_400
MANY = 1000
CACHED = [f"key-{number}" for number in range(10_000)]  # as many as the cache keeps by default
CALLS = 100_000  # per second of effort: half a second at 5 µs each

_fresh = count()


def many_rate(work: Callable[[list[str]], list[bool]], seconds: float) -> float:
    """Returns the keys per second that `work` marks, given a thousand new ones at a time."""
    spent, calls = 0.0, 0
    while spent < seconds:
        keys = [f"key-{next(_fresh)}" for _ in range(MANY)]
        begun = perf_counter()
        answers = work(keys)
        spent += perf_counter() - begun
        calls += 1
        assert all(answers)
    return calls * MANY / spent


def _redis_many(place: Place, effort: Effort) -> Figures:
    with valkey(place) as server, solely.Client(server.url) as once, redis.Redis.from_url(server.url) as peer:

        def ours(keys: list[str]) -> list[bool]:
            return once.first_many(keys, ttl=DAY)

        def pipeline(keys: list[str]) -> list[bool]:
            with peer.pipeline(transaction=False) as commands:
                for key in keys:
                    commands.set(key, 1, nx=True, ex=DAY)
                return [bool(answer) for answer in commands.execute()]

        sides = {
            "ours": partial(many_rate, ours, effort.seconds),
            "redispy pipeline": partial(many_rate, pipeline, effort.seconds),
        }
        measured = rates(sides, effort.repetitions)
    return {"marks.redis.many.1000.vs_redispy_pipeline": ratios(measured["ours"], measured["redispy pipeline"])}


def _sqlite_tasks(place: Place, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory() as folder, Loop() as loop:
        url = f"sqlite:///{folder}/ours.db"
        tasked = loop.enter(solely.AsyncClient(url))
        with solely.Client(url) as once:

            def by_thread(_: str) -> None:
                assert once.first(f"key-{next(_fresh)}", ttl=DAY)

            async def by_task(_: str) -> None:
                assert await tasked.first(f"key-{next(_fresh)}", ttl=DAY)

            sides = {
                "50 tasks": lambda: loop.run(task_rate(by_task, 50, effort.seconds)),
                "1 thread": lambda: thread_rate(by_thread, 1, effort.seconds),
            }
            measured = rates(sides, effort.repetitions)
    return {"marks.sqlite.async.50.vs_sync.1": ratios(measured["50 tasks"], measured["1 thread"])}


def _seen(place: Place, effort: Effort) -> Figures:
    with solely.Client("memory://", cache=True) as once:
        once.first_many(CACHED)

        def microseconds() -> float:
            keys = list(islice(cycle(CACHED), int(CALLS * effort.seconds)))
            seen = once.seen
            begun = perf_counter()
            for key in keys:
                seen(key)
            return (perf_counter() - begun) / len(keys) * 1e6

        return {"seen.cache.us": interleave({"ours": microseconds}, effort.repetitions)["ours"]}


CASES = [
    Case(
        [Goal("marks.redis.many.1000.vs_redispy_pipeline", 3.0, "redis-py: a pipeline of 1000 SET NX EX")],
        Place.TOGETHER,
        _redis_many,
    ),
    Case(
        [Goal("marks.sqlite.async.50.vs_sync.1", 5.0, "our blocking client, 1 thread; both durable")],
        Place.CLIENT_ONLY,
        _sqlite_tasks,
    ),
    Case([Goal("seen.cache.us", 10.0, "µs per call, 10,000 keys", at_most=True)], Place.CLIENT_ONLY, _seen),
]
