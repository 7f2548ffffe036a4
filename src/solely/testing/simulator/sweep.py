"""Runs many seeds of several simulations on several processes, and reports each seed that violates a promise."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from typing import NamedTuple

from . import simulate, simulate_claims, simulate_queues, simulate_reservations, simulate_schedules
from .history import History

SIMULATIONS: dict[str, Callable[[int], History]] = {
    "locks": simulate,
    "claims": simulate_claims,
    "reservations": simulate_reservations,
    "queues": simulate_queues,
    "schedules": simulate_schedules,
}
_CHUNK = 20  # seeds per message to a process: a fraction of a second, so that a run ends soon after its time is over
_GARBAGE = 100_000  # objects between two collections: a history is garbage as a whole, and is about that large
_planted = ExitStack()  # in each process of a sweep: the planted bug


class Violation(NamedTuple):
    """A seed whose history broke a promise."""

    of: str
    seed: int
    invariant: str
    how: str

    def replay(self, bug: str = "") -> str:
        """Returns the command that runs this seed again and shows its history."""
        planted = f" --bug {bug}" if bug else ""
        return f"python -m solely.testing.simulator --of {self.of} --seed {self.seed}{planted}"


class Chunk(NamedTuple):
    """Some seeds of one simulation."""

    of: str
    seeds: range


class Swept(NamedTuple):
    """How far a sweep is. `last` is the seed up to which, from the first on, every simulation has been run."""

    done: int
    seconds: float
    violations: Sequence[Violation]
    last: int

    @property
    def rate(self) -> float:
        """Seeds per second."""
        return self.done / self.seconds if self.seconds else 0.0


def plant(bug: str) -> AbstractContextManager[object]:
    """The context manager that plants the bug `module:name`; one that does nothing for an empty text."""
    module, _, name = bug.partition(":")
    return getattr(import_module(module), name)() if bug else ExitStack()


def sweep(of: Sequence[str], seeds: range, *, processes: int, seconds: float, bug: str = "") -> Iterator[Swept]:
    """Runs every seed of each simulation, in the order of seeds, and yields the state after each chunk.

    After `seconds` no new chunk is begun. A seed that violates a promise does not end the sweep.
    """
    began, done, last = time.monotonic(), 0, seeds.start - 1
    violations: list[Violation] = []
    chunks = _chunks(of, seeds)
    with ProcessPoolExecutor(processes, initializer=_begin, initargs=(bug,)) as pool:
        running: set[Future[list[Violation]]] = set()
        while True:
            while len(running) < 2 * processes and time.monotonic() - began < seconds:
                chunk = next(chunks, None)
                if chunk is None:
                    break
                running.add(pool.submit(_run, chunk))
                done += len(chunk.seeds)
                last = chunk.seeds[-1] if chunk.of == of[-1] else last
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            violations += [violation for future in finished for violation in future.result()]
            waiting = len(running) * _CHUNK
            yield Swept(max(0, done - waiting), time.monotonic() - began, violations, last)
        yield Swept(done, time.monotonic() - began, violations, last)


def _chunks(of: Sequence[str], seeds: range) -> Iterator[Chunk]:
    for first in range(0, len(seeds), _CHUNK):
        for name in of:
            yield Chunk(name, seeds[first : first + _CHUNK])


def _begin(bug: str) -> None:
    gc.set_threshold(_GARBAGE)
    _planted.enter_context(plant(bug))


def _run(chunk: Chunk) -> list[Violation]:
    found = []
    for seed in chunk.seeds:
        history = SIMULATIONS[chunk.of](seed)
        if history.invariant:
            found.append(Violation(chunk.of, seed, history.invariant, history.how))
    return found
