"""What a shared breaker must do: open at its threshold, counted over all clients, and try with one call at a time."""

from __future__ import annotations

from ...breakers.flow import BreakerState, SharedPass
from ...drivers.simulated import SimulatedDriver
from ...leases.hold import Hold
from ...model import Entry
from ...ops import Advance, Op, Reply
from ...resilience.circuit import Rule
from .history import History


class Trials:
    """An account of one breaker: the calls that were let through, and how they went."""

    def __init__(self, history: History, rule: Rule) -> None:
        self.history = history
        self.rule = rule
        self.stands = BreakerState()
        self._lost = False  # all data: then calls from before count together with later ones, and nothing is checked
        self._under_way: dict[Hold, SimulatedDriver] = {}  # trials
        self._wins: dict[int, int] = {}  # by number: trials that worked
        self._failures: dict[int, int] = {}  # calls let through that failed
        self._told: dict[int, list[float]] = {}  # when those failed that were told that it is counted

    def lost_everything(self) -> None:
        """The store came back empty: the breaker is closed, and counts from 0."""
        self._lost = True

    def performed(self, op: Op, reply: Reply, now: int) -> None:
        """The store performed this op on the state of the breaker."""
        if not isinstance(op, Advance) or self._lost:
            return
        assert isinstance(reply, Entry)
        before, self.stands = self.stands, BreakerState(*map(int, (reply.value or b"").split(b".")))
        opened, closed = before.closed and not self.stands.closed, self.stands.closed and not before.closed
        if self.stands < before:
            self.history.violated("breaker", f"{op} took it back from {before} to {self.stands}")
        elif opened and self._failures.get(before.number, 0) < self.rule.threshold:
            self.history.violated("breaker", f"{op} opened it before its threshold")
        elif closed and self._wins.get(before.number, 0) < self.rule.successes:
            self.history.violated("breaker", f"{op} closed it before so many trials worked")

    def admitted(self, driver: SimulatedDriver, passed: SharedPass, stood: BreakerState) -> None:
        """A call was let through: not at an older state than when it asked, and as the only trial if it is one."""
        if self._lost:
            return
        if passed.state < stood:
            self.history.violated("breaker", f"a call was let through at {passed.state}; it stood at {stood}")
        if passed.trial is None:
            return
        for trial, other in self._under_way.items():
            if not other.dead and other.moment(trial.deadline) > driver.timeline.now:
                self.history.violated("one trial", f"{driver.name} tries {passed.trial.key}; {other.name}: {trial.key}")
        self._under_way[passed.trial] = driver

    def ends(self, passed: SharedPass, worked: bool) -> None:
        """A call that was let through is over, and is going to be judged."""
        number = passed.state.number
        if passed.trial is not None:
            self.dropped(passed.trial)
            self._wins[number] = self._wins.get(number, 0) + worked
        elif not worked:
            self._failures[number] = self._failures.get(number, 0) + 1

    def dropped(self, trial: Hold) -> None:
        """Its holder does not try any more."""
        self._under_way.pop(trial, None)

    def judged(self, passed: SharedPass, worked: bool, began: float) -> None:
        """It was told that this is counted: then, at the threshold, the breaker is open."""
        if passed.trial is not None or worked or self._lost:
            return
        told = self._told.setdefault(passed.state.number, [])
        told.append(began)
        recent = [moment for moment in told if moment > self.history.timeline.now - self.rule.per]
        if len(recent) >= self.rule.threshold and self.stands == passed.state:
            self.history.violated("breaker", f"{len(recent)} failures were counted, and it is still closed")
