"""Steps: decisions written once, as generators that yield calls; threads and asyncio perform them.

The clients for threads and for asyncio have the same methods, so a step is a function without arguments: what it
returns is the reply, or is awaited for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Step = Callable[[], Any]


class Together(NamedTuple):
    """Steps that may be performed at once; replied by a list of results, or the exceptions in their place."""

    steps: Sequence[Step]


Steps = Generator[Step | Together, Any, T]


def run(steps: Steps[T]) -> T:
    """The result of the steps, performed one after the other on this thread."""
    proceed: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        try:
            step = proceed(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the type of a generator's end is not known to mypy
        try:
            together = isinstance(step, Together)
            value, proceed = [_outcome(each) for each in step.steps] if together else step(), steps.send
        except BaseException as error:  # noqa: BLE001 - the steps decide, also on an interruption
            value, proceed = error, steps.throw


def _outcome(step: Step) -> Any:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - the steps decide
        return error


async def run_async(steps: Steps[T]) -> T:
    """The result of the steps, performed in this task; steps that go together are performed at once."""
    proceed: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        try:
            step = proceed(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the type of a generator's end is not known to mypy
        try:
            value, proceed = await _performed(step), steps.send
        except BaseException as error:  # noqa: BLE001 - the steps decide, also on a cancellation
            value, proceed = error, steps.throw


async def _performed(step: Step | Together) -> Any:
    if isinstance(step, Together):
        return await asyncio.gather(*map(_performed, step.steps), return_exceptions=True)
    reply = step()
    return await reply if isawaitable(reply) else reply
