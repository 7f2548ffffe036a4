"""Scale: pairs per second with a million entries in the store, compared with a thousand.

One in fifty entries is a held lock and the others are marks: a store with a million entries has many marks and few
locks. The pairs use random keys among those locks.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import solely

from .filling import fill
from .harness import Case, Effort, Figures, Goal, Place, rates, ratios, valkey
from .postgres import postgres
from .workers import TTL, thread_rate

FEW, MANY = 1_000, 1_000_000


@contextmanager
def _redis_url(place: Place) -> Iterator[str]:
    with valkey(place) as server:
        yield server.url


@contextmanager
def _postgres_url(place: Place) -> Iterator[str]:
    with postgres(place) as server:
        yield server.url


@contextmanager
def _sqlite_url(place: Place) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/scale.db"


def _scale(name: str, opened: Callable[[Place], AbstractContextManager[str]], place: Place, effort: Effort) -> Figures:
    with ExitStack() as stack:
        sides = {}
        for entries in (MANY, FEW):
            url = stack.enter_context(opened(place))
            fill(url, entries)
            once = stack.enter_context(solely.Client(url))
            sides[f"{entries:,} entries"] = partial(thread_rate, partial(_pair, once), 1, effort.seconds)
        many, few = rates(sides, effort.repetitions).values()
    return {f"scale.{name}.1e6_vs_1e3": ratios(many, few)}


def _pair(once: solely.Client, _: str) -> None:
    with once.lock(os.urandom(8).hex(), ttl=TTL):
        pass


CASES = [
    Case(
        [Goal("scale.redis.1e6_vs_1e3", 0.85, "the same with 1,000 entries: 98 % marks, the rest locks")],
        Place.TOGETHER,
        partial(_scale, "redis", _redis_url),
    ),
    Case(
        [Goal("scale.postgres.1e6_vs_1e3", 0.85, "the same with 1,000 entries: 98 % marks, the rest locks")],
        Place.TOGETHER,
        partial(_scale, "postgres", _postgres_url),
    ),
    Case(
        [Goal("scale.sqlite.1e6_vs_1e3", 0.85, "the same with 1,000 entries: 98 % marks, the rest locks")],
        Place.CLIENT_ONLY,
        partial(_scale, "sqlite", _sqlite_url),
    ),
]
