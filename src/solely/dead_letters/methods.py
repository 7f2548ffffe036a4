"""Client methods of dead letters: failed work, parked until it is replayed or purged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..leases.context import AsyncMethods, Methods

# Handles are imported by the methods that make them, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .handle import AsyncDeadLetters, DeadLetters


class DeadLetterGroups(Methods):
    """Dead letters, for threads."""

    def dead_letters(self, group: str) -> DeadLetters:
        """The dead letters of this group; sends nothing yet."""
        from .handle import DeadLetters

        return DeadLetters(self._context, self._run, group)


class AsyncDeadLetterGroups(AsyncMethods):
    """Dead letters, for asyncio."""

    def dead_letters(self, group: str) -> AsyncDeadLetters:
        """The dead letters of this group; sends nothing yet."""
        from .handle import AsyncDeadLetters

        return AsyncDeadLetters(self._context, self._run, group)
