"""What a check gets, and what it returns."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from solely.testing.linearizability import UNANSWERED, Model, Operation, check_history, line_of

from .observations import Observations

PER_KEY = 120.0  # seconds for the search on one key: short histories take milliseconds, a busy machine takes longer


class Evidence(NamedTuple):
    """The observations of one workload in one round, and what the injector of faults did meanwhile."""

    observations: Observations
    settings: dict[str, Any]
    url: str  # of the store, which is reachable again
    folder: Path  # for histories
    wipes: tuple[tuple[float, float], ...] = ()  # from when to when all data were lost
    expects: tuple[str, ...] = ()  # parts of the texts of errors that the fault explains


class Finding(NamedTuple):
    """A promise that was broken so many times; `detail` says which, for a reader."""

    kind: str
    times: int
    detail: str = ""


def with_unknown(observations: Observations) -> list[Operation]:
    """The operations, and those that may have happened besides: see `Worker.undone`."""
    unknown = [
        Operation(note.key, name, owner, UNANSWERED, begin, math.inf, tuple(given))
        for note in observations.of("unknown")
        for name, owner, begin, *given in [note.detail]
    ]
    return [*observations.operations, *unknown]


def linearizable(name: str, history: Iterable[Operation], model: Model[Any], folder: Path) -> Iterator[Finding]:
    """Keeps the history as a file that can be checked again; finds it if it has no order, or none within the time."""
    operations = list(history)
    with (folder / f"{name}.jsonl").open("w") as file:
        file.writelines(line_of(each) + "\n" for each in operations)
    verdict = check_history(operations, model, timeout=PER_KEY)
    if not verdict.ok:
        yield Finding("undecided" if verdict.undecided else "not linearizable", 1, str(verdict))


def wiped(keys: Iterable[str], wipes: Iterable[tuple[float, float]]) -> list[Operation]:
    """The loss of all data, as an operation on each key."""
    return [Operation(key, "wipe", "", True, begin, end) for key in sorted(set(keys)) for begin, end in wipes]
