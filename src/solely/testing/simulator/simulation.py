"""One simulation from one seed: clients, a network and a store on one timeline, watched by an observer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple

from ...cache import Cache
from ...drivers.simulated import SimulatedDriver, SimulatedRun, Timeline
from ...events import Event, Renewed
from ...flow import Flow
from ...holder import Signature
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
_TIMEOUT = 1.0  # seconds: how long clients try; short, so that giving up happens often
_MOST_EVENTS = 50_000  # a simulation at rest needs some 2,000


class Cancelled(BaseException):
    """What a simulated caller is interrupted with."""


class Perform(NamedTuple):
    """A flow that a script wants performed; the script is sent the SimulatedRun once it is over."""

    flow: Flow[Any]
    wait: float = 0.0
    key: str = ""  # that it waits for


Script = Generator[Perform | float, Any, None]  # a float is a sleep


class Task:
    """A thread or task of a client: performs a script, one thing after the other."""

    __slots__ = ("_began", "_performing", "_script", "_slept", "client", "over", "run")

    def __init__(self, client: SimulatedClient, script: Script) -> None:
        self.client = client
        self.over = False
        self.run: SimulatedRun | None = None
        self._script = script
        self._performing: Perform | None = None
        self._began = self._slept = 0.0

    def step(self, value: Any = None) -> None:
        """The script's next step."""
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
        self.run = run = driver.run(request.flow, self._done)
        if not run.over and self._waits():
            self.client.simulation.waiting.begins(request.key, run)
        if self.client.chance() < self.client.simulation.behavior.cancel:
            driver.after(self.client.chance() * (request.wait or 0.02), run.cancel, Cancelled())

    def _waits(self) -> bool:
        """True for a flow whose wait is measured. Where a client also takes several keys at once, such a flow may stand
        behind one that has this key already and waits for another."""
        doing = self._performing
        return doing is not None and bool(doing.key) and doing.wait > 0 and not self.client.takes_several

    def _done(self, run: SimulatedRun) -> None:
        simulation, driver, doing = self.client.simulation, self.client.driver, self._performing
        assert doing is not None
        simulation.history.note(driver.name, run.owner, "was told", repr(run.error) if run.error else run.result)
        if self._waits():
            simulation.waiting.ends(doing.key, run)
        took = driver.timeline.now - self._began - (driver.slept() - self._slept)
        if took > doing.wait * 1.02 + 4 * driver.timeout + 2 * COMPENSATE:
            simulation.history.violated(
                "no hang", f"a flow that may wait {doing.wait} s took {took:.3f} s: {doing.flow}"
            )
        self.step(run)


class Unsigned(Signature):
    """Says nothing of this process or its clock: the same seed gives the same history anywhere."""

    def info(self, purpose: str = "") -> str:
        return purpose


