"""Slots: only so many threads at a time may do something, and the others wait in the order in which they came."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque


class ThreadSlots:
    """A number of slots. Neither taking a free one nor giving it back takes a lock, since every op does it.

    Lists and deques change in one step, so each slot is either free or taken once, whatever happens in between.
    """

    def __init__(self, count: int) -> None:
        self._free = [True] * count
        self._queue: deque[LockType] = deque()

    def take(self) -> bool:
        """True if a slot was free and nobody waits for one: it is then to be given back."""
        if self._queue:
            return False
        try:
            return self._free.pop()
        except IndexError:
            return False

    def give(self) -> None:
        """Gives a slot back: to the first of the queue, if there is one."""
        self._free.append(True)
        if self._queue:
            self.hand_out()

    def hand_out(self) -> None:
        """Gives slots that are free to the first of the queue."""
        while self._queue:
            try:
                self._free.pop()
            except IndexError:
                return
            try:
                first = self._queue.popleft()
            except IndexError:  # it has just left; another one may have come
                self._free.append(True)
            else:
                first.release()

    def wait(self, within: float) -> bool:
        """True if a slot came in so many seconds: it is then to be given back."""
        with self.join() as place:
            place.keeps = place.comes(within)
        return place.keeps

    def join(self) -> QueuePlace:
        """A place in the queue, which is left with its context; a slot that came is then given back."""
        return QueuePlace(self, self._queue)


class QueuePlace:
    """A place in the queue for a slot: a lock that is released when the slot comes."""

    def __init__(self, slots: ThreadSlots, queue: deque[LockType]) -> None:
        self._slots = slots
        self._queue = queue
        self._lock = allocate_lock()
        self.keeps = False  # the slot that came, beyond the context

    def __enter__(self) -> QueuePlace:
        self._lock.acquire()
        self._queue.append(self._lock)
        self._slots.hand_out()
        return self

    def comes(self, within: float) -> bool:
        """True once, when the slot has come; False if it did not in so many seconds."""
        return self._lock.acquire(timeout=max(0.0, within))

    def __exit__(self, *_: object) -> None:
        try:
            self._queue.remove(self._lock)
        except ValueError:  # its slot came
            if not self.keeps:
                self._slots.give()
