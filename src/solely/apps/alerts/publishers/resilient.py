"""What makes a publisher steady: bounds in time and number, quick retries, and a breaker for what keeps failing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from ....client import AsyncClient
from ....errors import BreakerOpen, StoreError
from ....resilience import RETRY
from ..model import Alert, Notification, own
from .failure import PublishFailed
from .settings import SteadySettings

log = structlog.get_logger("solely.alerts")

ASK = 0.5  # seconds for what the breaker asks the store: it answers in a few milliseconds, or an alert shall not wait
LONGEST_PAUSE = 2.0  # seconds that a receiver may ask for and that are waited for here; for longer the queue waits


class Sender(Protocol):
    """One try at telling one receiver."""

    async def send(self, notification: Notification, attempt: int) -> None:
        """Returns when the receiver has it; else raises PublishFailed. `attempt` counts from 0."""

    async def close(self) -> None:
        """Lets go of connections; safe to call twice."""


class SteadyPublisher:
    """A publisher of which each publish is bounded by its timeout, and goes through a breaker.

    The breaker is in the store, so that all workers of a host stop together, operators see it, and it outlives a
    restart; it has the host in its name, because a host that has lost its network must not keep others from telling.
    Where the store does not answer at once the publish goes on without it: it spares the receiver and guards no
    promise.
    """

    def __init__(self, settings: SteadySettings, sender: Sender, once: AsyncClient) -> None:
        self.name = settings.name
        self._settings = settings
        self._sender = sender
        self._slots = asyncio.Semaphore(settings.at_once)
        self._breaker = once.breaker(own(f"publishers/{settings.name}@{socket.gethostname():.200}"), on=_MayPass)

    def wants(self, alert: Alert) -> bool:
        """True if the settings send alerts like this one here."""
        return self._settings.match.fits(alert)

    async def publish(self, notification: Notification) -> None:
        """Returns when the receiver has it; else raises PublishFailed."""
        until = asyncio.get_running_loop().time() + self._settings.timeout
        async with self._slot(until), self._let_through():
            try:
                async with asyncio.timeout_at(until):
                    await self._try(notification, until)
            except TimeoutError:
                raise _MayPass(f"{self.name}: no answer within {self._settings.timeout:g} s") from None

    async def close(self) -> None:
        """Lets go of connections; safe to call twice."""
        await self._sender.close()

    async def _try(self, notification: Notification, until: float) -> None:
        """Sends until it worked, or the pauses or the time are used up."""
        attempt = 0
        while True:
            try:
                return await self._sender.send(notification, attempt)
            except PublishFailed as failure:
                if failure.permanent:
                    raise
                pause = max(RETRY.pause(attempt), failure.retry_after or 0.0)
                left = until - asyncio.get_running_loop().time()
                attempt += 1
                if attempt > len(RETRY.steps) or pause > min(left, LONGEST_PAUSE):
                    raise _MayPass(str(failure), retry_after=failure.retry_after) from None
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _slot(self, until: float) -> AsyncIterator[None]:
        """One of the publishes at once; PublishFailed, of which the receiver is not to blame, if none gets free."""
        try:
            async with asyncio.timeout_at(until):
                await self._slots.acquire()
        except TimeoutError:
            raise PublishFailed(f"{self.name}: all of at_once={self._settings.at_once} were under way") from None
        try:
            yield
        finally:
            self._slots.release()

    @asynccontextmanager
    async def _let_through(self) -> AsyncIterator[None]:
        """What is inside is let through and judged by the breaker; PublishFailed if it lets nothing through."""
        try:
            async with asyncio.timeout(ASK):
                await self._breaker.__aenter__()
        except BreakerOpen as refusal:
            raise PublishFailed(f"{self.name}: {refusal}", retry_after=refusal.left) from None
        except (StoreError, TimeoutError) as error:
            log.warning("publisher_breaker_not_asked", publisher=self.name, error=str(error) or "no answer")
            yield
            return
        try:
            yield
        except BaseException as error:
            await self._judged(error)
            raise
        await self._judged(None)

    async def _judged(self, error: BaseException | None) -> None:
        try:
            async with asyncio.timeout(ASK):
                await self._breaker.__aexit__(type(error) if error else None, error, None)
        except TimeoutError:
            log.warning("publisher_breaker_not_told", publisher=self.name)


class _MayPass(PublishFailed):
    """A failure that a later try may not meet: what the breaker counts."""
