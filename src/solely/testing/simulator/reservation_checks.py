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
    """A caller was allowed to send, by its hit at that time. It counts until the caller releases without sending."""

    __slots__ = ("at", "owner", "released")

    def __init__(self, owner: str, at: int) -> None:
        self.owner, self.at = owner, at
        self.released: float = float("inf")


class LimitChecks:
    """Never more grants than the limit in any window, and correct replies to every hit."""

    def __init__(self, history: History, runs: dict[str, SimulatedRun]) -> None:
        self.history = history
        self.runs = runs
        self._hits: dict[str, dict[str, int]] = {}  # by key: the owners that hit it, and when
        self._unhit: set[tuple[str, str]] = set()  # a late hit that arrives after its Unhit stays: a known limit
        self._forgotten: set[str] = set()  # owners from before the last data loss
        self._grants: dict[str, list[Grant]] = {}

    def lost_all_data(self) -> None:
        """Counts from 0: the store came back empty."""
        self._hits.clear()
        self._grants.clear()
        self._forgotten.update(self.runs)

    def performed(self, op: Op, reply: Reply, now: int) -> None:
        """Checks the store's reply to this Hit or Unhit."""
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
        """Checks the limits when a caller is allowed to send."""
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
        """Records that the holder did not send: from now on its grant does not count."""
        for key in ticket.hits:
            for grant in self._grants.get(key, []):
                if grant.owner == ticket.owner:
                    grant.released = now

    def check_nothing_left(self, run: SimulatedRun) -> None:
        """A reservation that was not granted must have removed its hits, unless its compensation failed."""
        for key, hits in self._hits.items():
            for owner in hits:
                if self.runs[owner] is run and run.undone:
                    self.check_unhit(owner, [key])

    def check_unhit(self, owner: str, keys: Sequence[str]) -> None:
        """An owner that released must have removed its hits."""
        for key in keys:
            if owner in self._hits.get(key, {}) and (key, owner) not in self._unhit:
                self.history.violated("no leaked hit", f"{owner} has released, but its hit of {key} stays")


class BreakerChecks:
    """One breaker, shared by all clients, opens at its threshold and then admits one trial call at a time."""

    def __init__(self, history: History, rule: Rule) -> None:
        self.history = history
        self.rule = rule
        self.state = BreakerState()
        self._lost = False  # after data loss, earlier and later calls count together, and nothing is checked
        self._in_flight: dict[Hold, SimulatedDriver] = {}  # trials
        self._successes: dict[int, int] = {}  # by number of the state: successful trials
        self._failures: dict[int, int] = {}  # by number: admitted calls that failed
        self._counted: dict[int, list[float]] = {}  # by number: when a failure that the breaker counted happened

    def lost_all_data(self) -> None:
        """Stops the checks: the breaker is closed again and counts from 0."""
        self._lost = True

    def performed(self, op: Op, reply: Reply, now: int) -> None:
        """Checks the store's reply to an op on the breaker's state."""
        if not isinstance(op, Advance) or self._lost:
            return
        assert isinstance(reply, Entry)
        before, self.state = self.state, BreakerState(*map(int, (reply.value or b"").split(b".")))
        opened, closed = before.closed and not self.state.closed, self.state.closed and not before.closed
        if self.state < before:
            self.history.violated("breaker", f"{op} moved it back from {before} to {self.state}")
        elif opened and self._failures.get(before.number, 0) < self.rule.threshold:
            self.history.violated("breaker", f"{op} opened it before its threshold")
        elif closed and self._successes.get(before.number, 0) < self.rule.successes:
            self.history.violated("breaker", f"{op} closed it before enough trials succeeded")

    def admitted(self, driver: SimulatedDriver, passed: SharedPass, before: BreakerState) -> None:
        """A call must be admitted at a state no older than `before`, and a trial must be the only one."""
        if self._lost:
            return
        if passed.state < before:
            self.history.violated("breaker", f"a call was admitted at {passed.state}; the state was {before}")
        if passed.trial is None:
            return
        for trial, other in self._in_flight.items():
            if not other.dead and other.moment(trial.deadline) > driver.timeline.now:
                self.history.violated("one trial", f"{driver.name} tries {passed.trial.key}; {other.name}: {trial.key}")
        self._in_flight[passed.trial] = driver

    def ends(self, passed: SharedPass, worked: bool) -> None:
        """Records the result of an admitted call, before the breaker learns of it."""
        number = passed.state.number
        if passed.trial is not None:
            self.dropped(passed.trial)
            self._successes[number] = self._successes.get(number, 0) + worked
        elif not worked:
            self._failures[number] = self._failures.get(number, 0) + 1

    def dropped(self, trial: Hold) -> None:
        """Records that this trial is over."""
        self._in_flight.pop(trial, None)

    def judged(self, passed: SharedPass, worked: bool, began: float) -> None:
        """Once the breaker has counted as many failures as its threshold, it must be open."""
        if passed.trial is not None or worked or self._lost:
            return
        counted = self._counted.setdefault(passed.state.number, [])
        counted.append(began)
        recent = [moment for moment in counted if moment > self.history.timeline.now - self.rule.per]
        if len(recent) >= self.rule.threshold and self.state == passed.state:
            self.history.violated("breaker", f"it counted {len(recent)} failures and is still closed")
