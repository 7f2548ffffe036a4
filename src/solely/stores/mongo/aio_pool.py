"""As pool.py for asyncio; and mended where pymongo leaves a socket open."""

from __future__ import annotations

import asyncio
from traceback import walk_tb
from typing import Any

from pymongo.asynchronous.pool import Pool

from .pool import is_lost


class AsyncSteadyPool(Pool):
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
