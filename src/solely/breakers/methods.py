"""Client methods of shared breakers: all processes stop calling a failing dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..leases.context import AsyncMethods, Methods
from ..resilience.circuit import Errors, rule
from ..rules import Seconds

# Handles are imported by the methods that make them, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .handle import AsyncSharedBreaker, SharedBreaker


class Breakers(Methods):
    """Breakers, for threads."""

    def breaker(
        self,
        name: str,
        *,
        threshold: int = 5,
        per: Seconds = 60.0,
        cooldown: Seconds = 30.0,
        successes: int = 2,
        on: Errors = Exception,
    ) -> SharedBreaker:
        """A breaker that all processes share. After `threshold` failures within `per` seconds, counted over all, it
        refuses calls for `cooldown` seconds, then admits one trial at a time until `successes` of them succeeded.

        `with once.breaker("smtp"): …` raises BreakerOpen, with the time `left`, if the call is not admitted. `on` names
        the errors that count as failures. The state outlives the processes.
        """
        from .handle import SharedBreaker

        return SharedBreaker(name, rule(threshold, per, cooldown, successes, on), self._context, self._run)


class AsyncBreakers(AsyncMethods):
    """Breakers, for asyncio."""

    def breaker(
        self,
        name: str,
        *,
        threshold: int = 5,
        per: Seconds = 60.0,
        cooldown: Seconds = 30.0,
        successes: int = 2,
        on: Errors = Exception,
    ) -> AsyncSharedBreaker:
        """A breaker that all processes share. After `threshold` failures within `per` seconds, counted over all, it
        refuses calls for `cooldown` seconds, then admits one trial at a time until `successes` of them succeeded.

        `async with once.breaker("smtp"): …` raises BreakerOpen, with the time `left`, if the call is not admitted.
        `on` names the errors that count as failures. The state outlives the processes.
        """
        from .handle import AsyncSharedBreaker

        return AsyncSharedBreaker(name, rule(threshold, per, cooldown, successes, on), self._context, self._run)
