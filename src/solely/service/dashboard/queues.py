"""Pages of queues: how much work waits, is delayed or taken; and the items of one queue."""

from __future__ import annotations

import json
import time
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from ...model import State, item_key
from ...queues.flow import ItemInfo, queue_of
from ..api.queue_lists import ItemRow, QueueRow, item_row, queue_names, summary
from ..charts.queues import queue_series
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Call, Key, Route
from .entries import FIRST, FRESH, PREVIEW
from .formatting import pretty
from .lists import KEY, ListPart, ListQuery, Orders, Selection, Text, chosen, select
from .rendering import READ_PAGE, Page, View, show

LIST = Page("Queues", "solely:queues.html", "/queues")
ONE = Page("Queue item", "solely:item.html", "/queues")

MOST_QUEUES = 100  # queues that are read to sort them: each costs the store two requests
QUEUE_ORDERS: Orders = {
    "items": lambda row: row.items,
    "waiting": lambda row: row.waiting,
    "delayed": lambda row: row.delayed,
    "taken": lambda row: row.taken,
    "oldest": lambda row: row.oldest,
}
ITEM_ORDERS: Orders = {
    "state": lambda row: FIRST.get(row.state, len(FIRST)),
    "left": lambda row: row.ends,
    "attempts": lambda row: row.attempts,
    "pushed": lambda row: row.pushed_at,
}


class QueuesView(ListQuery):
    """Queues whose name begins with `prefix`; with a queue, its items, or those in this state."""

    queue: Text = ""
    state: Literal["", "held", "closed", "free"] = ""


class ItemView(View):
    """One item."""

    queue: Key
    id: Key


class ListedQueue(QueueRow, kw_only=True):
    """A queue, where its items are listed, and how many it had over the last hour."""

    link: str
    length: list[float]


class ListedItem(ItemRow, kw_only=True):
    """An item with the beginning of its payload. `ends` is when it is available again, on the clock of the service."""

    queue: str
    preview: str
    ends: float | None


class QueuesTable(Answer):
    """A page of queues, or of the items of one, of which there are `items_of_queue`. In the order of names or ids there
    may be more after `next`; in any other order, `total` were found, among the first that were read if it is `cut`.
    `hidden` counts queues of applications that were left out."""

    queue: str
    queues: list[ListedQueue]
    items: list[ListedItem]
    items_of_queue: int
    next: str | None
    total: int | None
    cut: bool
    hidden: int


class ItemDetails(Answer):
    """An item; a payload of bytes is shown as text. `stored` is its name in the store and in the history."""

    item: ListedItem
    payload: str
    stored: str


async def queues(call: Call[None, QueuesView]) -> object:
    """The queues, or the items of one."""
    what = ("queues", *chosen(call.query))
    load = _items if call.query.queue else _queues
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: load(call)))


async def _queues(call: Call[None, QueuesView]) -> QueuesTable:
    query, once = call.query, call.service.once

    async def read(after: str, limit: int) -> ListPart[ListedQueue]:
        names = await queue_names(call.service.store, query.prefix, after, limit)
        rows = [row for row in [await summary(once.queue(name)) for name in names] if row is not None]
        return ListPart([_listed_queue(row) for row in rows], names[-1] if len(names) == limit else "")

    found = await select(query, read, QUEUE_ORDERS, most=MOST_QUEUES, name=lambda row: row.queue)
    lengths = await call.service.dashboard.sparklines([queue_series(row.queue) for row in found.rows])
    return _table(
        found, queues=[msgspec.structs.replace(row, length=lengths[queue_series(row.queue)]) for row in found.rows]
    )


def _table(found: Selection[Any], **rows: Any) -> QueuesTable:
    """The answer with these fields, and what the selection says of the rest of the list."""
    empty = {"queue": "", "queues": [], "items": [], "items_of_queue": 0}
    return QueuesTable(**{**empty, **rows}, next=found.next, total=found.total, cut=found.cut, hidden=found.hidden)


def _listed_queue(row: QueueRow) -> ListedQueue:
    return ListedQueue(**msgspec.structs.asdict(row), link=_link(row.queue), length=[])


def _link(queue: str) -> str:
    return f"/queues?{urlencode({'queue': queue})}"


async def _items(call: Call[None, QueuesView]) -> QueuesTable:
    query, queue = call.query, call.service.once.queue(call.query.queue)

    async def read(after: str, limit: int) -> ListPart[ListedItem]:
        found = await queue.list(after=after, limit=limit)
        return ListPart([_listed(query.queue, item) for item in found], found[-1].id if len(found) == limit else "")

    def matches(item: ListedItem) -> bool:
        return not query.state or item.state is State(query.state)

    found = await select(
        query, read, ITEM_ORDERS, default=KEY, internal=True, matches=matches, name=lambda item: item.id
    )
    return _table(found, queue=query.queue, items=found.rows, items_of_queue=await queue.count())


def _listed(queue: str, item: ItemInfo) -> ListedItem:
    ends = time.time() + item.left if item.left > 0 else None
    return ListedItem(**msgspec.structs.asdict(item_row(item)), queue=queue, preview=_preview(item), ends=ends)


def _preview(item: ItemInfo) -> str:
    """The beginning of the payload on one line."""
    if item.unreadable:
        return f"unreadable: {item.unreadable}"
    if isinstance(item.payload, bytes):
        return f"{len(item.payload)} bytes"
    text = json.dumps(item.payload, ensure_ascii=False)
    return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"


async def item(call: Call[None, ItemView]) -> object:
    """One item."""
    query = call.query

    async def load() -> ItemDetails:
        found = await call.service.once.queue(query.queue).read(query.id)
        if found is None:
            raise Problem(UNKNOWN, "There is no such item any more: it was acked or removed.")
        stored = item_key(queue_of(query.queue), query.id).partition("/")[2]
        return ItemDetails(item=_listed(query.queue, found), payload=_text(found), stored=stored)

    return await show(call, ONE, load)


def _text(item: ItemInfo) -> str:
    payload: Any = item.payload
    if item.unreadable:
        return f"unreadable: {item.unreadable}"
    return payload.decode(errors="replace") if isinstance(payload, bytes) else pretty(payload)


ROUTES = [
    Route("GET", "/queues", READ_PAGE, queues, hidden=True),
    Route("GET", "/queues/item", READ_PAGE, item, hidden=True),
]
