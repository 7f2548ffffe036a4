"""The ear of an asyncio store: a task that hears which keys may be free now, on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ...errors import StoreError
from ...rules import backoff
from .. import Tell
from .aio_connection import AsyncWire
from .connection import Lost
from .listener import FIRST_RETRY, LONGEST_RETRY, SILENCE, listen_to


class AsyncEar:
    """Once prepared it listens until it is closed, and connects again as needed. Hints may be lost, never invented."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncWire]], client: str, patience: float) -> None:
        self.ready = False  # no hint is missed from now on
        self.tell: Tell | None = None
        self._connect = connect
        self._client = client
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # the current try to listen has succeeded or failed

    async def prepare(self) -> None:
        """Returns when it listens, or when trying that failed: then a waiter must look by itself."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="solely-postgres-ear")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), self._patience)

    async def close(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        failed = 0
        while True:
            self._settled.clear()
            with suppress(StoreError, Lost):  # those who send ops are told the reason; here only the hints are late
                wire = await self._connect()
                try:
                    await self._listen(wire)
                    failed = 0
                    await self._stay(wire)
                finally:
                    self.ready = False
                    wire.abort("the ear was closed")
            self._settled.set()
            await asyncio.sleep(backoff(failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5))
            failed += 1

    async def _listen(self, wire: AsyncWire) -> None:
        wire.tell = self._tell
        await wire.ask(listen_to(self._client))
        self.ready = True
        self._settled.set()

    async def _stay(self, wire: AsyncWire) -> None:
        """Returns when the connection has ended or stays silent to a question."""
        while not wire.lost.done():
            await asyncio.wait([wire.lost], timeout=SILENCE)
            if not wire.lost.done():
                await wire.ask(b"SELECT 1")

    def _tell(self, key: str) -> None:
        if self.tell is not None:
            self.tell(key)
