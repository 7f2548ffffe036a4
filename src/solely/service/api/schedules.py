"""Schedules over HTTP: the last and the next run of each. Replicas run them through the library."""

from __future__ import annotations

from datetime import datetime

from ...schedules.listing import ScheduleInfo
from ..routes import READ, Answer, Body, Call, Key, PrefixQuery, Reason, Route


class ForgetSchedule(Body):
    """Removes what is kept of the schedule."""

    key: Key
    reason: Reason


class ForgottenSchedule(Answer):
    """Whether there was anything to remove."""

    forgotten: bool


class ListedSchedule(Answer):
    """A schedule: `state` is waiting (the next tick is due in `left` seconds), running (by `holder`, for `left` more
    seconds unless renewed) or overdue (no replica has begun the tick that is due). `last` is the last tick that was
    run: it began `late` seconds after its time and took `took` seconds; `outcome` is done or how it failed."""

    key: str
    when: str
    state: str
    last: datetime | None
    next: datetime | None
    left: float
    outcome: str
    by: str
    late: float
    took: float
    missed: int
    holder: str
    running: datetime | None
    fence: int
    unreadable: str = ""


class ListedSchedules(Answer):
    """In the order of names. If `next` is not null there may be more, after it."""

    schedules: list[ListedSchedule]
    next: str | None


def listed(info: ScheduleInfo) -> ListedSchedule:
    """The schedule as the API shows it."""
    return ListedSchedule(**info._asdict())


async def list_schedules(call: Call[None, PrefixQuery]) -> ListedSchedules:
    """Lists schedules with their last and next runs, in the order of names."""
    query = call.query
    found = await call.service.once.schedules(query.prefix, after=query.after, limit=query.limit)
    return ListedSchedules(schedules=[listed(info) for info in found], next=query.following(found))


async def forget(call: Call[ForgetSchedule, None]) -> ForgottenSchedule:
    """Removes what is kept of a schedule that runs no more. One that still runs begins anew with its next tick."""
    wanted = call.body
    return ForgottenSchedule(forgotten=await call.service.clearing.forget_schedule(wanted.key, reason=wanted.reason))


ROUTES = [Route("GET", "/v1/schedules", READ, list_schedules)]
