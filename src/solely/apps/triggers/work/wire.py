"""What workers and the service say to each other. Names in JSON are those of trigger.dev's API: `idempotencyKey`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ....kit import MAX_TTL, Answer, Body, Wait
from ..model import TaskName

MAX_TASKS = 200  # names in one request: more than one process has
MAX_RUNS = 200  # runs of one heartbeat: more than one process works on
MAX_ERROR = 4_000  # characters: a message and the end of a traceback

RunId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]  # of any form: an unknown one is lost, not invalid
LeaseToken = Annotated[
    str,
    msgspec.Meta(pattern=r"^[A-Za-z0-9_.~-]{16,128}\Z", description="a secret: whoever has it can complete the run"),
]
# A shorter lease would expire while a busy service answers; a longer one delays the take-over from a dead worker.
Lease = Annotated[float, msgspec.Meta(ge=1.0, le=3_600.0, description="seconds")]
Delay = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_TTL, description="seconds")]
ErrorText = Annotated[str, msgspec.Meta(max_length=MAX_ERROR, description="for people who look")]
WorkerName = Annotated[str, msgspec.Meta(max_length=200, description="for people who look")]


class TakeRun(Body, rename="camel"):
    """Leases the run of one of these tasks that has been due longest. A repeat with the same `token`, which the caller
    makes anew for each take, returns the same run; without one, the service makes it. `lease` is by default the setting
    `lease_ttl`; `wait` is at most the service's `max_wait`."""

    tasks: Annotated[list[TaskName], msgspec.Meta(min_length=1, max_length=MAX_TASKS)]
    lease: Lease | None = None
    wait: Wait = 0.0
    worker: WorkerName = ""
    token: LeaseToken | None = None


class TakenRun(Answer, rename="camel"):
    """A leased run: count `left` seconds from before the request was sent."""

    id: str
    task: str
    payload: Any
    attempt: int
    max_attempts: int
    token: str
    left: float
    idempotency_key: str | None
    tags: list[str]
    metadata: dict[str, Any]


class TakenRuns(Answer, rename="camel"):
    """The run; null if none was due within `wait`."""

    run: TakenRun | None


class LeasedRun(Body, rename="camel"):
    """A run and the token of its lease."""

    id: RunId
    token: LeaseToken


class Heartbeat(Body, rename="camel"):
    """Extends the leases of these runs; by default by the setting `lease_ttl`."""

    runs: Annotated[list[LeasedRun], msgspec.Meta(max_length=MAX_RUNS)]
    lease: Lease | None = None


class LeaseState(Answer, rename="camel"):
    """Count `left` seconds from before the request was sent; null if the lease is lost, and `state` says why: CANCELED,
    or what the run is for another worker. Empty if there is no such run."""

    id: str
    left: float | None
    state: str


class LeaseStates(Answer, rename="camel"):
    """The runs of the heartbeat, in its order."""

    runs: list[LeaseState]


class CompleteRun(Body, rename="camel"):
    """The work is done; `output` is any JSON."""

    token: LeaseToken
    output: Any = None


class FailRun(Body, rename="camel"):
    """The work failed. Without `delay`, the service's backoff decides when it is tried again; with `retry` false, or
    after the last attempt, the run is FAILED."""

    token: LeaseToken
    error: ErrorText = ""
    retry: bool = True
    delay: Delay | None = None


class ReleaseRun(Body, rename="camel"):
    """Gives the run back after `delay` seconds. The attempt does not count: its number is given again."""

    token: LeaseToken
    delay: Delay = 0.0


class WaitForRun(Body, rename="camel"):
    """Ends the lease until the run `child` has ended; then the run can be taken again. The attempt does not count."""

    token: LeaseToken
    child: RunId


class SettledRun(Answer, rename="camel"):
    """What became of the run, and when it is tried again."""

    id: str
    state: str
    attempt: int
    retry_at: float | None
