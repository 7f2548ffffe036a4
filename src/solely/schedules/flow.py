"""Decisions of schedules: which replica runs a tick, which tick that is, and when the next one is due.

A schedule has two records. `tick/<name>` is held while a tick runs, and then done until the next tick is due, so that
the store's own clock opens it. `schedule/<name>` only advances: until when all ticks are decided, and the last run; it
says what was missed while no replica ran. The reply to a granted Acquire has the time of the store in its fence, so no
decision depends on the clock of a replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ..errors import INTERRUPTIONS, Interrupted, SolelyError, StoreUnavailable, Unreadable, is_unanswered, not_ours
from ..flow import RUN, Flow, Run, replies_or_raise, undo
from ..formats import read_run, write_run
from ..leases.hold import Hold
from ..model import DONE, HELD, Entry
from ..ops import Acquire, Advance, Clear, Finish, Read, Release
from ..rules import LOOK_AGAIN, REMEMBER
from .timetable import US, Timetable

GRACE = 60 * US  # with misfire="skip", a tick that nobody began within a minute, the resolution of cron, is missed
EARLY = US // 100  # a tick is due that much before its time: a store's clock may count whole milliseconds
SLACK = 0.002  # seconds after the time at which a key opens to ask for it: most requests would come just too early
NOTED = 60.0  # seconds between notes of a schedule that misses nothing: then a tick costs two ops
LOOK_EARLY = 0.05  # of a long wait: the clocks of store and replica may drift apart by this much
LONG_WAIT = 600.0  # seconds: from here on it looks early
_ROUNDS = 4  # of announcing a tick: the time of the store is known after the first


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
    pending: int = 0  # a tick that another replica was seen to run
    seen: float = 0.0  # when that was, in local time
    ahead: float | None = None  # the store's clock less the local one, in seconds; None: not known
    looks: float = 0.0  # the local time from which on a request to the store is of use
    noted: float = float("-inf")  # when this replica last wrote `schedule/…`, in local time
    report: RunReport | None = field(default=None)  # of the last run that it saw

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


def chosen(plan: SchedulePlan, last: int, pending: int, now: int) -> int:
    """The tick to run at this time of the store; 0 if none. `pending` is a tick whose replica died, else 0."""
    if pending > last:
        return pending
    first = plan.timetable.next_after(last)
    if plan.timetable.fires(first) > now + EARLY:
        return 0
    if plan.misfire is Misfire.ALL:
        return first
    latest = plan.timetable.due_by(now + EARLY)
    missed = plan.misfire is Misfire.SKIP and now - plan.timetable.fires(latest) > GRACE
    return 0 if missed else latest


def attempt(plan: SchedulePlan, known: ReplicaState, info: str) -> Flow[DueTick | float]:
    """The tick, if one is due and this replica wins it; else the seconds after which to ask again.

    Asks nothing while it is known that no tick is due.
    """
    tick = 0
    for _ in range(_ROUNDS):
        run: Run = yield RUN
        now = run.now()
        if now < known.looks:
            return known.looks - now
        announced = tick or _expected(plan, known, now)
        found = yield from _acquire(plan, announced, info)
        if isinstance(found, Entry):
            wait = yield from _refused(plan, known, found)
            if wait is not None:
                return wait
            continue
        tick = yield from _releasing_on_error(plan, found, _granted(plan, known, found))
        if tick and tick == announced:
            return DueTick(found, tick, found.attempts, found.fence)
        if not tick:
            return (yield from _close(plan, known, found))
        # A crash is remembered, so that whoever wins takes that tick over.
        yield Release(plan.tick_key, found.owner, found.doubtful, 0.0, REMEMBER if found.attempts > 1 else 0.0)
    return SLACK


def _expected(plan: SchedulePlan, known: ReplicaState, now: float) -> int:
    """The tick that is probably due, as others see it while it runs; 0 if that is not known."""
    if known.ahead is None or known.last < 0:
        return 0
    last = max(known.last, known.pending)
    return chosen(plan, last, 0, known.store_time(now)) or (known.pending if last > known.last else 0)


def _acquire(plan: SchedulePlan, announced: int, info: str) -> Flow[Hold | Entry]:
    """The hold of the tick, or the entry that refuses it. Others see the tick as its fingerprint."""
    run: Run = yield RUN
    owner, key = run.fresh_owner(), plan.tick_key
    answered = False
    try:
        fingerprint = str(announced) if announced else ""
        entry: Entry = yield Acquire(key, owner, plan.ttl, info, "", 0.0, fingerprint, False, True)
        answered = True
        if entry.owner == owner:
            hold = Hold(key, owner, plan.ttl, entry, run.sent, run.doubtful, run.now)
            if run.now() < hold.deadline:
                return hold
        if entry.owner == owner or run.doubtful:  # too late; or a copy of an unanswered try must not take the key
            yield from undo([Release(key, owner, True)])
        return entry._replace(state=HELD, left=0.0) if entry.owner else entry
    except SolelyError:
        yield from undo([Release(key, owner, run.doubtful)])
        raise
    except INTERRUPTIONS as why:
        if answered or is_unanswered(why):  # else nothing was sent
            yield Release(key, owner, is_unanswered(why))
        raise


def _releasing_on_error(plan: SchedulePlan, hold: Hold, flow: Flow[int]) -> Flow[int]:
    """The flow's result; if it fails, the tick is left to the next replica that asks."""
    try:
        return (yield from flow)
    except INTERRUPTIONS:
        yield from give_back(plan, hold)
        raise


