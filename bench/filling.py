"""Fills a store: one in fifty entries is a held lock and the others are marks, as in a store that is used for both."""

import os
import sys
from collections.abc import Iterator
from itertools import islice
from random import randrange

from solely.ops import Acquire, Mark
from solely.stores import open_store

HELD = 50  # one in so many entries is a lock
LASTS = 86_400.0  # seconds: longer than any run, so that nothing expires during it
SENT = 1_000  # ops that are sent at once


def fill(url: str, entries: int) -> None:
    """Writes that many entries with random names."""
    store = open_store(url, timeout=60.0)
    owner, scattered = os.urandom(16).hex(), _scattered(entries)
    for begin in range(0, entries, SENT):
        size = min(SENT, entries - begin)
        names = list(islice(scattered, size))
        held = -(-size // HELD)
        store.perform([Acquire(f"lock/{name}", owner, LASTS) for name in names[:held]])
        store.perform([Mark(f"mark/{name}", owner, LASTS) for name in names[held:]])
        if (begin + size) % 1_000_000 == 0:
            print(f"    {begin + size:,} written", file=sys.stderr, flush=True)
    store.close()


def _scattered(names: int) -> Iterator[str]:
    """That many random names in two sorted passes: written fast, and a b-tree is as full as after random inserts."""
    step = 2**64 // max(names, 1)
    for begin in (0, 1):
        for number in range(begin, names, 2):
            yield f"{number * step + randrange(step):016x}"
