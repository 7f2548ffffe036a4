"""Parking: what a publisher refused for good, or too often, becomes a dead letter, which people can replay."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import structlog

from ..figures import DEAD_LETTERED
from ..model import FIRING, Notification, own
from ..publishers import PublishFailed
from ..suppression.open_alerts import Openings
from ..worker.tools import Tools
from .fanout import Fanout

log = structlog.get_logger("solely.alerts")

GROUP = own("notifications")  # of the dead letters: named as the outbox, so that what cannot be read there is here


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that one publisher still has to tell; also what a dead letter holds."""

    publisher: str
    notification: Notification

    @property
    def id(self) -> str:
        """The same for every try."""
        return f"{self.notification.id}/{self.publisher}"


class Parking:
    """The dead letters of the alert receiver."""

    def __init__(self, tools: Tools, fanout: Fanout, openings: Openings) -> None:
        self._letters = tools.once.dead_letters(GROUP)
        self._history = tools.history
        self._metrics = tools.metrics
        self._fanout = fanout
        self._openings = openings

    async def park(self, retry: Retry, failure: PublishFailed, attempts: int) -> None:
        """Keeps it as a dead letter; the same one again is the same letter."""
        payload = msgspec.to_builtins(retry)
        await self._letters.push(payload, error=str(failure), id=retry.id, attempts=max(1, attempts))
        self._metrics.count(DEAD_LETTERED, retry.publisher)
        self._history.dead(retry.notification, retry.publisher, str(failure))

    async def park_unreadable(self, id: str, payload: Any, error: Exception) -> None:
        """Keeps what waited in a queue of ours and is no notification, so that nothing is lost."""
        log.error("alert_unreadable", id=id, error=str(error))
        await self._letters.push(payload if not isinstance(payload, bytes) else payload.hex(), error=error, id=id)

    async def replay(self, payload: Any) -> str:
        """Publishes what a dead letter holds, under the same id; PublishFailed if that fails again."""
        retry = msgspec.convert(payload, Retry)
        failure = await self.tell(retry)
        if failure is not None:
            raise failure
        if retry.notification.alert.status == FIRING:  # it may be that nobody had been told before
            await self._openings.opened(retry.notification.alert, retry.notification.reminder)
        return retry.notification.id

    async def tell(self, retry: Retry) -> PublishFailed | None:
        """Publishes to the one that was not told; how it failed, or None."""
        started = time.perf_counter()
        failure = await self._fanout.publish_to(retry.publisher, retry.notification)
        if failure is None:
            self._history.published(retry.notification, {retry.publisher: "ok"}, time.perf_counter() - started)
        return failure
