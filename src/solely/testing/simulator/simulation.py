"""One simulation from one seed: clients, a network and a store on one timeline, watched by an observer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple

from ...cache import Cache
from ...drivers.simulated import SimulatedDriver, SimulatedRun, Timeline
from ...events import Event, Renewed
from ...flow import Flow
from ...holder import Signature, Signer
from ...leases.context import Context
from ...leases.hold import Hold
from ...leases.keeper import keep_renewing, keep_watching
from ...model import Released
from ...ops import Op
from ...rules import COMPENSATE, DRIFT_RATE, REMEMBER
from .client_checks import LeaseChecks
from .history import History
from .network import Network
from .observer import Observer
from .scenarios import Scenario
from .store_checks import WaitChecks

OPS = 200  # sent per seed: enough for several holds of each key by each client, and for a few faults among them
TIMEOUT = 1.0  # seconds: the clients' timeout; short, so that they often give up
_MAX_EVENTS = 50_000  # a simulation that ends needs about 2,000


class Cancelled(BaseException):
    """Interrupts the flow of a simulated caller."""


class Perform(NamedTuple):
    """A script yields this to have a flow performed; it is sent the finished SimulatedRun."""

    flow: Flow[Any]
    wait: float = 0.0
    key: str = ""  # the key that the flow waits for


Script = Generator[Perform | float, Any, None]  # a float is a number of seconds to sleep


class Task:
    """A thread or task of a client: runs a script, one step after the other."""

    __slots__ = ("_began", "_performing", "_script", "_slept", "client", "over")

    def __init__(self, client: SimulatedClient, script: Script) -> None:
        self.client = client
        self.over = False
        self._script = script
        self._performing: Perform
        self._began = self._slept = 0.0

    def step(self, value: Any = None) -> None:
        """Runs the script to its next yield."""
        try:
            request = self._script.send(value)
        except StopIteration:
            self.over = True
            self.client.simulation.close_when_done()
            return
        driver = self.client.driver
        if type(request) is float:
            driver.after(request, self.step)
            return
        assert isinstance(request, Perform)
        self._performing, self._began, self._slept = request, driver.timeline.now, driver.slept()
        run = driver.run(request.flow, self._done)
        if not run.over and self._waits():
            self.client.simulation.waiting.begins(request.key, run)
        if self.client.chance() < self.client.simulation.behavior.cancel:
            driver.after(self.client.chance() * (request.wait or 0.02), run.cancel, Cancelled())

    def _waits(self) -> bool:
        """True if the flow's waiting time is checked. Not if the client also takes several keys at once: then the flow
        may queue behind another of the client, which has this key and waits for the next."""
        return bool(self._performing.key) and self._performing.wait > 0 and not self.client.takes_several

    def _done(self, run: SimulatedRun) -> None:
        simulation, driver, (flow, wait, key) = self.client.simulation, self.client.driver, self._performing
        history = simulation.history
        history.note(driver.name, run.owner, *(("raised", repr(run.error)) if run.error else ("returned", run.result)))
        if self._waits():
            simulation.waiting.ends(key, run)
        took = driver.timeline.now - self._began - (driver.slept() - self._slept)
        if took > wait * 1.02 + 4 * driver.timeout + 2 * COMPENSATE:
            history.violated("no hang", f"a flow that may wait {wait} s took {took:.3f} s: {flow}")
        self.step(run)


class Unsigned(Signature):
    """Omits process and clock, so that the same seed gives the same history on every machine."""

    def signer(self, purpose: str = "", details: Mapping[str, str] | None = None) -> Signer:
        return lambda: purpose


class SimulatedClient:
    """One process. Its tasks repeat `actions`, each chosen with the given probability."""

    actions: ClassVar[tuple[tuple[float, Callable[[Any], Script]], ...]]

    def __init__(self, simulation: Simulation, driver: SimulatedDriver, tasks: int, cache: Cache | None = None) -> None:
        self.simulation = simulation
        self.driver = driver
        self.chance = simulation.chance.random
        self.violated = simulation.history.violated
        self.context = Context(
            self,  # type: ignore[arg-type]  # a Context uses its client only to make terms; scripts make their own
            wake=driver.waiters.wake,
            hook=self._on_event,
            cache=cache,
            start_keeping=self._start_keeping,
            signature=Unsigned,
        )
        self.takes_several = self.chance() < simulation.behavior.several
        self.keepers: list[SimulatedRun] = []
        self._relied_on: dict[int, Hold] = {}
        self.tasks = [Task(self, self._script()) for _ in range(tasks)]
        for task in self.tasks:
            driver.after(self.chance() * 0.05, task.step)

    def _start_keeping(self) -> None:
        for loop in (keep_renewing, keep_watching):
            self.keepers.append(self.driver.run(loop(self.context.keeper), self._keeper_ended))

    def _keeper_ended(self, run: SimulatedRun) -> None:
        if run.error is not None or not self.context.keeper.closed:
            how = f"a keeper of {self.driver.name} ended: {run.error!r}"
            self.violated("renewal never dies", how)

    def _on_event(self, event: Event) -> None:
        if type(event) is Renewed and event.fence in self._relied_on:
            self.simulation.leases.extended(self._relied_on[event.fence])

    def rely_on(self, hold: Hold) -> None:
        """Records that the script relies on this hold from now on."""
        self._relied_on[hold.fence] = hold
        self.simulation.leases.begins(self.driver, hold)

    def one(self, op: Op) -> Flow[Any]:
        """A flow that performs one op."""
        return (yield op)

    def pick(self, values: Any) -> Any:
        """Returns one of the values at random."""
        return values[int(self.chance() * len(values))]

    def _script(self) -> Script:
        while self.simulation.has_ops_left():
            chance = self.chance()
            for share, action in self.actions:
                if chance < share:
                    yield from action(self)
                    break
                chance -= share
            yield self.chance() * 0.4
            self.simulation.inject_fault(self)

    def check_nothing_left(self, run: SimulatedRun, keys: list[str]) -> None:
        """A failed attempt must leave neither a hold nor a waiter, unless its compensation failed too."""
        if run.undone:
            for key in keys:
                self.simulation.check_nothing_left(key, run)

    def check_released(self, hold: Hold, outcome: Released, repeated: bool = False) -> None:
        """A release must return how the hold really ended, or LOST if the store lost its data since. A release that is
        late, or repeated because it got no answer, may also return UNKNOWN. If a late copy of the acquire took the key
        again after the data was lost, the release may return how that hold ended."""
        observer = self.simulation.observer
        held, latest = observer.grants[hold.key, hold.fence], observer.holds[hold.key, hold.owner]
        late = self.driver.clock() > hold.deadline + REMEMBER
        again = held.forgotten and latest is not held and outcome == latest.ended
        correct = outcome == held.ended or (held.forgotten and outcome is Released.LOST) or again
        if not correct and not ((late or repeated) and outcome is Released.UNKNOWN):
            how = f"the release of {hold.owner} returned {outcome!r}, but its hold was {held.ended}"
            self.violated("correct release replies", how)


class Simulation:
    """A simulation that runs once. Subclasses set its observer, then its clients."""

    observer: Observer
    network: Network
    leases: LeaseChecks

    def __init__(self, seed: int, kind: str, scenarios: Sequence[Scenario]) -> None:
        self.chance = Random(seed)
        self.timeline = Timeline()
        self.history = History(self.timeline)
        scenario = self.chance.choices(scenarios, [scenario.share for scenario in scenarios])[0]
        self.faults, self.behavior = scenario.faults, scenario.behavior
        self.keys = [f"{kind}/{n}" for n in range(self.chance.choice(scenario.keys))]
        self.runs: dict[str, SimulatedRun] = {}
        self.waiting = WaitChecks(
            self.history, timeout=TIMEOUT, latency=self.faults.latency, reliable=scenario.reliable
        )
        self.clients: list[SimulatedClient] = []

    def observe_with(self, observer: Observer) -> None:
        """Makes this observer see every op that the store performs."""
        self.observer = observer
        self.leases = LeaseChecks(self.history, observer)
        self.network = Network(self.timeline, self.chance, self.faults, observer.performed)

    def add_clients(self, client: Callable[[Simulation, SimulatedDriver, int], SimulatedClient]) -> None:
        """Adds two to four clients of this class, with up to four tasks each."""
        for n in range(self.chance.randint(2, 4)):
            rate = 1.0 + DRIFT_RATE * self.chance.uniform(-1.0, 1.0)
            driver = SimulatedDriver(
                f"c{n}", self.timeline, self.network, self.chance,
                owners=self.runs, timeout=TIMEOUT, rate=rate, start=self.chance.random() * 1000,
            )  # fmt: skip
            self.network.listen(driver)
            self.clients.append(client(self, driver, self.chance.randint(1, 4)))

    def has_ops_left(self) -> bool:
        """True until the clients have sent enough ops."""
        return self.network.sent < OPS

    def inject_fault(self, client: SimulatedClient) -> None:
        """Pauses or kills this client, or restarts the store, with the scenario's probabilities."""
        chance, behavior = self.chance.random(), self.behavior
        if chance < behavior.pause:
            seconds = self.chance.random() * 4.0
            self.history.note(client.driver.name, "paused", seconds)
            client.driver.pause(seconds)
        elif chance < behavior.pause + behavior.kill:
            self.history.note(client.driver.name, "killed")
            client.driver.kill()
            self.close_when_done()
        elif chance < behavior.pause + behavior.kill + behavior.restart:
            forget, seconds = self.chance.random() < behavior.wipe, self.chance.random() ** 2 * 8.0
            self.history.note("store", "restarts", seconds, "empty" if forget else "with its data")
            self.network.restart(seconds, forget=forget)
            self.waiting.down_until = self.network.down_until
            if forget:
                self.observer.lost_all_data()

    def check_nothing_left(self, key: str, run: SimulatedRun) -> None:
        """A run that ended without a lease must hold nothing and must not be queued."""
        latest, now = self.observer.latest.get(key), self.observer.now()
        if latest is not None and latest.live(now) and self._must_not_stay(key, latest.owner, run):
            self.history.violated("no leaked hold", f"{key} is held by {latest.owner}, whose caller has left")
        record = self.network.memory._records.get(key)
        for waiter in record.waiters if record is not None else ():
            if self._must_not_stay(key, waiter.owner, run):
                self.history.violated("no leaked waiter", f"{waiter.owner} is queued at {key}; its caller has left")

    def _must_not_stay(self, key: str, owner: str, run: SimulatedRun) -> bool:
        """True for an id of this run, unless the store has lost its data and with it the revocation of this id."""
        return self.observer.runs[owner] is run and (key, owner) not in self.observer.unremembered

    def run(self) -> History:
        """Runs all events and returns the history."""
        log = logging.getLogger("solely")
        was, log.disabled = log.disabled, True  # thousands of lost leases are expected here
        try:
            self._run()
        finally:
            log.disabled = was
        return self.history

    def close_when_done(self) -> None:
        """Closes the clients once all their tasks are over."""
        living = [client for client in self.clients if not client.driver.dead]
        if all(task.over for client in living for task in client.tasks):
            for client in living:
                client.driver.run(client.context.closing(), lambda run: None)

    def _run(self) -> None:
        if not self.timeline.run(_MAX_EVENTS):
            self.history.violated("no hang", "the clients never finish")
        for client in self.clients if not self.history.invariant else ():
            if not client.driver.dead:
                self._check_finished(client)

    def _check_finished(self, client: SimulatedClient) -> None:
        name = client.driver.name
        if not all(task.over for task in client.tasks):
            self.history.violated("no hang", f"a task of {name} never continued")
        if not all(keeper.over for keeper in client.keepers):
            self.history.violated("no hang", f"a keeper of {name} does not end")
        if len(client.driver.waiters):
            self.history.violated("no leaked waiter", f"{name} has local queues without waiters")
