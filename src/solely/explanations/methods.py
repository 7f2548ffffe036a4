"""Client methods of explanations: who holds a key, since when, until when, and why a call would be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..flow import Flow
from ..leases.context import AsyncMethods, Methods
from ..rules import stored_key

if TYPE_CHECKING:
    from ..drivers.aio import AsyncDriver
    from ..drivers.blocking import BlockingDriver
    from .flow import Explanation


class Explaining(Methods):
    """Explain, for threads."""

    _driver: BlockingDriver

    def explain(self, key: str) -> Explanation:
        """Everything that the store has under this name: lock, mark, claim, reservation, limit, watermark, breaker,
        queue; and the item, if the name is `queue/id`. Print it.

        Changes nothing. A limit is shown while it refuses calls.
        """
        return self._run(_explaining(self, key))


class AsyncExplaining(AsyncMethods):
    """Explain, for asyncio."""

    _driver: AsyncDriver

    async def explain(self, key: str) -> Explanation:
        """Everything that the store has under this name: lock, mark, claim, reservation, limit, watermark, breaker,
        queue; and the item, if the name is `queue/id`. Print it.

        Changes nothing. A limit is shown while it refuses calls.
        """
        return await self._run(_explaining(self, key))


def _explaining(client: Explaining | AsyncExplaining, key: str) -> Flow[Explanation]:
    from .flow import explain  # here, as it imports every noun, and few programs explain

    stored_key("lock", key)  # raises InvalidInput before anything is sent
    return explain(key, client._context.keeper.here, client._driver.waiters.waiting)
