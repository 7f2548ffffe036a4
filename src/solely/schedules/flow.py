"""Decisions of schedules: which replica runs a tick, which tick that is, and when the next one is due.

A schedule has two records. `tick/<name>` is held while a tick runs, and then done until the next tick is due, so that
the store's own clock opens it. `schedule/<name>` only advances: until when all ticks are decided, and the last run; it
says what was missed while no replica ran. The reply to a granted Acquire has the time of the store in its fence, so no
decision depends on the clock of a replica.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import INTERRUPTIONS, Interrupted, SolelyError, StoreError, StoreUnavailable, is_unanswered
from ..flow import RUN, Flow, Run, undo
from ..leases.hold import Hold
from ..model import DONE, HELD, Entry
from ..ops import Acquire, Advance, Clear, Finish, Read, Release
from ..rules import DRIFT_RATE, LOOK_AGAIN, MAX_TTL, REMEMBER
from .state import EARLY, LONG_RUN, DueTick, Misfire, ReplicaState, RunReport, SchedulePlan, chosen
from .timetable import US

T = TypeVar("T")

SLACK = 0.002  # seconds after the time at which a key opens to ask for it: most requests would come just too early
NOTED = 60.0  # seconds between notes for people, with misfire="skip": then a tick costs two ops
LOOK_EARLY = 0.05  # of a long wait: the clocks of store and replica may drift apart by this much
LONG_WAIT = 600.0  # seconds: from here on it looks early


def attempt(plan: SchedulePlan, known: ReplicaState, info: str) -> Flow[DueTick | float]:
    """The tick, if one is due and this replica wins it; else the seconds after which to ask again.

    Asks nothing while it is known that no tick is due.
    """
    while True:
        run: Run = yield RUN
        now = run.now()
        if now < known.looks:
            return known.looks - now
        found = yield from _acquire(plan, _expected(plan, known, now), info)
        if isinstance(found, Hold):
            return (yield from _releasing_on_error(plan, found, _granted(plan, known, found)))
        if not (yield from _changed(plan, known, found)):
            return (yield from _refused(plan, known, found))


def _expected(plan: SchedulePlan, known: ReplicaState, now: float) -> int:
    """The tick that is probably due, which others see while it runs; 0 if that is not known."""
    is_known = known.ahead is not None and known.last >= 0
    return chosen(plan, known.last, known.store_time(now)) if is_known else 0


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


def _releasing_on_error(plan: SchedulePlan, hold: Hold, flow: Flow[T]) -> Flow[T]:
    """The flow's result; if it fails, the tick is left to the next replica that asks."""
    try:
        return (yield from flow)
    except INTERRUPTIONS:
        yield from give_back(plan, hold)
        raise


def _changed(plan: SchedulePlan, known: ReplicaState, entry: Entry) -> Flow[bool]:
    """True if the key was closed until the next tick of another timetable, and is open now: this one's comes first."""
    report = RunReport.read(entry)
    if report is None or report.plan == plan.text:
        return False
    if plan.timetable.fires(plan.timetable.next_after(report.settled)) >= report.opens:
        return False
    yield Clear(plan.tick_key, entry.fence, "the timetable was changed")
    return True


def _refused(plan: SchedulePlan, known: ReplicaState, entry: Entry) -> Flow[float]:
    """The seconds after which to ask again, by what the entry says of the last tick or of the one that runs."""
    run: Run = yield RUN
    now = run.now()
    report = RunReport.read(entry)
    if report is not None:
        known.learn(report)
        known.ahead = report.opens / US - entry.left - now
    elif entry.state is HELD and known.ahead is None:  # the time at which it began: the next reply has it more exactly
        known.ahead = entry.fence / US - now
    wait = _rest(entry.left) if entry.state is DONE else _patience(plan, known, entry, now)
    known.looks = now + wait
    return wait


def _patience(plan: SchedulePlan, known: ReplicaState, entry: Entry, now: float) -> float:
    """Seconds until a tick that runs may be taken over, or until the next one is due: then it has probably ended. If
    the next one is due already, its replica may end it and leave at any moment, long before its lease expires."""
    wait = entry.left + SLACK
    if known.ahead is None or not entry.fingerprint.isdecimal():  # another replica is just learning what is due
        return min(wait, LOOK_AGAIN)
    opens = plan.timetable.fires(plan.timetable.next_after(int(entry.fingerprint)))
    until = (opens - known.store_time(now)) / US + SLACK
    return min(wait, until if until > 0 else LOOK_AGAIN)


