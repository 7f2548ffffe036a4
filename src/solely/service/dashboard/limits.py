"""The page of limits: which of them refuse calls now, and when each allows the next one."""

from __future__ import annotations

import time

from ..api.limits import ListedLimit
from ..routes import Answer, Call, Route
from .entries import FRESH
from .lists import KEY, ListPart, ListQuery, Orders, chosen, select
from .rendering import READ_PAGE, Page, show

LIST = Page("Limits", "solely:limits.html", "/limits")


class LimitRow(ListedLimit, kw_only=True):
    """A limit that refuses calls; `ends` is when it allows the next one, on the clock of the service."""

    ends: float


class LimitRows(Answer):
    """In the order of keys there may be more after `next`; in any other order, `total` limits were found, among the
    first thousand if it is `cut`. `hidden` counts keys of applications that were left out."""

    limits: list[LimitRow]
    next: str | None
    total: int | None
    cut: bool
    hidden: int


ORDERS: Orders = {
    "limit": lambda row: row.limit,
    "hits": lambda row: row.hits,
    "left": lambda row: row.left,
}


async def limits(call: Call[None, ListQuery]) -> object:
    """The list of limits that refuse calls now."""
    what = ("limits", *chosen(call.query))
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: _load(call)))


async def _load(call: Call[None, ListQuery]) -> LimitRows:
    query, now = call.query, time.time()

    async def read(after: str, limit: int) -> ListPart[LimitRow]:
        found = await call.service.once.limits(query.prefix, after=after, limit=limit)
        rows = [LimitRow(**each._asdict(), ends=now + each.left) for each in found]
        return ListPart(rows, rows[-1].key if len(rows) == limit else "")

    found = await select(query, read, ORDERS, default=KEY)
    return LimitRows(limits=found.rows, next=found.next, total=found.total, cut=found.cut, hidden=found.hidden)


ROUTES = [Route("GET", "/limits", READ_PAGE, limits, hidden=True)]