def _refused(plan: SchedulePlan, known: ReplicaState, entry: Entry) -> Flow[float | None]:
    """The seconds to wait, by what the entry says; None to ask again at once, after a change of the timetable."""
    run: Run = yield RUN
    now = run.now()
    report = RunReport.read(entry)
    if report is not None:
        known.learn(report)
        known.ahead = report.opens / US - entry.left - now
        mine = plan.timetable.fires(plan.timetable.next_after(report.settled))
        if report.plan != plan.text and mine < report.opens:
            yield Clear(plan.tick_key, entry.fence, "the timetable was changed")
            known.looks = now + max(0.0, mine / US - report.opens / US + entry.left)
            return None if known.looks <= now else known.looks - now
    elif entry.state is HELD:
        known.pending, known.seen = int(entry.fingerprint) if entry.fingerprint.isdecimal() else 0, now
        if known.ahead is None:  # the time at which the tick began: the next reply tells it better
            known.ahead = entry.fence / US - now
    known.looks = now + _patience(plan, known, entry, now)
    return known.looks - now


def _patience(plan: SchedulePlan, known: ReplicaState, entry: Entry, now: float) -> float:
    """Seconds until the key opens, or may be taken over, or the next tick is due while the current one runs."""
    if entry.state is DONE:
        return _rest(entry.left)
    wait = entry.left + SLACK
    if known.ahead is None or not known.pending:  # another replica is just learning what is due
        return min(wait, LOOK_AGAIN)
    opens = plan.timetable.fires(plan.timetable.next_after(known.pending))
    until = (opens - known.store_time(now)) / US + SLACK
    return min(wait, until) if until > 0 else wait


def _granted(plan: SchedulePlan, known: ReplicaState, hold: Hold) -> Flow[int]:
    """The tick that is due by the store's clock; 0 if none. Reads what is decided, unless this replica is sure."""
    run: Run = yield RUN
    now, store = run.now(), hold.fence
    known.ahead = store / US - now
    exact = plan.misfire is not Misfire.SKIP  # else `schedule/…` is a note for people, up to NOTED old
    if known.last < 0 or (exact and _several_due(plan, known.last, store)):
        entry: Entry = yield Read(plan.key)
        report = RunReport.read(entry)
        if report is not None:
            known.learn(report)
        elif known.last < 0:
            return 0  # a new schedule: it begins with the next tick
    died = hold.attempts > 1 and _is_the_one(plan, known, now, store)
    return chosen(plan, known.last, known.pending if died else 0, store)


def _is_the_one(plan: SchedulePlan, known: ReplicaState, now: float, store: int) -> bool:
    """True if the tick that was seen to run is the one whose replica died: a hold that began after that would still be
    held, or no other tick was due since."""
    following = plan.timetable.next_after(known.pending)
    return now - known.seen < plan.ttl or plan.timetable.fires(following) > store + EARLY


