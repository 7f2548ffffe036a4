"""Simulated clients of locks and marks: they lock, work, renew, release, hand over, mark and clear."""

from __future__ import annotations

import math
from typing import Any

from ...drivers.simulated import SimulatedRun
from ...flow import Flow
from ...leases.context import Context
from ...leases.flow import LeaseTerms
from ...leases.hold import HANDED_OVER, Hold
from ...leases.lease import LeaseBase
from ...leases.token import Token, read_token
from ...locks.calls import acquiring, acquiring_all, kept, resuming
from ...locks.handle import releasing_all
from ...marks import calls as marking
from ...model import Entry, State
from ...ops import Clear, Read
from .history import History
from .observer import Observer
from .scenarios import BRISK, RELIABLE, SLOW, UNRELIABLE, Behavior, Scenario
from .simulation import Perform, Script, SimulatedClient, Simulation, Task

_TTLS = (1.0, 1.0, 2.0, 5.0, 10.0)
_WAITS = (0.0, 0.3, 3.0, 3.0, 12.0)  # seconds: the longest is longer than any correct hand-over takes
_DELAYS = (0.0, 0.0, 0.0, 0.5)
_MARKINGS = [(ttl, how) for ttl in (1.0, 10.0, 3600.0) for how in (marking.first, marking.mark)]
_SCENARIOS = (
    Scenario(0.25, (1, 1, 2), RELIABLE, Behavior(0.1, 0.0, BRISK)),  # many wait for few keys
    Scenario(0.15, (2, 3), RELIABLE, Behavior(0.1, 1.0, BRISK)),  # each takes several of the same keys
    Scenario(0.60, (1, 2, 3), UNRELIABLE, Behavior(0.12, 0.5, SLOW, 0.04, 0.006, 0.008, 0.4, True)),
)


class SimulatedLease(LeaseBase):
    """A lease that a script uses."""

    def __init__(self, hold: Hold, context: Context) -> None:
        self._hold, self._context = hold, context

    def __repr__(self) -> str:
        return f"lease of {self._hold.key} under {self._hold.fence}"


