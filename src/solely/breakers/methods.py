"""Breakers: all processes stop calling what keeps failing."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from ..resilience.circuit import Errors, rule
from ..rules import Seconds
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
        """Guards what all processes depend on: after `threshold` failures within `per` seconds, counted over all of
        them, nothing is let through for `cooldown` seconds; then one trial at a time, until `successes` of them worked.

        `with once.breaker("smtp"): …` raises BreakerOpen, with the time `left`, when it lets nothing through. `on` says
        which errors are failures. The state outlives the processes.
        """
        return SharedBreaker(name, rule(threshold, per, cooldown, successes, on), self._context, self._run)


class AsyncBreakers(AsyncMethods):
    """Breakers, awaited."""

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
        """Guards what all processes depend on: after `threshold` failures within `per` seconds, counted over all of
        them, nothing is let through for `cooldown` seconds; then one trial at a time, until `successes` of them worked.

        `async with once.breaker("smtp"): …` raises BreakerOpen, with the time `left`, when it lets nothing through.
        `on` says which errors are failures. The state outlives the processes.
        """
        return AsyncSharedBreaker(name, rule(threshold, per, cooldown, successes, on), self._context, self._run)
