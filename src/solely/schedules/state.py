"""What a schedule is, what its replicas know of it, and which tick is due: plain data and pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ..errors import Unreadable, not_ours
from ..formats import read_run, write_run
from ..leases.hold import Hold
from ..model import DONE, Entry
from ..rules import DRIFT_RATE
from .timetable import US, Timetable

GRACE = 60 * US  # with misfire="skip", a tick that nobody began within a minute, the resolution of cron, is missed
EARLY = US // 100  # a tick is due that much before its time: a store's clock may count whole milliseconds
# Seconds: after a longer run the replica's clock may have drifted (DRIFT_RATE) by more than half of EARLY from the
# store's. The key may then open before the next tick is due, and only `schedule/…` says that this one is over.
LONG_RUN = EARLY / US / DRIFT_RATE / 2


class Misfire(StrEnum):
    """What becomes of ticks that nobody ran in time."""

    SKIP = "skip"  # they are not run
    ONCE = "once"  # the last of them is run, in place of all
    ALL = "all"  # each is run, in order


class RunReport(NamedTuple):
    """How far a schedule has come, as stored. Times are µs of the store's clock; `tick` is 0 before the first run."""

    settled: int  # all ticks up to this time are decided: run, or missed for good
    tick: int
    next: int
    opens: int  # when the next one is due: its time plus its share of the jitter
    began: int
    took: float  # seconds
    outcome: str  # "" if it did not fail
    by: str
    plan: str  # the expression, zone and jitter: after a change, what was planned before does not hold
    missed: int  # ticks, by this run and since the one before it

    @classmethod
    def read(cls, entry: Entry) -> RunReport | None:
        """The report of a finished entry, None of another; raises Unreadable if Solely did not write it."""
        if entry.state is not DONE or entry.value is None:
            return None
        try:
            return cls(**read_run(entry.value))
        except ValueError as error:
            text = f"the state of schedule {entry.name!r} is unreadable: {not_ours(error)}"
            raise Unreadable(text, key=entry.name) from None

    def written(self) -> bytes:
        """The report as bytes that sort like `settled`."""
        facts = self._asdict()
        return write_run(facts.pop("settled"), facts)


@dataclass(slots=True)
class ReplicaState:
    """What a replica knows of a schedule. Local times are seconds of the run's clock."""

    last: int = -1  # all ticks up to this time are decided; -1: not known
    ahead: float | None = None  # the store's clock less the local one, in seconds; None: not known
    looks: float = float("-inf")  # the local time from which on a request to the store is of use
    noted: float = float("-inf")  # when this replica last wrote `schedule/…`, in local time
    report: RunReport | None = None  # of the last run that it saw

    def store_time(self, now: float) -> int:
        """The store's clock at this local time, in µs; not known before the first reply."""
        assert self.ahead is not None
        return int((now + self.ahead) * US)

    def learn(self, report: RunReport) -> None:
        """Notes what is decided."""
        self.last = max(self.last, report.settled)
        self.report = report


class SchedulePlan(NamedTuple):
    """The checked arguments of a schedule."""

    name: str
    timetable: Timetable
    misfire: Misfire
    ttl: float
    text: str  # of the timetable with its zone and jitter

    @property
    def tick_key(self) -> str:
        return f"tick/{self.name}"

    @property
    def key(self) -> str:
        return f"schedule/{self.name}"


class DueTick(NamedTuple):
    """A tick that this replica runs now: no other replica does, until its hold is lost."""

    hold: Hold
    tick: int
    attempts: int
    began: int


def chosen(plan: SchedulePlan, last: int, now: int, interrupted: bool = False) -> int:
    """The tick to run at this time of the store, if all up to `last` are decided; 0 if none. One that was interrupted,
    because its replica died in it, is run however late it is."""
    first = plan.timetable.next_after(last)
    if plan.timetable.fires(first) > now + EARLY:
        return 0
    if plan.misfire is Misfire.ALL:
        return first
    latest = plan.timetable.due_by(now + EARLY)
    late = now - plan.timetable.fires(latest) > GRACE
    return 0 if late and plan.misfire is Misfire.SKIP and not interrupted else latest
