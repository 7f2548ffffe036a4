"""One asyncio connection that many tasks share: made by redis-py, then its transport is ours.

Commands go out in the order in which they are given, and the answers come back in the same order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import hiredis
import redis.asyncio.connection
from redis.exceptions import RedisError

from ...credentials import Login
from ...errors import StoreDenied, StoreFailed, StoreUnavailable, Unanswered
from .codec import packed
from .connection_args import login_command, new_connection, refused
from .settings import RedisSettings, ServerAddress

OnReply = Callable[["asyncio.Future[Any]", Any, Any], None]  # is given the future, what was kept for it, and the answer


def plain(future: asyncio.Future[Any], _: Any, answer: Any) -> None:
    """Finishes a future with the answer as it came."""
    future.set_result(answer)


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Finishes a future with an error, which is not reported as forgotten if nobody awaits it any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class AsyncRedisConnection(asyncio.Protocol):
    """Sends and receives. When the connection ends, all that was sent and not answered becomes Unanswered."""

    login: Login | None = None

    def __init__(self, address: ServerAddress, timeout: float, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.lost = loop.create_future()  # done when the connection has ended
        self._loop = loop
        self._timeout = timeout
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[asyncio.Future[Any], OnReply, Any, float]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._why = ""

    @classmethod
    async def connect(
        cls, settings: RedisSettings, address: ServerAddress, timeout: float, *, seed: bool = False
    ) -> Self:
        """A connection to this server; StoreUnavailable or StoreMisconfigured if there is none: nothing was sent."""
        tries, refusal = settings.tries(seed=seed), None
        while True:
            login = None if settings.logins is None else await asyncio.to_thread(next, tries, None)
            if login is None and refusal is not None:
                raise refusal
            try:
                return await cls._connect(settings, address, timeout, login, seed)
            except StoreDenied as denied:
                refusal = denied
                if login is None:
                    raise

    @classmethod
    async def _connect(
        cls, settings: RedisSettings, address: ServerAddress, timeout: float, login: Login | None, seed: bool
    ) -> Self:
        new = new_connection(redis.asyncio.connection, settings, address, timeout, login, seed=seed)
        try:
            await new.connect()
        except (RedisError, OSError) as error:
            raise refused(address, error) from None
        except BaseException:
            new._close()
            raise
        connection = cls(address, timeout, asyncio.get_running_loop())
        connection.login = login
        connection._take_over(new)
        return connection

    def _take_over(self, new: Any) -> None:
        self._streams = new._reader, new._writer  # kept: a writer that is collected closes its transport
        new._reader = new._writer = None
        self._transport: asyncio.Transport = self._streams[1].transport
        self._transport.set_protocol(self)

    def call(self, payload: bytes, finish: OnReply = plain, kept: Any = None) -> asyncio.Future[Any]:
        """Sends one command; the future is finished by `finish` when its answer is there."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost.done():
            fail(future, StoreUnavailable(f"{self.address}: the connection had ended before anything was sent"))
            return future
        now = self._loop.time()
        self._waiting.append((future, finish, kept, now))
        if self._watch is None:
            self._watch = self._loop.call_at(now + self._timeout, self._look)
        self._transport.write(payload)
        return future

    def call_all(self, commands: list[bytes]) -> list[asyncio.Future[Any]]:
        """Sends several commands in one write."""
        first = self.call(b"".join(commands))
        return [first, *(self.call(b"") for _ in commands[1:])]

    def execute(self, *command: Any) -> asyncio.Future[Any]:
        return self.call(hiredis.pack_command(command))

    def log_in(self, login: Login, settings: RedisSettings) -> None:
        """Logs in again, behind the commands that were sent before; ends the connection if the server refuses that."""
        self.login = login
        self.call(packed(*login_command(login, settings)), self._logged_in)

    def _logged_in(self, future: asyncio.Future[Any], _: Any, answer: Any) -> None:
        future.set_result(answer)
        if isinstance(answer, hiredis.ReplyError):
            self.abort("it refuses the new login")

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not False:
                self._answered(answer)
        except hiredis.ProtocolError as error:
            self.abort(f"it does not speak the protocol of Redis: {error}")

    def _answered(self, answer: Any) -> None:
        future, finish, kept, _ = self._waiting.popleft()
        if not future.done():  # else its task was cancelled: the answer is taken out of the line all the same
            try:
                finish(future, kept, answer)
            except Exception as error:  # noqa: BLE001 - it is out of the line: nobody else would ever finish it
                fail(future, StoreFailed(f"{self.address} sent an answer that is no reply of ours: {error!r}"))

    def _look(self) -> None:
        """Ends the connection if the oldest command is not answered in time; one timer serves all commands."""
        self._watch = None
        if self._waiting:
            due = self._waiting[0][3] + self._timeout
            if due <= self._loop.time():
                self.abort(f"no answer within {self._timeout:g} s")
            else:
                self._watch = self._loop.call_at(due, self._look)

    def abort(self, why: str) -> None:
        self._why = why
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if not self.lost.done():
            self.lost.set_result(None)
        reason = self._why or str(exc or "the connection was closed")
        while self._waiting:
            fail(self._waiting.popleft()[0], Unanswered(f"{self.address} did not answer: {reason}"))

    async def close(self) -> None:
        """Ends the connection: with TLS's closing handshake if the server answers it within the timeout."""
        self._transport.close()
        await asyncio.wait([self.lost], timeout=self._timeout)
        if not self.lost.done():
            self._transport.abort()
            await self.lost
