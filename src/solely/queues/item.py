"""Taken items of a queue, for threads and for asyncio."""

from __future__ import annotations

import os
from time import time
from typing import Any, Self

from ..errors import ClientClosed, LeaseLost, StoreError
from ..flow import Flow
from ..leases.context import AsyncRunFlow, RunFlow
from ..leases.token import Token, write_token
from ..logs import get_logger
from ..rules import MAX_TTL, Seconds, local_clock, seconds, ttl_seconds
from . import flow as flows
from .flow import TakenItem

log = get_logger()


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
        self._ttl = taken.ttl
        self._deadline = taken.deadline
        self._process = os.getpid()
        self._settled = False  # acked or given back
        self._handed_over = False

    def remaining(self) -> float:
        """Seconds that no other caller can take it; 0 after its lease expired, an ack, a give_back, a hand_over or a
        fork."""
        return 0.0 if self._is_over() else max(0.0, self._deadline - local_clock())

    def hand_over(self) -> str:
        """Stops relying on the item here, without giving it back; returns the token with which one other process
        resumes it, and any process settles it (`item_of`). A secret."""
        self._handed_over = True
        since = time() - max(0.0, self._ttl - (self._deadline - local_clock()))
        return write_token(Token(f"item/{self.id}", self._owner, self._ttl, self.fence, since))

    def _is_over(self) -> bool:
        """True if the end of the block has nothing to do: it was settled or handed over before, or belongs to the
        parent of a fork."""
        return self._settled or self._handed_over or self._process != os.getpid()

    def _renewing(self, ttl: Seconds | None) -> Flow[None]:
        """Extends the lease now; raises LeaseLost if another caller may have the item, or this one settled it."""
        wanted = self._ttl if ttl is None else ttl_seconds(ttl)
        ends = None
        if not self._is_over():
            ends = yield from flows.renew(flows.queue_of(self.queue), self.id, self._owner, wanted)
        self._check_kept(ends is not None)
        self._deadline, self._ttl = ends or 0.0, wanted

    def _acking(self) -> Flow[bool]:
        if self._handed_over:
            return False
        gone = yield from flows.ack(flows.queue_of(self.queue), self.id, self._owner, self.fence)
        self._settled = True
        return gone

    def _returning(self, delay: Seconds, uncounted: bool) -> Flow[bool]:
        queue, pause = flows.queue_of(self.queue), delay_seconds(delay)
        return self._returned(flows.give_back(queue, self.id, self._owner, pause, bool(uncounted)))

    def _returned(self, flow: Flow[bool]) -> Flow[bool]:
        if self._handed_over:
            return False
        back = yield from flow
        self._settled = True
        return back

    def _check_kept(self, kept: bool) -> None:
        """Raises LeaseLost if the item was not this caller's any more: another one has it, and so repeats the work, or
        the store lost it."""
        if not kept:
            why = "its lease expired, it was resumed by its token, or the store no longer had it"
            if self._is_over():
                why = "it was acked, given back, handed over, or taken before a fork"
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

    def give_back(self, *, delay: Seconds = 0.0, uncounted: bool = False) -> bool:
        """Returns the item to the queue, available after `delay` seconds; False if this caller no longer had it.

        `uncounted`: this take is no attempt, since the work did not fail: something else was unavailable.
        """
        return self._run(self._returning(delay, uncounted))

    def renew(self, ttl: Seconds | None = None) -> None:
        """Extends the lease to `ttl` seconds from now, by default that of the take, and never shortens it; raises
        LeaseLost if another caller may have the item."""
        self._run(self._renewing(ttl))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_over():
            return
        if error is None:
            self._check_kept(self.ack())
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

    async def give_back(self, *, delay: Seconds = 0.0, uncounted: bool = False) -> bool:
        """Returns the item to the queue, available after `delay` seconds; False if this caller no longer had it.

        `uncounted`: this take is no attempt, since the work did not fail: something else was unavailable.
        """
        return await self._run(self._returning(delay, uncounted))

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Extends the lease to `ttl` seconds from now, by default that of the take, and never shortens it; raises
        LeaseLost if another caller may have the item."""
        await self._run(self._renewing(ttl))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_over():
            return
        if error is None:
            self._check_kept(await self.ack())
            return
        try:
            await self.give_back()
        except (StoreError, ClientClosed) as failure:
            self._not_returned(failure)
