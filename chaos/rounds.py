"""A round: workers of some workloads on one deployment under one fault, and the checks of what they observed."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from solely.rules import local_clock

from .crew import Crew, spawned
from .deployments import Deployment
from .evidence import Evidence, Finding
from .faults.clients import PauseClients
from .faults.fault import Arena, Fault
from .observations import Observations, read_logs
from .resources import Sets
from .worker import Job
from .workloads import WORKLOADS

TIMEOUTS = (5.0, 1.5)  # seconds, in turn: some clients wait until an outage ends, others give up and undo
FRESH = 100_000  # the numbers of fresh workers begin here
FRESH_WITHIN = 200.0  # seconds for the fresh workers of W8: three waits of at most 60 s each
DONE_WITHIN = 600.0  # seconds for all deliveries of W5: a busy machine makes some hundred in a second
IDS, COPIES = 400, 10  # of W5, unless a plan says otherwise
_names = count(1)


class RoundPlan(NamedTuple):
    """What a round is to do."""

    deployment: str
    workloads: tuple[str, ...]
    fault: str
    seed: int
    seconds: float = 3.0
    at_least: int = 2  # faults
    ttl: float = 1.0
    processes: int = 0  # of each workload; 0: as it says
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    mutant: str = ""
    to_the_end: bool = False  # the workers end by themselves, when all is done

    def __str__(self) -> str:
        planted = f" · {self.mutant.rpartition(':')[2]}" if self.mutant else ""
        return f"{self.deployment} · {self.fault} · {' '.join(self.workloads)}{planted} · seed {self.seed}"


class RoundResult(NamedTuple):
    """What a round found. `counted` are the findings that the fault makes no promise about."""

    plan: RoundPlan
    operations: Counter[str]  # by workload
    injected: int
    findings: list[tuple[str, Finding]]
    counted: list[tuple[str, Finding]]
    control_lost: int
    retries: int
    seconds: float
    waits: list[float]  # of W8: until a key was acquired after the last fault


def run_round(
    deployment: Deployment,
    fault: Fault,
    plan: RoundPlan,
    folder: Path,
    alter: Callable[[Deployment, str], None] | None = None,
) -> RoundResult:
    """The result of a round, whose logs and histories are in a folder of its own within this one. `alter` is called
    with the namespace before the workers begin."""
    begin = local_clock()
    namespace = f"r{os.getpid()}_{next(_names)}"
    own = folder / f"{namespace}-{plan.deployment}-{plan.fault}".replace(" ", "-")
    own.mkdir(parents=True)
    deployment.prepare(namespace)
    if alter is not None:
        alter(deployment, namespace)
    with _environment(fault.environment), Crew(spawned() if fault.environment else None) as crew:
        arena = Arena(deployment, namespace, crew, random.Random(plan.seed), plan.ttl, plan.seconds, plan.at_least)
        with fault.around(arena) as url:
            jobs = _jobs(plan, fault, url, own)
            for job in jobs:
                crew.add(job)
            crew.ready()
            fault.inject(arena)
            if "W8" in plan.workloads:
                _try_afresh(crew, jobs)
            if plan.to_the_end:
                _await(crew, 0, DONE_WITHIN)
            crew.finish()
    return _judged(plan, fault, arena, own, local_clock() - begin)


def _jobs(plan: RoundPlan, fault: Fault, url: str, folder: Path) -> list[Job]:
    numbers, jobs = count(), list[Job]()
    for name in plan.workloads:
        workload = WORKLOADS[name]
        shares = plan.processes or fault.processes or workload.processes
        settings = _settings(plan, fault, name, folder) | {"shares": shares}
        for share in range(shares):
            number = next(numbers)
            job = Job(
                workload.module, url, folder / f"{name}-{number}.jsonl", number, f"{plan.seed}:{number}",
                settings | {"share": share}, TIMEOUTS[number // 2 % 2], mutant=plan.mutant,
            )  # fmt: skip
            jobs.append(fault.job(job))
    return jobs


def _settings(plan: RoundPlan, fault: Fault, workload: str, folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {"ttl": plan.ttl, "ids": IDS, "copies": COPIES, "deal": plan.seed, **plan.settings}
    if workload in ("W2", "W3"):
        path = folder / f"{workload}.db"
        Sets(path, fenced=False).create()
        settings |= {"sets": str(path), "pauses": isinstance(fault, PauseClients)}
    return settings


def _try_afresh(crew: Crew, jobs: list[Job]) -> None:
    """Starts fresh workers of W8, one of each kind of client, and waits for them; the others go on."""
    for job in [job for job in jobs if job.workload == "w8_liveness"][:2]:
        number = FRESH + job.number
        log = job.log.with_name(f"W8-{number}.jsonl")
        settings = {**job.settings, "fresh": True}
        crew.add(
            job._replace(
                number=number,
                log=log,
                settings=settings,
                seed=f"{job.seed}:fresh",
                timeout=30.0,
                kill_at="",
                stop_at="",
            )
        )
    _await(crew, FRESH, FRESH_WITHIN)


def _await(crew: Crew, first: int, seconds: float) -> None:
    """Returns when all workers from this number on have ended, or after that long."""
    ends = local_clock() + seconds
    while any(member.alive for member in crew.members if member.job.number >= first) and local_clock() < ends:
        time.sleep(0.02)


def _judged(plan: RoundPlan, fault: Fault, arena: Arena, folder: Path, seconds: float) -> RoundResult:
    findings, counted = list[tuple[str, Finding]](), list[tuple[str, Finding]]()
    operations, control, retries, waits = Counter[str](), 0, 0, list[float]()
    for name in plan.workloads:
        seen = read_logs(folder.glob(f"{name}-*.jsonl"))
        operations[name] = len(seen.operations)
        retries += len(seen.of("retry"))
        waits += [note.detail[1] for note in seen.of("waited")]
        for finding in _found(plan, fault, arena, folder, name, seen):
            if finding.kind == "control lost":
                control += finding.times
            else:
                (counted if name in fault.counted else findings).append((name, finding))
    findings += [("worker", Finding("worker failed", 1, text)) for text in arena.crew.failed]
    return RoundResult(plan, operations, arena.injected, findings, counted, control, retries, seconds, waits)


def _found(
    plan: RoundPlan, fault: Fault, arena: Arena, folder: Path, name: str, seen: Observations
) -> Iterator[Finding]:
    settings = _settings(plan, fault, name, folder)
    url = arena.deployment.url(arena.namespace)
    histories = folder / name
    histories.mkdir(exist_ok=True)
    yield from WORKLOADS[name].check(Evidence(seen, settings, url, histories, tuple(arena.wipes), fault.expects))


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Changes the environment that processes started meanwhile get."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
