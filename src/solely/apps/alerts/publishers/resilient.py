"""Resilience around a sender: a timeout, a bound on concurrent publishes, quick retries, and a breaker."""

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
from .settings import ResilientSettings

log = structlog.get_logger("solely.alerts")

BREAKER_TIMEOUT = 0.5  # seconds: the store usually answers within milliseconds, and an alert does not wait for longer
LONGEST_PAUSE = 2.0  # seconds: for a longer Retry-After the notification goes back to the queue


class Sender(Protocol):
    """One attempt to send to one receiver."""

    async def send(self, notification: Notification, attempt: int) -> None:
        """Returns when the receiver has it; else raises PublishFailed. `attempt` counts from 0."""

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""


class ResilientPublisher:
    """A publisher whose publishes are bounded by its timeout and go through a breaker.

    The breaker is in the store, so that all workers of a host share it, operators see it, and it survives a restart.
    Its name contains the host, because a host that has lost its network must not stop the others. If the store does
    not answer in time, the publish goes on without the breaker: it only spares the receiver.
    """

    def __init__(self, settings: ResilientSettings, sender: Sender, once: AsyncClient) -> None:
        self.name = settings.name
        self._settings = settings
        self._sender = sender
        self._slots = asyncio.Semaphore(settings.at_once)
        self._breaker = once.breaker(own(f"publishers/{settings.name}@{socket.gethostname():.200}"), on=_Temporary)

    def wants(self, alert: Alert) -> bool:
        """True if its `match` selects this alert."""
        return self._settings.match.fits(alert)

    async def publish(self, notification: Notification) -> None:
        """Returns when the receiver has it; else raises PublishFailed."""
        until = asyncio.get_running_loop().time() + self._settings.timeout
        async with self._slot(until), self._through_breaker():
            try:
                async with asyncio.timeout_at(until):
                    await self._send(notification, until)
            except TimeoutError:
                raise _Temporary(f"{self.name}: no answer within {self._settings.timeout:g} s") from None

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""
        await self._sender.close()

    async def _send(self, notification: Notification, until: float) -> None:
        """Sends, with quick retries while there are pauses and time left."""
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
                    raise _Temporary(str(failure), retry_after=failure.retry_after) from None
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _slot(self, until: float) -> AsyncIterator[None]:
        """A slot for one publish; PublishFailed, which the breaker does not count, if none becomes free in time."""
        try:
            async with asyncio.timeout_at(until):
                await self._slots.acquire()
        except TimeoutError:
            raise PublishFailed(f"{self.name}: all at_once={self._settings.at_once} slots were in use") from None
        try:
            yield
        finally:
            self._slots.release()

    @asynccontextmanager
    async def _through_breaker(self) -> AsyncIterator[None]:
        """Runs the block through the breaker, which counts its result; PublishFailed if the breaker is open."""
        try:
            async with asyncio.timeout(BREAKER_TIMEOUT):
                await self._breaker.__aenter__()
        except BreakerOpen as refusal:
            raise PublishFailed(f"{self.name}: {refusal}", retry_after=refusal.left) from None
        except (StoreError, TimeoutError) as error:
            log.warning("publisher_breaker_unreachable", publisher=self.name, error=str(error) or "no answer")
            yield
            return
        try:
            yield
        except BaseException as error:
            await self._report(error)
            raise
        await self._report(None)

    async def _report(self, error: BaseException | None) -> None:
        """Reports the result to the breaker."""
        try:
            async with asyncio.timeout(BREAKER_TIMEOUT):
                await self._breaker.__aexit__(type(error) if error else None, error, None)
        except TimeoutError:
            log.warning("publisher_breaker_not_updated", publisher=self.name)


class _Temporary(PublishFailed):
    """A failure that a retry may not meet: what the breaker counts."""
