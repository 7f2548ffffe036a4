"""Breakers: all processes stop calling what keeps failing, and one at a time tries whether it works again."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

from .. import events
from ..core import Core
from ..errors import Interrupted, SolelyError, StoreError
from ..flows import breaker, lock
from ..flows.breaker import Pass
from ..flows.hold import Hold
from ..flows.requests import Flow
from ..resilience.circuit import Circuit, Errors, Passes, Rule, rule, verdict
from ..rules import Seconds, stored_key
from . import AsyncFace, AsyncRun, Face, Run

log = logging.getLogger("solely")
T = TypeVar("T")


class _Shared:
    """What both faces of a shared breaker do alike. `None` in place of a pass: the store was away, and we went on."""

    def __init__(self, name: str, rule: Rule, core: Core) -> None:
        self._stored = stored_key("breaker", name)
        self.name = name
        self._rule = rule
        self._core = core
        self._passes = Passes[Pass | None]()

    def _admitting(self) -> Flow[Pass | None]:
        info = self._core.info(f"trial of breaker {self.name}")
        return self._core.or_proceed(self._stored, "breaker", breaker.admit(self.name, self._kept, info), lambda: None)

    def _kept(self, hold: Hold) -> Hold:
        hold.keep(True, math.inf)
        self._core.keep(hold)
        return hold

    def _judging(self, error: BaseException | None) -> Flow[None]:
        """What the end of a call tells. If it cannot be told it is logged: the call's own outcome stands."""
        passed = self._passes.leave()
        if passed is None:
            return
        worked = verdict(error, self._rule.on)
        if passed.trial is not None:
            self._core.book.remove(passed.trial)
        try:
            if worked is not None:
                self._turned((yield from breaker.judge(self.name, self._rule, passed, worked)))
            elif passed.trial is not None:
                yield from lock.release(passed.trial)
        except StoreError as failure:
            self._untold(failure)
        except Interrupted as why:
            if not isinstance(why.cause, SolelyError):
                raise
            self._untold(why.cause)

    def _untold(self, failure: SolelyError) -> None:
        facts = {"key": self._stored, "error": str(failure)}
        log.warning("breaker_not_told: %(key)r does not know how a call ended: %(error)s", facts, extra=facts)

    def _turned(self, circuit: Circuit | None) -> None:
        if circuit is not None:
            level = logging.WARNING if circuit is Circuit.OPEN else logging.INFO
            facts = {"key": self._stored, "state": circuit.value}
            log.log(level, "breaker_turned: %(key)r is %(state)s now", facts, extra=facts)
            if self._core.hook is not None:
                self._core.hook(events.BreakerTurned(self._stored, circuit.value))


class SharedBreaker(_Shared):
    """A breaker whose state is in the store, for threads. Use it in `with` or by `call`; many threads may share it."""

    def __init__(self, name: str, rule: Rule, core: Core, run: Run) -> None:
        super().__init__(name, rule, core)
        self._run = run

    def state(self) -> Circuit:
        """What would happen to a call now, anywhere."""
        return self._run(breaker.state(self.name))

    def reset(self) -> bool:
        """Closes the breaker for all processes at once; False if it was closed."""
        return self._run(breaker.reset(self.name))

    def call(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """The result of the call, if it is let through; else BreakerOpen."""
        with self:
            return work(*args, **options)

    def __enter__(self) -> Self:
        self._passes.enter(self._run(self._admitting()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._run(self._judging(error))


class AsyncSharedBreaker(_Shared):
    """A breaker whose state is in the store, for asyncio. Use it in `async with` or by `call`; tasks may share it."""

    def __init__(self, name: str, rule: Rule, core: Core, run: AsyncRun) -> None:
        super().__init__(name, rule, core)
        self._run = run

    async def state(self) -> Circuit:
        """What would happen to a call now, anywhere."""
        return await self._run(breaker.state(self.name))

    async def reset(self) -> bool:
        """Closes the breaker for all processes at once; False if it was closed."""
        return await self._run(breaker.reset(self.name))

    async def call(self, work: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """The result of the awaited call, if it is let through; else BreakerOpen."""
        async with self:
            return await work(*args, **options)

    async def __aenter__(self) -> Self:
        self._passes.enter(await self._run(self._admitting()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._run(self._judging(error))


class Breakers(Face):
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
        return SharedBreaker(name, rule(threshold, per, cooldown, successes, on), self._core, self._run)


class AsyncBreakers(AsyncFace):
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
        return AsyncSharedBreaker(name, rule(threshold, per, cooldown, successes, on), self._core, self._run)
