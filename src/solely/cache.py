"""A bounded memory of what is finished, asked before the store; nothing is remembered beyond its own end."""

from __future__ import annotations

import threading
from collections import OrderedDict

from .errors import InvalidInput
from .rules import Seconds, local_clock, seconds


class Cache:
    """Least recently used out first; nothing older than `ttl`. Thread-safe.

    What another process forgets (`forget`, or an admin's clear) may be remembered here for up to `ttl` seconds more:
    the default of 5 minutes is the longest that such a surprise should last.
    """

    def __init__(self, *, size: int = 10_000, ttl: Seconds = 300.0) -> None:
        if size < 1:
            raise InvalidInput(f"a cache's size must be a whole number of entries, at least 1, not {size!r}")
        self.size = size
        self.ttl = seconds("ttl", ttl, least=0.001, most=86_400.0)
        self._ends: OrderedDict[str, float] = OrderedDict()
        self._mutex = threading.Lock()

    def has(self, key: str) -> bool:
        """True if the key is known to be finished."""
        ends = self._ends.get(key)
        if ends is None:
            return False
        with self._mutex:
            if ends <= local_clock():
                self._ends.pop(key, None)
                return False
            if key in self._ends:
                self._ends.move_to_end(key)
            return True

    def add(self, key: str, left: float) -> None:
        """Remembers a finished key for the time it has left, at most for the cache's ttl."""
        if left <= 0:
            return
        with self._mutex:
            self._ends[key] = local_clock() + min(left, self.ttl)
            self._ends.move_to_end(key)
            if len(self._ends) > self.size:
                self._ends.popitem(last=False)

    def forked(self) -> None:
        """In the child of a fork: the parent's mutex may be held by a thread that is not here."""
        self._mutex = threading.Lock()

    def drop(self, key: str) -> None:
        """Forgets the key."""
        with self._mutex:
            self._ends.pop(key, None)

    def __len__(self) -> int:
        return len(self._ends)
