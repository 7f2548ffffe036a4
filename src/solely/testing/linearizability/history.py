"""Histories: what clients asked for and were answered, with the times between which each step happened."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

UNANSWERED = "unanswered"  # the output of an operation that may have happened, at any time from its begin on


class Operation(NamedTuple):
    """One call of a client. It takes effect at one moment between `begin` and `end`, which all clients measure on one
    clock; if nobody knows its output, at any moment from its begin on, or never."""

    key: str
    name: str
    owner: str  # who holds, if this is granted: unique per attempt
    output: Any
    begin: float
    end: float = math.inf
    input: tuple[Any, ...] = ()

    @property
    def answered(self) -> bool:
        return not (isinstance(self.output, str) and self.output == UNANSWERED)


class Recorder:
    """Records operations of any number of threads, in memory or as lines of a file that processes append to.

    with recorder.call("lock/a", "acquire", owner, ttl) as call:
        call.output = ...         # left out if it raises: the operation stays unanswered
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.operations: list[Operation] = []
        self._file = None if path is None else path.open("a", buffering=1)
        self._clock = clock
        self._mutex = threading.Lock()

    @contextmanager
    def call(self, key: str, name: str, owner: str = "", *given: Any) -> Iterator[RecordedCall]:
        """Records the operation when the block ends, however it ends."""
        call, begin = RecordedCall(), self._clock()
        try:
            yield call
        finally:
            end = self._clock() if call.output != UNANSWERED else math.inf
            self.add(Operation(key, name, owner, call.output, begin, end, given))

    def add(self, operation: Operation) -> None:
        with self._mutex:
            self.operations.append(operation)
            if self._file is not None:
                self._file.write(line_of(operation) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class RecordedCall:
    """An operation that is under way."""

    output: Any = UNANSWERED


def line_of(operation: Operation) -> str:
    """The operation as a line of JSON; `read_history` reads it back."""
    fields = operation._asdict()
    if not math.isfinite(operation.end):
        del fields["end"]
    return json.dumps(fields)


def read_history(lines: Iterable[str]) -> list[Operation]:
    """The operations of these lines. A last line that a killed process did not finish is left out; raises ValueError
    for any other line that is no operation."""
    found, unfinished = list[Operation](), ""
    for line in lines:
        if unfinished:
            raise ValueError(f"not an operation: {unfinished!r:.100}")
        try:
            fields = json.loads(line)
            found.append(Operation(**{**fields, "input": tuple(fields.get("input", ())), "output": _plain(fields)}))
        except (ValueError, TypeError):
            unfinished = line
    return found


def _plain(fields: dict[str, Any]) -> Any:
    output = fields["output"]
    return tuple(output) if isinstance(output, list) else output
