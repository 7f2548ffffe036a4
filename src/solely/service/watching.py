"""Watching: a request that waits long ends when its caller hangs up, or when the service stops."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from .problems import STOPPING, Problem

if TYPE_CHECKING:
    from .routes import Call

AT_ONCE = 0.02  # seconds: what takes no longer, which is most, need not be watched while it goes on


class ClientGone(Exception):
    """The caller hung up: nobody waits for an answer."""


class Watch:
    """Ends what the current task waits for, with ClientGone when the caller hangs up, or a Problem when the service
    stops. It begins after AT_ONCE: what takes no longer costs one timer."""

    def __init__(self, call: Call[Any, Any]) -> None:
        self._call = call
        self._looking: list[asyncio.Future[Any]] = []
        self.hung_up = False
        self._stopped = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(AT_ONCE, self._begin)
        return self

    def _begin(self) -> None:
        caller = asyncio.ensure_future(self._call.receive())  # whose next message can only be that the caller is gone
        service = asyncio.ensure_future(self._call.service.stopping.wait())
        self._looking = [caller, service]
        caller.add_done_callback(partial(self._end, hung_up=True))
        service.add_done_callback(partial(self._end, hung_up=False))

    def _end(self, done: asyncio.Future[Any], *, hung_up: bool) -> None:
        if not done.cancelled() and done.exception() is None and not (self.hung_up or self._stopped):
            self.hung_up, self._stopped = hung_up, not hung_up
            if self._task is not None:
                self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        for each in self._looking:
            each.cancel()
        if not (self.hung_up or self._stopped) or self._task is None:
            return
        nobody_else = self._task.uncancel() == 0
        if isinstance(error, asyncio.CancelledError) and nobody_else:
            raise ClientGone if self.hung_up else Problem(STOPPING)
