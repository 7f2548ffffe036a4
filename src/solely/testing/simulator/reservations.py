"""Simulated clients of reservations: they reserve, send (some through a shared breaker), and record or release."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from typing import Any

from ...breakers import flow as breaker
from ...drivers.simulated import SimulatedRun
from ...errors import ReservationMismatch, UnknownReservation
from ...leases import flow as lock
from ...leases.hold import Hold
from ...ops import Acquire, Finish, Op, Reply
from ...reservations.flow import (
    QUIET,
    RESERVED,
    ReservationTerms,
    ReservationTicket,
    ReserveReply,
    expire,
    record,
    release,
    reserve,
)
from ...resilience.circuit import Rule
from ...rules import REMEMBER
from ...stores.transitions import us
from .history import History
from .observer import Observer
from .reservation_checks import BreakerChecks, LimitChecks
from .scenarios import BRISK, RELIABLE, SLOW, UNRELIABLE, Behavior, Scenario
from .simulation import Perform, Script, SimulatedClient, Simulation, Task

_HOLDS = (0.5, 1.0, 2.0, 5.0)
_QUIETS = (0.0, 0.3, 1.0, 3.0)  # seconds: short, so that a key is sent several times
_LIMITS = (None, (1, 2.0), (2, 5.0), (3, 10.0))
_GROUPS = (None, ("group/g", 2, 3.0), ("group/g", 4, 10.0))
_BREAKER = "smtp"
_RULE = Rule(threshold=3, per=10.0, cooldown=0.4, successes=2, on=Exception)
_NOON = "2025-01-01T12:00:00+00:00"  # the time that all of them record: no decision depends on it
_UP_AND_DOWN = 2.0  # seconds that the service behind the breaker fails, and then works
_SCENARIOS = (
    Scenario(0.35, (1, 2, 3), RELIABLE, Behavior(0.1, 0.0, BRISK, clears=True)),
    Scenario(0.65, (1, 2, 3), UNRELIABLE, Behavior(0.12, 0.0, SLOW, 0.04, 0.006, 0.008, 0.4, True)),
)


class ReservationObserver(Observer):
    """Also checks hits, the counts of sent notifications, and the state of the breaker."""

    def __init__(self, simulation: ReservationSimulation) -> None:
        super().__init__(simulation.history, simulation.waiting, simulation.runs)
        self.limits, self.breaker_checks = simulation.limits, simulation.breaker_checks
        self._kinds |= dict.fromkeys(("hits", "group"), self.limits.performed)
        self._kinds |= {"breaker": self.breaker_checks.performed, "failures": _unchecked, "sent": self._sent}

    def lost_all_data(self) -> None:
        super().lost_all_data()
        self.limits.lost_all_data()
        self.breaker_checks.lost_all_data()

    def _abandoned(self, op: Acquire) -> bool:
        """A cooldown outlives its flow on purpose."""
        return op.info != breaker.COOLDOWN and super()._abandoned(op)

    def _sent(self, op: Op, reply: Reply, now: int) -> None:
        if not self.forgotten and isinstance(op, Finish):
            key = f"reservation/{op.key.partition('/')[2]}"
            recorded = len({outcome.owner for outcome in self.outcomes.by_key.get(key, [])})
            if json.loads(op.value)["sent"] > recorded:
                self.history.violated(
                    "recorded once", f"{op.value!r} counts more of {key} than the {recorded} recorded"
                )


def _unchecked(op: Op, reply: Reply, now: int) -> None:
    """Hits of a breaker's failures are not checked, but the breaker's state is."""


class ReservingClient(SimulatedClient):
    """One process that sends what it could reserve, and records that."""

    simulation: ReservationSimulation

    def reserve(self) -> Script:
        """Reserves one key and, if granted, sends and records or releases."""
        if self.chance() < self.simulation.calls:
            yield from self.call()
            return
        key, observer = self.pick(self.simulation.keys), self.simulation.observer
        terms, began = self.simulation.terms[key], observer.now()
        run: SimulatedRun = yield Perform(reserve(key, terms, ""))
        answer: ReserveReply = run.result
        if run.error is not None or answer.hold is None or answer.ticket is None:
            self.check_nothing_left(run, [key])
            self.simulation.limits.check_nothing_left(run)
            if run.error is None:
                self._check_reason(key, answer, began)
            return
        self.simulation.limits.granted(answer.ticket, terms)
        answer.hold.keep(self.chance() < 0.6, math.inf)
        self.context.keep(answer.hold)
        self.rely_on(answer.hold)
        yield from self._use(answer.hold, answer.ticket)

    def _check_reason(self, key: str, answer: ReserveReply, began: int) -> None:
        observer = self.simulation.observer
        outcomes = [outcome for outcome in observer.outcomes.by_key.get(key, []) if outcome.until > began]
        held = [held for (name, _), held in observer.holds.items() if name == key]
        held = [one for one in held if (one.ended_at if one.ended else one.until) >= began]
        if (answer.reason == QUIET and not outcomes) or (answer.reason == RESERVED and not held):
            self.violated("correct refusals", f"{key} was refused as {answer.reason}, which it was not")

    def _use(self, hold: Hold, ticket: ReservationTicket) -> Script:
        sent = yield from self._send()
        for _ in range(int(self.chance() * 2)):
            yield self.chance() * self.pick(self.simulation.behavior.work)
            self.simulation.inject_fault(self)
        self.simulation.leases.ends(hold)
        chance = self.chance()
        if chance < 0.1:  # never finished, or finished by another process
            self.context.keeper.remove(hold)
            other = self.pick(self.simulation.clients)
            if chance < 0.05 and not other.driver.dead:
                other.tasks.append(Task(other, other.finish(hold, ticket, sent)))
                other.driver.after(self.chance() * 2.0, other.tasks[-1].step)
        else:
            yield from self.finish(hold, ticket, sent)

    def finish(self, hold: Hold, ticket: ReservationTicket, sent: bool) -> Script:
        """Records the reservation if it was sent, and else releases it."""
        self.context.keeper.remove(hold)
        if sent:
            yield from self._record(ticket)
        else:
            yield from self._release(ticket, hold.doubtful)

    def _record(self, ticket: ReservationTicket) -> Script:
        for _ in range(3):
            run: SimulatedRun = yield Perform(record(ticket, _NOON))
            if run.error is None:
                self._check_recorded(ticket, run.result)
                if self.chance() < 0.8:
                    return
            elif isinstance(run.error, ReservationMismatch | UnknownReservation):
                self._check_unknown(ticket, run.error)
                return

    def _check_recorded(self, ticket: ReservationTicket, fresh: bool) -> None:
        simulation, owner = self.simulation, ticket.owner
        recorded = [outcome.owner for outcome in simulation.observer.outcomes.by_key.get(ticket.key, [])]
        if owner not in recorded:
            self.violated("recorded once", f"{ticket} was reported as recorded; it never was")
        counts_are_kept = simulation.faults == RELIABLE
        if fresh and owner in simulation.recorded and counts_are_kept:
            self.violated("recorded once", f"{ticket} was reported as newly recorded twice")
        simulation.recorded.add(owner)

    def _check_unknown(self, ticket: ReservationTicket, error: Exception) -> None:
        """A record may be refused only if another took the key, or it was released, or it expired long ago."""
        observer = self.simulation.observer
        held, latest = observer.holds[ticket.key, ticket.owner], observer.latest[ticket.key]
        same = held is latest and held.fence == ticket.fence  # else a late copy took the key again, under the same id
        valid = same and not held.ended and observer.now() < held.until + us(REMEMBER)
        no_other = isinstance(error, ReservationMismatch) and held is latest
        if not held.forgotten and (valid or no_other):
            self.violated("correct refusals", f"{ticket} was refused ({error}); it was {held.ended}")

    def _release(self, ticket: ReservationTicket, doubtful: bool) -> Script:
        observer, limits = self.simulation.observer, self.simulation.limits
        limits.not_sent(ticket, observer.now())
        for _ in range(2):
            run: SimulatedRun = yield Perform(release(ticket, doubtful))
            held = observer.grants[ticket.key, ticket.fence]
            if run.error is not None:
                continue
            if run.result and not held.forgotten:
                limits.check_unhit(ticket.owner, ticket.hits)
            if held.ended != "released" if run.result else held.live(observer.now()):
                self.violated("correct release replies", f"{ticket} got {run.result}: {held.ended}")
            return

    # -- sending

    def _send(self) -> Generator[Perform | float, Any, bool]:
        """Returns whether it was sent."""
        works = int(self.driver.timeline.now / _UP_AND_DOWN) % 2 == 1 or self.chance() < 0.2
        if self.chance() >= self.simulation.calls:
            return works
        checks = self.simulation.breaker_checks
        before = checks.state
        run: SimulatedRun = yield Perform(breaker.admit(_BREAKER, self._trial, str))
        if run.error is not None:
            return False
        passed: breaker.SharedPass = run.result
        checks.admitted(self.driver, passed, before)
        yield self.chance() * self.pick(self.simulation.behavior.work)
        self.simulation.inject_fault(self)
        if passed.trial is not None:
            self.context.keeper.remove(passed.trial)
        began = self.driver.timeline.now
        if passed.trial is not None and self.chance() < 0.1:  # its result is unknown
            checks.dropped(passed.trial)
            yield Perform(lock.release(passed.trial))
            return False
        checks.ends(passed, works)
        run = yield Perform(breaker.judge(_BREAKER, _RULE, passed, works))
        if run.error is None:
            checks.judged(passed, works, began)
        return works

    def _trial(self, hold: Hold) -> Hold:
        hold.keep(True, math.inf)
        self.context.keep(hold)
        return hold

    def call(self) -> Script:
        """Sends without a reservation."""
        yield from self._send()

    def expire(self) -> Script:
        """An admin ends the reservation of a key."""
        yield Perform(expire(self.pick(self.simulation.keys), "by hand"))


ReservingClient.actions = ((0.93, ReservingClient.reserve), (1.00, ReservingClient.expire))


class ReservationSimulation(Simulation):
    """A simulation of reservations, limits and one shared breaker."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "reservation", _SCENARIOS)
        group = self.chance.choice(_GROUPS)
        self.terms = {key: self._terms(group) for key in self.keys}
        self.calls = self.chance.choice((0.0, 0.2, 0.9))  # the share of calls that go through the breaker
        self.recorded: set[str] = set()  # owners whose record succeeded
        self.limits = LimitChecks(self.history, self.runs)
        self.breaker_checks = BreakerChecks(self.history, _RULE)
        self.observe_with(ReservationObserver(self))
        self.add_clients(ReservingClient)

    def _terms(self, group: tuple[str, int, float] | None) -> ReservationTerms:
        choice = self.chance.choice
        return ReservationTerms(choice(_HOLDS), choice(_QUIETS), choice(_LIMITS), group)


def simulate_reservations(seed: int) -> History:
    """Simulates reservations, and returns the history, which is the same for the same seed."""
    return ReservationSimulation(seed).run()
