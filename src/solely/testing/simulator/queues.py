"""Simulated clients of queues: they push, wait for items, renew, settle, hand over, amend, remove and count them."""

from __future__ import annotations

from typing import Any

from ...drivers.simulated import SimulatedRun
from ...errors import Busy
from ...formats import OWNER_BYTES
from ...model import LeasedItem, line_key
from ...ops import Push
from ...queues import flow
from ...queues.flow import ItemInfo, TakenItem
from ...queues.waiting import TakeTerms, take
from .history import History
from .queue_checks import PromptItems, QueueObserver
from .scenarios import BRISK, RELIABLE, SLOW, UNRELIABLE, Behavior, Scenario
from .simulation import TIMEOUT, Perform, Script, SimulatedClient, Simulation, Task

_TTLS = (1.0, 2.0, 5.0)
_WAITS = (0.0, 0.3, 3.0, 12.0)
_DELAYS = (0.0, 0.0, 0.0, 0.5, 2.0)
_LIMITS = (0, 0, 2, 4)  # of attempts
_IDS = 4  # per queue: few, so that clients meet
_SCENARIOS = (
    Scenario(0.35, (1, 1, 2), RELIABLE, Behavior(0.1, 0.0, BRISK)),
    Scenario(0.65, (1, 2), UNRELIABLE, Behavior(0.12, 0.0, SLOW, 0.04, 0.006, 0.008, 0.4)),
)


