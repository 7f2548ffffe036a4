"""What fails beside the store itself, for the attention of people: schedules, breakers, the jobs of applications, and
the history."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ...breakers.flow import state_of
from ...client import AsyncClient
from ...errors import SolelyError, Unreadable
from ...model import Entry
from ...names import RESERVED
from ...rules import DAY
from ...schedules.listing import OVERDUE, ScheduleInfo
from ...stores import AsyncStore
from ..attention import Attention, listed
from ..history.journal import EventHistory
from .links import key_link

MOST = 1_000  # schedules, and breakers, that are looked at
PAGE = 100  # of them in one scan
LATE = 60.0  # seconds until a tick that nobody begins is overdue: the resolution of cron
BEYOND_RESERVED = chr(ord(RESERVED) + 1)  # a name after all that belong to applications


async def of_schedules(once: AsyncClient) -> list[Attention]:
    """Schedules whose last run failed, whose tick nobody begins, or whose record cannot be read."""
    try:
        known = await _schedules(once)
    except SolelyError:  # the health of the store reports it
        return []
    began = datetime.fromtimestamp(time.time() - LATE, UTC)
    unreadable = [each.key for each in known if each.unreadable]
    failed = [each.key for each in known if each.outcome not in ("", "done")]
    overdue = [each.key for each in known if each.state == OVERDUE and each.next is not None and each.next < began]
    trouble = {"cannot be read": unreadable, "failed in the last run": failed, "did not begin in time": overdue}
    return [
        Attention(level="warning", text=f"{_schedule_count(names)} {words}: {listed(names)}", link="/schedules")
        for words, names in trouble.items()
        if names
    ]


def _schedule_count(names: Sequence[str]) -> str:
    return "1 schedule" if len(names) == 1 else f"{len(names)} schedules"


async def _schedules(once: AsyncClient) -> list[ScheduleInfo]:
    """All but those of applications, which report what fails."""
    found, after = list[ScheduleInfo](), ""
    while len(found) < MOST:
        page = await once.schedules(after=after, limit=PAGE)
        found += [each for each in page if not each.key.startswith(RESERVED)]
        if len(page) < PAGE:
            break
        after = BEYOND_RESERVED if page[-1].key.startswith(RESERVED) else page[-1].key
    return found


async def of_breakers(store: AsyncStore) -> list[Attention]:
    """Shared breakers that opened in the last 24 hours, or tried again since then, and have not closed."""
    found, after = list[Entry](), ""
    try:
        for _ in range(MOST // PAGE):
            page = await store.scan("breaker/", after, PAGE)
            found += page
            if len(page) < PAGE:
                break
            after = page[-1].key
    except SolelyError:  # the health of the store reports it
        return []
    names = [each.name for each in found if each.fence > (time.time() - DAY) * 1e6 and _refuses(each)]
    if not names:
        return []
    what = "1 breaker is" if len(names) == 1 else f"{len(names)} breakers are"
    text = f"{what} open, and most calls fail at once: {listed(names)}"
    return [Attention(level="warning", text=text, link=key_link(names[0], "breaker"))]


def _refuses(entry: Entry) -> bool:
    try:
        return not state_of(entry).closed
    except Unreadable:
        return True


def of_jobs(failing: Mapping[tuple[str, str], str]) -> list[Attention]:
    """Jobs of applications whose last run failed, one line for each application."""
    apps = dict[str, dict[str, str]]()
    for (app, job), error in failing.items():
        apps.setdefault(app, {})[job] = error
    found = []
    for app, jobs in apps.items():
        what = "1 job fails" if len(jobs) == 1 else f"{len(jobs)} jobs fail"
        text = f"{app}: {what} ({listed(list(jobs))}): {next(iter(jobs.values()))}"
        found.append(Attention(level="error", text=text, link="/health#store"))
    return found


def of_history(history: EventHistory) -> list[Attention]:
    """That the history is not kept, although the settings want it."""
    if not history.keep or not history.problem:
        return []
    return [Attention(level="warning", text=f"the history of keys is not kept: {history.problem}", link="/events")]
