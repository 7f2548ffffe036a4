"""pymongo's own pool of connections, which here leaves the server known when one connection to it is lost.

pymongo takes a server for unknown after the loss of any connection. All threads of the client then wait for its
monitor, which looks only every 0.5 s: longer than a renewal of a short lease can wait. Whether the server is away is
better seen by connecting again, which the next try does at once, and by the monitor, whose own connection is not ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import copy
from traceback import walk_tb
from typing import Any, TypeVar

from pymongo.asynchronous.pool import Pool as AsyncPool
from pymongo.errors import OperationFailure
from pymongo.pool import Pool

from .faults import DENIED
from .settings import MongoSettings

P = TypeVar("P", bound="_LoggingIn")


def is_lost(connection: Any, error: BaseException) -> bool:
    """True if the error means that a connection of this age of the pool ended, not that an answer takes long."""
    ended = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return ended and connection.ready and not connection.pool_gen.stale(connection.generation, connection.service_id)


class _LoggingIn:
    """A pool whose connections log in with what a provider gives, instead of a login in the URL."""

    settings: MongoSettings | None = None  # set in a subclass, since pymongo makes the pools
    is_sdam: bool
    opts: Any

    def tries(self) -> Iterator[bool]:
        """Gives the options of the pool the next login to try, and yields True for each."""
        if self.settings is None or self.settings.logins is None or self.is_sdam:
            yield True  # with the login of the URL, or none
            return
        for login in self.settings.logins.tries():
            options = copy(self.opts)  # connections that are open keep theirs
            options._PoolOptions__credentials = self.settings.credential(login)
            self.opts = options
            yield True


def pool_class(kind: type[P], settings: MongoSettings) -> type[P]:
    """The class of pools that log in as these settings say."""
    return kind if settings.logins is None else type(kind.__name__, (kind,), {"settings": settings})


def _refusal(error: OperationFailure) -> OperationFailure:
    """The error if the server refuses the login, so that another may be tried; raises any other."""
    if error.code != DENIED:
        raise error
    return error


class SteadyPool(_LoggingIn, Pool):
    """A lost connection ends those that lie idle here, too, and has no other consequence.

    That makes the error one of a former age of the pool, which pymongo does not count against the server.
    """

    def connect(self, handler: Any = None) -> Any:
        connection = self._connect_as_permitted(handler)
        if not self.is_sdam:  # a monitor knows what to do
            connection._raise_connection_failure = self._clear_before(connection)
        return connection

    def _connect_as_permitted(self, handler: Any) -> Any:
        refusal: OperationFailure | None = None
        for _ in self.tries():
            try:
                return super().connect(handler)
            except OperationFailure as denied:
                refusal = _refusal(denied)
        raise refusal or OperationFailure("there is no login", DENIED)

    def _clear_before(self, connection: Any) -> Any:
        fail = connection._raise_connection_failure

        def clear_and_fail(error: BaseException) -> None:
            if is_lost(connection, error):
                self.reset_without_pause()
            fail(error)

        return clear_and_fail


class AsyncSteadyPool(_LoggingIn, AsyncPool):
    """A lost connection ends those that lie idle here, too, and has no other consequence: see SteadyPool."""

    async def connect(self, handler: Any = None) -> Any:
        connection = await self._connect_as_permitted(handler)
        if not self.is_sdam:  # a monitor knows what to do
            connection._raise_connection_failure = self._clear_before(connection)
        return connection

    async def _connect_as_permitted(self, handler: Any) -> Any:
        if self.settings is None:
            return await self._connect_tidily(handler)
        refusal: OperationFailure | None = None
        tries = self.tries()
        while await asyncio.to_thread(next, tries, False):
            try:
                return await self._connect_tidily(handler)
            except OperationFailure as denied:
                refusal = _refusal(denied)
        raise refusal or OperationFailure("there is no login", DENIED)

    def _clear_before(self, connection: Any) -> Any:
        fail = connection._raise_connection_failure

        async def clear_and_fail(error: BaseException) -> None:
            if is_lost(connection, error):
                await self.reset_without_pause()
            await fail(error)

        return clear_and_fail

    async def _connect_tidily(self, handler: Any) -> Any:
        """Closes the socket of a connect that is cancelled, as close() does to a monitor that has just lost its server.

        pymongo closes it when the connect fails, but leaves one that is cancelled to the garbage collector.
        """
        try:
            return await super().connect(handler)
        except asyncio.CancelledError as cancelled:
            for frame, _ in walk_tb(cancelled.__traceback__):
                if frame.f_code.co_name == "_async_create_connection" and "sock" in frame.f_locals:
                    frame.f_locals["sock"].close()
            raise
