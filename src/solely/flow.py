"""Requests that a flow may yield besides ops, and their replies. The driver performs them: a flow reads no clock."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, TypeVar

from .errors import Interrupted, StoreError, first_error
from .ops import Op


class Ask(Enum):
    """Values that the driver provides."""

    OWNER = auto()  # → str: a new random id of 128 bits
    RUN = auto()  # → Run
    NOW = auto()  # → float: seconds on the local clock, which counts suspend


RUN, NOW = Ask.RUN, Ask.NOW  # for frequent comparisons, as in `model`


class Run(Protocol):
    """A running flow, as its driver sees it; a flow that has it gets these values without another yield."""

    arrived: float  # when it last joined the waiters of a key
    sent: float  # when the last answered try was sent
    doubtful: bool  # a try of this flow went unanswered

    def now(self) -> float:
        """Seconds on the local clock, which counts suspend."""

    def fresh_owner(self) -> str:
        """A new random id of 128 bits."""


class Join(NamedTuple):
    """→ Run | None: the Run once this flow is the first waiter of the process for the key; None if that took longer
    than `at_most`, or if `settled`, which is called at each wake-up, returned True.

    The flow keeps its place until it ends.
    """

    key: str
    at_most: float
    settled: Callable[[], bool] | None = None


class Wait(NamedTuple):
    """→ None, at a hint for the key (also one that came before the wait), or after `at_most` seconds."""

    key: str
    at_most: float


class Scan(NamedTuple):
    """→ list[Entry]: entries whose stored key starts with `prefix` and is greater than `after`, in key order."""

    prefix: str
    after: str
    limit: int


class WakeAll(NamedTuple):
    """→ None: wakes every waiter of the process for the key, so that all of them see its outcome at once."""

    key: str


T = TypeVar("T")
# A list is a batch of ops, answered by a list of replies or StoreErrors.
Request = Op | list[Any] | Ask | Join | Wait | Scan | WakeAll
Flow = Generator[Request, Any, T]


def replies_or_raise(replies: list[Any]) -> list[Any]:
    """The replies of a batch; raises the first error among them."""
    error = first_error(StoreError, replies)
    if error is not None:
        raise error
    return replies


def undo(ops: list[Any]) -> Flow[None]:
    """Performs compensating ops. If the caller is interrupted meanwhile, performs them again before it raises that."""
    try:
        yield ops
    except Interrupted:
        yield ops
        raise
