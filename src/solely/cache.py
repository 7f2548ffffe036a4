"""A bounded local cache of finished marks and claims, read before the store; no entry outlives its stored original."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .errors import InvalidInput
from .functions import plain_function
from .rules import DAY, Seconds, local_clock, seconds

MAX_BYTES = 64 * 1024 * 1024  # of cached outcomes: 256 of the largest, and more small ones than `size` allows


class Cache:
    """Evicts the least recently used key first, keeps none longer than `ttl`, and bounds outcomes to MAX_BYTES in
    total. Thread-safe.

    A key that another process removes (`forget`, or an admin's clear) may stay here for up to `ttl` seconds more; the
    default of 5 minutes bounds how long such a stale answer can last.
    """

    def __init__(self, *, size: int = 10_000, ttl: Seconds = 300.0, clock: Callable[[], float] = local_clock) -> None:
        if size < 1:
            raise InvalidInput(f"a cache's size must be a whole number of entries, at least 1, not {size!r}")
        self.size = size
        self.ttl = seconds("ttl", ttl, least=0.001, most=DAY)
        self._clock = plain_function("clock", clock)
        self._ends: OrderedDict[str, float] = OrderedDict()
        self._outcomes: dict[str, tuple[Any, int]] = {}  # by key: the outcome of a claim, and its size in bytes
        self._bytes = 0
        self._mutex = threading.Lock()

    def has(self, key: str) -> bool:
        """True if the key is known to be finished."""
        ends = self._ends.get(key)
        if ends is None:
            return False
        with self._mutex:
            if ends <= self._clock():
                self._pop(key)
                return False
            if key in self._ends:
                self._ends.move_to_end(key)
            return True

    def get(self, key: str) -> Any:
        """The cached outcome of the key; None if the key is not known to be finished."""
        known = self._outcomes.get(key)
        return known[0] if known is not None and self.has(key) else None

    def add(self, key: str, left: float, outcome: Any = None, size: int = 0) -> None:
        """Caches a finished key, and its outcome of `size` bytes, for `left` seconds, but at most for `ttl`."""
        if left <= 0:
            return
        with self._mutex:
            self._pop(key)
            self._ends[key] = self._clock() + min(left, self.ttl)
            if outcome is not None:
                self._outcomes[key] = outcome, size
                self._bytes += size
            while len(self._ends) > self.size or self._bytes > MAX_BYTES:
                self._pop(next(iter(self._ends)))

    def _pop(self, key: str) -> None:
        self._ends.pop(key, None)
        if self._outcomes:
            self._bytes -= self._outcomes.pop(key, (None, 0))[1]

    def forked(self) -> None:
        """In the child of a fork: a thread that does not exist here may hold the parent's mutex."""
        self._mutex = threading.Lock()

    def drop(self, key: str) -> None:
        """Removes the key."""
        with self._mutex:
            self._pop(key)

    def __len__(self) -> int:
        return len(self._ends)
