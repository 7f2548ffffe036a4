"""Callers of one process that want the same busy key: one of them at a time asks for all, in one statement and one
commit. A commit waits for the disk, so that a thousand of them, one after the other, would outlast every timeout.
"""

from __future__ import annotations

import asyncio
import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from ...errors import StoreError, StoreUnavailable, Unanswered, copied
from ...ops import MAX_BATCH, URGENT, Op
from .. import Answers
from . import codec
from .batch import answers
from .codec import Values
from .faults import KeyBusy

T = TypeVar("T")
Now = Callable[[], int | None]
Statements = Generator[tuple[str, Values], Any, T]

# Who has less than this share of the asker's time left does not go along with it: a statement waits no longer than the
# most hurried of its callers can.
ALIKE = 0.5


def busy() -> KeyBusy:
    """The reply to an op whose key is busy: nothing was performed. Not raised."""
    return KeyBusy("another transaction that has not ended decides on this key")


class BusyOps:
    """Ops of one caller, of which some met a busy key: KeyBusy is their reply until they have another one."""

    def __init__(self, ops: Sequence[Op], replies: Answers, places: list[int], patience: float) -> None:
        self.ops, self.replies, self.places = ops, replies, places
        self.ends = time.monotonic() + patience
        self.gone = False  # True once its caller has left: then nothing more of it is sent
        for place in places:
            replies[place] = busy()

    @property
    def key(self) -> str:
        """The name of the lock that its first busy op waits for."""
        return codec.lock_name(self.ops[self.places[0]])

    def rank(self) -> bool:
        """What renews or releases sorts before what does not."""
        return type(self.ops[self.places[0]]) not in URGENT

    @property
    def left(self) -> float:
        return self.ends - time.monotonic()

    @property
    def waits(self) -> bool:
        """True while an op is busy, and there is time to wait for it."""
        return bool(self.places) and self.left > 0

    def note(self, places: list[int], replies: Answers) -> None:
        """Notes the replies to ops that were asked for again, which were the first of the busy ones."""
        for place, reply in zip(places, replies, strict=True):
            self.replies[place] = copied(reply) if isinstance(reply, StoreError) else reply
        still = [place for place in places if isinstance(self.replies[place], KeyBusy)]
        self.places = still + self.places[len(places) :]  # last: who sees that none is busy finds all replies


class SharedBatch:
    """The busy ops of several callers, as far as they fit into one statement."""

    def __init__(self, requests: Sequence[BusyOps]) -> None:
        self.requests = requests
        self._shares: list[tuple[BusyOps, list[int]]] = []
        self._ops: list[Op] = []
        for request in requests:
            places = request.places[: MAX_BATCH - len(self._ops)]
            self._shares.append((request, places))
            self._ops += [request.ops[place] for place in places]

    def statements(self, waits: bool, now: Now) -> Statements[None]:
        """Performs it: is sent each statement's result, or its StoreError, and notes the replies.

        If it `waits`, it does so for one key, before it has locked any: nobody waits who keeps others waiting.
        """
        ops, first = self._ops, codec.lock_name(self._ops[0])
        patience = max(1, int(min(request.left for request in self.requests) * 1000)) if waits else None
        replies = yield from _performed(ops, patience, now)
        if waits and all(isinstance(reply, KeyBusy) for reply in replies):  # it has waited in vain
            others = [place for place, op in enumerate(ops) if codec.lock_name(op) != first]
            if others:
                again = yield from _performed([ops[place] for place in others], None, now)
                for place, reply in zip(others, again, strict=True):
                    replies[place] = reply
        self.note(replies)

    def note(self, replies: Answers) -> None:
        start = 0
        for request, places in self._shares:
            end = start + len(places)
            request.note(places, replies[start:end])
            start = end

    def doubt(self, why: str) -> None:
        """Notes that it may or may not have been performed."""
        self.note([Unanswered(why) for _ in self._ops])


def _performed(ops: Sequence[Op], patience: int | None, now: Now) -> Statements[Answers]:
    """The replies to the ops, performed by one statement; KeyBusy for those whose keys are busy."""
    if len(ops) == 1:
        return _replies(ops, (yield codec.lone(ops[0], now(), patience)))
    result = yield codec.in_turn(ops, now(), patience)
    if not isinstance(result, StoreError) or isinstance(result, StoreUnavailable):
        return _replies(ops, result)
    replies: Answers = []  # one op may have failed the statement for all
    for op in ops:
        replies += _replies([op], (yield codec.lone(op, now(), patience)))
    return replies


def _replies(ops: Sequence[Op], result: Any) -> Answers:
    if isinstance(result, StoreError):
        return [result] * len(ops)
    places: list[int] = []
    replies = answers(ops, result, places)
    for place in places:
        replies[place] = busy()
    return replies


