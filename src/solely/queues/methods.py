"""Queues: work that waits until somebody takes it, does it, and says so."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from .handle import AsyncQueue, Queue


class Queues(Methods):
    """Queues, for threads."""

    def queue(self, name: str) -> Queue:
        """The queue of this name; nothing is asked yet."""
        return Queue(self._context, self._run, name)


class AsyncQueues(AsyncMethods):
    """Queues, awaited."""

    def queue(self, name: str) -> AsyncQueue:
        """The queue of this name; nothing is asked yet."""
        return AsyncQueue(self._context, self._run, name)
