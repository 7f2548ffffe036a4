"""Wakes the takes that wait in this process when there may be a run for them."""

from __future__ import annotations

import asyncio


class Arrivals:
    """A hint that a run was stored. It may be missed, as those of other processes are: who waits also looks again."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wakes all that wait."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, seconds: float) -> None:
        """Returns at the next hint, or after so many seconds."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._next}, timeout=seconds)