def _granted(plan: SchedulePlan, known: ReplicaState, hold: Hold) -> Flow[DueTick | float]:
    """The tick that is due by the store's clock; the seconds to wait if none is."""
    run: Run = yield RUN
    store = hold.fence
    known.ahead = store / US - run.now()
    if known.last < 0 or plan.misfire is not Misfire.SKIP or _may_be_over(plan, known, store):
        yield from _read(plan, known)
    is_new = known.last < 0  # such a schedule begins with its next tick
    tick = 0 if is_new else chosen(plan, known.last, store, interrupted=hold.attempts > 1)
    if not tick:
        return (yield from _close(plan, known, hold))
    return DueTick(hold, tick, hold.attempts, store) if _is_safe(hold, run) else SLACK


def _may_be_over(plan: SchedulePlan, known: ReplicaState, store: int) -> bool:
    """True if the tick that seems due could have had a long run already, after which the key opened too early."""
    tick = chosen(plan, known.last, store)
    return tick > 0 and store - plan.timetable.fires(tick) > LONG_RUN * US


def _read(plan: SchedulePlan, known: ReplicaState) -> Flow[None]:
    """Reads what is decided, also by others. With misfire="skip" that may be NOTED old, except for long runs, and is
    else not needed: what was run keeps the key closed until the next tick is due."""
    entry: Entry = yield Read(plan.key)
    report = RunReport.read(entry)
    if report is not None:
        known.learn(report)


def _is_safe(hold: Hold, run: Run) -> bool:
    """False if the hold was lost before the last reply came: another replica may run the tick."""
    return run.now() < hold.deadline


def _close(plan: SchedulePlan, known: ReplicaState, hold: Hold) -> Flow[float]:
    """Nothing is due: the key stays closed until the next tick is. What was missed is decided now."""
    store = hold.fence
    settled, missed = known.last, 0
    if known.last < 0:
        settled = store
    elif plan.misfire is Misfire.SKIP:
        settled = max(known.last, plan.timetable.due_by(store + EARLY))
        missed = plan.timetable.count(known.last, settled)
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
    turned = known.report is not None and known.report.outcome != outcome
    long = took if took > LONG_RUN else 0.0
    noted = plan.misfire is not Misfire.SKIP or turned or now - known.noted >= NOTED or long > 0
    if not (yield from _store(plan, known, due.hold, report, noted=noted, long=long)):
        return None
    if noted:
        known.noted = now
    return report


def _store(
    plan: SchedulePlan, known: ReplicaState, hold: Hold, report: RunReport, *, noted: bool, long: float = 0.0
) -> Flow[bool]:
    """Stores the report and closes the key until the next tick is due; False if the hold was lost before. `long` is how
    many seconds a long run took."""
    run: Run = yield RUN
    now = run.now()
    keep = min(max(0.0, (report.opens - known.store_time(now)) / US), MAX_TTL)  # then it is closed again
    value = report.written()
    end, note = Finish(plan.tick_key, hold.owner, value, max(keep, 1 / US)), Advance(plan.key, value)
    if plan.misfire is Misfire.SKIP and not long:
        entry, *_ = yield from _performed([end, note] if noted else [end])
    else:  # first what must not be forgotten: from then on the tick is over, whatever becomes of its key
        (refused,) = yield from _performed([note])
        if isinstance(refused, StoreError):
            if plan.misfire is not Misfire.SKIP:
                raise refused
            # Its key alone says so then, and must not open too early, by the drift of clocks during the run.
            end = end._replace(keep=min(keep + long * DRIFT_RATE, MAX_TTL))
        (entry,) = yield from _performed([end])
    if isinstance(entry, StoreError):
        raise entry
    doubtful = run.doubtful
    if hold.doubtful and keep < REMEMBER:  # a late copy of its try must not take the key when the tick is over
        yield from undo([Release(plan.tick_key, hold.owner, True)])
    known.looks = run.now()
    if entry.owner != hold.owner and not (doubtful and not entry.gone):  # else an earlier copy of it was performed
        hold.lost = hold.gone(entry.gone)
        return False
    known.learn(report)
    known.looks += _rest(keep)
    return True


def _rest(opens: float) -> float:
    """Seconds to wait for a key that opens in so many."""
    return opens + SLACK if 0 < opens < LONG_WAIT else opens * (1 - LOOK_EARLY)


def _performed(ops: list[Any]) -> Flow[list[Any]]:
    """The replies; if the caller is interrupted meanwhile, performs the ops again before it raises that."""
    try:
        replies: list[Any] = yield ops
        return replies
    except Interrupted as why:
        if isinstance(why.cause, StoreUnavailable):  # it was retried until the timeout
            raise
        yield ops
        raise


def give_back(plan: SchedulePlan, hold: Hold) -> Flow[None]:
    """Ends an interrupted run: another replica takes the tick over at once."""
    yield from undo([Release(plan.tick_key, hold.owner, hold.doubtful, 0.0, max(REMEMBER, 2 * plan.ttl), hold.fence)])
