"""The way to the store, guarded by the breaker of this process."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..errors import BreakerOpen, Interrupted, StoreError, StoreUnavailable
from ..ops import OPS
from .breaker import Breaker

T = TypeVar("T")


def guarded(flow: Generator[Any, Any, T], breaker: Breaker, key: str) -> Generator[Any, Any, T]:
    """The flow, if the breaker lets it through; judged by its first answer or the lack of it, not by how long it waits
    for a key. If not let through: StoreUnavailable at once, and nothing was sent."""
    try:
        passed = breaker.admit()
    except BreakerOpen as refusal:
        raise StoreUnavailable(f"the store was not asked: {refusal}", key=key, left=refusal.left) from None
    step: Any = flow.send
    argument: Any = None
    told = False
    try:
        while True:
            request = step(argument)
            try:
                argument, step = (yield request), flow.send
                worked = True if type(request) is list or isinstance(request, OPS) else None
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the flow
                argument, step = error, flow.throw
                worked = _answered(error)
            if worked is not None and not told:
                told = True
                breaker.judge(passed, worked)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        if not told:
            breaker.judge(passed, None)


def _answered(error: BaseException) -> bool | None:
    """False if the store is away; True if it answered with an error of its own; None if the caller was interrupted."""
    cause = error.cause if isinstance(error, Interrupted) else error
    if isinstance(cause, StoreUnavailable):
        return False
    return True if isinstance(cause, StoreError) else None