def _several_due(plan: SchedulePlan, last: int, store: int) -> bool:
    """True if more than one tick is due: then others may have run some of them. One that is due was run by nobody,
    because a finished tick keeps the key closed until the next one is due."""
    second = plan.timetable.next_after(plan.timetable.next_after(last))
    return plan.timetable.fires(second) <= store + EARLY


def _close(plan: SchedulePlan, known: ReplicaState, hold: Hold) -> Flow[float]:
    """Nothing is due: the key stays closed until the next tick is. What was missed is decided now."""
    store = hold.fence
    is_new = known.last < 0
    missed = 0
    settled = known.last
    if is_new or plan.misfire is Misfire.SKIP:
        settled = max(known.last, plan.timetable.due_by(store + EARLY))
        missed = 0 if is_new else plan.timetable.count(known.last, settled)
    last = known.report
    facts: dict[str, Any] = last._asdict() if last is not None else {
        "tick": 0, "began": 0, "took": 0.0, "outcome": "", "by": "",
    }  # fmt: skip
    report = _planned(plan, settled, {**facts, "missed": missed})
    yield from _store(plan, known, hold, report, noted=True)
    run: Run = yield RUN
    return max(0.0, known.looks - run.now())


def _planned(plan: SchedulePlan, settled: int, facts: dict[str, Any]) -> RunReport:
    following = plan.timetable.next_after(settled)
    opens = plan.timetable.fires(following)
    return RunReport(**{**facts, "settled": settled, "next": following, "opens": opens, "plan": plan.text})


def finish(plan: SchedulePlan, known: ReplicaState, due: DueTick, outcome: str, by: str) -> Flow[RunReport | None]:
    """Ends the tick, which never runs again; None if it was lost before, and another replica has it.

    An interrupted caller still ends it: the work is done.
    """
    run: Run = yield RUN
    now = run.now()
    settled, missed = due.tick, 0
    if plan.misfire is Misfire.SKIP:
        settled = max(due.tick, plan.timetable.due_by(known.store_time(now)))
        missed = plan.timetable.count(due.tick, settled)
    elif plan.misfire is Misfire.ONCE:
        missed = plan.timetable.count(known.last, due.tick - 1)
    took = round(max(0.0, now - due.hold.since), 6)
    facts = {"tick": due.tick, "began": due.began, "took": took, "outcome": outcome, "by": by, "missed": missed}
    report = _planned(plan, max(settled, known.last), facts)
    noted = plan.misfire is not Misfire.SKIP or now - known.noted >= NOTED
    return report if (yield from _store(plan, known, due.hold, report, noted=noted)) else None


def _store(plan: SchedulePlan, known: ReplicaState, hold: Hold, report: RunReport, *, noted: bool) -> Flow[bool]:
    """Stores the report and closes the key until the next tick is due; False if the hold was lost before."""
    run: Run = yield RUN
    now = run.now()
    keep = max(0.0, (report.opens - known.store_time(now)) / US)
    value = report.written()
    ops: list[Any] = [Finish(plan.tick_key, hold.owner, value, max(keep, 1 / US))]
    if noted and not hold.how(now):
        ops.append(Advance(plan.key, value))
    entry: Entry = (yield from _performed(ops))[0]
    known.pending, known.looks = 0, run.now()
    if entry.owner != hold.owner:
        hold.lost = hold.gone(entry.gone)
        return False
    known.learn(report)
    known.looks += _rest(keep)
    if len(ops) > 1:
        known.noted = now
    return True


def _rest(opens: float) -> float:
    """Seconds to wait for a key that opens in so many."""
    return opens + SLACK if 0 < opens < LONG_WAIT else opens * (1 - LOOK_EARLY)


def _performed(ops: list[Any]) -> Flow[list[Any]]:
    """The replies; if the caller is interrupted meanwhile, performs the ops again before it raises that."""
    try:
        return replies_or_raise((yield ops))
    except Interrupted as why:
        if isinstance(why.cause, StoreUnavailable):  # it was retried until the timeout
            raise
        yield ops
        raise


def give_back(plan: SchedulePlan, hold: Hold) -> Flow[None]:
    """Ends an interrupted run: another replica takes the tick over at once."""
    yield from undo([Release(plan.tick_key, hold.owner, hold.doubtful, 0.0, max(REMEMBER, 2 * plan.ttl), hold.fence)])
