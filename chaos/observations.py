"""What each worker observed, one line per observation, in its own file; all processes of the host share one clock."""

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
EXPECTED = (Busy, LeaseLost, StoreUnavailable)  # what a client may raise while its server is down


class Observation(NamedTuple):
    """One line of a log: in its turn `turn` the worker observed `detail` of `key`, at a time of the shared clock."""

    worker: int
    kind: Kind
    turn: int
    at: float
    key: str
    detail: Any  # write, renewal: the fence; first: True or False; result: the value; error: its name; retry: the op


class ObservationLog:
    """The log of one worker, written line by line, so that it is complete whatever happens to the worker."""

    def __init__(self, path: Path, worker: int) -> None:
        self._file = path.open("wb", buffering=0)  # a line is one write: the renewing thread writes here too
        self._worker = worker
        self.turn = 0

    def add(self, kind: Kind, key: str, detail: object, at: float | None = None) -> None:
        moment = local_clock() if at is None else at
        self._file.write(json.dumps(Observation(self._worker, kind, self.turn, moment, key, detail)).encode() + b"\n")

    def on_event(self, event: Event) -> None:
        """The client's hook: logs renewals, and ops that are repeated because they got no answer."""
        if isinstance(event, Retried):
            self.add("retry", event.key, event.op)
        elif isinstance(event, Renewed):
            self.add("renewal", event.key, event.fence)

    def holding(self, lease: LeaseBase, seconds: float) -> Iterator[float]:
        """Logs writes under the lease for that long, or until it is lost; yields the seconds to sleep between them.

        The clock is read before `lease.lost`: if that is false, the worker held the lease at that time.
        """
        ends = local_clock() + seconds
        while (now := local_clock()) < ends and not lease.lost:
            self.add("write", lease.key, lease.fence, now)
            yield BETWEEN_WRITES

    @contextmanager
    def step(self, key: str) -> Iterator[None]:
        """Logs an error of Solely and continues: the next turn is the only retry that a worker makes."""
        try:
            yield
        except EXPECTED as error:
            self.add("error", key, type(error).__name__)
        except SolelyError as error:
            self.add("error", key, f"unexpected {type(error).__name__}: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read(path: Path) -> list[Observation]:
    """Returns the observations in one log, in order."""
    return [Observation(*json.loads(line)) for line in path.read_text().splitlines()]


def errors(observations: list[Observation]) -> Counter[str]:
    """Returns how often each error occurred, by its name."""
    return Counter(str(each.detail) for each in observations if each.kind == "error")
