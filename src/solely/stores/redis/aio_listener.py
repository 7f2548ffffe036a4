"""The ear of an asyncio store: a task that hears which keys may be free now, on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from hiredis import ReplyError

from ...errors import ClientClosed, StoreError
from ...rules import backoff
from .. import Tell
from .aio_connection import AsyncWire
from .health import warn_once
from .listener import FIRST_RETRY, LONGEST_RETRY, SILENCE
from .settings import Address


class EarWire(AsyncWire):
    """A wire on which messages come between the answers."""

    tell: Tell | None = None

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, list) and answer[0] == b"message":
            if self.tell is not None:
                self.tell(answer[2].decode("utf-8", "replace"))
        else:
            super()._answered(answer)


class AsyncEar:
    """Once prepared it listens until it is closed, and connects again as needed. Hints may be lost, never invented."""

    def __init__(self, connect: Callable[[], Awaitable[EarWire]], channel: str, patience: float) -> None:
        self.ready = False  # subscribed: no hint is missed from now on
        self.tell: Tell | None = None
        self._connect = connect
        self._channel = channel
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # the current try to subscribe has succeeded or failed
        self._hurry = asyncio.Event()  # ends a rest between two tries
        self._home: Address | None = None  # where requests go
        self._failed = 0  # tries to subscribe since the last that succeeded
        self._wire: EarWire | None = None

    async def prepare(self) -> None:
        """Returns when it listens, or when trying that failed: then a waiter must look by itself."""
        if self._task is None or self._task.done():
            self._settled.clear()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="solely-redis-ear")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), self._patience)

    def follow(self, home: Address) -> None:
        """Requests go to this server from now on: subscribes there, too, if it listens to another or to none."""
        if home == self._home:
            return
        self._home = home
        self._hurry.set()
        if self._wire is not None and self._wire.address != home:
            self.drop()

    def drop(self) -> None:
        """The connection leads to the wrong server: connect again."""
        if self._wire is not None:
            self._wire.abort("another server is the primary now")

    async def close(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            self._settled.clear()
            self._hurry.clear()
            try:
                self._wire = await self._connect()
                await self._listen(self._wire)
            except (StoreError, ClientClosed):
                pass  # those who send ops are told the reason; here only the hints are late
            finally:  # also if the task ends: the next waiter starts another
                self.ready = False
                self._settled.set()
                if self._wire is not None:
                    wire, self._wire = self._wire, None
                    await wire.close()
            rest = backoff(self._failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), rest)
            self._failed += 1

    async def _listen(self, wire: EarWire) -> None:
        if self._home not in (None, wire.address):  # requests went elsewhere while it connected
            return
        wire.tell = self._tell
        answer = await wire.ask("SUBSCRIBE", self._channel)
        if isinstance(answer, ReplyError):
            warn_once(f"{wire.address} gives no hints, so waiters only look every second: {answer}")
            return
        self.ready = True
        self._failed = 0
        self._settled.set()
        while not wire.lost.done():
            await asyncio.wait([wire.lost], timeout=SILENCE)
            if not wire.lost.done():
                await wire.ask("PING")  # ends the connection if it is not answered

    def _tell(self, key: str) -> None:
        if self.tell is not None:
            self.tell(key)
