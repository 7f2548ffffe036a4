"""A flow whose ops are looked at before they are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..flow import Flow
from ..ops import OPS, Op

T = TypeVar("T")
Check = Callable[[Op], None]  # raises a StoreError if the op may not be performed

_IS_OP = frozenset(OPS)


def permitted(flow: Flow[T], check: Check) -> Flow[T]:
    """The flow, to which `check` is a part of the store: what it raises, the flow is told instead of a reply, and of
    that op, or of that batch, nothing is sent."""
    step: Any = flow.send
    argument: Any = None
    try:
        while True:
            request = step(argument)
            try:
                if type(request) is list:
                    for op in request:
                        check(op)
                elif type(request) in _IS_OP:
                    check(request)
                argument, step = (yield request), flow.send
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the flow
                argument, step = error, flow.throw
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
