"""One simulation from one seed: clients, a network and a store on one timeline, watched by an onlooker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ...drivers.simulated import SimulatedDriver, SimulatedRun, Timeline
from ...rules import DRIFT_RATE
from .beliefs import Beliefs
from .client import SimulatedClient
from .history import History
from .network import CALM, Network, Weather
from .truth import Truth
from .waiting import WaitChecks

OPS = 200  # sent per seed: enough for several holds of each key by each client, and for a few faults among them
_TIMEOUT = 1.0  # seconds: how long clients try; short, so that giving up happens often
_MOST_EVENTS = 50_000  # a world at rest needs some 2,000
BRISK, SLOW = (0.02, 0.05, 0.5), (0.05, 1.0, 3.0)  # kinds of work, in seconds


class Manners(NamedTuple):
    """What the clients do and suffer: chances per action."""

    cancel: float
    several: float  # that a client takes several keys at once: then its waiting is not measured
    work: tuple[float, ...]  # seconds, at most, between two looks at a lease
    pause: float = 0.0
    kill: float = 0.0
    restart: float = 0.0
    wipe: float = 0.0  # of a restart: the data is gone
    clears: bool = False  # an admin removes holds: their processes learn of it only when they renew


class Climate(NamedTuple):
    """A kind of world; `share` of all seeds are of this kind."""

    share: float
    keys: tuple[int, ...]
    weather: Weather
    manners: Manners

    @property
    def calm(self) -> bool:
        """True if nothing is lost or held up, nobody dies and nothing is cleared: then a free key is taken promptly."""
        return self.weather == CALM


class World:
    """A simulation that is run once. Whoever makes one says what is in it: who watches, then who lives there."""

    truth: Truth
    network: Network
    beliefs: Beliefs

    def __init__(self, seed: int, kind: str, climates: Sequence[Climate]) -> None:
        self.chance = Random(seed)
        self.timeline = Timeline()
        self.history = History(self.timeline)
        climate = self.chance.choices(climates, [climate.share for climate in climates])[0]
        self.weather, self.manners = climate.weather, climate.manners
        self.keys = [f"{kind}/{n}" for n in range(self.chance.choice(climate.keys))]
        self.runs: dict[str, SimulatedRun] = {}
        self.waiting = WaitChecks(self.history, timeout=_TIMEOUT, latency=self.weather.latency, calm=climate.calm)
        self.clients: list[SimulatedClient] = []

    def watched_by(self, truth: Truth) -> None:
        """This onlooker sees all that the store does."""
        self.truth = truth
        self.beliefs = Beliefs(self.history, truth)
        self.network = Network(self.timeline, self.chance, self.weather, truth.performed)

    def peopled_by(self, client: Callable[[World, SimulatedDriver, int], SimulatedClient]) -> None:
        """A few such clients, with a few tasks each."""
        for n in range(self.chance.randint(2, 4)):
            rate = 1.0 + DRIFT_RATE * self.chance.uniform(-1.0, 1.0)
            driver = SimulatedDriver(
                f"c{n}", self.timeline, self.network, self.chance,
                owners=self.runs, timeout=_TIMEOUT, rate=rate, start=self.chance.random() * 1000,
            )  # fmt: skip
            self.network.listen(driver)
            self.clients.append(client(self, driver, self.chance.randint(1, 4)))

    def goes_on(self) -> bool:
        """True while there is more to do."""
        return self.network.sent < OPS

    def trouble(self, client: SimulatedClient) -> None:
        """Perhaps something happens to this client, or to the store."""
        chance, manners = self.chance.random(), self.manners
        if chance < manners.pause:
            seconds = self.chance.random() * 4.0
            self.history.note(client.driver.name, "paused", seconds)
            client.driver.pause(seconds)
        elif chance < manners.pause + manners.kill:
            self.history.note(client.driver.name, "killed")
            client.driver.kill()
            self.perhaps_close()
        elif chance < manners.pause + manners.kill + manners.restart:
            forget, seconds = self.chance.random() < manners.wipe, self.chance.random() ** 2 * 8.0
            self.history.note("store", "restarts", seconds, "empty" if forget else "with its data")
            self.network.restart(seconds, forget=forget)
            self.waiting.up = self.network.up
            if forget:
                self.truth.lost_everything()

    def nothing_left(self, key: str, run: SimulatedRun) -> None:
        """The run is over without a lease: its ids hold nothing and stand in no queue."""
        latest, now = self.truth.latest.get(key), self.truth.now()
        if latest is not None and latest.live(now) and self._must_not_stay(key, latest.owner, run):
            self.history.violated("no leaked hold", f"{key} is held by {latest.owner}, whose caller has left")
        record = self.network.memory._records.get(key)
        for waiter in record.waiters if record is not None else ():
            if self._must_not_stay(key, waiter.owner, run):
                self.history.violated("no leaked place", f"{waiter.owner} is queued at {key}; its caller has left")

    def _must_not_stay(self, key: str, owner: str, run: SimulatedRun) -> bool:
        """True for an id of this run. But a store that lost all data no longer knows whom it was told to refuse."""
        return self.truth.runs[owner] is run and (key, owner) not in self.truth.unremembered

    def run(self) -> History:
        """Lets everything happen, to the end."""
        log = logging.getLogger("solely")
        was, log.disabled = log.disabled, True  # thousands of lost leases are expected here
        try:
            self._run()
        finally:
            log.disabled = was
        return self.history

    def perhaps_close(self) -> None:
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
        if len(client.driver.waiters):
            self.history.violated("no leaked place", f"{name} has queues in which no caller waits")
