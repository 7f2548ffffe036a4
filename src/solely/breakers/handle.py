"""Breakers: all processes stop calling what keeps failing, and one at a time tries whether it works again."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

from .. import events
from ..errors import Interrupted, SolelyError, StoreError
from ..flow import Flow
from ..leases import flow as lock
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..leases.hold import Hold
from ..resilience.circuit import Circuit, Passes, Rule, verdict
from ..rules import stored_key
from . import flow as breaker
from .flow import SharedPass

log = logging.getLogger("solely")
T = TypeVar("T")


class SharedBreakerBase:
    """A shared breaker, for threads and asyncio alike. A pass of None: the call went on without the store."""

    def __init__(self, name: str, rule: Rule, context: Context) -> None:
        self._stored = stored_key("breaker", name)
        self.name = name
        self._rule = rule
        self._context = context
        self._passes = Passes[SharedPass | None]()

    def _admitting(self) -> Flow[SharedPass | None]:
        info = self._context.info(f"trial of breaker {self.name}")
        return self._context.or_proceed(
            self._stored, "breaker", breaker.admit(self.name, self._kept, info), lambda: None
        )

    def _kept(self, hold: Hold) -> Hold:
        hold.keep(True, math.inf)
        self._context.keep(hold)
        return hold

    def _judging(self, error: BaseException | None) -> Flow[None]:
        """What the end of a call tells. If it cannot be told it is logged: the call's own outcome stands."""
        passed = self._passes.leave()
        if passed is None:
            return
        worked = verdict(error, self._rule.on)
        if passed.trial is not None:
            self._context.keeper.remove(passed.trial)
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
            if self._context.hook is not None:
                self._context.hook(events.BreakerTurned(self._stored, circuit.value))


class SharedBreaker(SharedBreakerBase):
    """A breaker whose state is in the store, for threads. Use it in `with` or by `call`; many threads may share it."""

    def __init__(self, name: str, rule: Rule, context: Context, run: RunFlow) -> None:
        super().__init__(name, rule, context)
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


class AsyncSharedBreaker(SharedBreakerBase):
    """A breaker whose state is in the store, for asyncio. Use it in `async with` or by `call`; tasks may share it."""

    def __init__(self, name: str, rule: Rule, context: Context, run: AsyncRunFlow) -> None:
        super().__init__(name, rule, context)
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
