"""Resilience around work that calls others: a timeout, a bound on concurrent calls, quick retries, and a breaker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ..client import AsyncClient
from ..errors import BreakerOpen, NameReserved, StoreError
from ..logs import get_logger
from ..resilience import RETRY
from .message import CallFailed, NotCalled

T = TypeVar("T")
log = get_logger()

BREAKER_TIMEOUT = 0.5  # seconds: the store usually answers within milliseconds, and a call does not wait for longer
LONGEST_PAUSE = 2.0  # seconds: after a longer Retry-After the caller of `run` has better things to do than to wait


class Attempts:
    """Runs attempts within a timeout and through a breaker.

    The breaker is in the store `once`, so that all workers of a host share it, operators see it, and it survives a
    restart. Its name gets the host's, because a host that has lost its network must not stop the others. If the store
    does not answer in time, the call goes on without the breaker: it only spares the receiver.
    """

    def __init__(
        self,
        name: str,
        *,
        timeout: float,
        at_once: int,
        retries: int = len(RETRY.steps),
        once: AsyncClient | None = None,
        breaker: str = "",
    ) -> None:
        self._name = name
        self._timeout = timeout
        self._retries = retries
        self._at_once = at_once
        self._slots = asyncio.Semaphore(at_once)
        shared = f"{breaker or name}@{socket.gethostname():.200}"
        self._breaker = once.breaker(shared, on=_Temporary) if once is not None else None

    async def run(self, attempt: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool] = lambda: True) -> T:
        """The result of the first attempt that succeeds. Raises CallFailed if all fail, or earlier if a failure is
        permanent, time is up, the breaker is open, or `may_repeat` returns False after a failure."""
        until = asyncio.get_running_loop().time() + self._timeout
        async with self._slot(until), self._through_breaker():
            try:
                async with asyncio.timeout_at(until):
                    return await self._repeated(attempt, may_repeat, until)
            except TimeoutError:
                raise _Temporary(f"{self._name}: no answer within {self._timeout:g} s") from None

    async def _repeated(self, attempt: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool], until: float) -> T:
        """Attempts, with quick retries while there are retries and time left."""
        number = 0
        while True:
            try:
                return await attempt()
            except CallFailed as failure:
                if failure.permanent:
                    raise
                pause = max(RETRY.pause(number), failure.retry_after or 0.0)
                left = until - asyncio.get_running_loop().time()
                number += 1
                if number > self._retries or not may_repeat() or pause > min(left, LONGEST_PAUSE):
                    raise _Temporary(str(failure), retry_after=failure.retry_after, response=failure.response) from None
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _slot(self, until: float) -> AsyncIterator[None]:
        """A slot for one call; NotCalled, which the breaker does not count, if none becomes free in time."""
        try:
            async with asyncio.timeout_at(until):
                await self._slots.acquire()
        except TimeoutError:
            raise NotCalled(f"{self._name}: all at_once={self._at_once} slots were in use") from None
        try:
            yield
        finally:
            self._slots.release()

    @asynccontextmanager
    async def _through_breaker(self) -> AsyncIterator[None]:
        """Runs the block through the breaker, which counts its result; NotCalled if the breaker is open."""
        if not await self._admitted():
            yield
            return
        try:
            yield
        except BaseException as error:
            await self._report(error)
            raise
        await self._report(None)

    async def _admitted(self) -> bool:
        """True if the breaker admits the call; False if the call goes on without it; NotCalled if it is open."""
        if self._breaker is None:
            return False
        try:
            async with asyncio.timeout(BREAKER_TIMEOUT):
                await self._breaker.__aenter__()
        except BreakerOpen as refusal:
            raise NotCalled(f"{self._name}: {refusal}", retry_after=refusal.left) from None
        except NameReserved:
            raise  # a mistake of the application, not an outage of its store
        except (StoreError, TimeoutError) as error:
            facts = {"call": self._name, "error": str(error) or "no answer"}
            log.warning("breaker_unreachable: %(call)s is called without its breaker: %(error)s", facts, extra=facts)
            return False
        return True

    async def _report(self, error: BaseException | None) -> None:
        """Reports the result to the breaker."""
        assert self._breaker is not None
        try:
            async with asyncio.timeout(BREAKER_TIMEOUT):
                await self._breaker.__aexit__(type(error) if error else None, error, None)
        except TimeoutError:
            facts = {"call": self._name}
            log.warning("breaker_not_updated: the result of a call of %(call)s was not counted", facts, extra=facts)


class _Temporary(CallFailed):
    """A failure that a retry may not meet: what the breaker counts."""
