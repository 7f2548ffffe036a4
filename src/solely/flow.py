"""What a flow may yield besides ops, and what it gets back. A driver grants these; a flow has no clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, TypeVar

from .errors import Interrupted, StoreError, first_error
from .ops import Op


class Ask(Enum):
    """Small questions to the driver."""

    OWNER = auto()  # → str: a fresh random id of 128 bits
    RUN = auto()  # → Run
    NOW = auto()  # → float: seconds on the local clock that counts suspend
    CHANCE = auto()  # → float in [0, 1)


RUN, NOW = Ask.RUN, Ask.NOW  # for those who compare often, as in `model`


class Run(Protocol):
    """A flow under way, as its driver sees it: who has it need not yield again for what takes no time."""

    arrived: float  # when it last joined a line
    sent: float  # when the last try that was answered was sent
    doubtful: bool  # was any try of this flow unanswered

    def now(self) -> float:
        """Seconds on the local clock that counts suspend."""

    def fresh_owner(self) -> str:
        """A fresh random id of 128 bits."""


class Join(NamedTuple):
    """→ Run | None: the Run once this flow is first in the process's line for the key; None if that took longer than
    `at_most`, or if `settled` became true meanwhile: it is asked whenever the line is told.

    The place lasts until the flow ends, however it ends.
    """

    key: str
    at_most: float
    settled: Callable[[], bool] | None = None


class Wait(NamedTuple):
    """→ None: returns when the key is hinted (also if the hint came before the wait), or after `at_most` seconds."""

    key: str
    at_most: float


class Scan(NamedTuple):
    """→ list[Entry]: those whose stored key begins with `prefix` and is greater than `after`, in key order."""

    prefix: str
    after: str
    limit: int


class WakeAll(NamedTuple):
    """→ None: everyone in the process's line for the key looks up, so that what is settled is known to all at once."""

    key: str


T = TypeVar("T")
Request = (
    Op | list[Any] | Ask | Join | Wait | Scan | WakeAll
)  # a list is a batch of ops, answered by a list of replies or StoreErrors
Flow = Generator[Request, Any, T]


def replies_or_raise(replies: list[Any]) -> list[Any]:
    """The replies of a batch; raises the first error among them."""
    error = first_error(StoreError, replies)
    if error is not None:
        raise error
    return replies


def undo(ops: list[Any]) -> Flow[None]:
    """Performs compensating ops; if the caller is interrupted meanwhile, again, so that they are done when it learns
    of the interruption."""
    try:
        yield ops
    except Interrupted:
        yield ops
        raise
