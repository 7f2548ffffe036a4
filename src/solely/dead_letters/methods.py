"""Dead letters: what failed, parked until it is replayed or purged."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from .handle import AsyncDeadLetters, DeadLetters


class DeadLetterGroups(Methods):
    """Dead letters, for threads."""

    def dead_letters(self, group: str) -> DeadLetters:
        """The dead letters of this group; nothing is asked yet."""
        return DeadLetters(self._context, self._run, group)


class AsyncDeadLetterGroups(AsyncMethods):
    """Dead letters, awaited."""

    def dead_letters(self, group: str) -> AsyncDeadLetters:
        """The dead letters of this group; nothing is asked yet."""
        return AsyncDeadLetters(self._context, self._run, group)
