"""Taken items of a queue, for threads and for asyncio."""

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
    """The delay of an item in float seconds; raises InvalidInput if it is out of bounds."""
    return seconds("delay", delay, least=0.0, most=MAX_TTL)


class ItemBase:
    """An item that this caller has until its lease expires; then another caller may take it.

    It was taken `attempts` times, this time included. `fence` is that of its push, so it is the same for every taker.
    `fresh`: pushed by the call that returned it (`push_held`), and not by an earlier one. `stored` is its bytes in the
    store, as of an `ItemInfo`.
    """

    def __init__(self, queue: str, taken: TakenItem) -> None:
        self.queue = queue
        self.id = taken.id
        self.payload: Any = taken.payload
        self.attempts = taken.attempts
        self.fence = taken.fence
        self.fresh = taken.fresh
        self.stored = taken.stored
        self._owner = taken.owner
        self._deadline = taken.deadline
        self._process = os.getpid()
        self._settled = False  # acked or given back

    def remaining(self) -> float:
        """Seconds that no other caller can take it; 0 after its lease expired, an ack, a give_back or a fork."""
        return 0.0 if self._is_over() else max(0.0, self._deadline - local_clock())

    def _is_over(self) -> bool:
        """True if the end of the block has nothing to do: it was settled before, or belongs to the parent of a fork."""
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
        """Ends a block that succeeded: raises LeaseLost if another caller has the item, and so repeats the work, or if
        the store lost it."""
        if not gone:
            why = "its lease expired, or the store no longer had it"
            text = f"item {self.id!r} of queue {self.queue!r} was lost: {why}; another caller may repeat the work"
            raise LeaseLost(text, key=self.id)

    def _not_returned(self, failure: Exception) -> None:
        facts = {"queue": self.queue, "id": self.id, "error": str(failure)}
        log.warning(
            "give_back_failed: item %(id)r of queue %(queue)r comes back only when its lease expires: %(error)s",
            facts,
            extra=facts,
        )

    def __repr__(self) -> str:  # without the owner, which is a secret
        state = "settled" if self._settled else f"{self.remaining():.1f} s left"
        return f"<{type(self).__name__} {self.id!r} of {self.queue!r} attempts={self.attempts} {state}>"


class Item(ItemBase):
    """A taken item, for threads. As a context manager it is acked on success and given back on error."""

    def __init__(self, queue: str, taken: TakenItem, run: RunFlow) -> None:
        super().__init__(queue, taken)
        self._run = run

    def ack(self) -> bool:
        """Removes the item, since its work is done. True if it is removed, also after its lease expired; False if
        another caller took it, it was given back, or the store lost its data. Safe to repeat."""
        return self._run(self._acking())

    def give_back(self, *, delay: Seconds = 0.0) -> bool:
        """Returns the item to the queue, available after `delay` seconds; False if this caller no longer had it."""
        return self._run(self._returning(delay))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_over():
            return
        if error is None:
            self._left(self.ack())
            return
        try:
            self.give_back()
        except (StoreError, ClientClosed) as failure:
            self._not_returned(failure)


class AsyncItem(ItemBase):
    """A taken item, for asyncio. As a context manager it is acked on success and given back on error."""

    def __init__(self, queue: str, taken: TakenItem, run: AsyncRunFlow) -> None:
        super().__init__(queue, taken)
        self._run = run

    async def ack(self) -> bool:
        """Removes the item, since its work is done. True if it is removed, also after its lease expired; False if
        another caller took it, it was given back, or the store lost its data. Safe to repeat."""
        return await self._run(self._acking())

    async def give_back(self, *, delay: Seconds = 0.0) -> bool:
        """Returns the item to the queue, available after `delay` seconds; False if this caller no longer had it."""
        return await self._run(self._returning(delay))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_over():
            return
        if error is None:
            self._left(await self.ack())
            return
        try:
            await self.give_back()
        except (StoreError, ClientClosed) as failure:
            self._not_returned(failure)
