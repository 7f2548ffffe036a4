"""What the store has of schedules: last and next runs, who runs one now, and which are overdue."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ..errors import Unreadable
from ..flow import Flow, replies_or_raise
from ..holder import describe
from ..leases.listing import listing
from ..model import DONE, FREE, HELD, Entry
from ..ops import Clear, Read
from .state import RunReport
from .timetable import US, moment


class ScheduleInfo(NamedTuple):
    """A schedule as any caller may see it.

    `state` is waiting (until `next`), running (by `holder`, for `left` more seconds unless renewed), or overdue: the
    next tick is due, and no replica has begun it yet. `last` is the time of the last tick that was run, None before
    the first; it began `late` seconds after that, took `took` seconds on `by`, and `outcome` is done or "failed: …".
    Of an overdue one with `misfire="skip"`, these may be those of a run up to a minute before the last. `left` of a
    waiting one are the seconds until the next tick. `unreadable` is why nothing else is known. `key` is its name.
    """

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


WAITING, RUNNING, OVERDUE = "waiting", "running", "overdue"


def status(name: str) -> Flow[ScheduleInfo | None]:
    """The schedule; None if it never ran anywhere."""
    kept, tick = replies_or_raise((yield [Read(f"schedule/{name}"), Read(f"tick/{name}")]))
    if kept.state is FREE and tick.state is FREE:
        return None
    return _info(name, kept, tick)


def schedules(prefix: str, after: str, limit: int) -> Flow[list[ScheduleInfo]]:
    """A page of the schedules."""
    found: list[Entry] = yield from listing("schedule", prefix, after, limit, lambda entry: entry)
    ticks: list[Entry] = replies_or_raise((yield [Read(f"tick/{each.name}") for each in found])) if found else []
    return [_info(kept.name, kept, tick) for kept, tick in zip(found, ticks, strict=True)]


def forget(name: str, reason: str) -> Flow[bool]:
    """Removes what is kept of a schedule that runs no more; False if there was nothing.

    A replica that still runs it loses its tick, and begins anew with the next one.
    """
    entries: list[Entry] = replies_or_raise((yield [Read(f"schedule/{name}"), Read(f"tick/{name}")]))
    cleared = [Clear(entry.key, entry.fence, reason) for entry in entries if entry.state in (DONE, HELD)]
    if not cleared:
        return False
    return any(replies_or_raise((yield cleared)))


def _info(name: str, kept: Entry, tick: Entry) -> ScheduleInfo:
    try:
        reports = [report for report in (RunReport.read(tick), RunReport.read(kept)) if report is not None]
    except Unreadable as why:
        return ScheduleInfo(name, "", OVERDUE, None, None, 0.0, "", "", 0.0, 0.0, 0, "", None, tick.fence, str(why))
    report = max(reports, default=None)
    held = tick.state is HELD
    running = moment(int(tick.fingerprint)) if held and tick.fingerprint.isdecimal() else None
    state = RUNNING if held else WAITING if tick.state is DONE else OVERDUE
    who = describe(tick.info) if held else ""
    if report is None:
        return ScheduleInfo(name, "", state, None, None, tick.left, "", "", 0.0, 0.0, 0, who, running, tick.fence)
    ran = report.tick > 0
    return ScheduleInfo(
        key=name,
        when=report.plan,
        state=state,
        last=moment(report.tick) if ran else None,
        next=moment(report.next),
        left=tick.left,
        outcome=(f"failed: {report.outcome}" if report.outcome else "done") if ran else "",
        by=report.by,
        late=max(0.0, (report.began - report.tick) / US) if ran else 0.0,
        took=report.took,
        missed=report.missed,
        holder=who,
        running=running,
        fence=tick.fence,
    )
