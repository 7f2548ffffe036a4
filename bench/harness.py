"""How every figure is measured: both sides alternate within one run, each on the cores that the table names."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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


# A median needs at least 5 values (7 for handoffs, which vary more). A slice of 0.4 s is about a thousand pairs, and a
# second of handoffs gives each of 20 workers about 40 turns, so that one turn more or less is 2 %.
FULL = Effort(repetitions=7, handoffs=7, seconds=0.4, handoff_seconds=1.0)
QUICK = Effort(repetitions=3, handoffs=3, seconds=0.1, handoff_seconds=0.3)


Figures = dict[str, list[float]]  # by key: the figure of each repetition


class Skipped(Exception):
    """A case cannot run here; the text says what is missing."""


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
    """Returns each side's results. Sides alternate, so that noise affects all of them; the first round is a warm-up."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    for repetition in range(repetitions + 1):
        for name, measure in sides.items():
            gc.collect()  # so that no side pays for another's garbage
            result = measure()
            if repetition:
                results[name].append(result)
    return results


def rates(sides: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
    """`interleave` for sides that return a rate; prints the medians to stderr."""
    results = interleave(sides, repetitions)
    print_medians(results)
    return results


def print_medians(figures: Mapping[str, Sequence[float]], unit: str = "/s") -> None:
    """Prints the absolute figures behind a ratio to stderr."""
    medians = ", ".join(f"{name} {median(each):,.0f}{unit}" for name, each in figures.items())
    print("   ", medians, file=sys.stderr, flush=True)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Returns ours divided by theirs for each repetition."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def run(case: Case, effort: Effort) -> list[Row]:
    """Measures a case with this process on the client's core, and returns its rows."""
    pin(os.getpid(), 0)
    figures = case.measure(case.place, effort)
    place = where(case.place)
    return [Row(goal, place, figures[goal.key]) for goal in case.goals if goal.key in figures]  # others were skipped


# -- cores

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(pid: int, number: int) -> None:
    """Pins all threads of a process to one of our cores; to the only one if there is no second."""
    if CORES:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # a thread that has ended since
                os.sched_setaffinity(int(task.name), {CORES[number % len(CORES)]})


def where(place: Place) -> str:
    """Describes where client and server really ran on this machine."""
    if not CORES:
        return "not pinned: not supported here"
    return "one core: there is no second" if place is Place.APART and len(CORES) == 1 else str(place)


@contextmanager
def valkey(place: Place) -> Iterator[Valkey]:
    """Starts a new server on the core that the place requires."""
    with Valkey() as server:
        pin(server.pid, 1 if place is Place.APART else 0)
        yield server
