"""Fences that only grow, through release, expiry, reboot and loss of all data, without a write per fence.

Fences are handed out while the write lock is held. On a boot clock the clock itself is the counter: `base` + µs since
boot grows from one transaction to the next, and the file remembers a bound that is moved ahead now and then, so that
the next boot starts above everything handed out. Where there is no such clock, the file keeps the counter itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .clock import Readings
from .statements import SQL

# Fences (one per µs): one more write every two seconds. A reboot takes longer, so the next boot's clock, which starts
# above them, is not ahead of time.
RESERVE = 2_000_000

Execute = Callable[..., Any]


class Fences(Protocol):
    """How one session numbers its fences."""

    last: int  # the last one handed out

    def begin(self, execute: Execute) -> None:
        """A transaction has begun."""

    def next(self) -> int | None:
        """The next fence; None if some must be reserved first."""

    def several(self, count: int) -> range | None:
        """The next ones, as many as that; None if some must be reserved first, or each must be requested."""

    def reserve(self, execute: Execute) -> int:
        """The next fence, with room for more, inside a transaction."""

    def commit(self, execute: Execute) -> None:
        """The transaction is about to commit: from now on nobody else is given one of these fences."""


class ClockFences:
    """The boot clock as the counter."""

    def __init__(self, tick: Callable[[], int], base: int) -> None:
        self._tick = tick
        self._base = base
        self.last = 0
        self._bound = 0  # greatest fence that this session knows to be reserved

    def begin(self, execute: Execute) -> None: ...

    def next(self) -> int | None:
        fence = self._base + self._tick()
        if self.last < fence <= self._bound:  # the usual case
            self.last = fence
            return fence
        if fence <= self.last < self._bound:
            self.last += 1
            return self.last
        return None

    def several(self, count: int) -> range | None:
        fences = range(first := max(self.last + 1, self._base + self._tick()), first + count)
        if fences.stop > self._bound:
            return None
        self.last = fences[-1]
        return fences

    def reserve(self, execute: Execute) -> int:
        fence = max(self.last + 1, self._base + self._tick())
        self._bound = fence + RESERVE
        execute(SQL["reserve_fences"], (self._bound,))
        self.last = fence
        return fence

    def commit(self, execute: Execute) -> None:
        while self._base + self._tick() <= self.last:
            pass  # a batch that used more fences than µs: the clock passes them in less time than the commit takes


class CountedFences:
    """A counter in the file, at least the wall clock."""

    def __init__(self, wall: Callable[[], int]) -> None:
        self._wall = wall
        self._stored = self.last = 0

    def begin(self, execute: Execute) -> None:
        self._stored = self.last = execute(SQL["meta"]).fetchone()[2]

    def next(self) -> int:
        self.last = max(self.last + 1, self._wall())
        return self.last

    def several(self, count: int) -> None: ...

    def reserve(self, execute: Execute) -> int:
        return self.next()

    def commit(self, execute: Execute) -> None:
        if self.last != self._stored:
            execute(SQL["reserve_fences"], (self.last,))


def fences_for(readings: Readings, base: int) -> Fences:
    """The way of numbering that these clocks allow."""
    return CountedFences(readings.wall) if readings.tick is None else ClockFences(readings.tick, base)


def fence_function(fences: Fences, swallowed: list[BaseException]) -> Callable[[], int | None]:
    """`fences.next` for use in SQL: what a signal handler raises meanwhile is kept, and the answer is None.

    sqlite3 would swallow it, and a signal that comes while a statement waits for other processes is handled here, where
    Python runs again for the first time: in a function before any `try` of its own, in a generator behind its `yield`.
    """
    answers = _answers(fences, swallowed)
    next(answers)
    return answers.__next__


def _answers(fences: Fences, swallowed: list[BaseException]) -> Iterator[int | None]:
    fence = None
    while True:
        try:
            while True:
                yield fence
                fence = fences.next()
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 - the session raises it
            swallowed.append(error)
            fence = None
