"""The page of schedules: when each ran last, how that ended, when it is due next, and the act to forget one."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from ...schedules.listing import ScheduleInfo
from ..acts import Act, Affected, Field, act_routes
from ..api.schedules import ForgetSchedule, ListedSchedule, forget
from ..problems import RESERVED_NAME
from ..routes import Answer, Call, Route
from .entries import FRESH
from .lists import ListPart, ListQuery, Orders, chosen, select
from .rendering import READ_PAGE, Page, show

LIST = Page("Schedules", "solely:schedules.html", "/schedules")
FORGET = Act(
    name="schedules.forget",
    title="Forget schedule",
    summary="Forget a schedule that runs no more",
    nothing="There is no such schedule.",
    again="Nothing more happens.",
    api="/v1/schedules/forget",
    page="/schedules/forget",
    means="Its last run is no longer known. If a replica still runs it, it begins anew with its next tick.",
    changed="forgotten",
    fields=(Field("key"),),
)


class ScheduleRow(ListedSchedule, kw_only=True):
    """A schedule; `ran` and `due` are the times of its last and next tick in seconds, and `ends` is when the next tick
    is due, or the lease of the current one ends, on the clock of the service."""

    ran: float | None
    due: float | None
    ends: float | None


class ScheduleRows(Answer):
    """Those that run first; in the order of names there may be more after `next`; in any other order, `total` schedules
    were found, among the first thousand if it is `cut`. `hidden` counts those of applications that were left out."""

    schedules: list[ScheduleRow]
    next: str | None
    total: int | None
    cut: bool
    hidden: int


FIRST = {"running": 0, "overdue": 1, "waiting": 2}
ORDERS: Orders = {
    "state": lambda row: FIRST.get(row.state, 3),
    "ran": lambda row: row.ran,
    "due": lambda row: row.due,
    "outcome": lambda row: row.outcome or None,
}


async def schedules(call: Call[None, ListQuery]) -> object:
    """The list of schedules."""
    what = ("schedules", *chosen(call.query))
    return await show(call, LIST, lambda: call.service.dashboard.views.share(what, FRESH, lambda: _load(call)))


async def _load(call: Call[None, ListQuery]) -> ScheduleRows:
    async def read(after: str, limit: int) -> ListPart[ScheduleRow]:
        found = await call.service.once.schedules(call.query.prefix, after=after, limit=limit)
        return ListPart([_row(info) for info in found], found[-1].key if len(found) == limit else "")

    found = await select(call.query, read, ORDERS, default="state")
    return ScheduleRows(schedules=found.rows, next=found.next, total=found.total, cut=found.cut, hidden=found.hidden)


def _row(info: ScheduleInfo) -> ScheduleRow:
    ends = time.time() + info.left if info.left > 0 else None
    return ScheduleRow(**info._asdict(), ran=_seconds(info.last), due=_seconds(info.next), ends=ends)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


async def _to_forget(call: Call[Any, Any], wanted: ForgetSchedule) -> Affected | None:
    found = await call.service.once.schedule_info(wanted.key)
    if found is None:
        return None
    last = found.last.isoformat() if found.last else "never"
    return Affected(f"the schedule {wanted.key!r}", {"Schedule": wanted.key, "When": found.when, "Last run": last})


ROUTES = [
    Route("GET", "/schedules", READ_PAGE, schedules, hidden=True),
    *act_routes(FORGET, forget, _to_forget, refusals=(RESERVED_NAME,)),
]
