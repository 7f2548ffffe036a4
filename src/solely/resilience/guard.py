"""Guards requests to the store by the breaker of this process."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..errors import BreakerOpen, Interrupted, StoreError, StoreUnavailable
from ..ops import OPS
from .breaker import Breaker

T = TypeVar("T")


def guarded(flow: Generator[Any, Any, T], breaker: Breaker, key: str) -> Generator[Any, Any, T]:
    """The flow, if the breaker admits it; else raises StoreUnavailable at once, and sends nothing.

    The verdict depends on the first reply, or the lack of one, and not on how long the flow waits for a key.
    """
    try:
        passed = breaker.admit()
    except BreakerOpen as refusal:
        raise StoreUnavailable(f"no request was sent to the store: {refusal}", key=key, left=refusal.left) from None
    step: Any = flow.send
    argument: Any = None
    judged = False
    try:
        while True:
            request = step(argument)
            try:
                argument, step = (yield request), flow.send
                worked = True if type(request) is list or isinstance(request, OPS) else None
            except BaseException as error:  # noqa: BLE001 - the flow handles it
                argument, step = error, flow.throw
                worked = _answered(error)
            if worked is not None and not judged:
                judged = True
                breaker.judge(passed, worked)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        if not judged:
            breaker.judge(passed, None)


def _answered(error: BaseException) -> bool | None:
    """False if the store is unreachable; True if it answered with its own error; None if the caller was interrupted."""
    cause = error.cause if isinstance(error, Interrupted) else error
    if isinstance(cause, StoreUnavailable):
        return False
    return True if isinstance(cause, StoreError) else None
