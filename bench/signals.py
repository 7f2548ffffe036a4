"""Signals: what the idempotent generator adds to a group and to a signal, and its rate against the old path.

A group has 20 credentials, all of which get a signal: the longest path. `group_…_ms` is all that the wrapper adds: the
generator and the write of the signals do nothing. The old path is that of the document: it reads whether the credential
has a signal, then finds it again and writes it; both sides write to a collection of the same server, one signal after
the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from statistics import quantiles
from time import perf_counter
from typing import Any

import pymongo
from pymongo.collection import Collection

from solely.apps.signals import IdempotentSignalGenerator, MongoSignals

from .harness import Case, Effort, Figures, Goal, Place, interleave, ratios
from .mongo import mongod

CREDENTIALS = 20  # of a group, as the document has it: 5 to 20
GROUPS = 50  # per repetition: enough for a P99 over all repetitions
LOOKUPS = 10_000  # as many as the cache holds
Signal = dict[str, Any]


def _signals(group: tuple[str, str], context: object) -> list[Signal]:
    return [{"House": group[0], "Game": group[1], "username": f"user-{number}"} for number in range(CREDENTIALS)]


def _nothing(signal: Signal, id: str) -> None:
    """Writes nothing."""


@contextmanager
def _generators(
    place: Place,
) -> Iterator[tuple[IdempotentSignalGenerator, IdempotentSignalGenerator, Collection[Signal]]]:
    """A generator that writes nothing, one that writes to a collection, and the collection of the old path."""
    with mongod(place) as server, pymongo.MongoClient[Signal](server.url) as client:
        database = client["bench"]
        signals, old = MongoSignals(database["SIGN4L"]), database["OLD"]
        old.create_index([("House", 1), ("Game", 1), ("username", 1)])
        with (
            IdempotentSignalGenerator(_signals, _nothing, server.url) as bare,
            IdempotentSignalGenerator(_signals, signals.write, server.url) as writing,
        ):
            yield bare, writing, old


def _old_path(old: Collection[Signal], group: tuple[str, str]) -> None:
    for signal in _signals(group, None):
        credential = {name: signal[name] for name in ("House", "Game", "username")}
        if old.find_one(credential) is None:
            known = old.find_one(credential)
            if known is None:
                old.insert_one(signal)


def _groups(place: Place, effort: Effort) -> Figures:
    numbers = count()
    with _generators(place) as (bare, writing, old):

        def overhead() -> list[float]:
            took = []
            for _ in range(GROUPS):
                begun = perf_counter()
                result = bare.generate_group((f"bare-{next(numbers)}", "slots"))
                took.append((perf_counter() - begun) * 1000)
                assert result.generated == CREDENTIALS
            return took

        def protected() -> float:
            begun = perf_counter()
            for _ in range(GROUPS):
                assert writing.generate_group((f"new-{next(numbers)}", "slots")).generated == CREDENTIALS
            return GROUPS * CREDENTIALS / (perf_counter() - begun)

        def unprotected() -> float:
            begun = perf_counter()
            for _ in range(GROUPS):
                _old_path(old, (f"old-{next(numbers)}", "slots"))
            return GROUPS * CREDENTIALS / (perf_counter() - begun)

        overhead()  # creates collections and indexes
        sides: Any = {"overhead": overhead, "protected": protected, "unprotected": unprotected}
        measured = interleave(sides, effort.repetitions)
    halves = [quantiles(took, n=100) for took in measured["overhead"]]
    return {
        "signals.mongo.group_p50_ms": [each[49] for each in halves],
        "signals.mongo.group_p99_ms": [each[98] for each in halves],
        "signals.mongo.per_signal_ms": [each[49] / CREDENTIALS for each in halves],
        "signals.mongo.vs_unprotected": ratios(measured["protected"], measured["unprotected"]),
    }


def _dedup(place: Place, effort: Effort) -> Figures:
    with IdempotentSignalGenerator(_signals, _nothing, "memory://") as generator:
        keys = [f"signal:north:slots:user-{number}" for number in range(LOOKUPS)]
        generator._remember(keys)

        def microseconds() -> float:
            begun = perf_counter()
            assert all(map(generator.cache.has, keys))
            return (perf_counter() - begun) / LOOKUPS * 1e6

        return {"signals.dedup_us": interleave({"dedup": microseconds}, effort.repetitions)["dedup"]}


CASES = [
    Case(
        [
            Goal("signals.mongo.group_p50_ms", 25.0, "ms that the wrapper adds to a group of 20 signals", at_most=True),
            Goal("signals.mongo.group_p99_ms", 100.0, "the same, 99th percentile", at_most=True),
            Goal("signals.mongo.per_signal_ms", 2.0, "the same, per signal", at_most=True),
            Goal("signals.mongo.vs_unprotected", 0.5, "signals per second: the old read-check-write"),
        ],
        Place.APART,
        _groups,
    ),
    Case(
        [Goal("signals.dedup_us", 10.0, "µs to find a credential in the dedup cache", at_most=True)],
        Place.CLIENT_ONLY,
        _dedup,
    ),
]
