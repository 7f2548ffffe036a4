"""Queues: work that waits until somebody takes it, does it, and says so."""

from __future__ import annotations

from ..handles.queue import AsyncQueue, Queue
from . import AsyncFace, Face


class Queues(Face):
    """Queues, for threads."""

    def queue(self, name: str) -> Queue:
        """The queue of this name; nothing is asked yet."""
        return Queue(self._core, self._run, name)


class AsyncQueues(AsyncFace):
    """Queues, awaited."""

    def queue(self, name: str) -> AsyncQueue:
        """The queue of this name; nothing is asked yet."""
        return AsyncQueue(self._core, self._run, name)
