"""Which rounds a run has, and how they are run: one deployment after the other, each started once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .deployments import DEPLOYMENTS, Deployment
from .faults import FAULTS
from .report import Report
from .rounds import RoundPlan, run_round

SAFETY = ("W1", "W5", "W6", "W7", "W9")  # what each store promises through any fault that keeps its data
EVERYTHING = ("W1", "W3", "W4", "W5", "W6", "W7", "W8", "W9")
FENCES = ("W1", "W3", "W4", "W8")  # what holds even if data are lost


class Length(NamedTuple):
    """How long a run is: seconds and least number of faults per round, ids of W5, ttl of leases."""

    seconds: float
    at_least: int
    ids: int
    ttl: float = 1.0


SHORT = Length(seconds=2.0, at_least=2, ids=400)
LONG = Length(seconds=10.0, at_least=8, ids=2_000)
# All of W5: 100,000 deliveries of 10,000 ids by 16 processes, of which some are killed.
WHOLE = {"ids": 10_000, "copies": 10}
WHOLE_PROCESSES = 16

# deployment, fault, workloads: those of a short run; a long one adds the rest of what each fault allows
ROUNDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("redis", "none", ("W1", "W2", "W5", "W6", "W7", "W9")),
    ("redis", "kill client", ("W1", "W3", "W5", "W7", "W8", "W9")),
    ("redis", "kill client at point", SAFETY),
    ("redis", "pause client 0.5 ttl", ("W1", "W3", "W9")),
    ("redis", "pause client 1.5 ttl", ("W1", "W2", "W3", "W7")),
    ("redis", "pause client 5 ttl", ("W2", "W3", "W6")),
    ("redis", "kill server", EVERYTHING),
    ("redis", "pause server", ("W1", "W3", "W7", "W9")),
    ("redis", "data wiped", FENCES),
    ("redis", "lost reply", SAFETY),
    ("redis", "half-open", ("W1", "W7", "W8")),
    ("redis", "cut connection", ("W1", "W5", "W9")),
    ("redis", "store full", ("W1", "W5", "W7", "W9")),
    ("redis", "connection limit", ("W1", "W5")),
    ("redis", "client clock jump", ("W1", "W7")),
    ("redis", "server clock jump", ("W1", "W3", "W4")),
    ("postgres", "none", ("W1", "W2", "W6")),
    ("postgres", "kill client", ("W1", "W5", "W7", "W9")),
    ("postgres", "pause client 1.5 ttl", ("W1", "W2", "W3")),
    ("postgres", "kill server", EVERYTHING),
    ("postgres", "pause server", ("W1", "W7")),
    ("postgres", "data wiped", FENCES),
    ("postgres", "lost reply", SAFETY),
    ("postgres", "half-open", ("W1", "W8")),
    ("postgres", "postgres restart", ("W1", "W5", "W7", "W9")),
    ("postgres", "connection limit", ("W1", "W5")),
    ("mongo", "kill client at point", SAFETY),
    ("mongo", "pause client 1.5 ttl", ("W1", "W2", "W3")),
    ("mongo", "kill server", EVERYTHING),
    ("mongo", "data wiped", FENCES),
    ("mongo", "lost reply", ("W1", "W5", "W7", "W9")),
    ("mongo", "step-down", ("W1", "W5", "W7", "W8")),
    ("sqlite", "kill client", EVERYTHING),
    ("sqlite", "kill client at point", SAFETY),
    ("sqlite", "pause client 1.5 ttl", ("W1", "W2", "W3")),
    ("sqlite", "data wiped", ("W3", "W4", "W8")),
    ("redis-sentinel", "sentinel failover", FENCES),
    ("redis-cluster", "slot migration", SAFETY),
    ("postgres-pair", "replica promotion", FENCES),
    ("redis-partitioned", "partition", ("W1", "W3", "W4")),
    ("mongo-partitioned", "partition", ("W1", "W3", "W4")),
)


class Choice(NamedTuple):
    """What the caller wants: all of it where nothing is named."""

    stores: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    def store(self, deployment: str) -> bool:
        return not self.stores or deployment.partition("-")[0] in self.stores or deployment in self.stores

    def fault(self, kind: str) -> bool:
        return not self.faults or kind in self.faults


def planned(length: Length, choice: Choice, seed: int) -> Iterator[RoundPlan]:
    """The rounds of a run, each with a seed of its own."""
    settings = {"ids": length.ids}
    for number, (deployment, fault, workloads) in enumerate(rounds(length)):
        chosen = tuple(name for name in workloads if not choice.workloads or name in choice.workloads)
        if chosen and choice.store(deployment) and choice.fault(fault):
            own = seed * 1_000 + number
            yield RoundPlan(
                deployment, chosen, fault, own, length.seconds, length.at_least, length.ttl, settings=settings
            )
    if length is LONG and choice.store("redis") and choice.fault("kill client") and "W5" in (choice.workloads or "W5"):
        own = seed * 1_000 + 999
        yield RoundPlan(
            "redis", ("W5",), "kill client", own, 20.0, 20, settings=WHOLE, processes=WHOLE_PROCESSES, to_the_end=True
        )


def rounds(length: Length) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The rounds of a short run; for a long one, every fault on every store that has it, with all workloads."""
    if length is not LONG:
        yield from ROUNDS
        return
    told = [(deployment, fault) for deployment, fault, _ in ROUNDS]
    more = [(name, kind) for kind, fault in FAULTS.items() for name in fault.deployments if (name, kind) not in told]
    for deployment, kind in (*told, *more):
        yield deployment, kind, all_workloads(deployment, kind)


