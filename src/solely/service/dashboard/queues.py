"""Pages of queues: how much work waits, is delayed or taken; and the items of one queue."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from ...model import item_key
from ...queues.flow import ItemInfo, queue_of
from ..api.queue_lists import ItemRow, QueueRow, item_row, queue_names, summary
from ..charts.queues import queue_series
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Call, Key, PageSize, Prefix, Route
from .entries import FRESH, PREVIEW
from .formatting import pretty
from .rendering import READ_PAGE, Page, View, show

LIST = Page("Queues", "solely:queues.html", "/queues")
ONE = Page("Queue item", "solely:item.html", "/queues")

Text = Annotated[str, msgspec.Meta(max_length=512)]


class QueuesView(View):
    """Queues whose name begins with `prefix`; with a queue, its items."""

    queue: Text = ""
    prefix: Prefix = ""
    after: Text = ""
    limit: PageSize = 50


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
    """A page of queues, or of the items of one, in the order of names or ids."""

    queue: str
    queues: list[ListedQueue]
    items: list[ListedItem]
    total: int
    next: str | None


class ItemDetails(Answer):
    """An item; a payload of bytes is shown as text. `stored` is its name in the store and in the history."""

    item: ListedItem
    payload: str
    stored: str


async def queues(call: Call[None, QueuesView]) -> object:
    """The queues, or the items of one."""
    query = call.query
    what = ("queues", query.queue, query.prefix, query.after, query.limit)
    load = _items if query.queue else _queues
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: load(call)))


async def _queues(call: Call[None, QueuesView]) -> QueuesTable:
    query, once = call.query, call.service.once
    names = await queue_names(call.service.store, query.prefix, query.after, query.limit)
    rows = [row for row in [await summary(once.queue(name)) for name in names] if row is not None]
    lengths = await call.service.dashboard.sparklines([queue_series(row.queue) for row in rows])
    listed = [_listed_queue(row, lengths[queue_series(row.queue)]) for row in rows]
    following = names[-1] if len(names) == query.limit else None
    return QueuesTable(queue="", queues=listed, items=[], total=len(listed), next=following)


def _listed_queue(row: QueueRow, length: list[float]) -> ListedQueue:
    return ListedQueue(**msgspec.structs.asdict(row), link=_link(row.queue), length=length)


def _link(queue: str) -> str:
    return f"/queues?{urlencode({'queue': queue})}"


async def _items(call: Call[None, QueuesView]) -> QueuesTable:
    query, queue = call.query, call.service.once.queue(call.query.queue)
    found = await queue.list(after=query.after, limit=query.limit)
    following = found[-1].id if len(found) == query.limit else None
    total = await queue.count() if following or query.after else len(found)
    listed = [_listed(query.queue, item) for item in found]
    return QueuesTable(queue=query.queue, queues=[], items=listed, total=total, next=following)


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
