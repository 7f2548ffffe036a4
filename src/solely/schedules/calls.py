"""Calls of schedules, the same for threads and asyncio: checked arguments, leases of ticks, logs and events."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Generic, NamedTuple, TypeVar

from .. import events
from ..errors import InvalidInput, StoreError
from ..flow import NOW, Flow
from ..leases.context import Context
from ..leases.hold import Hold, longest_hold
from ..leases.lease import AsyncLease, Lease
from ..logs import get_logger
from ..resilience.backoff import Backoff
from ..rules import Seconds, stored_key, ttl_seconds
from . import flow
from .state import DueTick, Misfire, ReplicaState, RunReport, SchedulePlan
from .timetable import MOST_COUNTED, US, Calendar, microseconds, moment, timetable

log = get_logger()
L = TypeVar("L", bound=Lease | AsyncLease)
# While the store is unreachable: soon enough for a failover, rare enough for a server that starts.
AWAY = Backoff((0.5, 1.0, 2.0, 5.0))
_TEXT = 200  # characters of an error that are kept: the log has all of it


class Tick(NamedTuple, Generic[L]):
    """A tick that this replica runs, and no other: `at` is its time, in UTC. If `attempt` is 2 or more, it was taken
    over from a replica that died. Pass the `fence` to what the job writes to; check `lease.lost`, or call
    `lease.ensure()`, before each step that must not happen twice."""

    name: str
    at: datetime
    fence: int
    attempt: int
    lease: L


def plan_of(
    name: str, when: str | Seconds, tz: str | tzinfo, jitter: Seconds, misfire: Misfire | str, ttl: Seconds
) -> SchedulePlan:
    """The checked arguments of `every`; raises InvalidInput before anything is sent."""
    stored_key("schedule", name)
    try:
        policy = Misfire(misfire)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Misfire)
        raise InvalidInput(f"misfire must be one of {known}, not {misfire!r:.80}") from None
    times = timetable(name, when, tz, jitter)
    spread = "" if not jitter else f" jitter {jitter.total_seconds() if isinstance(jitter, timedelta) else jitter:g}s"
    zone = f" {tz}" if isinstance(times, Calendar) and str(tz) != "UTC" else ""  # an interval has none
    return SchedulePlan(name, times, policy, ttl_seconds(ttl), f"{times.text}{zone}{spread}")


class ScheduleBase:
    """A schedule, as one replica sees it; the same for threads and asyncio."""

    def __init__(self, plan: SchedulePlan, max_hold: Seconds | None, context: Context) -> None:
        self._plan = plan
        self._most = longest_hold(max_hold)
        self._context = context
        self._known = ReplicaState()

    @property
    def name(self) -> str:
        """The name of the schedule, as the user wrote it."""
        return self._plan.name

    @property
    def when(self) -> str:
        """The interval or the cron expression, with its zone and jitter."""
        return self._plan.text

    def next_at(self, after: datetime | None = None) -> datetime:
        """The first tick after this time (default: now, on this machine's clock), in UTC and without jitter."""
        if after is None:
            after = datetime.now().astimezone()
        if after.utcoffset() is None:
            raise InvalidInput(f"after must have a time zone: {after!r} has none; use datetime.now(UTC)")
        return moment(self._plan.timetable.next_after(microseconds(after)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.when!r}>"

    # -- flows

    def _attempting(self) -> Flow[DueTick | float]:
        """The due tick, renewed from now on, or the seconds until it is of use to ask again."""
        info = self._context.signature.info("")
        due = yield from flow.attempt(self._plan, self._known, info)
        if isinstance(due, DueTick):
            due.hold.keep(True, self._most)
            self._context.keep(due.hold)
            self._began(due)
        return due

    def _tick(self, due: DueTick, lease: Callable[[Hold], L]) -> Tick[L]:
        return Tick(self.name, moment(due.tick), due.hold.fence, due.attempts, lease(due.hold))

    def _finishing(self, due: DueTick, error: BaseException | None) -> Flow[float]:
        """Ends the tick with this outcome; the seconds until the next one is due."""
        outcome = "" if error is None else f"{type(error).__name__}: {error}"[:_TEXT]
        report = yield from flow.finish(self._plan, self._known, due, outcome, _this_process())
        self._context.keeper.remove(due.hold)
        self._ended(due, report, outcome)
        now: float = yield NOW
        return max(0.0, self._known.looks - now)

    def _giving_back(self, due: DueTick) -> Flow[None]:
        """Ends an interrupted tick: another replica takes it over at once."""
        self._context.keeper.remove(due.hold)
        return flow.give_back(self._plan, due.hold)

    # -- logs and events

    def _away(self, error: StoreError, failures: int) -> float:
        """Seconds to wait for a store that failed so often before; logs the first time of an outage."""
        if not failures:
            facts = {"schedule": self.name, "error": str(error)}
            log.warning("schedule_waits: %(schedule)s cannot ask its store: %(error)s", facts, extra=facts)
        return AWAY.pause(failures)

    def _began(self, due: DueTick) -> None:
        if due.attempts > 1:
            facts = self._facts(due) | {"attempt": due.attempts}
            text = "tick_taken_over: %(schedule)s takes over its tick of %(at)s, attempt %(attempt)d"
            log.warning(text, facts, extra=facts)

    def _ended(self, due: DueTick, report: RunReport | None, outcome: str) -> None:
        facts = self._facts(due)
        if report is None:
            facts["how"] = due.hold.lost
            text = "tick_lost: %(schedule)s lost its tick of %(at)s before it ended (%(how)s): another may run it again"
            log.warning(text, facts, extra=facts)
        elif report.missed:
            facts["missed"] = report.missed
            more = "at least " if report.missed >= MOST_COUNTED else ""
            text = f"ticks_missed: %(schedule)s missed {more}%(missed)d ticks around that of %(at)s"
            log.warning(text, facts, extra=facts)
        if self._context.hook is not None:
            late = max(0.0, (due.began - due.tick) / US)
            how = "lost" if report is None else "failed" if outcome else "done"
            took = report.took if report is not None else 0.0
            self._context.hook(events.TickEnded(due.hold.key, due.hold.fence, how, late, took))

    def _failed(self, due: DueTick, error: Exception) -> None:
        facts = self._facts(due)
        text = "tick_failed: the job of %(schedule)s failed in its tick of %(at)s"
        log.error(text, facts, extra=facts, exc_info=error)

    def _facts(self, due: DueTick) -> dict[str, object]:
        return {"schedule": self.name, "at": moment(due.tick).isoformat()}


def _this_process() -> str:
    return f"{socket.gethostname()[:64]} pid {os.getpid()}"