def all_workloads(deployment: str, fault: str) -> tuple[str, ...]:
    """All workloads that this fault allows. The control is for pauses, and for no fault at all. Each process notices at
    another time that a SQLite file was removed: there, W1 has no moment of the loss."""
    kind = FAULTS[fault]
    leaves_out = set[str]()
    if fault != "none" and not fault.startswith("pause client"):
        leaves_out.add("W2")
    if (deployment, fault) == ("sqlite", "data wiped"):
        leaves_out.add("W1")
    return tuple(sorted((kind.workloads | kind.counted) - leaves_out))


def run_rounds(plans: Iterable[RoundPlan], report: Report, folder: Path) -> None:
    """Runs the rounds, and adds what they found to the report."""
    by_deployment: dict[str, list[RoundPlan]] = {}
    for plan in plans:
        by_deployment.setdefault(plan.deployment, []).append(plan)
    for name, own in by_deployment.items():
        waiting = list(_doable(own, report))
        failed = 0
        while waiting:
            try:
                with DEPLOYMENTS[name]() as deployment:
                    report.servers[name] = deployment.version
                    while waiting:
                        _run(deployment, waiting[0], report, folder)
                        waiting.pop(0)
                        failed = 0
            except Exception as error:  # of the battery itself, as a server that is late
                failed += 1
                print(f"{waiting[0]}: {error!r:.200}; with new servers once more", file=sys.stderr, flush=True)
                if failed > AGAIN:
                    report.broken.append(f"{waiting.pop(0)}: {error!r:.500}")
                    failed = 0


AGAIN = 1  # times that a round is run again, on new servers, after the battery itself failed


def _run(deployment: Deployment, plan: RoundPlan, report: Report, folder: Path) -> None:
    result = run_round(deployment, FAULTS[plan.fault], plan, folder)
    report.rounds.append(result)
    broken = sum(finding.times for _, finding in result.findings)
    text = f"{plan}: {sum(result.operations.values()):,} ops, {result.injected} faults, {broken} violations"
    print(f"{text}, {result.seconds:.1f} s", file=sys.stderr, flush=True)


def _doable(plans: list[RoundPlan], report: Report) -> Iterator[RoundPlan]:
    for plan in plans:
        if why := FAULTS[plan.fault].why_not(plan.deployment):
            report.not_done.append((f"{plan.fault} on {plan.deployment}", why))
        else:
            yield plan
