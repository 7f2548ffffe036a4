"""The lines of one process: for each key, who of this process waits for it, in the order of arrival.

Only the first of a line talks to the store, so the store sees processes, not waiters. A hint for a key wakes the first
of its line and nobody else; a hint for a key without a line is of no use to anyone and is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """Somebody who can be woken; a wake-up that comes before the wait is remembered."""

    def wake(self) -> None: ...


class Lines:
    """Thread-safe; no wake-up is lost between a departure and the next arrival."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._first: dict[str, Waiter] = {}
        self._others: dict[str, deque[Waiter]] = {}  # only where there are others

    def join(self, key: str, waiter: Waiter) -> bool:
        """Stands at the end of the line; True if that is also its beginning."""
        if self._first.setdefault(key, waiter) is waiter:  # one atomic step: the usual case needs no mutex
            return True
        with self._mutex:
            if self._first.setdefault(key, waiter) is waiter:
                return True
            self._others.setdefault(key, deque()).append(waiter)
            return False

    def leave(self, key: str, waiter: Waiter) -> None:
        """Leaves the line from any place; if it was the first, the next is woken. Nothing if it stands nowhere: a
        signal may have kept it from joining."""
        with self._mutex:
            first = self._first.get(key) is waiter
            if key not in self._others:  # the usual case: nobody else stands there
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
        """The key may be free now: wakes the first of its line."""
        if key in self._first:
            with self._mutex:
                first = self._first.get(key)
                if first is not None:
                    first.wake()

    def wake_all(self, key: str) -> None:
        """What the key was waited for is settled: wakes its whole line."""
        with self._mutex:
            first = self._first.get(key)
            if first is not None:
                first.wake()
            for waiter in self._others.get(key, ()):
                waiter.wake()

    def is_first(self, key: str, waiter: Waiter) -> bool:
        """True if this waiter is the first of the line."""
        return self._first.get(key) is waiter

    def waiting(self, key: str) -> int:
        """How many stand in the line for this key."""
        with self._mutex:
            return (key in self._first) + len(self._others.get(key, ()))

    def __len__(self) -> int:
        return len(self._first)
