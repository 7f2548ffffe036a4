"""Decisions of shared breakers: all processes stop calling a failing dependency; one trial at a time probes it.

The state is a watermark: a number that only grows, even while closed and odd while open, and the count of successful
trials since it opened. So a verdict that comes late, twice, or together with others can only write a state that is
already stored or too old to count; if a success and a failure race, the failure wins. Each state has its own trial key,
held by the cooldown first and by one trial at a time afterwards; the trial that finishes the key decides. Failures are
hits in a window that belongs to the number, so that earlier ones do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import Busy, Unreadable
from ..flow import Ask, Flow
from ..formats import read_breaker, write_breaker
from ..holder import Signer
from ..leases.flow import LeaseTerms, acquire
from ..leases.hold import Hold
from ..model import Allowance, Entry, State
from ..ops import Acquire, Advance, Finish, Hit, Read
from ..resilience.circuit import Circuit, Rule, refusal
from ..rules import REMEMBER

TRIAL = 10.0  # seconds that a trial blocks others after its process died; a running trial is renewed
COOLDOWN = "cooldown"  # the info of a trial key while the cooldown holds it


class BreakerState(NamedTuple):
    """Closed at an even number; open or half-open at an odd one, with `wins` successful trials."""

    number: int = 0
    wins: int = 0

    @property
    def closed(self) -> bool:
        return self.number % 2 == 0

    @property
    def opened(self) -> BreakerState:
        """The state after a failure."""
        return BreakerState(self.number + 1 if self.closed else self.number + 2)

    def after_success(self, successes: int) -> BreakerState:
        """The state after a successful trial."""
        return BreakerState(self.number, self.wins + 1) if self.wins + 1 < successes else BreakerState(self.number + 1)


class SharedPass(NamedTuple):
    """An admitted call: the breaker's state at that time, and the hold of the trial key if it is a trial."""

    state: BreakerState
    trial: Hold | None = None


def _trial(name: str, current: BreakerState) -> str:
    return f"trial/{name}@{current.number}.{current.wins}"


def _read(name: str) -> Flow[BreakerState]:
    return state_of((yield Read(f"breaker/{name}")))


def state_of(entry: Entry) -> BreakerState:
    """The state of the breaker in this entry; raises Unreadable if Solely did not write it."""
    if entry.value is None:
        return BreakerState()
    try:
        return BreakerState(*read_breaker(entry.value))
    except ValueError:
        text = f"a newer version or another program wrote breaker {entry.name!r}: {entry.value!r:.40}"
        raise Unreadable(text, key=entry.name) from None


def _advance(name: str, current: BreakerState) -> Flow[None]:
    yield Advance(f"breaker/{name}", write_breaker(*current))


def admit(name: str, granted: Callable[[Hold], Hold], info: Signer) -> Flow[SharedPass]:
    """Admits the call, as the one trial if the breaker is half-open; else raises BreakerOpen."""
    before: BreakerState | None = None
    left: float | None = None
    while True:
        current = yield from _read(name)
        if current.closed:
            return SharedPass(current)
        if current == before:
            raise refusal(name, left, trial=True)
        try:
            return SharedPass(
                current, (yield from acquire(_trial(name, current), LeaseTerms(TRIAL), granted, info=info))
            )
        except Busy as busy:
            if busy.holder == COOLDOWN:
                raise refusal(name, busy.left, trial=False) from None
            before, left = current, busy.left  # a trial runs, or just ended: read the state again


def judge(name: str, rule: Rule, passed: SharedPass, worked: bool) -> Flow[Circuit | None]:
    """Counts the result of the call; returns OPEN or CLOSED if that changed the breaker, else None."""
    current, trial = passed
    if trial is None:
        if worked or not (yield from _too_many(name, rule, current)):
            return None
    else:
        # Kept so long that no other trial starts in this state while a verdict on it, or a read of it, is in flight.
        ended: Entry = yield Finish(trial.key, trial.owner, b"", max(rule.cooldown, REMEMBER))
        if ended.owner != trial.owner:
            return None  # it took too long: another trial decides
    if worked:
        after = current.after_success(rule.successes)
        yield from _advance(name, after)
        return Circuit.CLOSED if after.closed else None
    owner: str = yield Ask.OWNER
    yield Acquire(
        _trial(name, current.opened), owner, rule.cooldown, COOLDOWN
    )  # before it opens, so that no trial starts early
    yield from _advance(name, current.opened)
    return Circuit.OPEN


def _too_many(name: str, rule: Rule, current: BreakerState) -> Flow[bool]:
    """Counts a failure; True if it reaches the threshold, and the breaker has not changed since the call started."""
    owner: str = yield Ask.OWNER
    allowance: Allowance = yield Hit(f"failures/{name}@{current.number}", owner, rule.threshold, rule.per)
    return allowance.hits >= rule.threshold and (yield from _read(name)) == current


def state(name: str) -> Flow[Circuit]:
    """What the breaker would do with a call now."""
    current = yield from _read(name)
    if current.closed:
        return Circuit.CLOSED
    trial: Entry = yield Read(_trial(name, current))
    cooling = trial.state is State.DONE or (trial.state is State.HELD and trial.info == COOLDOWN)
    return Circuit.OPEN if cooling else Circuit.HALF_OPEN


def reset(name: str) -> Flow[bool]:
    """Closes the breaker at once; False if it was closed already."""
    current = yield from _read(name)
    if not current.closed:
        yield from _advance(name, BreakerState(current.number + 1))
    return not current.closed
