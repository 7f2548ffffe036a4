"""What a worker observes, one line each in its own file: calls with their begin and their end, and notes.

The begin of a call is written before it is made, so that a call under way when its process is killed is known. All
processes of the host read one clock, which no fault of the battery changes.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from solely import Busy, LeaseLost, SolelyError, StoreFull, StoreUnavailable
from solely.rules import local_clock
from solely.testing.linearizability import UNANSWERED, Operation

EXPECTED = (Busy, LeaseLost, StoreUnavailable, StoreFull)  # what a client may raise while a fault lasts


class Note(NamedTuple):
    """One observation that is not a call: of `kind`, about `key`, at a time of the shared clock."""

    worker: int
    kind: str
    key: str
    at: float
    detail: Any


class Call:
    """A call under way; `output` stays unanswered if it raises."""

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self.output: Any = UNANSWERED

    @property
    def answered(self) -> bool:
        return not (isinstance(self.output, str) and self.output == UNANSWERED)


class ObservationLog:
    """The log of one worker, written line by line, so that it is complete whenever the worker is killed."""

    def __init__(self, path: Path, worker: int) -> None:
        self._file = path.open("ab", buffering=0)  # a line is one write: hooks on other threads write here too
        self._worker = worker
        self._calls = 0

    @contextmanager
    def call(self, key: str, name: str, owner: str = "", *given: Any) -> Iterator[Call]:
        """Logs the call when it begins and when it ends. Errors of Solely end it unanswered, and are logged."""
        self._calls += 1
        number, call = self._calls, Call(local_clock())
        self._write({"call": number, "key": key, "name": name, "owner": owner, "begin": call.begin, "input": given})
        try:
            yield call
        except EXPECTED as error:
            self.note("error", key, type(error).__name__)
        except SolelyError as error:
            self.note("error", key, f"unexpected {type(error).__name__}: {error}")
        finally:
            self._write({"ends": number, "end": local_clock(), "output": call.output})

    def note(self, kind: str, key: str, detail: Any = None, at: float | None = None) -> None:
        """Logs one observation."""
        self._write({"note": kind, "key": key, "at": local_clock() if at is None else at, "detail": detail})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps({"worker": self._worker, **line}).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Observations(NamedTuple):
    """All that the workers of one workload observed."""

    operations: list[Operation]
    notes: list[Note]

    def of(self, kind: str) -> list[Note]:
        return [note for note in self.notes if note.kind == kind]

    @property
    def errors(self) -> Counter[str]:
        """How often each error occurred, by its name; an unexpected one with its text."""
        return Counter(str(note.detail) for note in self.of("error"))


def read_logs(paths: Iterable[Path]) -> Observations:
    """What these logs say. A last line that a killed worker did not finish is left out."""
    operations, notes = list[Operation](), list[Note]()
    for path in paths:
        begun: dict[int, Operation] = {}
        for line in path.read_bytes().split(b"\n")[:-1]:
            fields = json.loads(line)
            if "call" in fields:
                begun[fields["call"]] = Operation(
                    fields["key"],
                    fields["name"],
                    fields["owner"],
                    UNANSWERED,
                    fields["begin"],
                    math.inf,
                    tuple(fields["input"]),
                )
            elif "ends" in fields:
                operations.append(_ended(begun.pop(fields["ends"]), fields))
            else:
                notes.append(Note(fields["worker"], fields["note"], fields["key"], fields["at"], fields["detail"]))
        operations += begun.values()  # the worker was killed during these
    return Observations(sorted(operations, key=lambda each: each.begin), sorted(notes, key=lambda each: each.at))


def _ended(operation: Operation, fields: dict[str, Any]) -> Operation:
    output = fields["output"]
    if isinstance(output, list):
        output = tuple(output)
    if output == UNANSWERED:
        return operation
    return operation._replace(output=output, end=fields["end"])
