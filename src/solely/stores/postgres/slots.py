"""ThreadSlots: only so many threads at a time may do something, and the others wait in the order in which they came."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque


class ThreadSlots:
    """So many turns. To take one that is free, and to give it back, takes no lock: it is done for every op.

    Lists and deques change in one step, so each turn is either free, or taken by one, whoever comes between.
    """

    def __init__(self, count: int) -> None:
        self._free = [True] * count
        self._line: deque[LockType] = deque()

    def take(self) -> bool:
        """True if a turn was free and nobody waits for one: it is then to be given back."""
        if self._line:
            return False
        try:
            return self._free.pop()
        except IndexError:
            return False

    def give(self) -> None:
        """Gives a turn back: to the first of the line, if there is one."""
        self._free.append(True)
        if self._line:
            self.hand_out()

    def hand_out(self) -> None:
        """Gives turns that are free to the first of the line."""
        while self._line:
            try:
                self._free.pop()
            except IndexError:
                return
            try:
                first = self._line.popleft()
            except IndexError:  # it has just left; another one may have come
                self._free.append(True)
            else:
                first.release()

    def wait(self, within: float) -> bool:
        """True if a turn came in so many seconds: it is then to be given back."""
        with self.join() as place:
            place.keeps = place.comes(within)
        return place.keeps

    def join(self) -> PlaceInLine:
        """A place in the line, which is left with its context; a turn that came is then given back."""
        return PlaceInLine(self, self._line)


class PlaceInLine:
    """A place in the line for a turn: a lock that is released when the turn comes."""

    def __init__(self, turns: ThreadSlots, line: deque[LockType]) -> None:
        self._turns = turns
        self._line = line
        self._lock = allocate_lock()
        self.keeps = False  # the turn that came, beyond the context

    def __enter__(self) -> PlaceInLine:
        self._lock.acquire()
        self._line.append(self._lock)
        self._turns.hand_out()
        return self

    def comes(self, within: float) -> bool:
        """True once, when the turn has come; False if it did not in so many seconds."""
        return self._lock.acquire(timeout=max(0.0, within))

    def __exit__(self, *_: object) -> None:
        try:
            self._line.remove(self._lock)
        except ValueError:  # its turn came
            if not self.keeps:
                self._turns.give()
