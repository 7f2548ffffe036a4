"""Shared breakers: all processes stop calling a failing dependency; one trial at a time probes it."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

from .. import events
from ..errors import Interrupted, SolelyError, StoreError
from ..flow import Flow
from ..functions import begun, finished, plain_function, work_function
from ..leases import flow as lock
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..leases.hold import Hold
from ..logs import get_logger
from ..resilience.circuit import Circuit, Passes, Rule, verdict
from ..rules import stored_key
from . import flow as breaker
from .flow import SharedPass

log = get_logger()
T = TypeVar("T")


class SharedBreakerBase:
    """A shared breaker, the same for threads and asyncio. A pass of None: the call proceeded without the store."""

    def __init__(self, name: str, rule: Rule, context: Context) -> None:
        self._stored = stored_key("breaker", name)
        self.name = name
        self._rule = rule
        self._context = context
        self._passes = Passes[SharedPass | None]()

    def _admitting(self) -> Flow[SharedPass | None]:
        info = self._context.signature.signer(f"trial of breaker {self.name}")
        return self._context.or_proceed(
            self._stored, "breaker", breaker.admit(self.name, self._kept, info), lambda: None
        )

    def _kept(self, hold: Hold) -> Hold:
        hold.keep(True, math.inf)
        self._context.keep(hold)
        return hold

    def _judging(self, error: BaseException | None) -> Flow[None]:
        """Counts the end of a call. A failure to do so is logged, not raised: the call's own outcome goes first."""
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
            self._not_counted(failure)
        except Interrupted as why:
            if not isinstance(why.cause, SolelyError):
                raise
            self._not_counted(why.cause)

    def _not_counted(self, failure: SolelyError) -> None:
        facts = {"key": self._stored, "error": str(failure)}
        log.warning("breaker_not_told: the result of a call was not counted in %(key)r: %(error)s", facts, extra=facts)

    def _turned(self, circuit: Circuit | None) -> None:
        if circuit is not None:
            level = logging.WARNING if circuit is Circuit.OPEN else logging.INFO
            facts = {"key": self._stored, "state": circuit.value}
            log.log(level, "breaker_turned: %(key)r is %(state)s now", facts, extra=facts)
            if self._context.hook is not None:
                self._context.hook(events.BreakerTurned(self._stored, circuit.value))


class SharedBreaker(SharedBreakerBase):
    """A breaker with its state in the store, for threads. Use it in `with` or by `call`; many threads may share it."""

    def __init__(self, name: str, rule: Rule, context: Context, run: RunFlow) -> None:
        super().__init__(name, rule, context)
        self._run = run

    def state(self) -> Circuit:
        """What the breaker would do with a call now, in any process."""
        return self._run(breaker.state(self.name))

    def reset(self) -> bool:
        """Closes the breaker for all processes at once; False if it was closed already."""
        return self._run(breaker.reset(self.name))

    def call(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Makes the call and returns its result; raises BreakerOpen if it is not admitted."""
        plain_function("work", work, "use an AsyncClient")
        with self:
            return finished("the work", work(*args, **options))

    def __enter__(self) -> Self:
        self._passes.enter(self._run(self._admitting()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._run(self._judging(error))


class AsyncSharedBreaker(SharedBreakerBase):
    """A breaker with its state in the store, for asyncio. Use it in `async with` or by `call`; tasks may share it."""

    def __init__(self, name: str, rule: Rule, context: Context, run: AsyncRunFlow) -> None:
        super().__init__(name, rule, context)
        self._run = run

    async def state(self) -> Circuit:
        """What the breaker would do with a call now, in any process."""
        return await self._run(breaker.state(self.name))

    async def reset(self) -> bool:
        """Closes the breaker for all processes at once; False if it was closed already."""
        return await self._run(breaker.reset(self.name))

    async def call(self, work: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Awaits the call and returns its result; raises BreakerOpen if it is not admitted."""
        work_function("work", work)
        async with self:
            return await begun("the work", work(*args, **options))

    async def __aenter__(self) -> Self:
        self._passes.enter(await self._run(self._admitting()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._run(self._judging(error))
