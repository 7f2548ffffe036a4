"""Stops the task-trigger API of a service in this process where others may come between: its drainer before and after
each step of each item, and a request before one of its accesses to the buffer or the table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import pytest

from solely import AsyncItem, AsyncQueue, Postpone
from solely.apps.triggers.drainer import Drainer
from solely.apps.triggers.gate import Gate
from solely.apps.triggers.model import BufferedRun
from solely.apps.triggers.table import RunTable
from tests.service.serving import END, Running

T = TypeVar("T")

ACCESSES: dict[type, tuple[str, ...]] = {
    AsyncQueue: ("read", "amend", "push"),
    RunTable: ("find", "change", "by_key", "is_protected", "settle", "expire_key"),
}
TAKEN, SEALED, STORED = "taken", "sealed", "stored"  # what the drainer has done with an item
_LOOK = 0.001  # seconds between two looks at whether something has happened

_draining: ContextVar[bool] = ContextVar("draining", default=False)


class Stop(NamedTuple):
    """Where something stopped. True lets it go on; False makes it fail."""

    place: str
    goes_on: asyncio.Future[bool]


class Pauses:
    """What is stopped now, by the ids of runs, and the request that is. `burst` is what the gate says."""

    def __init__(self, patch: pytest.MonkeyPatch, at_once: int) -> None:
        self.items: dict[str, Stop] = {}
        self.request: Stop | None = None
        self.burst = False
        self._at_once, self._countdown = at_once, 0
        self._service: Running
        patch.setattr(Gate, "diverts", lambda gate, environment: self._diverts())
        self._patch_steps(patch)
        for of, names in ACCESSES.items():
            for name in names:
                patch.setattr(of, name, self._stopping(getattr(of, name)))

    def watch(self, service: Running) -> None:
        """The service in which it happens."""
        self._service = service

    async def _diverts(self) -> bool:
        return self.burst

    # -- the drainer

    def _patch_steps(self, patch: pytest.MonkeyPatch) -> None:
        drain, store = Drainer.drain, Drainer._store_or_fail

        async def drained(drainer: Drainer, item: AsyncItem) -> None:
            reset = _draining.set(True)
            try:
                await drain(drainer, item)
            finally:
                _draining.reset(reset)

        async def calm(drainer: Drainer, buffered: BufferedRun) -> None:
            await self._stop_item(buffered.run.id, TAKEN)

        async def stored(drainer: Drainer, buffered: BufferedRun, attempts: int) -> None:
            await self._stop_item(buffered.run.id, SEALED)
            await store(drainer, buffered, attempts)
            await self._stop_item(buffered.run.id, STORED)

        patch.setattr(Drainer, "drain", drained)
        patch.setattr(Drainer, "_until_calm", calm)
        patch.setattr(Drainer, "_store_or_fail", stored)

    async def _stop_item(self, id: str, place: str) -> None:
        stop = self.items[id] = Stop(place, asyncio.get_running_loop().create_future())
        if not await stop.goes_on:
            raise Postpone("the test wants it", after=0.0)

    def move(self, id: str, *, fails: bool = False) -> str:
        """Lets the drainer do its next step with this item, or has it drop the item, which is then taken again. Returns
        what it has done with the item before."""
        stop = self.items.pop(id)
        self._service.on_loop(lambda: stop.goes_on.set_result(not fails))
        self.settle()
        return stop.place

    def settle(self) -> None:
        """Returns once the drainer has stopped with all items that it can have at once."""

        def settled() -> bool:
            app: Any = self._service.service.apps["triggers"]
            buffered: int = self._service.run(app.buffer.count())
            return len(self.items) == min(self._at_once, buffered)

        soon(settled)

    # -- a request

    def _stopping(self, access: Callable[..., Any]) -> Callable[..., Any]:
        async def accessed(*given: Any, **named: Any) -> Any:
            if self._countdown and not _draining.get():
                self._countdown -= 1
                if not self._countdown:
                    stop = self.request = Stop("", asyncio.get_running_loop().create_future())
                    await stop.goes_on
            return await access(*given, **named)

        return accessed

    def stop_request(self, access: int) -> None:
        """Stops the next request before this access, counted from 1; 0 stops none."""
        self._countdown = access

    def resume_request(self) -> None:
        """Lets the request go on that was stopped."""
        stop, self.request = self.request, None
        assert stop is not None
        self._service.on_loop(lambda: stop.goes_on.set_result(True))


def soon(condition: Callable[[], T]) -> T:
    """What the condition returns as soon as that is true."""
    ends = time.monotonic() + END
    while not (answer := condition()):
        assert time.monotonic() < ends, "it took too long"
        time.sleep(_LOOK)
    return answer
