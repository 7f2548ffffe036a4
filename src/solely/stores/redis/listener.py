"""How a Redis store subscribes to its hints: the channel of its client, on a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from hiredis import HiredisError, ReplyError

from ...errors import StoreDenied
from .. import OnHint
from .aio_connection import AsyncRedisConnection
from .codec import packed
from .connection import RedisConnection
from .health import warn_once

FAILURES = (OSError, HiredisError)  # what a connection that ends, or times out, raises
PING = packed("PING")


def _check(answer: Any, server: Any) -> None:
    if isinstance(answer, ReplyError):
        warn_once(f"{server} gives no hints, so waiters only look every second: {answer}")
        raise StoreDenied(str(answer))


class RedisSubscription:
    """For a thread."""

    def __init__(self, connection: RedisConnection, channel: str, timeout: float) -> None:
        self.connection = connection
        self.server = connection.address
        self._channel = channel
        self._timeout = timeout
        self._waits = 0.0  # the time for which the socket waits now

    def subscribe(self, on_hint: OnHint) -> None:
        self._on_hint = on_hint
        _check(self.connection.execute("SUBSCRIBE", self._channel), self.server)

    def deliver(self, silence: float) -> None:
        self._wait(silence)
        try:
            message = self.connection.receive()
        except (BlockingIOError, TimeoutError):
            self._wait(self._timeout)
            self.connection.send(PING)
            message = self.connection.receive()
        # An error in answer to PING (MISCONF, BUSY, …) is an answer, too: the server is there, and goes on to publish.
        if type(message) is list and message[0] == b"message":
            self._on_hint(message[2].decode("utf-8", "replace"))

    def _wait(self, seconds: float) -> None:
        if seconds != self._waits:
            self._waits = seconds
            self.connection.set_timeout(seconds)

    def interrupt(self) -> None:
        self.connection.shut()

    def close(self) -> None:
        self.connection.close()

    abandon = close  # it says nothing to the server


class ListenerConnection(AsyncRedisConnection):
    """A connection on which messages come between the answers."""

    on_hint: OnHint | None = None

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, list) and answer[0] == b"message":
            if self.on_hint is not None:
                self.on_hint(answer[2].decode("utf-8", "replace"))
        else:
            super()._answered(answer)


class AsyncRedisSubscription:
    """For a task."""

    def __init__(self, connection: ListenerConnection, channel: str) -> None:
        self.connection = connection
        self.server = connection.address
        self._channel = channel

    async def subscribe(self, on_hint: OnHint) -> None:
        self.connection.on_hint = on_hint
        _check(await self.connection.execute("SUBSCRIBE", self._channel), self.server)

    async def deliver(self, silence: float) -> None:
        await asyncio.wait([self.connection.lost], timeout=silence)
        await self.connection.execute("PING")  # raises if the connection has ended, and ends it if there is no answer

    def interrupt(self) -> None:
        self.connection.abort("another server is the primary now")

    async def close(self) -> None:
        await self.connection.close()
