"""Client methods of dead letters: failed work, parked until it is replayed or purged."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from .handle import AsyncDeadLetters, DeadLetters


class DeadLetterGroups(Methods):
    """Dead letters, for threads."""

    def dead_letters(self, group: str) -> DeadLetters:
        """The dead letters of this group; sends nothing yet."""
        return DeadLetters(self._context, self._run, group)


class AsyncDeadLetterGroups(AsyncMethods):
    """Dead letters, for asyncio."""

    def dead_letters(self, group: str) -> AsyncDeadLetters:
        """The dead letters of this group; sends nothing yet."""
        return AsyncDeadLetters(self._context, self._run, group)
