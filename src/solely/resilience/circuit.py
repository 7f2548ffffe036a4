"""The rule of a breaker and the verdict on a call, for local and shared breakers."""

from __future__ import annotations

import sys
import threading
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import BreakerOpen, InvalidInput
from ..rules import MAX_TTL, Seconds, seconds

Errors = type[BaseException] | tuple[type[BaseException], ...]
T = TypeVar("T")

MAX_COUNT = 1_000  # failures or successes: every store counts that many exactly


class Circuit(StrEnum):
    """What a breaker does with the next call."""

    CLOSED = "closed"  # admits it
    OPEN = "open"  # refuses it
    HALF_OPEN = "half-open"  # admits it as a trial, if no other trial runs


class Rule(NamedTuple):
    """When a breaker opens and closes."""

    threshold: int
    per: float
    cooldown: float
    successes: int
    on: Errors


def rule(threshold: Any, per: Seconds, cooldown: Seconds, successes: Any, on: Any) -> Rule:
    """The checked rule; raises InvalidInput with the name of the invalid argument."""
    for name, count in (("threshold", threshold), ("successes", successes)):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
            raise InvalidInput(f"{name} must be an int from 1 to {MAX_COUNT}, not {count!r}")
    kinds = on if isinstance(on, tuple) else (on,)
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise InvalidInput(f"on must be an exception class or a tuple of them, not {on!r}")
    window = seconds("per", per, least=0.01, most=MAX_TTL)
    return Rule(threshold, window, seconds("cooldown", cooldown, least=0.01, most=MAX_TTL), successes, on)


def verdict(error: BaseException | None, on: Errors) -> bool | None:
    """True if the call succeeded: an error that is not in `on` is a reply too. False if it failed; None if that is
    unknown, because it was cancelled or interrupted."""
    if error is None:
        return True
    if isinstance(error, on):
        return False
    return True if isinstance(error, Exception) else None


def refusal(name: str, left: float | None, trial: bool) -> BreakerOpen:
    """The error for a call that is not admitted; `left` is the time until the next trial, if known."""
    why = "is half-open and its trial is in progress" if trial else f"is open for another {left or 0.0:.1f} s"
    return BreakerOpen(f"breaker {name!r} {why}: the call was not made", key=name, left=left)


class Passes(Generic[T]):
    """The passes of the admitted calls of one breaker object, which may guard many calls at once.

    A call is identified by its task or thread. One that leaves in another task than it entered gets the last pass.
    """

    def __init__(self) -> None:
        self._entered: list[tuple[object, T]] = []
        self._mutex = threading.Lock()

    def enter(self, passed: T) -> None:
        with self._mutex:
            self._entered.append((_caller(), passed))

    def leave(self) -> T:
        caller = _caller()
        with self._mutex:
            places = [place for place, (who, _) in enumerate(self._entered) if who == caller]
            return self._entered.pop(places[-1] if places else -1)[1]


def _caller() -> object:
    asyncio = sys.modules.get("asyncio")  # not imported here, which takes long: without it there is no task
    try:
        task = asyncio.current_task() if asyncio else None
    except RuntimeError:
        task = None
    return task if task is not None else threading.get_ident()
