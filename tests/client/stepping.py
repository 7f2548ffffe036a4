"""Cancels a coroutine exactly at its k-th suspension, in one of four ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

WAYS = ("at once", "in flight", "late", "twice")
_TURNS = 3  # of the loop: after these a request has left, and on a store that answers at once its answer may be there


class Stepped:
    """Awaits `work`, counts its suspensions, and cancels the awaiting task at the k-th.

    "at once": before what it waits for has begun. "in flight": some turns of the loop later. "late": when what it
    waited for is there, but before it could look. "twice": at once, and again at the next suspension.
    """

    def __init__(self, work: Awaitable[Any], k: int, way: str) -> None:
        self._work = work
        self._k = k
        self._way = way
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        task = asyncio.current_task()
        assert task is not None
        try:
            waited_for = steps.send(None)
            while True:
                self.suspensions += 1
                if self.suspensions == self._k or (self._way == "twice" and self.suspensions == self._k + 1):
                    self._cancel(task, waited_for)
                try:
                    sent = yield waited_for
                except BaseException as thrown:
                    waited_for = steps.throw(thrown)
                else:
                    waited_for = steps.send(sent)
        except StopIteration as end:
            return end.value

    def _cancel(self, task: asyncio.Task[Any], waited_for: Any) -> None:
        if self._way == "late" and waited_for is not None:
            waited_for.add_done_callback(lambda _: task.cancel())
        elif self._way == "in flight":
            _later(_TURNS, task.cancel)
        else:
            task.cancel()


def _later(turns: int, call: Callable[[], Any]) -> None:
    loop = asyncio.get_running_loop()
    if turns == 0:
        call()
    else:
        loop.call_soon(_later, turns - 1, call)


async def cancelled_at(k: int, way: str, work: Callable[[], Awaitable[Any]]) -> tuple[bool, Any]:
    """(True if there was a k-th suspension, the result or the exception) of the work in a task of its own."""
    stepped: list[Stepped] = []

    async def run() -> Any:
        stepped.append(Stepped(work(), k, way))
        return await stepped[0]

    task = asyncio.ensure_future(run())
    done, _ = await asyncio.wait({task}, timeout=20)
    assert done, f"hung after a cancellation at suspension {k} ({way})"
    outcome: Any = asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()
    return stepped[0].suspensions >= k, outcome
