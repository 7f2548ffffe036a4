"""A flow whose ops are checked before they are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..flow import Flow
from ..ops import Op
from .retrying import IS_OP

T = TypeVar("T")
Check = Callable[[Op], None]  # raises a StoreError if the op is not permitted


def permitted(flow: Flow[T], check: Check) -> Flow[T]:
    """The flow, with `check` called for each op before it is sent. An error that `check` raises is thrown into the flow
    in place of a reply, and nothing of that op or batch is sent."""
    step: Any = flow.send
    argument: Any = None
    try:
        while True:
            request = step(argument)
            try:
                if type(request) is list:
                    for op in request:
                        check(op)
                elif type(request) in IS_OP:
                    check(request)
                argument, step = (yield request), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow handles it
                argument, step = error, flow.throw
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
