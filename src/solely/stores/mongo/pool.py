"""pymongo's own pool of connections, which here leaves the server known when one connection to it is lost.

pymongo takes a server for unknown after the loss of any connection. All threads of the client then wait for its
monitor, which looks only every 0.5 s: longer than a renewal of a short lease can wait. Whether the server is away is
better seen by connecting again, which the next try does at once, and by the monitor, whose own connection is not ours.
"""

from __future__ import annotations

import asyncio
from traceback import walk_tb
from typing import Any

from pymongo.asynchronous.pool import Pool as AsyncPool
from pymongo.pool import Pool


def is_lost(connection: Any, error: BaseException) -> bool:
    """True if the error means that a connection of this age of the pool ended, not that an answer takes long."""
    ended = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return ended and connection.ready and not connection.pool_gen.stale(connection.generation, connection.service_id)


class SteadyPool(Pool):
    """A lost connection ends those that lie idle here, too, and has no other consequence.

    That makes the error one of a former age of the pool, which pymongo does not count against the server.
    """

    def connect(self, handler: Any = None) -> Any:
        connection = super().connect(handler)
        if not self.is_sdam:  # a monitor knows what to do
            connection._raise_connection_failure = self._clear_before(connection)  # type: ignore[method-assign]
        return connection

    def _clear_before(self, connection: Any) -> Any:
        fail = connection._raise_connection_failure

        def clear_and_fail(error: BaseException) -> None:
            if is_lost(connection, error):
                self.reset_without_pause()
            fail(error)

        return clear_and_fail


class AsyncSteadyPool(AsyncPool):
    """A lost connection ends those that lie idle here, too, and has no other consequence: see SteadyPool."""

    async def connect(self, handler: Any = None) -> Any:
        connection = await self._connect_tidily(handler)
        if not self.is_sdam:  # a monitor knows what to do
            connection._raise_connection_failure = self._clear_before(connection)
        return connection

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
