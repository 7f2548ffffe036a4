"""When to look at which key again, without ever looking at all of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

_SLACK = 1_000  # stale rows that are tolerated before the heap is built anew: some tens of kilobytes


class Expiries:
    """Yields each key once its time has come, in amortised O(log n); a key that was moved later costs one more look."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._row: dict[str, float] = {}  # the time under which the key is in the heap: at or before its own
        self._heap: list[tuple[float, str]] = []

    def schedule(self, key: str, at: float) -> None:
        """The key is due at `at` and at no other time; never, if that is infinite."""
        self._at[key] = at
        if at < self._row.get(key, float("inf")):
            self._row[key] = at
            heapq.heappush(self._heap, (at, key))

    def drop(self, key: str) -> None:
        """The key is no longer due at any time."""
        self._at.pop(key, None)
        self._row.pop(key, None)

    def due(self, now: float) -> Iterator[str]:
        """The keys whose time has come; they may be scheduled again meanwhile."""
        if len(self._heap) > 2 * len(self._row) + _SLACK:
            self._heap = [(row, key) for key, row in self._row.items()]
            heapq.heapify(self._heap)
        while self._heap and self._heap[0][0] <= now:
            row, key = heapq.heappop(self._heap)
            if self._row.get(key) != row:
                continue
            del self._row[key]
            at = self._at.pop(key)
            if at > now:
                self.schedule(key, at)
            else:
                yield key
