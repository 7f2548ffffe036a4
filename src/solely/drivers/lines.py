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
        self._lines: dict[str, deque[Waiter]] = {}

    def join(self, key: str, waiter: Waiter) -> bool:
        """Stands at the end of the line; True if that is also its beginning."""
        with self._mutex:
            line = self._lines.get(key)
            if line is None:
                self._lines[key] = deque((waiter,))
                return True
            line.append(waiter)
            return False

    def leave(self, key: str, waiter: Waiter) -> None:
        """Leaves the line from any place; if it was the first, the next is woken."""
        with self._mutex:
            line = self._lines[key]
            first = line[0] is waiter
            if first:
                line.popleft()
            else:
                line.remove(waiter)
            if not line:
                del self._lines[key]
            elif first:
                line[0].wake()

    def tell(self, key: str) -> None:
        """The key may be free now: wakes the first of its line."""
        if key in self._lines:
            with self._mutex:
                line = self._lines.get(key)
                if line:
                    line[0].wake()

    def is_first(self, key: str, waiter: Waiter) -> bool:
        """True if this waiter is the first of the line."""
        with self._mutex:
            line = self._lines.get(key)
            return line is not None and line[0] is waiter

    def __len__(self) -> int:
        return len(self._lines)
