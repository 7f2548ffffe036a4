"""Client methods of queues: work items that wait until a caller takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..leases.context import AsyncMethods, Methods

# Handles are imported by the methods that make them, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .handle import AsyncQueue, Queue


class Queues(Methods):
    """Queues, for threads."""

    def queue(self, name: str) -> Queue:
        """The queue of this name; sends nothing yet."""
        from .handle import Queue

        return Queue(self._context, self._run, name)


class AsyncQueues(AsyncMethods):
    """Queues, for asyncio."""

    def queue(self, name: str) -> AsyncQueue:
        """The queue of this name; sends nothing yet."""
        from .handle import AsyncQueue

        return AsyncQueue(self._context, self._run, name)
