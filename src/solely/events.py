"""What happened, told to hooks as frozen events. Logs, metrics, traces and the dashboard are each one listener.

A client without a hook builds no event at all. A hook that raises is logged and never harms the work it watches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger("solely")


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to this stored key (`kind/name`)."""

    key: str


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """A key was acquired, after waiting `waited` seconds."""

    fence: int
    waited: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Contended(Event):
    """An acquire was refused at the end of its wait; `holder` says by whom."""

    waited: float
    holder: str


@dataclass(frozen=True, slots=True)
class Renewed(Event):
    """A lease was extended; its holder now has `left` seconds."""

    fence: int
    left: float


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """A lease ended under its holder; `how` is expired, cleared, lost (by the store), max_hold or forked."""

    fence: int
    how: str


@dataclass(frozen=True, slots=True)
class ReleasedLease(Event):
    """A holder let go, after holding for `held` seconds; `outcome` is what the store said."""

    fence: int
    held: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Cleared(Event):
    """What another held, or its quiet window, was ended on purpose; the holder hears of it as Lost."""

    fence: int
    reason: str


@dataclass(frozen=True, slots=True)
class Marked(Event):
    """A mark was asked for: `first`, or seen before; `cached` if the local cache knew."""

    first: bool
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Retried(Event):
    """A try of an op went unanswered and is repeated under the same owner."""

    op: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class Claimed(Event):
    """A claim was won after waiting `waited` seconds; `attempt` 2 or more took over from one that failed or died."""

    fence: int
    attempt: int
    waited: float


@dataclass(frozen=True, slots=True)
class Published(Event):
    """A claim's result was published; if `superseded`, another's result stands instead."""

    fence: int
    superseded: bool
    held: float


@dataclass(frozen=True, slots=True)
class Replayed(Event):
    """A claim was answered with the winner's result; `cached` if the local cache knew it."""

    waited: float
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Mismatched(Event):
    """A claim's key came again with another fingerprint."""


@dataclass(frozen=True, slots=True)
class TimedOut(Event):
    """A claim was neither won nor finished within its wait."""

    waited: float


@dataclass(frozen=True, slots=True)
class Reserved(Event):
    """A reservation was granted."""

    fence: int
    count: int


@dataclass(frozen=True, slots=True)
class Recorded(Event):
    """What a reservation was for was sent; it was held for `held` seconds."""

    fence: int
    held: float


@dataclass(frozen=True, slots=True)
class Suppressed(Event):
    """A reservation was refused; `reason` is reserved, quiet or limited."""

    reason: str
    retry_after: float


@dataclass(frozen=True, slots=True)
class Limited(Event):
    """A limit was asked for: `allowed`, or over the limit."""

    allowed: bool


@dataclass(frozen=True, slots=True)
class DeadLettered(Event):
    """An item was parked as a dead letter; the key is its item key."""

    group: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Rewound(Event):
    """A watermark was taken back on purpose, from `before` to `to`, as text."""

    before: str
    to: str
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerTurned(Event):
    """A call that ended here made a shared breaker open or close: `state` is what it is now."""

    state: str


@dataclass(frozen=True, slots=True)
class FailedOpen(Event):
    """The store was away and the client went on without it, as its `on_outage` says."""

    what: str


class Hook(Protocol):
    """Is called with every event, on the thread or task where it happened; must return quickly."""

    def __call__(self, event: Event, /) -> None: ...


def combine(hooks: Iterable[Hook]) -> Hook | None:
    """One hook that tells all of them and never raises; None if there are none, so that no event need be built."""
    listeners = tuple(hooks)
    if not listeners:
        return None

    def tell(event: Event, /) -> None:
        for hook in listeners:
            try:
                hook(event)
            except Exception:
                facts = {"event": type(event).__name__}
                log.exception("hook_failed: a hook raised on the event %(event)s", facts, extra=facts)

    return tell
