"""Checks on limits and on the shared breaker."""

from __future__ import annotations

from collections.abc import Sequence

from ...breakers.flow import BreakerState, SharedPass
from ...drivers.simulated import SimulatedDriver, SimulatedRun
from ...leases.hold import Hold
from ...model import Allowance, Entry
from ...ops import Advance, Hit, Op, Reply
from ...reservations.flow import ReservationTerms, ReservationTicket
from ...resilience.circuit import Rule
from ...stores.transitions import us
from .history import History


class Grant:
    """A caller may send, since its hit at that moment. It counts until it is said that nothing was sent."""

    __slots__ = ("at", "owner", "released")

    def __init__(self, owner: str, at: int) -> None:
        self.owner, self.at = owner, at
        self.released: float = float("inf")


class LimitChecks:
    """Checks every answer to a hit, and every window that ends with a grant."""

    def __init__(self, history: History, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.runs = runs
        self._hits: dict[str, dict[str, int]] = {}  # by key: the owners that hit it, and when
        self._unhit: set[tuple[str, str]] = set()  # a late hit that comes after that stays: a known limit
        self._forgotten: set[str] = set()  # owners from before the last loss of all data
        self._grants: dict[str, list[Grant]] = {}

    def lost_all_data(self) -> None:
        """The store came back empty: it counts from 0."""
        self._hits.clear()
        self._grants.clear()
        self._forgotten.update(self.runs)

    def performed(self, op: Op, reply: Reply, now: int) -> None:
        """The store performed this Hit or Unhit, and answered so."""
        hits = self._hits.setdefault(op.key, {})  # type: ignore[union-attr]
        if not isinstance(op, Hit):
            hits.pop(op.owner, None)  # type: ignore[union-attr]
            self._unhit.add((op.key, op.owner))  # type: ignore[union-attr]
            return
        assert isinstance(reply, Allowance)
        recent = [owner for owner, at in hits.items() if at > now - us(op.per)]
        if reply.allowed != (op.owner in recent or len(recent) < op.limit):
            self.history.violated("exact limits", f"{op} was answered {reply}, with {len(recent)} in the window")
        if reply.allowed and op.owner not in recent:
            hits[op.owner] = now

    def granted(self, ticket: ReservationTicket, terms: ReservationTerms) -> None:
        """A caller was told that it may send."""
        if terms.own is not None:
            self._granted(f"hits/{ticket.key.partition('/')[2]}", ticket.owner, *terms.own)
        if terms.group is not None:
            self._granted(terms.group[0], ticket.owner, *terms.group[1:])

    def _granted(self, key: str, owner: str, limit: int, per: float) -> None:
        at = self._hits.get(key, {}).get(owner)
        if at is None:
            if owner not in self._forgotten:
                self.history.violated("exact limits", f"{owner} was granted without a hit of {key}")
            return
        grants = self._grants.setdefault(key, [])
        grants.append(Grant(owner, at))
        for last in grants:
            window = [grant for grant in grants if last.at - us(per) < grant.at <= last.at < grant.released]
            if len(window) > limit:
                self.history.violated("exact limits", f"{len(window)} were granted within {per} s under {key}")

    def not_sent(self, ticket: ReservationTicket, now: int) -> None:
        """Its holder says that nothing was sent: from now on it need not be counted."""
        for key in ticket.hits:
            for grant in self._grants.get(key, []):
                if grant.owner == ticket.owner:
                    grant.released = now

    def check_nothing_left(self, run: SimulatedRun) -> None:
        """This reserving was not granted: its hits are given back, unless its undoing failed."""
        for key, hits in self._hits.items():
            for owner in hits:
                if self.runs[owner] is run and run.undone:
                    self.check_unhit(owner, [key])

    def check_unhit(self, owner: str, keys: Sequence[str]) -> None:
        """This owner has let go: then its hits are given back."""
        for key in keys:
            if owner in self._hits.get(key, {}) and (key, owner) not in self._unhit:
                self.history.violated("no leaked hit", f"{owner} has let go, and its hit of {key} stays")


class BreakerChecks:
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

    def lost_all_data(self) -> None:
        """The store came back empty: the breaker is closed, and counts from 0."""
        self._lost = True

    def performed(self, op: Op, reply: Reply, now: int) -> None:
        """The store performed this op on the standing."""
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
        """A call was let through: not at an older standing than when it asked, and as the only trial if it is one."""
        if self._lost:
            return
        if passed.standing < stood:
            self.history.violated("breaker", f"a call was let through at {passed.standing}; it stood at {stood}")
        if passed.trial is None:
            return
        for trial, other in self._under_way.items():
            if not other.dead and other.moment(trial.deadline) > driver.timeline.now:
                self.history.violated("one trial", f"{driver.name} tries {passed.trial.key}; {other.name}: {trial.key}")
        self._under_way[passed.trial] = driver

    def ends(self, passed: SharedPass, worked: bool) -> None:
        """A call that was let through is over, and is going to be judged."""
        number = passed.standing.number
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
        told = self._told.setdefault(passed.standing.number, [])
        told.append(began)
        recent = [moment for moment in told if moment > self.history.timeline.now - self.rule.per]
        if len(recent) >= self.rule.threshold and self.stands == passed.standing:
            self.history.violated("breaker", f"{len(recent)} failures were counted, and it is still closed")
