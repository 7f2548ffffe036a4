"""Background work of an application: it goes on when the request that started it ends, and is waited for at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Tasks in flight. Errors are passed to `failed`, since nobody may be waiting for the task any more."""

    def __init__(self, failed: Callable[[BaseException], object]) -> None:
        self._failed = failed
        self._in_flight: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts the work; a caller that is cancelled while it waits for the task does not cancel it, if it waits with
        `asyncio.wait`."""
        task = asyncio.create_task(work)
        self._in_flight.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, timeout: float) -> None:
        """Waits at most `timeout` seconds for all tasks, and cancels the rest."""
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
