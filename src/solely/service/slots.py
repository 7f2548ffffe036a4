"""Slots: pages and lists are made a few at a time, so that however many are asked for, those who hold are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from .problems import AWAY, CROWDED, Problem

AT_ONCE = 4  # per worker: enough to keep the store busy; each takes the event loop for some milliseconds at a time


class Slots:
    """Those who find no slot free wait in the order in which they came; a Problem for who waits too long, or whose page
    takes too long to make."""

    def __init__(self, *, wait: float, work: float) -> None:
        self._wait, self._work = wait, work
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None, None]:
        """A slot for as long as the context lasts."""
        try:
            async with asyncio.timeout(self._wait):
                await self._free.acquire()
        except TimeoutError:
            raise Problem(CROWDED) from None
        working = asyncio.timeout(self._work)
        try:
            async with working:
                yield
        except TimeoutError:
            if not working.expired():
                raise
            raise Problem(AWAY, f"this could not be read within {self._work:g} s (store_timeout)") from None
        finally:
            self._free.release()
