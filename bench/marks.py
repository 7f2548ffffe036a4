"""Marks: keys that are seen for the first time, per second."""

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from time import perf_counter

import redis

import solely

from .harness import Case, Effort, Figures, Goal, Place, rates, ratios, valkey
from .workers import Loop, task_rate, thread_rate

DAY = 86_400
MANY = 1000


_fresh = count()


def many_rate(work: Callable[[list[str]], list[bool]], seconds: float) -> float:
    """Keys per second that `work`, given a thousand fresh ones at a time, marks."""
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
]