class SimulatedClient:
    """One process. What its tasks do again and again is in `actions`: each with its share of all that is done."""

    actions: ClassVar[tuple[tuple[float, Callable[[Any], Script]], ...]]

    def __init__(self, simulation: Simulation, driver: SimulatedDriver, tasks: int, cache: Cache | None = None) -> None:
        self.simulation = simulation
        self.driver = driver
        self.chance = simulation.chance.random
        self.context = Context(
            self,  # type: ignore[arg-type]  # asked only for what goes into terms, which the scripts make themselves
            wake=driver.lines.wake,
            hook=self._told,
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
            self.simulation.history.violated(
                "renewal never dies", f"a keeper of {self.driver.name} ended: {run.error!r}"
            )

    def _told(self, event: Event) -> None:
        if type(event) is Renewed and event.fence in self._relied_on:
            self.simulation.leases.extended(self._relied_on[event.fence])

    def rely_on(self, hold: Hold) -> None:
        """A script goes on in the belief that it holds the key."""
        self._relied_on[hold.fence] = hold
        self.simulation.leases.begins(self.driver, hold)

    def one(self, op: Op) -> Flow[Any]:
        """Just this op."""
        return (yield op)

    def pick(self, values: Any) -> Any:
        """One of them, by chance."""
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
        """An attempt that failed leaves neither a hold nor a place in a queue, unless its undoing failed."""
        if run.undone:
            for key in keys:
                self.simulation.check_nothing_left(key, run)

    def check_released(self, hold: Hold, outcome: Released, repeated: bool = False) -> None:
        """Who lets go is told what became of the hold; or, if the store has lost its data since, that this is lost.
        Who asks too late, or again after no answer, may be told that it is not known, and never something else."""
        held = self.simulation.observer.grants[hold.key, hold.fence]
        late = self.driver.clock() > hold.deadline + REMEMBER
        right = outcome == held.ended or (held.forgotten and outcome is Released.LOST)
        if not right and not ((late or repeated) and outcome is Released.UNKNOWN):
            self.simulation.history.violated(
                "right release answers", f"{hold.owner} was told {outcome!r}, but its hold was {held.ended}"
            )


class Simulation:
    """A simulation that is run once. Whoever makes one says what is in it: who watches, then who lives there."""

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
            self.history, timeout=_TIMEOUT, latency=self.faults.latency, reliable=scenario.reliable
        )
        self.clients: list[SimulatedClient] = []

    def observe_with(self, observer: Observer) -> None:
        """This onlooker sees all that the store does."""
        self.observer = observer
        self.leases = LeaseChecks(self.history, observer)
        self.network = Network(self.timeline, self.chance, self.faults, observer.performed)

    def add_clients(self, client: Callable[[Simulation, SimulatedDriver, int], SimulatedClient]) -> None:
        """A few such clients, with a few tasks each."""
        for n in range(self.chance.randint(2, 4)):
            rate = 1.0 + DRIFT_RATE * self.chance.uniform(-1.0, 1.0)
            driver = SimulatedDriver(
                f"c{n}", self.timeline, self.network, self.chance,
                owners=self.runs, timeout=_TIMEOUT, rate=rate, start=self.chance.random() * 1000,
            )  # fmt: skip
            self.network.listen(driver)
            self.clients.append(client(self, driver, self.chance.randint(1, 4)))

    def has_ops_left(self) -> bool:
        """True while there is more to do."""
        return self.network.sent < OPS

    def inject_fault(self, client: SimulatedClient) -> None:
        """Perhaps something happens to this client, or to the store."""
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
        """The run is over without a lease: its ids hold nothing and stand in no queue."""
        latest, now = self.observer.latest.get(key), self.observer.now()
        if latest is not None and latest.live(now) and self._must_not_stay(key, latest.owner, run):
            self.history.violated("no leaked hold", f"{key} is held by {latest.owner}, whose caller has left")
        record = self.network.memory._records.get(key)
        for waiter in record.waiters if record is not None else ():
            if self._must_not_stay(key, waiter.owner, run):
                self.history.violated("no leaked place", f"{waiter.owner} is queued at {key}; its caller has left")

    def _must_not_stay(self, key: str, owner: str, run: SimulatedRun) -> bool:
        """True for an id of this run. But a store that lost all data no longer knows whom it was told to refuse."""
        return self.observer.runs[owner] is run and (key, owner) not in self.observer.unremembered

    def run(self) -> History:
        """Lets everything happen, to the end."""
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
        if not self.timeline.run(_MOST_EVENTS):
            self.history.violated("no hang", "the clients never come to rest")
        for client in self.clients if not self.history.invariant else ():
            if not client.driver.dead:
                self._left_behind(client)

    def _left_behind(self, client: SimulatedClient) -> None:
        name = client.driver.name
        if not all(task.over for task in client.tasks):
            self.history.violated("no hang", f"a task of {name} never went on")
        if not all(keeper.over for keeper in client.keepers):
            self.history.violated("no hang", f"a keeper of {name} does not end")
        if len(client.driver.lines):
            self.history.violated("no leaked place", f"{name} has lines in which nobody stands")