class QueueClient(SimulatedClient):
    """One process that produces and consumes."""

    simulation: QueueSimulation

    def push(self) -> Script:
        """Pushes an item, now or for later."""
        queue, id = self.pick(self.simulation.keys), f"{int(self.chance() * _IDS)}"
        yield Perform(flow.push(queue, id, flow.body_of({"n": 0}), self.pick(_DELAYS)))

    def push_held(self) -> Script:
        """Pushes an item and takes it, or the one that waits under its id, and works on it."""
        queue, id = self.pick(self.simulation.keys), f"{int(self.chance() * _IDS)}"
        body, ttl = flow.body_of({"n": 0}), self.pick(_TTLS)
        yield from self._taken(queue, (yield Perform(flow.push_held(queue, id, body, ttl, self._park))), id)

    def take(self) -> Script:
        """Takes any item or, now and then, one by its id, with or without waiting, and works on it."""
        queue, wait = self.pick(self.simulation.keys), self.pick(_WAITS)
        terms = TakeTerms(self.pick(_TTLS), wait, self.pick(_LIMITS), self.driver.name)
        id = f"{int(self.chance() * _IDS)}" if self.chance() < 0.15 else ""
        line = "" if id else line_key(queue)  # one that waits for a certain item polls: its promptness is not checked
        yield from self._taken(queue, (yield Perform(take(queue, terms, self._park, id), wait, line)), id)

    def _taken(self, queue: str, run: SimulatedRun, id: str) -> Script:
        if isinstance(run.result, TakenItem):
            if id not in ("", run.result.id):
                self.violated("the requested item", f"{run.owner} asked for {id} and got {run.result.id}")
            yield from self._work(queue, run.result)
        elif run.error is None and not run.doubtful:  # a Take that is still in flight cannot be revoked
            self._check_nothing_left(queue, run)

    def _park(self, item: LeasedItem, payload: Any, why: object) -> Push:
        return Push("parked", str(item.fence), item.payload)

    def _check_nothing_left(self, queue: str, run: SimulatedRun) -> None:
        line = self.simulation.network.memory._records.get(line_key(queue))
        waiters = [waiter.owner for waiter in line.waiters] if line is not None else []
        observer = self.simulation.observer
        observer.nothing_left(queue, lambda owner: observer.runs[owner] is run, waiters)

    def _work(self, queue: str, taken: TakenItem) -> Script:
        self.simulation.observer.given(taken)
        self.simulation.observer.relied_on(self.driver, queue, taken)
        yield self.chance() * self.pick(self.simulation.behavior.work)
        self.simulation.inject_fault(self)
        if self.chance() < 0.4:
            run: SimulatedRun = yield Perform(flow.renew(queue, taken.id, taken.owner, self.pick(_TTLS)))
            if run.error is None and run.result is not None:
                taken = taken._replace(deadline=run.result)
                self.simulation.observer.relied_on(self.driver, queue, taken)
        yield from self._settle(queue, taken)

    def _settle(self, queue: str, taken: TakenItem) -> Script:
        chance = self.chance()
        if chance < 0.5:
            self.simulation.settled.add(taken.owner)
            yield Perform(flow.ack(queue, taken.id, taken.owner, taken.fence))
        elif chance < 0.8:
            delay, uncounted = self.pick(_DELAYS), self.chance() < 0.4
            yield Perform(flow.give_back(queue, taken.id, taken.owner, delay, uncounted))
        elif chance < 0.9:
            yield from self._hand_over(queue, taken)
        # else its lease expires

    def _hand_over(self, queue: str, taken: TakenItem) -> Script:
        """One or two clients continue; sometimes the item is acked by its token as well."""
        for _ in range(1 if self.chance() < 0.5 else 2):
            receiver: QueueClient = self.pick(self.simulation.clients)
            if not receiver.driver.dead:
                receiver.tasks.append(Task(receiver, receiver._resume(queue, taken)))
                receiver.driver.after(self.chance() * 0.5, receiver.tasks[-1].step)
        if self.chance() < 0.3:
            yield self.chance() * self.pick(self.simulation.behavior.work)
            self.simulation.settled.add(taken.owner)
            yield Perform(flow.ack(queue, taken.id, taken.owner, taken.fence))

    def _resume(self, queue: str, taken: TakenItem) -> Script:
        run: SimulatedRun = yield Perform(flow.resume(queue, taken.id, taken.owner, self.pick(_TTLS)))
        if isinstance(run.result, TakenItem):
            yield from self._work(queue, run.result)
        elif isinstance(run.error, Busy) and not run.doubtful:  # else a Resume may be in flight, as a Take
            self._check_nothing_left(queue, run)

    def amend(self) -> Script:
        """Changes or removes an item as it was read."""
        queue, id = self.pick(self.simulation.keys), f"{int(self.chance() * _IDS)}"
        run: SimulatedRun = yield Perform(flow.read(queue, id))
        seen: ItemInfo | None = run.result
        if run.error is not None or seen is None:
            return
        if self.chance() < 0.2:
            run = yield Perform(flow.remove(queue, id, seen.stored, seen.fence))
            self._check_removed(id, run, seen.stored)
            return
        body = flow.body_of({"n": seen.payload["n"] + 1})
        run = yield Perform(flow.amend(queue, id, body, seen.stored))
        self._check_amended(queue, id, run, run.owner.encode() + body)

    def _check_amended(self, queue: str, id: str, run: SimulatedRun, value: bytes) -> None:
        """The caller must learn whether its change was made. After a lost reply, another change may hide it."""
        observer = self.simulation.observer
        item = observer.items.get(queue, {}).get(id)
        done = value in observer.amended
        hidden = done and run.doubtful and (item is None or item.value != value)
        if run.error is None and run.result is not done and not hidden:
            self.violated("compare and set", f"{run.owner} got {run.result} for its amend of {id}, which was {done}")

    def _check_removed(self, id: str, run: SimulatedRun, value: bytes) -> None:
        """A caller whose requests were all answered must learn whether an item with these bytes was removed."""
        if run.error is None and not run.doubtful and run.result and value not in self.simulation.observer.removed:
            self.violated("compare and set", f"the caller got True for its removal of {id}, which was never removed")

    def count(self) -> Script:
        """Counts the items of a queue."""
        yield Perform(flow.count(self.pick(self.simulation.keys)))


QueueClient.actions = (
    (0.30, QueueClient.push),
    (0.07, QueueClient.push_held),
    (0.43, QueueClient.take),
    (0.15, QueueClient.amend),
    (1.00, QueueClient.count),
)


class QueueSimulation(Simulation):
    """A simulation of queues."""

    observer: QueueObserver

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "queue", _SCENARIOS)
        reliable = self.faults == RELIABLE
        self.waiting = PromptItems(self.history, timeout=TIMEOUT, latency=self.faults.latency, reliable=reliable)
        self.settled: set[str] = set()
        self.observe_with(QueueObserver(self.history, self.waiting, self.runs, self.settled))
        self.add_clients(QueueClient)
        for client in self.clients:
            client.driver.owner_width = OWNER_BYTES  # an item is stored behind the owner of its push


def simulate_queues(seed: int) -> History:
    """Simulates queues, and returns the history, which is the same for the same seed."""
    return QueueSimulation(seed).run()
