"""Items of a queue in the hands of their taker, for threads and for asyncio."""

from __future__ import annotations

import logging
import os
from typing import Any, Self

from ..errors import ClientClosed, LeaseLost, StoreError
from ..flow import Flow
from ..leases.context import AsyncRunFlow, RunFlow
from ..rules import MAX_TTL, Seconds, local_clock, seconds
from . import flow as flows
from .flow import TakenItem

log = logging.getLogger("solely")


def delay_seconds(delay: Seconds) -> float:
    """For how long an item stays hidden, in float seconds; else InvalidInput."""
    return seconds("delay", delay, least=0.0, most=MAX_TTL)


class ItemBase:
    """An item that this caller has until its lease runs out; then another may take it.

    `attempts` counts how often it was taken, this time included. `fence` is that of its push, so it is the same for all
    who take it. `fresh`: put in by the call that answered it (`push_held`), and not by another before.
    """

    def __init__(self, queue: str, taken: TakenItem) -> None:
        self.queue = queue
        self.id = taken.id
        self.payload: Any = taken.payload
        self.attempts = taken.attempts
        self.fence = taken.fence
        self.fresh = taken.fresh
        self._owner = taken.owner
        self._deadline = taken.deadline
        self._process = os.getpid()
        self._settled = False  # acked or given back

    def remaining(self) -> float:
        """Seconds that nobody else can take it; 0 if its lease ran out, it was acked or given back, or after a fork."""
        return 0.0 if self._leaves_it() else max(0.0, self._deadline - local_clock())

    def _leaves_it(self) -> bool:
        """True if the end of the block has nothing to do: it was done inside, or is the parent's of a fork."""
        return self._settled or self._process != os.getpid()

    def _acking(self) -> Flow[bool]:
        gone = yield from flows.ack(flows.queue_of(self.queue), self.id, self._owner, self.fence)
        self._settled = True
        return gone

    def _returning(self, delay: Seconds) -> Flow[bool]:
        return self._returned(flows.give_back(flows.queue_of(self.queue), self.id, self._owner, delay_seconds(delay)))

    def _returned(self, flow: Flow[bool]) -> Flow[bool]:
        back = yield from flow
        self._settled = True
        return back

    def _left(self, gone: bool) -> None:
        """The end of a block that succeeded: raises LeaseLost if another has the item, and so does its work again, or
        if the store lost it."""
        if not gone:
            why = "its lease ran out, or the store no longer had it"
            text = f"item {self.id!r} of queue {self.queue!r} was lost: {why}; another may do it again"
            raise LeaseLost(text, key=self.id)

    def _not_returned(self, failure: Exception) -> None:
        facts = {"queue": self.queue, "id": self.id, "error": str(failure)}
        log.warning(
            "give_back_failed: item %(id)r of queue %(queue)r comes back only when its lease is over: %(error)s",
            facts,
            extra=facts,
        )

    def __repr__(self) -> str:  # without the owner, which is a secret
        state = "settled" if self._settled else f"{self.remaining():.1f} s left"
        return f"<{type(self).__name__} {self.id!r} of {self.queue!r} attempts={self.attempts} {state}>"


class Item(ItemBase):
    """An item in hand, for threads. As a context manager it is acked on success and given back on error."""

    def __init__(self, queue: str, taken: TakenItem, run: RunFlow) -> None:
        super().__init__(queue, taken)
        self._run = run

    def ack(self) -> bool:
        """It is done: takes it out. True if it is gone from the queue, also after its lease ran out; False if another
        took it since, it was given back, or the store lost its data. Safe to repeat."""
        return self._run(self._acking())

    def give_back(self, *, delay: Seconds = 0.0) -> bool:
        """It is not done: anybody may take it, from `delay` seconds on. False if it was no longer this caller's."""
        return self._run(self._returning(delay))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._leaves_it():
            return
        if error is None:
            self._left(self.ack())
            return
        try:
            self.give_back()
        except (StoreError, ClientClosed) as failure:
            self._not_returned(failure)


class AsyncItem(ItemBase):
    """An item in hand, for asyncio. As a context manager it is acked on success and given back on error."""

    def __init__(self, queue: str, taken: TakenItem, run: AsyncRunFlow) -> None:
        super().__init__(queue, taken)
        self._run = run

    async def ack(self) -> bool:
        """It is done: takes it out. True if it is gone from the queue, also after its lease ran out; False if another
        took it since, it was given back, or the store lost its data. Safe to repeat."""
        return await self._run(self._acking())

    async def give_back(self, *, delay: Seconds = 0.0) -> bool:
        """It is not done: anybody may take it, from `delay` seconds on. False if it was no longer this caller's."""
        return await self._run(self._returning(delay))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._leaves_it():
            return
        if error is None:
            self._left(await self.ack())
            return
        try:
            await self.give_back()
        except (StoreError, ClientClosed) as failure:
            self._not_returned(failure)
