"""Cancels a request that waits when its caller disconnects or the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Self

from .problems import STOPPING, Problem

GRACE = 0.02  # seconds: most requests end within it, and cost one timer instead of two tasks


class ClientGone(Exception):
    """The caller disconnected: nobody reads the response."""


class DisconnectWatch:
    """Cancels the current task after GRACE, with ClientGone when the caller disconnects, or with Problem when the
    service stops."""

    def __init__(self, receive: Callable[[], Awaitable[Any]], stopping: asyncio.Event) -> None:
        self._receive = receive
        self._stopping = stopping
        self._watched: list[asyncio.Future[Any]] = []
        self.disconnected = False
        self._stopped = False

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._timer = loop.call_later(GRACE, self._begin)
        return self

    def _begin(self) -> None:
        caller = asyncio.ensure_future(self._disconnected())
        service = asyncio.ensure_future(self._stopping.wait())
        self._watched = [caller, service]
        caller.add_done_callback(partial(self._end, disconnected=True))
        service.add_done_callback(partial(self._end, disconnected=False))

    async def _disconnected(self) -> None:
        """Returns when the caller has disconnected. A request whose body nobody reads, such as a GET, comes first."""
        while (await self._receive())["type"] == "http.request":
            pass

    def _end(self, done: asyncio.Future[Any], *, disconnected: bool) -> None:
        if not done.cancelled() and done.exception() is None and not (self.disconnected or self._stopped):
            self.disconnected, self._stopped = disconnected, not disconnected
            if self._task is not None:
                self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        for each in self._watched:
            each.cancel()
        if not (self.disconnected or self._stopped) or self._task is None:
            return
        cancelled_by_us_alone = self._task.uncancel() == 0
        if isinstance(error, asyncio.CancelledError) and cancelled_by_us_alone:
            raise ClientGone if self.disconnected else Problem(STOPPING)
