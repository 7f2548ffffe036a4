"""Collects the ops that tasks issue in one turn of the loop, and sends them as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..errors import StoreError, StoreUnavailable, Unanswered
from ..ops import MAX_BATCH, MAX_BATCH_BYTES, URGENT, Op
from ..rules import local_clock
from ..stores import AsyncStore
from .retrying import HEAVY, weight

FEW = 4  # longest list whose ops share a batch with those of other tasks; a longer list is a batch of its own

Submitted = tuple[Op, "asyncio.Future[Any] | _Share"]
Then = Callable[[float, "asyncio.Future[Any]"], None]  # called with the time of sending and the outcome of a batch


class _Together:
    """A short list of ops, resolved once all of them are answered; `sent` is the time of the first."""

    def __init__(self, future: asyncio.Future[Any], count: int) -> None:
        self.future = future
        self.replies: list[Any] = [None] * count
        self.left = count
        self.sent = local_clock()


class _Share:
    """The place of one op in its list; resolved like a future."""

    __slots__ = ("_place", "_together")

    def __init__(self, together: _Together, place: int) -> None:
        self._together = together
        self._place = place

    def done(self) -> bool:
        return self._together.future.done()

    def set_result(self, answer: tuple[Any, float]) -> None:
        together = self._together
        together.replies[self._place] = answer[0]
        together.left -= 1
        if not together.left:
            together.future.set_result((together.replies, together.sent))

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            self.set_result((error, 0.0))
        else:
            self._together.future.set_exception(error)


class Batcher:
    """Collects the ops of one turn of the loop. A lone op is not delayed; no cancellation of a caller stops a batch.

    A batch without an answer after `patience` seconds fails with Unanswered; the store goes on with it.
    """

    def __init__(self, store: AsyncStore, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self._store = store
        self.loop = loop
        self._patience = patience
        self._urgent: list[Submitted] = []
        self._pending: list[Submitted] = []
        self._heavy = False  # True if a pending op carries a body
        self._due = False  # True if a flush is scheduled for the end of this turn
        self._portion = store.portion
        self._room = self._portion  # ops that still fit before the next flush
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._awaited: dict[asyncio.Future[Any], tuple[float, float, Then]] = {}  # of those: deadline, sent, callback
        self._watch: asyncio.TimerHandle | None = None  # one timer for all batches

    def submit(self, op: Op, share: _Share | None = None) -> Any:
        """A future of (reply, time of sending), or the given share, which then gets the reply."""
        waiter: asyncio.Future[Any] | _Share = asyncio.Future(loop=self.loop) if share is None else share
        kind = type(op)
        if kind in URGENT:
            self._urgent.append((op, waiter))
        else:
            self._pending.append((op, waiter))
            if kind in HEAVY:
                self._heavy = True
        if not self._due:
            self._due = True
            self.loop.call_soon(self._end_turn)
        self._room -= 1
        if not self._room:
            self._flush()  # so that the store works on these while the other tasks of this turn run
        return waiter

    def submit_all(self, ops: list[Op]) -> asyncio.Future[Any]:
        """A future of (replies, time of sending). A short list shares a batch with the ops of other tasks; a long one
        is sent at once as a batch of its own."""
        future: asyncio.Future[Any] = self.loop.create_future()
        if not 0 < len(ops) <= FEW:
            self._perform(ops, lambda sent, done: self._all_answered(ops, future, sent, done), awaited=True)
            return future
        if len(ops) > self._room:
            self._flush()  # so that they stay in one batch
        together = _Together(future, len(ops))
        for place, op in enumerate(ops):
            self.submit(op, _Share(together, place))
        return future

    def _all_answered(self, ops: list[Op], future: asyncio.Future[Any], sent: float, done: asyncio.Future[Any]) -> None:
        error = _error(done)
        if future.done():
            return
        if error is None:
            future.set_result((done.result(), sent))
        elif isinstance(error, StoreUnavailable) or not isinstance(error, StoreError):
            future.set_exception(error)
        else:  # one op may have failed the batch for all: retry each alone, under its own owner
            alone = asyncio.gather(*map(self.submit, ops), return_exceptions=True)
            alone.add_done_callback(lambda each: _settle(future, (_values(each), sent)))

    async def landed(self, within: float) -> bool:
        """True once every op submitted so far is answered or given up by the store; False after `within` seconds."""
        if self._pending or self._urgent:
            self._flush()
        if not self._in_flight:
            return True
        _, late = await asyncio.wait(set(self._in_flight), timeout=within)
        return not late

    def _end_turn(self) -> None:
        self._due = False
        if self._pending or self._urgent:
            self._flush()

    def _flush(self) -> None:
        waiting = self._urgent + self._pending if self._urgent else self._pending
        heavy, self._urgent, self._pending, self._heavy = self._heavy, [], [], False
        self._room = self._portion
        if len(waiting) == 1 or (len(waiting) <= MAX_BATCH and not heavy):
            self._send(waiting)
            return
        batch: list[Submitted] = []
        size = 0
        for one in waiting:
            more = weight(one[0])
            if batch and (len(batch) == MAX_BATCH or size + more > MAX_BATCH_BYTES):
                self._send(batch)
                batch, size = [], 0
            batch.append(one)
            size += more
        self._send(batch)

    def _send(self, batch: list[Submitted]) -> None:
        self._perform([op for op, _ in batch], lambda sent, done: self._answered(batch, sent, done))

    def _perform(self, ops: list[Op], then: Then, *, awaited: bool = False) -> None:
        """Performs the ops even if no caller waits any more, and passes the outcome to `then`; if `awaited`, in a later
        turn of the loop, so that a task that submits in a loop lets others run."""
        sent = local_clock()
        reply = self._store.perform(ops)
        answer = reply if isinstance(reply, asyncio.Future) else asyncio.ensure_future(reply)  # ensure_future is slow
        if answer.done() and not awaited:  # a store in memory
            then(sent, answer)
            return
        self._in_flight.add(answer)  # the loop itself keeps only weak references
        batches = -(-len(ops) // MAX_BATCH) or 1
        self._awaited[answer] = sent + self._patience * batches, sent, then
        if self._watch is None:
            self._watch = self.loop.call_later(self._patience, self._expire)
        answer.add_done_callback(self._landed)

    def _landed(self, answer: asyncio.Future[Any]) -> None:
        self._in_flight.discard(answer)
        known = self._awaited.pop(answer, None)
        if known is not None:
            known[2](known[1], answer)
        elif not answer.cancelled():
            answer.exception()  # too late for its caller; reading it keeps asyncio from logging it

    def _expire(self) -> None:
        """Fails the batches that have waited too long with Unanswered."""
        now = local_clock()
        late = [answer for answer, known in self._awaited.items() if known[0] <= now]
        for answer in late:
            _, sent, then = self._awaited.pop(answer)
            unanswered: asyncio.Future[Any] = self.loop.create_future()
            unanswered.set_exception(
                Unanswered(f"no answer within {now - sent:.1f} s; the store is busy or unreachable")
            )
            then(sent, unanswered)
        soonest = min((known[0] for known in self._awaited.values()), default=None)
        self._watch = None if soonest is None else self.loop.call_later(max(0.0, soonest - now), self._expire)

    def _answered(self, batch: list[Submitted], sent: float, answer: asyncio.Future[Any]) -> None:
        error = _error(answer)
        if error is None:
            for (_, future), reply in zip(batch, answer.result(), strict=True):
                if not future.done():
                    if isinstance(reply, StoreError):
                        future.set_exception(reply)
                    else:
                        future.set_result((reply, sent))
        elif isinstance(error, StoreUnavailable) or len(batch) == 1:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:  # one op may have failed the batch for all: retry each alone, under its own owner
            for one in batch:
                self._send([one])


def _error(done: asyncio.Future[Any]) -> BaseException | None:
    return Unanswered("the event loop cancelled the request") if done.cancelled() else done.exception()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _values(each: asyncio.Future[Any]) -> list[Any]:
    return [answer[0] if isinstance(answer, tuple) else answer for answer in each.result()]
