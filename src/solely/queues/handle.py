"""Queues: work that waits in the store until somebody takes it, does it, and says so."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, TypeVar

from ..dead_letters.flow import letter
from ..errors import InvalidInput, Unreadable
from ..events import DeadLettered
from ..flow import Flow
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..model import Item as Leased
from ..model import item_key
from ..ops import Push
from ..resilience.guard import guarded
from ..rules import Seconds, checked_name, ttl_seconds
from . import flow as flows
from .flow import ItemInfo, TakenItem
from .item import AsyncItem, Item, delay_seconds

log = logging.getLogger("solely")

T = TypeVar("T")
ItemInfos = list[ItemInfo]
MOST_LISTED = 1_000  # items in one call: what a page of an admin's list shows, many times over


class QueueBase:
    """What both handles decide alike; asking is theirs. Nothing here goes on without a store that is away: what is not
    kept would be lost."""

    def __init__(self, context: Context, name: str) -> None:
        self.name = checked_name("queue", name)
        self._queue = flows.queue_of(name)
        self._context = context

    def _pushing(self, id: str, payload: Any, delay: Seconds) -> Flow[bool]:
        named, body = checked_name("id", id), flows.body_of(payload)
        return self._asking(flows.push(self._queue, named, body, delay_seconds(delay)))

    def _pushing_held(self, id: str, payload: Any, ttl: Seconds) -> Flow[TakenItem | None]:
        named, body = checked_name("id", id), flows.body_of(payload)
        return self._asking(flows.push_held(self._queue, named, body, ttl_seconds(ttl), self._park))

    def _taking(self, ttl: Seconds, id: str) -> Flow[TakenItem | None]:
        named = "" if id == "" else checked_name("id", id)
        return self._asking(flows.take(self._queue, ttl_seconds(ttl), self._park, named))

    def _listing(self, after: str, limit: Any) -> Flow[list[ItemInfo]]:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_LISTED:
            raise InvalidInput(f"limit must be an int from 1 to {MOST_LISTED}, not {limit!r:.80}")
        return self._asking(flows.page(self._queue, "" if after == "" else checked_name("after", after), limit))

    def _reading(self, id: str) -> Flow[ItemInfo | None]:
        return self._asking(flows.read(self._queue, checked_name("id", id)))

    def _park(self, item: Leased, why: Unreadable) -> Push | None:
        """The op that parks it as a dead letter, of the group that is named as this queue; None if it is too large."""
        facts = {"queue": self.name, "id": item.id, "error": str(why)}
        log.warning("item_unreadable: item %(id)r of %(queue)r becomes a dead letter: %(error)s", facts, extra=facts)
        named, origin = f"unreadable-{item.fence}", f"item {item.id!r:.80}"
        try:
            op = letter(self.name, item.payload, error=why, at=datetime.now(UTC), origin=origin, id=named)
        except InvalidInput:
            return None
        if self._context.hook is not None:
            self._context.hook(DeadLettered(item_key(op.queue, op.id), self.name, 1))
        return op

    def _asking(self, flow: Flow[T]) -> Flow[T]:
        breaker = self._context.breaker
        return flow if breaker is None else guarded(flow, breaker, self._queue)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Queue(QueueBase):
    """The queue of one name, for threads."""

    def __init__(self, context: Context, run: RunFlow, name: str) -> None:
        super().__init__(context, name)
        self._run = run

    def push(self, id: str, payload: Any, *, delay: Seconds = 0.0) -> bool:
        """Puts an item in, to be taken from `delay` seconds on. True if put in, False if an item of this id is there:
        it stays as it is. The payload is bytes or JSON-able, at most 256 KiB."""
        return self._run(self._pushing(id, payload, delay))

    def push_held(self, id: str, payload: Any, *, ttl: Seconds) -> Item | None:
        """Puts an item in and takes it, in one step where the store can; or takes the one that waits under this id,
        which then is not `fresh`. None if somebody has that one, or it is delayed: it is in the queue in any case."""
        taken = self._run(self._pushing_held(id, payload, ttl))
        return None if taken is None else Item(self.name, taken, self._run)

    def take(self, *, ttl: Seconds, id: str = "") -> Item | None:
        """The item that has waited longest, or the one named, for `ttl` seconds; None if none may be taken now.

        Not acked or given back by then, it can be taken by another.
        """
        taken = self._run(self._taking(ttl, id))
        return None if taken is None else Item(self.name, taken, self._run)

    def list(self, *, after: str = "", limit: int = 100) -> ItemInfos:
        """The items with an id greater than `after`, in the order of ids, whoever has them."""
        return self._run(self._listing(after, limit))

    def read(self, id: str) -> ItemInfo | None:
        """The item of this id, whoever has it; None if there is none."""
        return self._run(self._reading(id))


class AsyncQueue(QueueBase):
    """The queue of one name, awaited."""

    def __init__(self, context: Context, run: AsyncRunFlow, name: str) -> None:
        super().__init__(context, name)
        self._run = run

    async def push(self, id: str, payload: Any, *, delay: Seconds = 0.0) -> bool:
        """Puts an item in, to be taken from `delay` seconds on. True if put in, False if an item of this id is there:
        it stays as it is. The payload is bytes or JSON-able, at most 256 KiB."""
        return await self._run(self._pushing(id, payload, delay))

    async def push_held(self, id: str, payload: Any, *, ttl: Seconds) -> AsyncItem | None:
        """Puts an item in and takes it, in one step where the store can; or takes the one that waits under this id,
        which then is not `fresh`. None if somebody has that one, or it is delayed: it is in the queue in any case."""
        taken = await self._run(self._pushing_held(id, payload, ttl))
        return None if taken is None else AsyncItem(self.name, taken, self._run)

    async def take(self, *, ttl: Seconds, id: str = "") -> AsyncItem | None:
        """The item that has waited longest, or the one named, for `ttl` seconds; None if none may be taken now.

        Not acked or given back by then, it can be taken by another.
        """
        taken = await self._run(self._taking(ttl, id))
        return None if taken is None else AsyncItem(self.name, taken, self._run)

    async def list(self, *, after: str = "", limit: int = 100) -> ItemInfos:
        """The items with an id greater than `after`, in the order of ids, whoever has them."""
        return await self._run(self._listing(after, limit))

    async def read(self, id: str) -> ItemInfo | None:
        """The item of this id, whoever has it; None if there is none."""
        return await self._run(self._reading(id))
