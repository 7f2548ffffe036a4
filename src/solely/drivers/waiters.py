"""The waiters of one process: per key, the flows that wait for it, in the order of arrival.

Only the first flow in line talks to the store, so the store sees processes, not single callers. A hint for a key wakes
the first in line and no other; a hint for a key that no flow waits for is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """Can be woken; it remembers a wake-up that comes before it waits."""

    def wake(self) -> None: ...


class Waiters:
    """Thread-safe. No wake-up is lost between a departure and the next arrival."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._first: dict[str, Waiter] = {}
        self._others: dict[str, deque[Waiter]] = {}  # only keys with more than one waiter

    def join(self, key: str, waiter: Waiter) -> bool:
        """Appends the waiter to the line of this key; True if it is the first."""
        if self._first.setdefault(key, waiter) is waiter:  # one atomic step: the usual case needs no mutex
            return True
        with self._mutex:
            if self._first.setdefault(key, waiter) is waiter:
                return True
            self._others.setdefault(key, deque()).append(waiter)
            return False

    def leave(self, key: str, waiter: Waiter) -> None:
        """Removes the waiter from the line; if it was the first, wakes the next.

        Does nothing for a waiter that is not in line: a signal may have interrupted its join.
        """
        with self._mutex:
            first = self._first.get(key) is waiter
            if key not in self._others:  # the usual case: no other waiter
                if first:
                    del self._first[key]
                return
            others = self._others[key]
            if first:
                self._first[key] = others.popleft()
                self._first[key].wake()
            elif waiter in others:
                others.remove(waiter)
            if not others:
                del self._others[key]

    def wake(self, key: str) -> None:
        """Wakes the first in line: the key may be free now."""
        if key in self._first:
            with self._mutex:
                first = self._first.get(key)
                if first is not None:
                    first.wake()

    def wake_all(self, key: str) -> None:
        """Wakes the whole line: the outcome that it waits for is known."""
        with self._mutex:
            first = self._first.get(key)
            if first is not None:
                first.wake()
            for waiter in self._others.get(key, ()):
                waiter.wake()

    def is_first(self, key: str, waiter: Waiter) -> bool:
        """True if this waiter is the first in line."""
        return self._first.get(key) is waiter

    def waiting(self, key: str) -> int:
        """The number of waiters for this key."""
        with self._mutex:
            return (key in self._first) + len(self._others.get(key, ()))

    def __len__(self) -> int:
        return len(self._first)
