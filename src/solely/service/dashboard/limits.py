"""The page of limits: which of them refuse calls now, and when each allows the next one."""

from __future__ import annotations

import time

from ..api.limits import ListedLimit
from ..routes import Answer, Call, Route
from .entries import FRESH, ListQuery
from .rendering import READ_PAGE, Page, show

LIST = Page("Limits", "solely:limits.html", "/limits")


class LimitRow(ListedLimit, kw_only=True):
    """A limit that refuses calls; `ends` is when it allows the next one, on the clock of the service."""

    ends: float


class LimitRows(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    limits: list[LimitRow]
    next: str | None


async def limits(call: Call[None, ListQuery]) -> object:
    """The list of limits that refuse calls now."""
    query = call.query
    what = ("limits", query.prefix, query.after, query.limit)
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: _load(call)))


async def _load(call: Call[None, ListQuery]) -> LimitRows:
    query, now = call.query, time.time()
    found = await call.service.once.limits(query.prefix, after=query.after, limit=query.limit)
    rows = [LimitRow(**each._asdict(), ends=now + each.left) for each in found]
    return LimitRows(limits=rows, next=found[-1].key if len(found) == query.limit else None)


ROUTES = [Route("GET", "/limits", READ_PAGE, limits, hidden=True)]
