"""pymongo's own pool of asyncio connections, mended where it leaves a socket open."""

from __future__ import annotations

import asyncio
from traceback import walk_tb
from typing import Any

from pymongo.asynchronous.pool import Pool


class TidyPool(Pool):
    """Closes the socket of a connect that is cancelled, as close() does to a monitor that has just lost its server.

    pymongo closes it when the connect fails, but leaves one that is cancelled to the garbage collector.
    """

    async def connect(self, handler: Any = None) -> Any:
        try:
            return await super().connect(handler)
        except asyncio.CancelledError as cancelled:
            for frame, _ in walk_tb(cancelled.__traceback__):
                if frame.f_code.co_name == "_async_create_connection" and "sock" in frame.f_locals:
                    frame.f_locals["sock"].close()
            raise
