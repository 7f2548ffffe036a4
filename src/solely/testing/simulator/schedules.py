"""Simulated replicas of schedules: they run ticks, die in them, are paused, and have clocks that drift apart."""

from __future__ import annotations

import math
from typing import Any

from ...drivers.simulated import SimulatedRun
from ...formats import read_run
from ...model import Entry
from ...ops import Advance, Finish
from ...schedules import flow
from ...schedules.calls import plan_of
from ...schedules.state import DueTick, Misfire, ReplicaState, SchedulePlan
from ...schedules.timetable import US
from .history import History
from .observer import Observer
from .scenarios import BRISK, RELIABLE, SLOW, UNRELIABLE, Behavior, Scenario
from .simulation import Perform, Script, SimulatedClient, Simulation

_INTERVALS = (2.0, 3.0, 7.0)
_TTLS = (1.0, 2.0, 5.0)
_ATTEMPT = 0.04  # seconds that one takes at most without a fault
_TRIES = 5  # of ending a tick while the store is unreachable
_SCENARIOS = (
    Scenario(0.35, (1,), RELIABLE, Behavior(0.0, 0.0, BRISK)),
    Scenario(0.65, (1, 2), UNRELIABLE, Behavior(0.08, 0.0, SLOW, 0.05, 0.008, 0.008, 0.3)),
)


class ScheduleObserver(Observer):
    """Sees which ticks were ended, when the store performs that: none twice, none before an earlier one."""

    plans: dict[str, SchedulePlan]

    def __init__(self, history: History, waiting: Any, runs: dict[str, SimulatedRun]) -> None:
        super().__init__(history, waiting, runs)
        self.settled: dict[str, int] = {}  # by key: all ticks up to this time are over
        self._settlings: dict[str, list[tuple[int, int]]] = {}  # by key: when the store learned of that
        self._wiped = False  # the store lost its data: then replicas know more of the past than the store
        self._kinds["schedule"] = self._advanced

    def _finished(self, op: Finish, entry: Entry, now: int) -> None:
        latest = self.latest.get(op.key)
        fresh = latest is not None and latest.owner == op.owner and not latest.ended
        super()._finished(op, entry, now)
        if fresh and entry.owner == op.owner:
            self._note(op.key, op.value)

    def lost_all_data(self) -> None:
        super().lost_all_data()
        self.settled.clear()
        self._settlings.clear()
        self._wiped = True

    def _advanced(self, op: Any, reply: Any, now: int) -> None:
        """With the policies once and all, a tick is over when this record says so; else it is only a note."""
        key = f"tick/{op.key.partition('/')[2]}"
        if isinstance(op, Advance) and self.plans[key].misfire is not Misfire.SKIP:
            self._note(key, op.value)

    def _note(self, key: str, value: bytes) -> None:
        report, plan, settled = read_run(value), self.plans[key], self.settled.get(key, -1)
        if report["tick"] > settled >= 0 and plan.misfire is Misfire.ALL and not self._wiped:
            expected = plan.timetable.next_after(settled)
            if report["tick"] != expected:
                self.history.violated("no tick is lost", f"{key}: {report['tick']} ended, {expected} never ran")
        self.settled[key] = max(settled, report["settled"])
        self._settlings.setdefault(key, []).append((self.now(), self.settled[key]))

    def begins(self, key: str, due: DueTick) -> None:
        """A replica runs this tick: nobody may have ended it, or a later one, before this replica was granted it."""
        over = max((settled for at, settled in self._settlings.get(key, ()) if at < due.began), default=-1)
        if due.tick <= over:
            self.history.violated("each tick once", f"{key}: the tick {due.tick} runs again; {over} ended")


class ScheduleReplica(SimulatedClient):
    """One process that runs schedules."""

    simulation: ScheduleSimulation

    def _script(self) -> Script:
        plan, known = self.simulation.plans[self.pick(self.simulation.keys)], ReplicaState()
        while self.simulation.has_ops_left():
            self._may_be_paused()
            run: SimulatedRun = yield Perform(flow.attempt(plan, known, ""))
            if isinstance(run.result, DueTick):
                yield from self._run(plan, known, run.result)
            elif run.error is None:
                self._check_wait(plan, run.result)
                yield run.result
            else:
                self.check_nothing_left(run, [plan.tick_key])
                yield self.chance()
            self.simulation.inject_fault(self)

    def _may_be_paused(self) -> None:
        """Pauses the process in the middle of its attempt, often for longer than a lease."""
        if self.chance() < self.simulation.behavior.pause:
            self.driver.after(self.chance() * _ATTEMPT, self.driver.pause, self.chance() * 2 * _TTLS[-1])

    def _check_wait(self, plan: SchedulePlan, wait: float) -> None:
        longest = self.simulation.interval + plan.ttl + 1.0
        if not 0.0 <= wait <= longest:
            self.violated("no replica sleeps too long", f"it would ask again after {wait} s")

    def _run(self, plan: SchedulePlan, known: ReplicaState, due: DueTick) -> Script:
        hold, simulation = due.hold, self.simulation
        if hold.how(self.driver.clock()):
            self.violated("no tick runs without a lease", f"{hold} was lost before the tick {due.tick} began")
        hold.keep(True, math.inf)
        self.context.keep(hold)
        self.rely_on(hold)
        simulation.observer.begins(hold.key, due)
        simulation.begun.append((due.tick, self.driver.timeline.now))
        yield self.chance() * self.pick(simulation.behavior.work)
        simulation.inject_fault(self)
        simulation.leases.ends(hold)
        if self.chance() < 0.1 and simulation.faults != RELIABLE:  # the process is asked to end
            self.context.keeper.remove(hold)
            yield Perform(flow.give_back(plan, hold))
            return
        for _ in range(_TRIES):
            run: SimulatedRun = yield Perform(flow.finish(plan, known, due, "", ""))
            if run.error is None:
                break
            yield self.chance()
        self.context.keeper.remove(hold)


class ScheduleSimulation(Simulation):
    """A simulation of schedules. One that is reliable must run every tick, and each within a moment."""

    observer: ScheduleObserver

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "tick", _SCENARIOS)
        self.interval = self.chance.choice(_INTERVALS)
        misfire = self.chance.choice([each.value for each in Misfire])
        ttl = self.chance.choice(_TTLS)
        self.plans = {key: plan_of(key.partition("/")[2], self.interval, "UTC", 0.0, misfire, ttl) for key in self.keys}
        self.begun: list[tuple[int, float]] = []  # ticks, and when a replica began them
        self.observe_with(ScheduleObserver(self.history, self.waiting, self.runs))
        self.observer.plans = self.plans
        self.add_clients(ScheduleReplica)

    def _run(self) -> None:
        super()._run()
        if self.faults == RELIABLE and not self.history.invariant:
            self._check_all_ran()

    def _check_all_ran(self) -> None:
        """Without faults, ticks follow each other without a gap, and none is late."""
        for earlier, later in zip(self.begun, self.begun[1:], strict=False):
            if later[0] - earlier[0] != round(self.interval * US):
                self.history.violated("no tick is lost", f"the tick {later[0]} followed {earlier[0]}")
        for tick, at in self.begun:
            late = self.observer.moment(tick)
            if at - late > 0.2:
                self.history.violated("no tick is late", f"the tick {tick} began {at - late:.3f} s late")


def simulate_schedules(seed: int) -> History:
    """Simulates schedules, and returns the history, which is the same for the same seed."""
    return ScheduleSimulation(seed).run()
