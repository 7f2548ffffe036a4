"""What a worker saw, one line each, in a file of its own; all processes of the host read the same clock."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from solely import Busy, Event, LeaseLost, SolelyError, StoreUnavailable
from solely.events import Renewed, Retried
from solely.leases.lease import LeaseBase
from solely.rules import local_clock

Kind = Literal["write", "first", "result", "renewal", "error", "retry"]

BETWEEN_WRITES = 0.005  # seconds: several writes fall into the shortest outage, and the file stays small
EXPECTED = (Busy, LeaseLost, StoreUnavailable)  # what a client may honestly answer while its server is gone


class Note(NamedTuple):
    """One line of a diary: in its turn `turn` the worker saw `detail` about `key`, at a moment of the shared clock."""

    worker: int
    kind: Kind
    turn: int
    at: float
    key: str
    detail: Any  # write, renewal: the fence; first: the answer; result: the value; error: its name; retry: the op


class Diary:
    """Written by one worker, line by line, so that nothing is missing whatever happens to the worker."""

    def __init__(self, path: Path, worker: int) -> None:
        self._file = path.open("wb", buffering=0)  # a line is one write: the renewing thread writes here too
        self._worker = worker
        self.turn = 0

    def note(self, kind: Kind, key: str, detail: object, at: float | None = None) -> None:
        moment = local_clock() if at is None else at
        self._file.write(json.dumps(Note(self._worker, kind, self.turn, moment, key, detail)).encode() + b"\n")

    def told(self, event: Event) -> None:
        """The client's hook: an op that a kill left without an answer is repeated, or a lease was renewed."""
        if isinstance(event, Retried):
            self.note("retry", event.key, event.op)
        elif isinstance(event, Renewed):
            self.note("renewal", event.key, event.fence)

    def holding(self, lease: LeaseBase, seconds: float) -> Iterator[float]:
        """Writes under the lease for that long, or until it is lost; yields the pauses for the worker to sleep.

        The moment is taken before the lease is asked: who is told "not lost" afterwards did hold it at that moment.
        """
        ends = local_clock() + seconds
        while (now := local_clock()) < ends and not lease.lost:
            self.note("write", lease.key, lease.fence, now)
            yield BETWEEN_WRITES

    @contextmanager
    def step(self, key: str) -> Iterator[None]:
        """Notes an error of Solely, and goes on: the next turn is the only retry that a worker makes."""
        try:
            yield
        except EXPECTED as error:
            self.note("error", key, type(error).__name__)
        except SolelyError as error:
            self.note("error", key, f"unexpected {type(error).__name__}: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read(path: Path) -> list[Note]:
    """The notes of one diary, in the order in which they were written."""
    return [Note(*json.loads(line)) for line in path.read_text().splitlines()]


def errors(notes: list[Note]) -> Counter[str]:
    """How often each error was met, by its name."""
    return Counter(str(note.detail) for note in notes if note.kind == "error")
