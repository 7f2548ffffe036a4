"""Queues: work items that wait in the store until a caller takes them, does the work, and acks them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

from ..dead_letters.flow import letter
from ..errors import InvalidInput, Unreadable
from ..events import DeadLettered
from ..flow import Flow
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..leases.token import Token, read_token
from ..logs import get_logger
from ..model import LeasedItem, item_key
from ..ops import Push
from ..resilience.guard import guarded
from ..rules import Seconds, checked_name, local_clock, page_size, ttl_seconds, wait_seconds
from . import flow as flows
from .flow import ItemInfo, TakenItem
from .item import AsyncItem, Item, ItemBase, delay_seconds
from .waiting import TakeTerms, take

log = get_logger()

T = TypeVar("T")
ItemInfos = list[ItemInfo]
Seen = ItemInfo | ItemBase  # an item as the caller saw it


class QueueBase:
    """A queue, the same for threads and asyncio. It never proceeds without the store: an item that is not stored would
    be lost."""

    def __init__(self, context: Context, name: str) -> None:
        self.name = checked_name("queue", name)
        self._queue = flows.queue_of(name)
        self._context = context

    def _pushing(self, id: str, payload: Any, delay: Seconds) -> Flow[bool]:
        named, body = checked_name("id", id), flows.body_of(payload)
        return self._guarded(flows.push(self._queue, named, body, delay_seconds(delay)))

    def _pushing_held(self, id: str, payload: Any, ttl: Seconds) -> Flow[TakenItem | None]:
        named, body = checked_name("id", id), flows.body_of(payload)
        return self._guarded(flows.push_held(self._queue, named, body, ttl_seconds(ttl), self._park))

    def _taking(self, ttl: Seconds, wait: Seconds, id: str, max_attempts: int) -> Flow[TakenItem | None]:
        named, most, store = "" if id == "" else checked_name("id", id), _attempts(max_attempts), self._context.store
        terms = TakeTerms(ttl_seconds(ttl), wait_seconds(wait), most, store.client, store.polls)
        return self._guarded(take(self._queue, terms, self._park, named))

    def _resuming(self, token: str) -> Flow[TakenItem]:
        given, id = _item_token(token)
        return self._guarded(flows.resume(self._queue, id, given.owner, given.ttl))

    def _taken(self, token: str) -> TakenItem:
        """The item of the token, assuming that its taker still has it."""
        given, id = _item_token(token)
        ends = local_clock() + given.ttl
        return TakenItem(id, None, 0, given.fence, given.owner, ends, False, ttl=given.ttl)

    def _counting(self) -> Flow[int]:
        return self._guarded(flows.count(self._queue))

    def _listing(self, after: str, limit: Any) -> Flow[list[ItemInfo]]:
        size, start = page_size(limit), "" if after == "" else checked_name("after", after)
        return self._guarded(flows.page(self._queue, start, size))

    def _reading(self, id: str) -> Flow[ItemInfo | None]:
        return self._guarded(flows.read(self._queue, checked_name("id", id)))

    def _amending(self, id: str, payload: Any, expected: Seen) -> Flow[bool]:
        named, body = checked_name("id", id), flows.body_of(payload)
        return self._guarded(flows.amend(self._queue, named, body, _seen(id, expected).stored))

    def _removing(self, id: str, expected: Seen) -> Flow[bool]:
        seen = _seen(checked_name("id", id), expected)
        return self._guarded(flows.remove(self._queue, id, seen.stored, seen.fence))

    def _park(self, item: LeasedItem, payload: Any, why: Unreadable | str) -> Push | None:
        """The op that parks the item as a dead letter, in the group with the name of this queue; None if too large."""
        kind, attempts = ("exhausted", item.attempts - 1) if isinstance(why, str) else ("unreadable", 1)
        facts = {"queue": self.name, "id": item.id, "kind": kind, "error": str(why)}
        log.warning("item_%(kind)s: item %(id)r of %(queue)r becomes a dead letter: %(error)s", facts, extra=facts)
        named, origin, now = f"{kind}-{item.fence}", f"item {item.id!r:.80}", datetime.now(UTC)
        try:
            op = letter(self.name, payload, error=why, at=now, attempts=attempts, origin=origin, id=named)
        except InvalidInput:
            return None
        if self._context.hook is not None:
            self._context.hook(DeadLettered(item_key(op.queue, op.id), self.name, attempts))
        return op

    def _guarded(self, flow: Flow[T]) -> Flow[T]:
        breaker = self._context.breaker
        return flow if breaker is None else guarded(flow, breaker, self._queue)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def _attempts(max_attempts: Any) -> int:
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 0:
        raise InvalidInput(f"max_attempts must be an int from 1 on, or 0 for no limit, not {max_attempts!r:.80}")
    return max_attempts


def _item_token(text: str) -> tuple[Token, str]:
    """The token and the id of its item; raises InvalidInput if it is not that of an item."""
    token = read_token(text)
    kind, _, id = token.key.partition("/")
    if kind != "item":
        raise InvalidInput("this is the token of a lease, not of an item; give what item.hand_over() returned")
    return token, id


def _seen(id: str, expected: Seen) -> Seen:
    """The item as the caller saw it; raises InvalidInput if that is none, or another one."""
    if not isinstance(expected, ItemInfo | ItemBase):
        raise InvalidInput(f"expected must be an ItemInfo or an Item, as read or take returns it, not {expected!r:.80}")
    if expected.id != id:
        raise InvalidInput(f"expected is item {expected.id!r:.80}, but the call is for {id!r:.80}; give the same item")
    return expected


class Queue(QueueBase):
    """The queue of one name, for threads."""

    def __init__(self, context: Context, run: RunFlow, name: str) -> None:
        super().__init__(context, name)
        self._run = run

    def push(self, id: str, payload: Any, *, delay: Seconds = 0.0) -> bool:
        """Adds an item, available after `delay` seconds; False, with no change, if the queue has an item of this id.
        The payload is bytes or JSON-serializable, at most 256 KiB."""
        return self._run(self._pushing(id, payload, delay))

    def push_held(self, id: str, payload: Any, *, ttl: Seconds) -> Item | None:
        """Pushes an item and takes it, in one step if the store can; or takes the one that waits under this id, which
        then is not `fresh`. None if that one is taken or delayed: the queue has an item of this id in any case."""
        taken = self._run(self._pushing_held(id, payload, ttl))
        return None if taken is None else Item(self.name, taken, self._run)

    def take(self, *, ttl: Seconds, wait: Seconds = 0.0, id: str = "", max_attempts: int = 0) -> Item | None:
        """Takes the item that has waited longest, or the one of this id, for `ttl` seconds; None if none becomes
        available within `wait` seconds.

        If it is neither acked nor given back by then, another caller can take it. An item that was taken `max_attempts`
        times before becomes a dead letter of the group with this queue's name, and the next one is tried; 0: no limit.
        """
        taken = self._run(self._taking(ttl, wait, id, max_attempts))
        return None if taken is None else Item(self.name, taken, self._run)

    def resume(self, token: str) -> Item:
        """Takes over the item that another process of this queue handed over, with its ttl from now; raises Busy if it
        was resumed or settled before, or its lease expired. The token is void from then on: nobody can settle by it."""
        return Item(self.name, self._run(self._resuming(token)), self._run)

    def item_of(self, token: str) -> Item:
        """The item of this token, to renew, ack or give it back in the name of its taker; sends nothing yet, and does
        not know its payload.

        Every process that has the token can do that, without being told apart: to do the work, `resume`.
        """
        return Item(self.name, self._taken(token), self._run)

    def amend(self, id: str, payload: Any, *, expected: Seen) -> bool:
        """Replaces the payload if the item is still as the caller saw it; it keeps its place, state and attempts.
        False, with no change, if it has changed since or is gone."""
        return self._run(self._amending(id, payload, expected))

    def remove(self, id: str, *, expected: Seen) -> bool:
        """Removes the item if it is still as the caller saw it. False, with no change, if it has changed since, is
        gone, or a caller has it taken."""
        return self._run(self._removing(id, expected))

    def count(self) -> int:
        """The items in the queue: those that wait, that are delayed, and that are taken."""
        return self._run(self._counting())

    def list(self, *, after: str = "", limit: int = 100) -> ItemInfos:
        """The items with an id greater than `after`, in id order, taken or not."""
        return self._run(self._listing(after, limit))

    def read(self, id: str) -> ItemInfo | None:
        """The item of this id, taken or not; None if there is none."""
        return self._run(self._reading(id))


class AsyncQueue(QueueBase):
    """The queue of one name, for asyncio."""

    def __init__(self, context: Context, run: AsyncRunFlow, name: str) -> None:
        super().__init__(context, name)
        self._run = run

    async def push(self, id: str, payload: Any, *, delay: Seconds = 0.0) -> bool:
        """Adds an item, available after `delay` seconds; False, with no change, if the queue has an item of this id.
        The payload is bytes or JSON-serializable, at most 256 KiB."""
        return await self._run(self._pushing(id, payload, delay))

    async def push_held(self, id: str, payload: Any, *, ttl: Seconds) -> AsyncItem | None:
        """Pushes an item and takes it, in one step if the store can; or takes the one that waits under this id, which
        then is not `fresh`. None if that one is taken or delayed: the queue has an item of this id in any case."""
        taken = await self._run(self._pushing_held(id, payload, ttl))
        return None if taken is None else AsyncItem(self.name, taken, self._run)

    async def take(self, *, ttl: Seconds, wait: Seconds = 0.0, id: str = "", max_attempts: int = 0) -> AsyncItem | None:
        """Takes the item that has waited longest, or the one of this id, for `ttl` seconds; None if none becomes
        available within `wait` seconds.

        If it is neither acked nor given back by then, another caller can take it. An item that was taken `max_attempts`
        times before becomes a dead letter of the group with this queue's name, and the next one is tried; 0: no limit.
        """
        taken = await self._run(self._taking(ttl, wait, id, max_attempts))
        return None if taken is None else AsyncItem(self.name, taken, self._run)

    async def resume(self, token: str) -> AsyncItem:
        """Takes over the item that another process of this queue handed over, with its ttl from now; raises Busy if it
        was resumed or settled before, or its lease expired. The token is void from then on: nobody can settle by it."""
        return AsyncItem(self.name, await self._run(self._resuming(token)), self._run)

    def item_of(self, token: str) -> AsyncItem:
        """The item of this token, to renew, ack or give it back in the name of its taker; sends nothing yet, and does
        not know its payload.

        Every process that has the token can do that, without being told apart: to do the work, `resume`.
        """
        return AsyncItem(self.name, self._taken(token), self._run)

    async def amend(self, id: str, payload: Any, *, expected: Seen) -> bool:
        """Replaces the payload if the item is still as the caller saw it; it keeps its place, state and attempts.
        False, with no change, if it has changed since or is gone."""
        return await self._run(self._amending(id, payload, expected))

    async def remove(self, id: str, *, expected: Seen) -> bool:
        """Removes the item if it is still as the caller saw it. False, with no change, if it has changed since, is
        gone, or a caller has it taken."""
        return await self._run(self._removing(id, expected))

    async def count(self) -> int:
        """The items in the queue: those that wait, that are delayed, and that are taken."""
        return await self._run(self._counting())

    async def list(self, *, after: str = "", limit: int = 100) -> ItemInfos:
        """The items with an id greater than `after`, in id order, taken or not."""
        return await self._run(self._listing(after, limit))

    async def read(self, id: str) -> ItemInfo | None:
        """The item of this id, taken or not; None if there is none."""
        return await self._run(self._reading(id))
