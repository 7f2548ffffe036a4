"""scripts/bench crowd: 10,000 simulated clients and 100,000 keys, with faults, checked by the simulator's observer.

One store serves them all, in virtual time: what is shown is that the promises hold in a crowd, and what it costs the
store, not how fast a real one is.
"""

import argparse
import json
import sys
import time
from typing import Any

from solely.drivers.simulated import SimulatedDriver, SimulatedRun
from solely.marks.calls import first
from solely.rules import DRIFT_RATE
from solely.testing.simulator.locks import LockingClient, LockSimulation
from solely.testing.simulator.observer import Observer
from solely.testing.simulator.scenarios import RELIABLE, SLOW, UNRELIABLE, Behavior, Scenario
from solely.testing.simulator.simulation import TIMEOUT, Perform, Script, Simulation

from .metering import machine

CLIENTS, KEYS, OPS = 10_000, 100_000, 500_000
HOT, HOT_SHARE = 100, 0.2  # so many of the keys are picked this often
DAY = 86_400.0
EVENTS_PER_OP = 100  # more than any simulation that ends


class CrowdClient(LockingClient):
    """A client that prefers a few keys."""

    def pick(self, values: Any) -> Any:
        if values is self.simulation.keys and self.chance() < HOT_SHARE:
            return super().pick(values[:HOT])
        return super().pick(values)

    def mark(self) -> Script:
        """Marks one key; the actions of the base class would also mark all of them at once."""
        key = self.pick(self.simulation.marks)
        run: SimulatedRun = yield Perform(first(self.context, key, DAY))
        observer = self.simulation.observer
        if run.error is None:
            observer.marks.returned(key, run, run.result, observer.forgotten)
        else:
            observer.marks.failed(key, run, observer.now())


CrowdClient.actions = ((0.7, CrowdClient.lock), (0.25, CrowdClient.mark), (1.0, CrowdClient.clear))


class CrowdSimulation(LockSimulation):
    """A simulation of locks and marks with any number of clients, of one task each."""

    def __init__(self, seed: int, clients: int, keys: int, marks: int, ops: int, *, faulty: bool) -> None:
        behavior = Behavior(0.05, 0.0, SLOW, *((0.01, 0.001) if faulty else ()))
        Simulation.__init__(self, seed, "lock", (Scenario(1.0, (keys,), UNRELIABLE if faulty else RELIABLE, behavior),))
        self.marks = [f"mark/{number}" for number in range(marks)]
        self._ops = ops
        self.observe_with(Observer(self.history, self.waiting, self.runs))
        self.network.memory.max_size = 4 * (
            keys + marks
        )  # nothing is evicted: a mark that is forgotten can be made again
        for number in range(clients):
            driver = SimulatedDriver(
                f"c{number}", self.timeline, self.network, self.chance, owners=self.runs, timeout=TIMEOUT,
                rate=1.0 + DRIFT_RATE * self.chance.uniform(-1.0, 1.0), start=self.chance.random() * 1000,
            )  # fmt: skip
            self.network.listen(driver)
            self.clients.append(CrowdClient(self, driver, 1))

    def has_ops_left(self) -> bool:
        return self.network.sent < self._ops

    def close_when_done(self) -> None:
        """Looks at all clients only at the end: each look takes as long as there are clients."""
        if not self.has_ops_left():
            super().close_when_done()

    def _run(self) -> None:
        if not self.timeline.run(self._ops * EVENTS_PER_OP):
            self.history.violated("no hang", "the clients never finish")


def main(arguments: list[str]) -> int:
    """Prints what happened as one JSON object; returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="scripts/bench crowd", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--marks", type=int, default=KEYS, help="names of marks; few of them are hot (100,000)")
    parser.add_argument("--ops", type=int, default=OPS)
    parser.add_argument("--without-faults", action="store_true")
    options = parser.parse_args(arguments)
    simulation = CrowdSimulation(
        options.seed, options.clients, options.keys, options.marks, options.ops, faulty=not options.without_faults
    )
    begun = time.process_time()
    history = simulation.run()
    spent = time.process_time() - begun
    alive = sum(not client.driver.dead for client in simulation.clients)
    found = {
        "command": " ".join(["scripts/bench crowd", *arguments]),
        "machine": machine(),
        "clients": options.clients,
        "killed": options.clients - alive,
        "keys": options.keys,
        "ops": simulation.network.sent,
        "grants": len(simulation.observer.grants),
        "virtual_seconds": round(simulation.timeline.now, 1),
        "cpu_seconds": round(spent, 1),
        "ops_per_cpu_second": round(simulation.network.sent / spent),
        "violated": f"{history.invariant}: {history.how}" if history.invariant else None,
    }
    print(json.dumps(found, indent=1))
    if history.invariant:
        print(history.tail(40), file=sys.stderr)
    return int(bool(history.invariant))
