"""Dead letters: what failed, parked until it is replayed or purged."""

from __future__ import annotations

from ..handles.deadletter import AsyncDeadLetters, DeadLetters
from . import AsyncFace, Face


class Letters(Face):
    """Dead letters, for threads."""

    def dead_letters(self, group: str) -> DeadLetters:
        """The dead letters of this group; nothing is asked yet."""
        return DeadLetters(self._core, self._run, group)


class AsyncLetters(AsyncFace):
    """Dead letters, awaited."""

    def dead_letters(self, group: str) -> AsyncDeadLetters:
        """The dead letters of this group; nothing is asked yet."""
        return AsyncDeadLetters(self._core, self._run, group)
