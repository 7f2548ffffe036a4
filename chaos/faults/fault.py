"""What a fault declares, and what it may touch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from solely.rules import local_clock

from ..crew import Crew
from ..deployments import Deployment
from ..worker import Job

EVERY = frozenset(f"W{number}" for number in range(1, 10))


@dataclass
class Arena:
    """A round while it runs: its servers, its workers, and how long it lasts."""

    deployment: Deployment
    namespace: str
    crew: Crew
    chance: random.Random
    ttl: float
    seconds: float  # for which faults are injected
    at_least: int  # faults to inject, even if that takes longer
    injected: int = 0
    wipes: list[tuple[float, float]] = field(default_factory=list)
    gate: Any = None  # what the fault's own `around` made, as a proxy

    def rest(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def moments(self) -> Iterator[None]:
        """Yields once per fault: for `seconds`, and at least so many times, within a bound."""
        begin = local_clock()
        while local_clock() < begin + self.seconds or self.injected < self.at_least:
            if local_clock() > begin + self.seconds + LONGEST:
                return
            yield

    def few(self) -> Iterator[None]:
        """Yields once per fault of a kind that takes seconds: a quarter as often as others, and at least once."""
        for _ in range(max(1, self.at_least // 4)):
            yield


LONGEST = 60.0  # seconds beyond its time that a round may need for its least number of faults


class Fault:
    """A fault of one kind. `workloads` are those whose promises hold under it, `counted` those that are run in order to
    count what is not promised."""

    kind = "none"
    workloads: frozenset[str] = EVERY
    counted: frozenset[str] = frozenset()
    deployments: tuple[str, ...] = ("redis", "postgres", "mongo", "sqlite")
    expects: tuple[str, ...] = ()  # parts of the texts of errors that workers may get besides the usual ones
    processes = 0  # of each workload, if it needs fewer than others
    environment: dict[str, str] = {}  # noqa: RUF012 - of the workers, if they need one of their own

    def job(self, job: Job) -> Job:
        """The job of a worker under this fault."""
        return job

    def why_not(self, deployment: str) -> str:
        """Why this machine cannot do it to this deployment; "" if it can."""
        return ""

    @contextmanager
    def around(self, arena: Arena) -> Iterator[str]:
        """Yields the URL that workers use while the fault is possible."""
        yield arena.deployment.url(arena.namespace)

    def inject(self, arena: Arena) -> None:
        """Injects faults for the time of the round; all is healed when it returns."""
        time.sleep(arena.seconds)


class NoFault(Fault):
    """Nothing is done: the workload itself, and the control of W2 without pauses."""
