"""How every figure is measured: sides in turn within one run, each on the cores that the table names."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

from tests.servers import Valkey

T = TypeVar("T")


class Place(StrEnum):
    """Where client and server run: a loopback round trip costs several times more across two cores than on one."""

    TOGETHER = "one core"
    APART = "client | server"
    CLIENT_ONLY = "one core, no server"


class Goal(NamedTuple):
    """One figure: what it must reach, and what it is compared with."""

    key: str
    bound: float
    against: str
    at_most: bool = False

    def reached(self, figure: float) -> bool:
        return figure <= self.bound if self.at_most else figure >= self.bound


class Effort(NamedTuple):
    """How often, and how long each time, a side is measured."""

    repetitions: int
    handoffs: int
    seconds: float
    handoff_seconds: float


# The least that a median can stand on is 5 (7 for handoffs, which vary more). A slice of 0.4 s is some thousand pairs,
# and a second of handoffs gives each of 20 workers some 40 turns, so that one turn more or less is 2 %.
FULL = Effort(repetitions=7, handoffs=7, seconds=0.4, handoff_seconds=1.0)
QUICK = Effort(repetitions=3, handoffs=3, seconds=0.1, handoff_seconds=0.3)


Figures = dict[str, list[float]]  # of each repetition, by key


class LeftOut(Exception):
    """A case cannot be measured here: its text says what is missing."""


class Case(NamedTuple):
    """Goals that are measured together."""

    goals: Sequence[Goal]
    place: Place
    measure: Callable[[Place, Effort], Figures]


class Row(NamedTuple):
    """A goal with the figures that were measured."""

    goal: Goal
    place: str
    figures: Sequence[float]

    @property
    def figure(self) -> float:
        return median(self.figures)

    @property
    def reached(self) -> bool:
        return self.goal.reached(self.figure)


def interleave(sides: Mapping[str, Callable[[], T]], repetitions: int) -> dict[str, list[T]]:
    """Each side's results. Sides take turns, so that a noisy second hurts all; the first round only warms up."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    for repetition in range(repetitions + 1):
        for name, measure in sides.items():
            gc.collect()  # nobody pays for another's garbage
            result = measure()
            if repetition:
                results[name].append(result)
    return results


def rates(sides: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
    """`interleave` for sides that answer a rate; tells the medians on stderr."""
    results = interleave(sides, repetitions)
    tell(results)
    return results


def tell(figures: Mapping[str, Sequence[float]], unit: str = "/s") -> None:
    """The absolute figures behind a ratio, for whoever watches."""
    told = ", ".join(f"{name} {median(each):,.0f}{unit}" for name, each in figures.items())
    print("   ", told, file=sys.stderr, flush=True)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours to theirs, each repetition against its neighbour in time."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def run(case: Case, effort: Effort) -> list[Row]:
    """The rows of a case, measured with this process on the client's core."""
    pin(os.getpid(), 0)
    figures = case.measure(case.place, effort)
    place = where(case.place)
    return [Row(goal, place, figures[goal.key]) for goal in case.goals]


# -- cores

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(pid: int, number: int) -> None:
    """Binds all threads of a process to one of our cores; the only one if there is no second."""
    if CORES:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {CORES[number % len(CORES)]})


def where(place: Place) -> str:
    """The place as it really was on this machine."""
    if not CORES:
        return "not pinned: this system cannot"
    return "one core: there is no second" if place is Place.APART and len(CORES) == 1 else str(place)


@contextmanager
def valkey(place: Place) -> Iterator[Valkey]:
    """A fresh server on the core that the place says."""
    with Valkey() as server:
        pin(server.pid, 1 if place is Place.APART else 0)
        yield server
