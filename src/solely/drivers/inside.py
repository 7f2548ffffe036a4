"""Performs flows inside the caller's own transaction: no retry and no undo.

The caller's rollback undoes everything, so every error is raised to the caller unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

from ..flow import RUN, Ask, Flow
from ..owner import fresh_owner
from ..rules import local_clock

T = TypeVar("T")
Perform = Callable[[Sequence[Any]], Sequence[Any]]  # returns a reply per op, or raises
AsyncPerform = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]


def run_inside(flow: Flow[T], perform: Perform) -> T:
    """The flow's result; if `perform` raises, raises that and abandons the flow."""
    batches = _batches(flow)
    try:
        ops = next(batches)
        while True:
            ops = batches.send(perform(ops))
    except StopIteration as end:
        result: T = end.value
        return result


async def run_inside_async(flow: Flow[T], perform: AsyncPerform) -> T:
    """As `run_inside`, awaited."""
    batches = _batches(flow)
    try:
        ops = next(batches)
        while True:
            ops = batches.send(await perform(ops))
    except StopIteration as end:
        result: T = end.value
        return result


class _Inside:
    """The Run of a flow inside a transaction: no try is repeated, so none is in doubt."""

    doubtful = False
    now = staticmethod(local_clock)
    fresh_owner = staticmethod(fresh_owner)

    def __init__(self) -> None:
        self.arrived = self.sent = local_clock()


def _batches(flow: Flow[T]) -> Generator[Sequence[Any], Sequence[Any], T]:
    """Yields the flow's ops as batches; answers its other requests itself."""
    argument: Any = None
    while True:
        try:
            request: Any = flow.send(argument)
        except StopIteration as end:
            result: T = end.value
            return result
        if request is Ask.OWNER:
            argument = fresh_owner()
        elif request is RUN:
            argument = _Inside()
        elif type(request) is list:
            argument = yield request
        else:
            (argument,) = yield (request,)
