"""Client methods of queues: work items that wait until a caller takes them."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from .handle import AsyncQueue, Queue


class Queues(Methods):
    """Queues, for threads."""

    def queue(self, name: str) -> Queue:
        """The queue of this name; sends nothing yet."""
        return Queue(self._context, self._run, name)


class AsyncQueues(AsyncMethods):
    """Queues, for asyncio."""

    def queue(self, name: str) -> AsyncQueue:
        """The queue of this name; sends nothing yet."""
        return AsyncQueue(self._context, self._run, name)
