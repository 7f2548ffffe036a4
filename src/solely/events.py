"""Events, as frozen dataclasses that hooks receive. Logs, metrics, traces and the dashboard are each one hook.

A client without a hook builds no events. An error in a hook is logged and never affects the call that it observes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Protocol

from .functions import finished, plain_function
from .logs import get_logger

log = get_logger()


# Comparison and repr are written once, in Event: those of 23 dataclasses would take half the time of this import.
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Event:
    """Something happened to this stored key (`kind/name`)."""

    key: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and other._compared() == self._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return (type(self), *(getattr(self, each.name) for each in fields(self) if each.compare))

    def __repr__(self) -> str:
        facts = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{type(self).__qualname__}({facts})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Acquired(Event):
    """A key was acquired for `left` seconds, after waiting `waited` seconds."""

    fence: int
    waited: float
    attempts: int = 1
    left: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Resumed(Event):
    """A hold with the fence `before` was taken over by its token: another holder has the key, for `left` seconds."""

    fence: int
    before: int
    left: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contended(Event):
    """An acquire was refused at the end of its wait; `holder` is who has the key."""

    waited: float
    holder: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Renewed(Event):
    """A lease was extended; its holder now has `left` seconds."""

    fence: int
    left: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lost(Event):
    """A lease ended while it was held; `how` is expired, cleared, resumed, lost (by the store), max_hold or
    forked."""

    fence: int
    how: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReleasedLease(Event):
    """A lease was released after `held` seconds; `outcome` is the store's reply."""

    fence: int
    held: float
    outcome: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cleared(Event):
    """An admin ended another's hold or quiet window; the holder gets the event Lost."""

    fence: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Marked(Event):
    """A key was checked or marked: `first`, or seen before; `cached` if the local cache answered."""

    first: bool
    cached: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Retried(Event):
    """A try of an op was not answered and is repeated under the same owner."""

    op: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Claimed(Event):
    """A claim was won for `left` seconds, after `waited` seconds; `attempt` 2 or more took over from a holder that
    failed or died."""

    fence: int
    attempt: int
    waited: float
    left: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Published(Event):
    """A claim's result was published; if `superseded`, the claim has another result."""

    fence: int
    superseded: bool
    held: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replayed(Event):
    """A claim returned the winner's result; `cached` if it came from the local cache."""

    waited: float
    cached: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mismatched(Event):
    """A claim's key came again with another fingerprint."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimedOut(Event):
    """A claim was neither won nor finished within its wait."""

    waited: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reserved(Event):
    """A reservation was granted for `left` seconds."""

    fence: int
    count: int
    left: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recorded(Event):
    """A reservation was recorded as sent, after `held` seconds."""

    fence: int
    held: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Suppressed(Event):
    """A reservation was refused; `reason` is reserved, quiet or limited."""

    reason: str
    retry_after: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Limited(Event):
    """A limit was hit: `allowed`, or over the limit."""

    allowed: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeadLettered(Event):
    """Failed work was parked as a dead letter; `key` is its item key."""

    group: str
    attempts: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rewound(Event):
    """A watermark was rewound from `before` to `to`, both as text."""

    before: str
    to: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BreakerTurned(Event):
    """A call of this client opened or closed a shared breaker: `state` is its new state."""

    state: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TickEnded(Event):
    """A tick of a schedule ended: `outcome` is done, failed or lost. It began `late` seconds after its time."""

    fence: int
    outcome: str
    late: float
    took: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FailedOpen(Event):
    """The store was unreachable, and the client proceeded without it, according to its `on_outage`."""

    what: str


class Hook(Protocol):
    """Receives every event, on the thread or task where it happened; must return quickly."""

    def __call__(self, event: Event, /) -> None: ...


def combine(hooks: Iterable[Hook]) -> Hook | None:
    """One hook that calls all of them and never raises; None if there are none, so that no events are built."""
    every = tuple(plain_function("a hook", hook) for hook in hooks)
    if not every:
        return None

    def call_all(event: Event, /) -> None:
        for hook in every:
            try:
                finished("a hook", hook(event))  # type: ignore[func-returns-value]  # of a hook whose kind is unknown
            except Exception:
                facts = {"event": type(event).__name__}
                log.exception("hook_failed: a hook raised on the event %(event)s", facts, extra=facts)

    return call_all