class LockingClient(SimulatedClient):
    """One process that locks and marks."""

    simulation: LockSimulation

    # -- locks

    def _terms(self, wait: float) -> LeaseTerms:
        return LeaseTerms(self.pick(_TTLS), wait, self.pick(_DELAYS), self.driver.name)

    def _lease(self, hold: Hold) -> SimulatedLease:
        hold.keep(renew=self.chance() < 0.5, max_hold=3.0 if self.chance() < 0.2 else math.inf)
        return kept(self.context, SimulatedLease(hold, self.context))

    def lock(self) -> Script:
        """Takes one key, with or without waiting."""
        key, wait = self.pick(self.simulation.keys), self.pick(_WAITS)
        run: SimulatedRun = yield Perform(acquiring(self.context, key, self._terms(wait), self._lease), wait, key)
        if run.error is None:
            yield from self._use([run.result])
        else:
            self.check_nothing_left(run, [key])

    def lock_all(self) -> Script:
        """Takes several keys, all or nothing."""
        if not self.takes_several:
            yield from self.lock()
            return
        keys = list(self.simulation.keys)
        self.simulation.chance.shuffle(keys)
        keys, wait = keys[:2], self.pick(_WAITS[1:])
        run: SimulatedRun = yield Perform(acquiring_all(self.context, keys, self._terms(wait), self._lease), wait)
        if run.error is None:
            yield from self._use(run.result)
        else:
            self.check_nothing_left(run, keys)

    def _use(self, leases: list[SimulatedLease]) -> Script:
        for lease in leases:
            self.rely_on(lease._hold)
        for _ in range(int(self.chance() * 4)):
            yield self.chance() * self.pick(self.simulation.behavior.work)
            for lease in leases:
                self._write(lease._hold)
            self.simulation.inject_fault(self)
            while self.chance() < 0.5:
                yield Perform(leases[0]._renewing(self.pick(_TTLS)))
        if self.chance() < 0.1 and len(leases) == 1:
            yield from self._hand_over(leases[0])
        elif self.chance() < 0.9:
            yield from self._release(leases)
        else:
            for lease in leases:  # never released: it expires
                lease._drop("forgotten")
                self.simulation.leases.ends(lease._hold)

    def _write(self, hold: Hold) -> None:
        """Sends a write to the fenced resource if the lease is not lost; the write arrives later."""
        timeline = self.driver.timeline
        if not hold.how(self.driver.clock()):
            arrives = timeline.now + self.chance() ** 4
            timeline.at(arrives, self.simulation.leases.write, hold.key, hold.owner, hold.fence)

    def _release(self, leases: list[SimulatedLease]) -> Script:
        for lease in leases:
            self.simulation.leases.ends(lease._hold)
        repeated = False
        for _ in range(2 if self.chance() < 0.1 else 1):
            if len(leases) == 1:
                run: SimulatedRun = yield Perform(leases[0]._releasing())
            else:
                run = yield Perform(releasing_all(leases))
            if run.error is None:
                outcomes = run.result if len(leases) > 1 else [run.result]
                for lease, outcome in zip(leases, outcomes, strict=True):
                    self.check_released(lease._hold, outcome, repeated)
            repeated = run.error is not None

    def _hand_over(self, lease: SimulatedLease) -> Script:
        """One or two clients resume the lease from its token. Sometimes this one does not let go, but uses it on."""
        token = read_token(lease.token)
        for _ in range(1 if self.chance() < 0.6 else 2):
            receiver = self.pick(self.simulation.clients)
            if not receiver.driver.dead:
                receiver.tasks.append(Task(receiver, receiver._resume(token)))
                receiver.driver.after(self.chance() * 0.5, receiver.tasks[-1].step)
        if self.chance() < 0.7:
            lease._drop(HANDED_OVER)
            self.simulation.leases.ends(lease._hold)
            return
        yield self.chance() * self.pick(self.simulation.behavior.work)
        self._write(lease._hold)
        yield from self._release([lease])

    def _resume(self, token: Token) -> Script:
        run: SimulatedRun = yield Perform(resuming(self.context, token, self._lease))
        if run.error is None:
            yield from self._use([run.result])
        else:
            self.check_nothing_left(run, [token.key])

    # -- marks

    def first(self) -> Script:
        """Marks one key, which may extend an existing mark, or several at once."""
        keys = self.simulation.marks if self.chance() < 0.5 else [self.pick(self.simulation.marks)]
        ttl, one = self.pick(_MARKINGS)
        flow: Flow[Any] = (
            one(self.context, keys[0], ttl) if len(keys) == 1 else marking.first_many(self.context, keys, ttl)
        )
        run: SimulatedRun = yield Perform(flow)
        observer = self.simulation.observer
        answers = run.result if isinstance(run.result, list) else [run.result] * len(keys)
        for key, first in zip(keys, answers, strict=True):
            if run.error is None:
                observer.marks.returned(key, run, first, observer.forgotten)
            else:
                observer.marks.failed(key, run, observer.now())

    def forget(self) -> Script:
        """Removes a mark."""
        yield Perform(marking.forget(self.context, self.pick(self.simulation.marks)))

    # -- admin

    def clear(self) -> Script:
        """Clears the current hold of a key; sometimes repeats that later, as an impatient admin does."""
        if not self.simulation.behavior.clears:
            yield from self.lock()
            return
        key = self.pick(self.simulation.keys)
        run: SimulatedRun = yield Perform(self.one(Read(key)))
        entry: Entry = run.result
        if run.error is not None or entry.state is not State.HELD:
            return
        for _ in range(2 if self.chance() < 0.4 else 1):
            yield Perform(self.one(Clear(key, entry.fence, "stuck")))
            yield self.chance()


LockingClient.actions = (
    (0.30, LockingClient.lock),
    (0.42, LockingClient.lock_all),
    (0.18, LockingClient.first),
    (0.04, LockingClient.forget),
    (1.00, LockingClient.clear),
)


class LockSimulation(Simulation):
    """A simulation of locks and marks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "lock", _SCENARIOS)
        self.marks = [f"mark/{n}" for n in range(self.chance.randint(1, 4))]
        self.observe_with(Observer(self.history, self.waiting, self.runs))
        self.add_clients(LockingClient)


def simulate(seed: int) -> History:
    """Simulates locks and marks, and returns the history, which is the same for the same seed."""
    return LockSimulation(seed).run()
