"""Breaker: all processes stop calling what keeps failing, and one of them at a time tries whether it works again.

Its standing is a watermark: a number that only grows, even while closed and odd while open, and how many trials have
worked since it opened. So whoever judges late, or twice, or at the same time as others, can only write what stands
already or what is too old to count; where a success and a failure cross, the failure wins. Each standing has a
trial key of its own, which is held by the cooldown first and by one trial at a time afterwards; who finishes it has
the verdict. Failures are hits in a window that belongs to the number, so that those from before do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import Busy, Unreadable
from ..flow import Ask, Flow
from ..formats import read_standing, write_standing
from ..leases.flow import LeaseTerms, acquire
from ..leases.hold import Hold
from ..model import Allowance, Entry, State
from ..ops import Acquire, Advance, Finish, Hit, Read
from ..resilience.circuit import Circuit, Rule, refusal
from ..rules import REMEMBER

TRIAL = 10.0  # seconds that a trial whose process died keeps others waiting; while it lives it is renewed
COOLDOWN = "cooldown"  # the info of a trial's key while it is held by the cooldown


class BreakerState(NamedTuple):
    """Where the breaker stands: closed at an even number; open or half-open at an odd one, with so many trials won."""

    number: int = 0
    wins: int = 0

    @property
    def closed(self) -> bool:
        return self.number % 2 == 0

    @property
    def opened(self) -> BreakerState:
        """Where a failure leads."""
        return BreakerState(self.number + 1 if self.closed else self.number + 2)

    def after_success(self, successes: int) -> BreakerState:
        """Where a trial that worked leads."""
        return BreakerState(self.number, self.wins + 1) if self.wins + 1 < successes else BreakerState(self.number + 1)


class SharedPass(NamedTuple):
    """A call that was let through: at which standing, and with which trial in hand if it is one."""

    standing: BreakerState
    trial: Hold | None = None


def _trial(name: str, standing: BreakerState) -> str:
    return f"trial/{name}@{standing.number}.{standing.wins}"


def _stands(name: str) -> Flow[BreakerState]:
    return standing_of((yield Read(f"breaker/{name}")))


def standing_of(entry: Entry) -> BreakerState:
    """Where the breaker of this entry stands; Unreadable if it does not say so in our way."""
    if entry.value is None:
        return BreakerState()
    try:
        return BreakerState(*read_standing(entry.value))
    except ValueError:
        text = f"breaker {entry.name!r} was written by a newer version, or by something else: {entry.value!r:.40}"
        raise Unreadable(text, key=entry.name) from None


def _moves(name: str, standing: BreakerState) -> Flow[None]:
    yield Advance(f"breaker/{name}", write_standing(*standing))


def admit(name: str, granted: Callable[[Hold], Hold], info: str) -> Flow[SharedPass]:
    """Lets the call through, as the one trial if the breaker is half-open; raises BreakerOpen if it may not go."""
    before: BreakerState | None = None
    left: float | None = None
    while True:
        standing = yield from _stands(name)
        if standing.closed:
            return SharedPass(standing)
        if standing == before:
            raise refusal(name, left, trial=True)
        try:
            return SharedPass(
                standing, (yield from acquire(_trial(name, standing), LeaseTerms(TRIAL), granted, info=info))
            )
        except Busy as busy:
            if busy.holder == COOLDOWN:
                raise refusal(name, busy.left, trial=False) from None
            before, left = standing, busy.left  # a trial is under way; or it just ended, and we look again


def judge(name: str, rule: Rule, passed: SharedPass, worked: bool) -> Flow[Circuit | None]:
    """Counts how the call went; answers what the breaker turned into by that, or None if it did not turn."""
    standing, trial = passed
    if trial is None:
        if worked or not (yield from _too_many(name, rule, standing)):
            return None
    else:
        # Nobody tries again at this standing while a verdict on it, or a look that found it, may still be under way.
        ended: Entry = yield Finish(trial.key, trial.owner, b"", max(rule.cooldown, REMEMBER))
        if ended.owner != trial.owner:
            return None  # it took too long: another trial has the verdict
    if worked:
        after = standing.after_success(rule.successes)
        yield from _moves(name, after)
        return Circuit.CLOSED if after.closed else None
    owner: str = yield Ask.OWNER
    yield Acquire(_trial(name, standing.opened), owner, rule.cooldown, COOLDOWN)  # before it opens: no trial is early
    yield from _moves(name, standing.opened)
    return Circuit.OPEN


def _too_many(name: str, rule: Rule, standing: BreakerState) -> Flow[bool]:
    """Counts a failure; True if it is one too many, and the breaker has not turned since the call was let through."""
    owner: str = yield Ask.OWNER
    allowance: Allowance = yield Hit(f"failures/{name}@{standing.number}", owner, rule.threshold, rule.per)
    return allowance.hits >= rule.threshold and (yield from _stands(name)) == standing


def state(name: str) -> Flow[Circuit]:
    """What would happen to a call now."""
    standing = yield from _stands(name)
    if standing.closed:
        return Circuit.CLOSED
    trial: Entry = yield Read(_trial(name, standing))
    cooling = trial.state is State.DONE or (trial.state is State.HELD and trial.info == COOLDOWN)
    return Circuit.OPEN if cooling else Circuit.HALF_OPEN


def reset(name: str) -> Flow[bool]:
    """Closes the breaker at once; False if it was closed."""
    standing = yield from _stands(name)
    if not standing.closed:
        yield from _moves(name, BreakerState(standing.number + 1))
    return not standing.closed