class KeyLine(Generic[T]):
    """Who waits for one key. Only who has its turn takes from it."""

    def __init__(self, turn: T) -> None:
        self.turn = turn
        self.members = 0
        self._waiting: list[BusyOps] = []
        self._mutex = threading.Lock()

    def add(self, request: BusyOps) -> None:
        with self._mutex:
            self._waiting.append(request)

    def remove(self, request: BusyOps) -> bool:
        """False if it was not in line: it was answered, or somebody asks for it now."""
        with self._mutex:
            return self._remove(request)

    def _remove(self, request: BusyOps) -> bool:
        there = request in self._waiting
        if there:
            self._waiting.remove(request)
        return there

    def take(self, asker: BusyOps) -> SharedBatch:
        """The asker's ops with those of others, as many as fit; what renews or releases comes first."""
        least, room = asker.left * ALIKE, MAX_BATCH - len(asker.places)
        taken, left = [asker], list[BusyOps]()
        with self._mutex:
            self._remove(asker)
            for request in sorted(self._waiting, key=BusyOps.rank):
                if len(request.places) <= room and request.left >= least:
                    taken.append(request)
                    room -= len(request.places)
                else:
                    left.append(request)
            self._waiting = left
        return SharedBatch(sorted(taken, key=BusyOps.rank))

    def put_back(self, batch: SharedBatch) -> None:
        """Those of the batch whose keys are busy still, and whose callers still wait, are the first again."""
        with self._mutex:
            self._waiting[:0] = [request for request in batch.requests if request.places and not request.gone]


class KeyLines(Generic[T]):
    """The lines of all busy keys, each there as long as somebody is in it."""

    def __init__(self, new_turn: Callable[[], T]) -> None:
        self._new_turn = new_turn
        self._lines: dict[str, KeyLine[T]] = {}
        self._mutex = threading.Lock()

    def __contains__(self, op: Op) -> bool:
        """True if somebody waits for the key of this op."""
        return bool(self._lines) and codec.lock_name(op) in self._lines

    @contextmanager
    def joined(self, request: BusyOps) -> Iterator[KeyLine[T]]:
        """The line of the request's key, with the request in it."""
        key = request.key
        with self._mutex:
            line = self._lines.setdefault(key, KeyLine(self._new_turn()))
            line.members += 1
        try:
            line.add(request)
            yield line
        finally:
            line.remove(request)
            with self._mutex:
                line.members -= 1
                if not line.members:
                    del self._lines[key]


class BusyKeys(KeyLines[LockType]):
    """For threads."""

    def __init__(self, timeout: float) -> None:
        super().__init__(allocate_lock)
        self._timeout = timeout  # of a statement

    def wait(self, request: BusyOps, ask: Callable[[KeyLine[LockType], BusyOps], None]) -> None:
        """Returns when all its ops have a reply other than KeyBusy, or its time is over. `ask` is called by one thread
        at a time of those that are in a line; Unanswered if it does not return."""
        try:
            while request.waits:
                with self.joined(request) as line:
                    self._wait_in(line, request, ask)
        finally:
            request.gone = True

    def _wait_in(
        self, line: KeyLine[LockType], request: BusyOps, ask: Callable[[KeyLine[LockType], BusyOps], None]
    ) -> None:
        if line.turn.acquire(timeout=max(0.0, request.left)):
            try:
                if request.waits:
                    ask(line, request)
            finally:
                line.turn.release()
        elif not line.remove(request) and request.places:
            if not line.turn.acquire(timeout=self._timeout):  # somebody asked for it just now
                raise Unanswered("another thread asked for this, and got no answer in time")
            line.turn.release()


class AsyncBusyKeys(KeyLines[asyncio.Lock]):
    """For tasks of one loop."""

    def __init__(self) -> None:
        super().__init__(asyncio.Lock)

    async def wait(self, request: BusyOps, ask: Callable[[KeyLine[asyncio.Lock], BusyOps], Awaitable[None]]) -> None:
        """Returns when all its ops have a reply other than KeyBusy, or its time is over. `ask` is called by one task at
        a time of those that are in a line."""
        try:
            while request.waits:
                with self.joined(request) as line:
                    await self._wait_in(line, request, ask)
        finally:
            request.gone = True

    async def _wait_in(
        self,
        line: KeyLine[asyncio.Lock],
        request: BusyOps,
        ask: Callable[[KeyLine[asyncio.Lock], BusyOps], Awaitable[None]],
    ) -> None:
        try:
            async with asyncio.timeout(request.left):
                await line.turn.acquire()
        except TimeoutError:
            if line.remove(request) or not request.places:
                return
            await line.turn.acquire()  # somebody asked for it just now
            line.turn.release()
            return
        try:
            if request.waits:
                await ask(line, request)
        finally:
            line.turn.release()
