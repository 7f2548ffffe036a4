"""Lists of queues over HTTP: which queues have items, how many wait, are delayed or taken, and the items of one."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec

from ...model import State, item_key
from ...queues.flow import ItemInfo, queue_of
from ...queues.handle import AsyncQueue
from ...stores import AsyncStore
from ..parts import ListPart, Read, in_parts
from ..problems import UNKNOWN, Problem
from ..routes import READ, Answer, Body, Call, Key, PageSize, Prefix, Route
from .queues import payload_of

COUNTED = 200  # items of a queue that are read to count its states
_LAST = "\U0010ffff"  # sorts behind every id
QueuesPerPage = Annotated[int, msgspec.Meta(ge=1, le=100, description="the most queues of one page")]


class QueuesQuery(Body):
    """Queues whose name begins with `prefix` and comes after `after`."""

    prefix: Prefix = ""
    after: Prefix = ""
    limit: QueuesPerPage = 50


class ItemsQuery(Body):
    """The items of a queue with an id greater than `after`."""

    queue: Key
    after: Prefix = ""
    limit: PageSize = 100


class ItemQuery(Body):
    """One item."""

    queue: Key
    id: Key


class QueueQuery(Body):
    """One queue."""

    queue: Key


class ItemRow(Answer):
    """An item without its payload: `state` is free (it waits), held (it is taken) or closed (it is delayed), the last
    two for `left` more seconds. `unreadable` says why its payload is unreadable."""

    id: str
    state: State
    left: float
    attempts: int
    fence: int
    pushed_at: float
    unreadable: str = ""


class FullItem(ItemRow):
    """An item; a payload of bytes is in `raw`, in base64, and any other in `payload`."""

    payload: Any = None
    raw: bytes | None = None


class ItemsPage(Answer):
    """In the order of ids, fewer than asked for if they are large. If `next` is not null, more may come after it."""

    items: list[ItemRow]
    next: str | None


class QueueRow(Answer):
    """A queue that has items. With `more`, only the first 200 in the order of ids were counted by state, and there may
    be older ones; `items` counts all. `oldest` is when the oldest was pushed."""

    queue: str
    items: int
    waiting: int
    delayed: int
    taken: int
    more: bool
    oldest: float


class QueuesPage(Answer):
    """Queues that have items. If `next` is not null there may be more, after it."""

    queues: list[QueueRow]
    next: str | None


class ItemCount(Answer):
    """The items of a queue: waiting, delayed and taken."""

    count: int


def _fields(item: ItemInfo) -> dict[str, Any]:
    return {
        "id": item.id,
        "state": item.state,
        "left": item.left,
        "attempts": item.attempts,
        "fence": item.fence,
        "pushed_at": pushed_at(item),
        "unreadable": item.unreadable,
    }


def pushed_at(item: ItemInfo) -> float:
    """About when the item was pushed, in seconds since 1970: its fence is the clock of the store in µs, or later."""
    return min(item.fence / 1e6, time.time())


def item_row(item: ItemInfo) -> ItemRow:
    """The item without its payload."""
    return ItemRow(**_fields(item))


async def list_items(call: Call[None, ItemsQuery]) -> ItemsPage:
    """Lists the items of a queue in the order of their ids."""
    query, service = call.query, call.service
    read = rows_of(service.once.queue(query.queue))
    page = await in_parts(read, query.after, query.limit, service.settings.store_timeout / 2)
    return ItemsPage(items=page.rows, next=page.last or None)


def rows_of(queue: AsyncQueue) -> Read[ItemRow]:
    """Reads rows of the queue's items."""

    async def read(after: str, limit: int) -> ListPart[ItemRow]:
        found = await queue.list(after=after, limit=limit)
        return ListPart([item_row(item) for item in found], found[-1].id if len(found) == limit else "")

    return read


async def read_item(call: Call[None, ItemQuery]) -> FullItem:
    """Returns one item, with its payload."""
    item = await call.service.once.queue(call.query.queue).read(call.query.id)
    if item is None:
        raise Problem(UNKNOWN, "there is no such item, or no longer")
    return FullItem(**_fields(item), **payload_of(item.payload))


async def count(call: Call[None, QueueQuery]) -> ItemCount:
    """Counts the items of a queue."""
    return ItemCount(count=await call.service.once.queue(call.query.queue).count())


async def list_queues(call: Call[None, QueuesQuery]) -> QueuesPage:
    """Lists the queues that have items."""
    query = call.query
    names = await queue_names(call.service.store, query.prefix, query.after, query.limit)
    rows = [await summary(call.service.once.queue(name)) for name in names]
    following = names[-1] if len(names) == query.limit else None
    return QueuesPage(queues=[row for row in rows if row is not None], next=following)


async def queue_names(store: AsyncStore, prefix: str, after: str, limit: int) -> list[str]:
    """The queues that have items, in the order of their stored names, by one short scan per queue."""
    stored, found = f"item/{quote(queue_of(prefix), safe='')}", list[str]()
    position = item_key(queue_of(after), _LAST) if after else ""
    while len(found) < limit and (item := await store.scan(stored, position, 1)):
        found.append(unquote(item[0].key.split("/", 2)[1]).removeprefix(queue_of("")))
        position = item_key(queue_of(found[-1]), _LAST)
    return found


async def summary(queue: AsyncQueue) -> QueueRow | None:
    """The states of the queue's items; None if it has none any more."""
    found = (await in_parts(rows_of(queue), "", COUNTED)).rows
    if not found:
        return None
    states, more = Counter(item.state for item in found), len(found) == COUNTED
    return QueueRow(
        queue=queue.name,
        items=await queue.count() if more else len(found),
        waiting=states[State.FREE],
        delayed=states[State.CLOSED],
        taken=states[State.HELD],
        more=more,
        oldest=min(item.pushed_at for item in found),
    )


ROUTES = [
    Route("GET", "/v1/queues", READ, list_queues),
    Route("GET", "/v1/queues/items", READ, list_items),
    Route("GET", "/v1/queues/item", READ, read_item, refusals=(UNKNOWN,)),
    Route("GET", "/v1/queues/count", READ, count),
]
