"""Listings: how often a hundred entries under a prefix are listed, with a million others beside them."""

import os
from contextlib import ExitStack
from functools import partial

from solely.formats import write_watermark
from solely.ops import Acquire, Advance, Mark, Op, Push
from solely.stores import Store, open_store

from .harness import QUICK, Case, Effort, Figures, Goal, Place, rates, ratios, valkey
from .workers import thread_rate

FEW, MANY, MANY_QUICK = 1_000, 1_000_000, 50_000  # others; a rough look does not wait for a million to be written
LISTED = 100
PREFIX = "listed/"
LASTS = 86_400.0  # seconds: longer than any run, so that nothing expires during it
SENT = 10_000  # ops that are sent at once: as many as keep the server busy while the next are made


def _others(entries: int) -> list[Op]:
    """That many entries with random names: a quarter each of marks, and of the three kinds that are in the index."""
    owner, value = os.urandom(16).hex(), write_watermark(1)
    ops: list[Op] = []
    for _ in range(entries // 4):
        name = os.urandom(8).hex()
        ops += (
            Mark(f"mark/{name}", owner, LASTS),
            Acquire(f"reservation/{name}", owner, LASTS, counted=True),
            Advance(f"watermark/{name}", value),
            Push("others", name, b"payload"),
        )
    return ops


def _fill(url: str, entries: int) -> None:
    store = open_store(url, timeout=60.0)
    for _ in range(0, entries, SENT):
        store.perform(_others(min(entries, SENT)))
    store.perform([Acquire(f"reservation/{PREFIX}{n}", "holder", LASTS, counted=True) for n in range(LISTED)])
    store.scan(f"reservation/{PREFIX}", "", 1)  # the first listing of all completes the index
    store.close()


def _list(store: Store, _: str) -> None:
    assert len(store.scan(f"reservation/{PREFIX}", "", LISTED + 1)) == LISTED


def _listings(place: Place, effort: Effort) -> Figures:
    with ExitStack() as stack:
        sides = {}
        for entries in (MANY_QUICK if effort == QUICK else MANY, FEW):
            url = stack.enter_context(valkey(place)).url
            _fill(url, entries)
            store = open_store(url)
            stack.callback(store.close)
            sides[f"{entries:,} others"] = partial(thread_rate, partial(_list, store), 1, effort.seconds)
        many, few = rates(sides, effort.repetitions).values()
    return {"scan.redis.1e6_vs_1e3": ratios(many, few)}


CASES = [
    Case(
        [Goal("scan.redis.1e6_vs_1e3", 0.8, "the same with 1,000 other entries; with --quick, 50,000 and 1,000")],
        Place.TOGETHER,
        _listings,
    ),
]
